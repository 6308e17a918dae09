//! Periodic work: dropping the state of clients that have disconnected, writing combined refusals to the audit log,
//! reloading changed files.

use crate::config::ClientTls;
use crate::context::DaemonContext;
use crate::listen::Tls;
use crate::native::Clients;
use crate::tls::ClientTlsError;
use lockkeeper_cluster::Pem;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

/// Period of the work. A removed token must be useless within a second.
const PERIOD: Duration = Duration::from_millis(500);
/// Period over which refusals of one kind are combined into one line.
const REFUSAL_PERIOD: Duration = Duration::from_secs(1);

/// The TLS acceptors of the client ports.
pub(crate) struct Certificates {
    files: ClientTls,
    pub native: Tls,
    pub http: Tls,
}

impl Certificates {
    pub fn read(files: &ClientTls) -> Result<Self, ClientTlsError> {
        let lock = |alpn| Ok::<_, ClientTlsError>(Arc::new(RwLock::new(crate::tls::acceptor(files, alpn)?)));
        Ok(Self { files: files.clone(), native: lock(crate::tls::NATIVE)?, http: lock(crate::tls::HTTP)? })
    }

    fn reload(&self) -> Result<(), ClientTlsError> {
        let (native, http) = (
            crate::tls::acceptor(&self.files, crate::tls::NATIVE)?,
            crate::tls::acceptor(&self.files, crate::tls::HTTP)?,
        );
        *self.native.write().unwrap_or_else(|e| e.into_inner()) = native;
        *self.http.write().unwrap_or_else(|e| e.into_inner()) = http;
        Ok(())
    }

    /// The time at which the first certificate expires: the daemon's own, or that of the clients' authority.
    fn first_expiry(&self) -> Option<i64> {
        let ClientTls { certificate, client_authority, .. } = self.files.clone();
        crate::tls::first_expiry(
            &[Some(certificate), client_authority].into_iter().flatten().collect::<Vec<_>>(),
        )
    }

    fn paths(&self) -> Vec<PathBuf> {
        let ClientTls { certificate, key, client_authority } = self.files.clone();
        [Some(certificate), Some(key), client_authority].into_iter().flatten().collect()
    }
}

/// Inode, length and modification time of a file, if they can be read. A change of the file changes its version.
type FileVersion = Option<(u64, u64, SystemTime)>;

/// Files that are reloaded when they change.
struct WatchedFiles {
    paths: Vec<PathBuf>,
    seen: Vec<FileVersion>,
}

impl WatchedFiles {
    fn new(paths: Vec<PathBuf>) -> Self {
        let mut watched = Self { paths, seen: Vec::new() };
        watched.have_changed();
        watched
    }

    /// Whether a file has changed since the previous call.
    fn have_changed(&mut self) -> bool {
        let version = |path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.ino(), file.len(), file.modified().ok()?))
        };
        let now: Vec<FileVersion> = self.paths.iter().map(version).collect();
        now != std::mem::replace(&mut self.seen, now.clone())
    }
}

