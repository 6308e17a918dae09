//! Certificates for servers and clients under test, as PEM files in a directory of their own.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The names in a server's certificate.
pub const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate with its private key, as files. Only their owner can read the key.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A certificate authority with the certificates that tests need. Dropping it removes the files.
pub struct Certificates {
    directory: TempDir,
    authority: PathBuf,
    name: DistinguishedName,
    key: KeyPair,
}

impl Certificates {
    /// Creates an authority.
    pub fn new() -> Certificates {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Authority of a test");
        let name = params.distinguished_name.clone();
        let authority = directory.path().join("ca.pem");
        let pem = params.self_signed(&key).expect("it signs itself").pem();
        write(&authority, &pem, 0o644);
        Certificates { directory, authority, name, key }
    }

    /// The file with the authority's certificate.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// A certificate of a server on this machine: see [`LOCAL`].
    pub fn server(&self) -> Files {
        self.issue("server", params(&LOCAL))
    }

    /// The certificate of a server on this machine that expired in 2002.
    pub fn expired(&self) -> Files {
        let mut params = params(&LOCAL);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.issue("expired", params)
    }

    /// The certificate of a server on another host, `elsewhere.example`.
    pub fn elsewhere(&self) -> Files {
        self.issue("elsewhere", params(&["elsewhere.example"]))
    }

    /// The certificate of a client with this common name.
    pub fn client(&self, name: &str) -> Files {
        self.issue(&format!("client-{name}"), params(&[name]))
    }

    /// Issues a certificate, which servers and clients can use, and writes it and its key into `NAME.pem` and
    /// `NAME.key`.
    fn issue(&self, name: &str, mut params: CertificateParams) -> Files {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let mut own = CertificateParams::default();
        own.distinguished_name = self.name.clone();
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&own, &self.key);
        let pem = params.signed_by(&key, &issuer).expect("the authority signs").pem();
        let file = |ending: &str| self.directory.path().join(format!("{name}.{ending}"));
        let files = Files { certificate: file("pem"), key: file("key") };
        write(&files.certificate, &pem, 0o644);
        write(&files.key, &key.serialize_pem(), 0o600);
        files
    }
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
    let mut params = CertificateParams::new(names.clone()).expect("valid names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names[0].as_str());
    params
}

/// Writes a file that has its mode from the beginning. Replaces an older one.
fn write(path: &Path, text: &str, mode: u32) {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file is written");
}
