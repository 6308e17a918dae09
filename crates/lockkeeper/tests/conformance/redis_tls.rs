//! The suite on a Redis server with TLS, client certificates and ACL users, and the errors of wrong credentials.

use crate::backend::{Backend, Server, open};
use crate::redis::Redis;
use crate::worker::Worker;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::{Certificates, Files};
use std::path::Path;

/// A server that accepts clients with a certificate, and the user `locks`.
pub struct RedisTls {
    pub redis: Redis,
    pub certificates: Certificates,
    client: Files,
    password: tempfile::NamedTempFile,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

impl RedisTls {
    /// Returns `None` if there is no redis-server and the user is not root.
    fn start(server: fn(&Certificates) -> Files) -> Option<RedisTls> {
        let certificates = Certificates::new();
        let (own, client) = (server(&certificates), certificates.client("locks"));
        let ca = text(certificates.authority());
        // The user has only the rights that the engine needs.
        let user = "locks on >s3cr3t ~lockkeeper:* &lockkeeper:* +@all -@admin";
        let user: Vec<&str> = user.split(' ').collect();
        let mut options = vec!["--port", "0", "--tls-port", "{port}", "--tls-ca-cert-file", ca];
        options.extend(["--tls-cert-file", text(&own.certificate), "--tls-key-file", text(&own.key)]);
        // Without a password, and disabled. It needs rights: see `docs/engines.md`.
        options.extend(["--user", "default", "off", "~*", "&*", "+@all", "--user"]);
        options.extend(user);
        let mut cli = vec!["--tls", "--cacert", ca, "--cert", text(&client.certificate)];
        // The server's certificate may be a wrong one on purpose.
        cli.extend(["--key", text(&client.key), "--insecure", "--no-auth-warning"]);
        cli.extend(["--user", "locks", "--pass", "s3cr3t"]);
        let redis = Redis::start_with(&options, &cli)?;
        let password = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(password.path(), "s3cr3t\n").unwrap();
        Some(RedisTls { redis, certificates, client, password })
    }

    fn ca(&self) -> &str {
        text(self.certificates.authority())
    }

    fn client(&self) -> String {
        format!("cert={}&key={}", text(&self.client.certificate), text(&self.client.key))
    }
}

impl Backend for RedisTls {
    fn url(&self) -> String {
        let (address, ca, client) = (self.redis.address(), self.ca(), self.client());
        format!("rediss://locks@{address}?ca={ca}&{client}&password-file={}", text(self.password.path()))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.redis)
    }

    fn kills(&self) -> usize {
        self.redis.kills()
    }
}

macro_rules! redis_tls {
    ($server:expr) => {
        match RedisTls::start($server) {
            Some(redis) => redis,
            None => return,
        }
    };
    () => {
        redis_tls!(Certificates::server)
    };
}

crate::conformance! { redis_tls!() }

async fn refused(url: &str) -> Error {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("s3cr3t") && !format!("{error:?}").contains("s3cr3t"), "{error:?}");
    error
}

#[tokio::test]
async fn each_mistake_with_tls_or_credentials_is_explained() {
    let redis = redis_tls!();
    let other = Certificates::new();
    let (address, ca, client) = (redis.redis.address(), redis.ca(), redis.client());
    let (stranger, other_ca) = (other.client("locks"), text(other.authority()));
    let stranger = format!("cert={}&key={}", text(&stranger.certificate), text(&stranger.key));
    for (url, part) in [
        (format!("redis://locks:s3cr3t@{address}"), "uses TLS; write rediss://"),
        (format!("rediss://locks:s3cr3t@{address}?ca={other_ca}&{client}"), "not from an authority"),
        (format!("rediss://locks:s3cr3t@{address}?{client}"), "authority"),
        (format!("rediss://locks:s3cr3t@{address}?ca={ca}"), "requires a certificate of the client"),
        (format!("rediss://locks:s3cr3t@{address}?ca={ca}&{stranger}"), "does not accept the certificate"),
    ] {
        let error = refused(&url).await.to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    for login in ["locks:s3cr3t2@", "other:s3cr3t@", ""] {
        let error = refused(&format!("rediss://{login}{address}?ca={ca}&{client}")).await;
        assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    }
    let locks = open(&redis).await;
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_password_may_be_in_the_environment() {
    let redis = redis_tls!();
    let url = format!("rediss://locks@{}?ca={}&{}", redis.redis.address(), redis.ca(), redis.client());
    refused(&url).await;
    assert!(Worker::acquires(&url, &[("REDISCLI_AUTH", "s3cr3t")]).await);
}

#[tokio::test]
async fn certificates_of_another_host_or_time_are_explained() {
    for (server, part) in [
        (Certificates::expired as fn(&Certificates) -> Files, "has expired"),
        (Certificates::elsewhere, "for elsewhere.example, and not for 127.0.0.1"),
    ] {
        let redis = redis_tls!(server);
        let error = refused(&redis.url()).await.to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_recognized() {
    let Some(redis) = Redis::start(&[]) else { return };
    let certificates = Certificates::new();
    let (address, ca) = (redis.address(), text(certificates.authority()));
    let error = refused(&format!("rediss://{address}?ca={ca}")).await.to_string();
    assert!(error.contains("TLS at this port?"), "{error}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let options = ["--user", "narrow", "on", ">s3cr3t", "~other:*", "+@all"];
    let Some(redis) = Redis::start(&options) else { return };
    let error = refused(&format!("redis://narrow:s3cr3t@{}", redis.address())).await;
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
}

#[tokio::test]
async fn a_majority_of_servers_with_tls_grants_locks() {
    let certificates = Certificates::new();
    let own = certificates.server();
    let ca = text(certificates.authority());
    let mut options = vec!["--port", "0", "--tls-port", "{port}", "--tls-ca-cert-file", ca];
    options.extend(["--tls-cert-file", text(&own.certificate), "--tls-key-file", text(&own.key)]);
    options.extend(["--tls-auth-clients", "no", "--requirepass", "s3cr3t"]);
    let cli = ["--tls", "--cacert", ca];
    let servers: Option<Vec<Redis>> = (0..3).map(|_| Redis::start_with(&options, &cli)).collect();
    let Some(servers) = servers else { return };
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    let url = format!("rediss://:s3cr3t@{}?unfenced&ca={ca}", addresses.join(","));
    let locks = crate::backend::open_url(&url).await;
    servers[2].stop();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    servers[1].stop();
    let error = refused(&url).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