/// Runs for as long as the daemon does.
pub(crate) async fn run_maintenance(
    context: Arc<DaemonContext>,
    clients: Arc<Clients>,
    tls: Option<Certificates>,
) {
    let config = context.member.config();
    let mut tokens = WatchedFiles::new(context.access.file().map(PathBuf::from).into_iter().collect());
    let mut for_clients = WatchedFiles::new(tls.as_ref().map(Certificates::paths).unwrap_or_default());
    let pem = |pem: &Pem| if let Pem::File(path) = pem { Some(path.clone()) } else { None };
    let certified = config.tls.iter().flat_map(|tls| [&tls.authority, &tls.certificate]);
    let certified: Vec<PathBuf> = certified.filter_map(pem).collect();
    let keys = config.tls.iter().filter_map(|tls| pem(&tls.key));
    let mut for_members = WatchedFiles::new(certified.iter().cloned().chain(keys).collect());
    let metrics = clients.service().metrics().clone();
    let clients_expire =
        || metrics.certificates_expire("clients", tls.as_ref().and_then(Certificates::first_expiry));
    let members_expire = || metrics.certificates_expire("members", crate::tls::first_expiry(&certified));
    clients_expire();
    members_expire();
    let (mut rights, mut checked_at) = (context.access.changes(), SystemTime::now());
    loop {
        tokio::time::sleep(PERIOD).await;
        // The holds of a client may be promised for their whole time to live.
        let longest_ttl = Duration::from_nanos(context.member.settings().longest_ttl_ns);
        clients.forget(context.member.lease() * 3 + longest_ttl);
        context.audit.write_counted_refusals(REFUSAL_PERIOD);
        clients.service().forget_idle_principals();
        if tokens.have_changed() {
            let _ = report("tokens", context.access.reload());
        }
        let now = SystemTime::now();
        context.access.notify_expired(std::mem::replace(&mut checked_at, now), now);
        if rights.has_changed().is_ok_and(|changed| changed) {
            rights.mark_unchanged();
            clients.service().leases.follow_rights();
        }
        // If files cannot be used, the expiry stays that of the certificates in use.
        if for_clients.have_changed()
            && report("certificates for clients", tls.as_ref().map_or(Ok(()), Certificates::reload))
        {
            clients_expire();
        }
        if for_members.have_changed()
            && report("certificates of members", context.member.reload_certificates())
        {
            members_expire();
        }
    }
}

/// Logs the result of a reload, and returns whether it succeeded.
fn report<E: std::error::Error>(what: &str, read: Result<(), E>) -> bool {
    match &read {
        Ok(()) => tracing::info!(what, "reloaded"),
        Err(error) => tracing::error!(what, %error, "cannot be reloaded; the previous version stays in use"),
    }
    read.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_cluster::{Authority, MemberId};

    #[test]
    fn first_expiry_is_that_of_the_shortest_certificate() {
        let data = tempfile::tempdir().unwrap();
        let authority = Authority::create(100).unwrap();
        authority.save(data.path()).unwrap();
        let issued = authority.issue(MemberId(1), &["localhost".into()], 30).unwrap();
        let (certificate, key) = issued.save(data.path(), MemberId(1)).unwrap();
        let root = data.path().join(lockkeeper_cluster::authority::CERTIFICATE_FILE);
        let days = |files: &[PathBuf]| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            crate::tls::first_expiry(files).map(|expiry| (expiry - now as i64 + 43_200) / 86_400)
        };
        assert_eq!(days(std::slice::from_ref(&root)), Some(100));
        assert_eq!(days(&[root, certificate.clone()]), Some(30));
        assert_eq!(days(&[]), None);
        assert_eq!(days(&[data.path().join("missing")]), None);
        let files = ClientTls { certificate, key, client_authority: None };
        assert!(Certificates::read(&files).unwrap().first_expiry().is_some());
    }

    #[test]
    fn certificates_that_cannot_be_used_change_nothing() {
        let data = tempfile::tempdir().unwrap();
        let renew = || {
            let issued = Authority::create(1).unwrap().issue(MemberId(1), &["localhost".into()], 1);
            issued.unwrap().save(data.path(), MemberId(1)).unwrap()
        };
        let (certificate, key) = renew();
        let files = ClientTls { certificate: certificate.clone(), key, client_authority: None };
        let certificates = Certificates::read(&files).unwrap();
        let used = || certificates.native.read().unwrap().config().clone();
        let first = used();
        std::fs::write(&certificate, "no certificate").unwrap();
        let refused = certificates.reload().unwrap_err();
        assert!(
            matches!(&refused, ClientTlsError::NoCertificate { path } if *path == certificate),
            "{refused}"
        );
        assert!(Arc::ptr_eq(&first, &used()));
        renew();
        certificates.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &used()));
    }
}
