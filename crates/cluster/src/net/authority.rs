//! The cluster's own certificate authority. Its key decides which processes can be members.

use super::tls::name_of;
use lockkeeper_member::MemberId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file of the authority's certificate, which every member needs.
pub const CERTIFICATE_FILE: &str = "authority.pem";
/// The file of the authority's key, which no member needs.
pub const KEY_FILE: &str = "authority.key";
const NAME: &str = "Lockkeeper cluster authority";

/// The reason why a certificate authority cannot be used, or does not issue a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The authority's key cannot be used.
    #[error("the key in {folder} cannot be used: {source}")]
    Key {
        /// The directory of the authority.
        folder: PathBuf,
        /// The defect of the key.
        source: rcgen::Error,
    },
    /// A further name of a certificate is the name of a member.
    #[error("{name:?} is a member's name: a certificate names one member and no other")]
    MemberName {
        /// The name of a member that was requested.
        name: String,
    },
    /// A certificate cannot contain these names.
    #[error("these cannot be names in a certificate: {names:?} ({source})")]
    Names {
        /// The requested names.
        names: Vec<String>,
        /// The error of the first invalid name.
        source: rcgen::Error,
    },
    /// No key can be created.
    #[error("no key can be made: {0}")]
    NewKey(#[source] rcgen::Error),
    /// A certificate cannot be signed.
    #[error("no certificate can be signed: {0}")]
    Sign(#[source] rcgen::Error),
}

/// A certificate authority for members. All periods of validity are in whole days.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    key: KeyPair,
}

/// The certificate and key of one member.
#[derive(Clone)]
pub struct Issued {
    /// The certificate in PEM.
    pub certificate: String,
    /// The private key in PEM, which must be kept secret.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority with a new key, valid for this many days.
    pub fn create(days: u32) -> Result<Self, AuthorityError> {
        let key = new_key()?;
        let mut params = params(Vec::new(), days)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = authority_name();
        let certificate = params.self_signed(&key).map_err(AuthorityError::Sign)?.pem();
        Ok(Self { certificate, key })
    }

    /// Loads the authority that [`save`](Self::save) wrote into this directory.
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|source| AuthorityError::Read { path, source })
        };
        let (certificate, key) = (read(CERTIFICATE_FILE)?, read(KEY_FILE)?);
        let key = KeyPair::from_pem(&key)
            .map_err(|source| AuthorityError::Key { folder: folder.to_path_buf(), source })?;
        Ok(Self { certificate, key })
    }

    /// Writes certificate and key into a directory. Refuses to replace existing files: every certificate issued before
    /// would become invalid.
    pub fn save(&self, folder: &Path) -> Result<(), AuthorityError> {
        write_new(&folder.join(CERTIFICATE_FILE), &self.certificate, 0o644)?;
        write_new(&folder.join(KEY_FILE), &self.key.serialize_pem(), 0o600)
    }

    /// The certificate that members trust, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a member, with a new key. `more` contains further names and addresses for tools that
    /// require them.
    pub fn issue(&self, member: MemberId, more: &[String], days: u32) -> Result<Issued, AuthorityError> {
        if let Some(other) = more.iter().find(|name| name.ends_with(".lockkeeper")) {
            return Err(AuthorityError::MemberName { name: other.clone() });
        }
        let names = std::iter::once(name_of(member)).chain(more.iter().cloned()).collect();
        self.sign(params(names, days)?)
    }

    pub(super) fn sign(&self, mut params: CertificateParams) -> Result<Issued, AuthorityError> {
        let key = new_key()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let mut own = CertificateParams::default();
        own.distinguished_name = authority_name();
        let issuer = Issuer::from_params(&own, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(AuthorityError::Sign)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

impl Issued {
    /// Writes `member-<id>.pem` and `member-<id>.key` into a directory, and returns their paths. Replaces existing
    /// files: a certificate is renewed by issuing another one.
    pub fn save(&self, folder: &Path, member: MemberId) -> Result<(PathBuf, PathBuf), AuthorityError> {
        let certificate = folder.join(format!("member-{}.pem", member.0));
        let key = folder.join(format!("member-{}.key", member.0));
        replace(&key, &self.key, 0o600)?;
        replace(&certificate, &self.certificate, 0o644)?;
        Ok((certificate, key))
    }
}

fn params(names: Vec<String>, days: u32) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::new(names.clone())
        .map_err(|source| AuthorityError::Names { names: names.clone(), source })?;
    let now = std::time::SystemTime::now();
    // Members' clocks differ a little: a certificate must not be rejected because it is not valid yet.
    let hour = std::time::Duration::from_secs(3600);
    params.not_before = (now - hour).into();
    params.not_after = (now + 24 * hour * days).into();
    if let Some(name) = names.first() {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    Ok(params)
}

fn authority_name() -> rcgen::DistinguishedName {
    let mut name = rcgen::DistinguishedName::new();
    name.push(DnType::CommonName, NAME);
    name
}

fn new_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate().map_err(AuthorityError::NewKey)
}

/// Writes a new file. It is created with its final mode, so that no other user can read a key before it is protected.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let new = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    new.and_then(|mut file: File| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    })
    .map_err(|source| AuthorityError::Write { path: path.to_path_buf(), source })
}

fn replace(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let new = path.with_extension("new");
    // Remove the file of an attempt that was interrupted.
    let _ = std::fs::remove_file(&new);
    write_new(&new, text, mode)?;
    std::fs::rename(&new, path).map_err(|source| AuthorityError::Write { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::{Pem, Ready, Tls, TlsError};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn saved_authority_can_be_loaded_and_issues_valid_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        Authority::create(30).unwrap().save(folder).unwrap();
        let (certificate, key) = Authority::load(folder)
            .unwrap()
            .issue(MemberId(7), &["db.example".into(), "127.0.0.1".into()], 30)
            .unwrap()
            .save(folder, MemberId(7))
            .unwrap();
        for secret in [folder.join(KEY_FILE), key.clone()] {
            assert_eq!(std::fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let file = |name: &Path| Pem::File(name.to_path_buf());
        let tls = Tls {
            authority: file(&folder.join(CERTIFICATE_FILE)),
            certificate: file(&certificate),
            key: file(&key),
        };
        Ready::new(&tls, MemberId(7)).unwrap();
        let refused = Ready::new(&tls, MemberId(8)).unwrap_err();
        assert!(matches!(refused, TlsError::OtherMember { me: MemberId(8) }), "{refused}");
        assert!(refused.to_string().contains("must name member-8.lockkeeper"), "{refused}");
    }

    #[test]
    fn an_authority_is_not_replaced_by_accident() {
        let folder = tempfile::tempdir().unwrap();
        Authority::create(1).unwrap().save(folder.path()).unwrap();
        let refused = Authority::create(1).unwrap().save(folder.path()).unwrap_err();
        assert!(
            matches!(&refused, AuthorityError::Write { path, .. } if path.ends_with(CERTIFICATE_FILE)),
            "{refused}"
        );
        let source = std::error::Error::source(&refused).and_then(|source| source.downcast_ref());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn a_certificate_names_one_member() {
        let authority = Authority::create(1).unwrap();
        let refused = authority.issue(MemberId(1), &["member-2.lockkeeper".into()], 1).unwrap_err();
        assert!(matches!(refused, AuthorityError::MemberName { .. }), "{refused}");
    }
}
