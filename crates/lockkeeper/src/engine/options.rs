//! The options of an engine's URL, `?ca=FILE&password-file=FILE`, and the files that they name.

use super::url::EngineUrl;
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// The options of [`Tls::of`](super::tls::Tls::of): the authority's certificate, and the client's certificate and key.
pub(crate) const TLS: [&str; 3] = ["ca", "cert", "key"];

/// The option that names a file with the password.
pub(crate) const PASSWORD_FILE: &str = "password-file";

/// The options of a URL, decoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct UrlOptions(BTreeMap<&'static str, String>);

impl UrlOptions {
    /// Parses the part of a URL after the question mark. An option that is not `known` is an error that lists those
    /// that are. No error quotes a part of the URL, as it may be a part of a password.
    pub fn parse(url: &EngineUrl, query: &str, known: &[&'static str]) -> Result<UrlOptions> {
        let mut options = BTreeMap::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                return Err(url.bad(match known {
                    [] => "it has an option, and this engine has none (a `?` in a password is %3F)".into(),
                    _ => format!("it has an unknown option; the options are {}", listed(known)),
                }));
            };
            let value = decoded(value)
                .ok_or_else(|| url.bad(format!("its option `{name}` is not valid percent-encoded UTF-8")))?;
            if options.insert(*name, value).is_some() {
                return Err(url.bad(format!("it has the option `{name}` twice")));
            }
        }
        Ok(UrlOptions(options))
    }

    /// The value of an option; empty for an option without one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether an option without a value is given.
    pub fn flag(&self, url: &EngineUrl, name: &str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some("") => Ok(true),
            Some(_) => Err(url.bad(format!("its option `{name}` takes no value"))),
        }
    }

    /// The file that an option names.
    pub fn file(&self, url: &EngineUrl, name: &str) -> Result<Option<&Path>> {
        match self.get(name) {
            Some("") => Err(url.bad(format!("its option `{name}` needs the name of a file"))),
            value => Ok(value.map(Path::new)),
        }
    }

    /// The text of the file that an option names, which other users must not be able to read.
    pub fn secret(&self, url: &EngineUrl, name: &str) -> Result<Option<String>> {
        let Some(file) = self.file(url, name)? else { return Ok(None) };
        // The message leaves out the path, which the URL shows: a value that is not a path may be a misplaced secret.
        let text = lockkeeper_files::read_secret_text(file);
        text.map(Some).map_err(|error| url.bad(format!("cannot read its {name}: {error}")))
    }

    /// The password: from the URL, from the file of the option `password-file`, or else from the environment.
    pub fn password(
        &self,
        url: &EngineUrl,
        given: Option<String>,
        environment: Option<String>,
    ) -> Result<Option<String>> {
        match (given, self.secret(url, PASSWORD_FILE)?) {
            (Some(_), Some(_)) => Err(url.bad("it has a password and a password-file; leave one out")),
            (given, file) => Ok(given.or(file).or(environment)),
        }
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).into(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Decodes percent-encoding: `%40` is `@`.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn parse(query: &str) -> Result<UrlOptions> {
        let url = format!("redis://h?{query}");
        UrlOptions::parse(&url.into(), query, &["ca", "unfenced", "password-file"])
    }

    #[test]
    fn options_are_decoded() {
        let url = EngineUrl::from("redis://h");
        let options = parse("ca=/etc/my%20ca.pem&unfenced&").unwrap();
        assert_eq!(options.file(&url, "ca").unwrap(), Some(Path::new("/etc/my ca.pem")));
        assert!(options.flag(&url, "unfenced").unwrap());
        assert_eq!(options.get("password-file"), None);
        assert!(parse("").unwrap() == UrlOptions::default());
    }

    #[test]
    fn each_invalid_option_is_rejected_with_its_own_message() {
        let url = EngineUrl::from("redis://h");
        for (query, part) in [
            ("x=s3cr3t", "the options are ca, unfenced and password-file"),
            ("CA=x", "unknown option"),
            ("ca=%zz", "percent-encoded"),
            ("ca=a&ca=b", "`ca` twice"),
        ] {
            let error = parse(query).err().unwrap().to_string();
            assert!(error.contains(part) && !error.contains("s3cr3t"), "{query}: {error}");
        }
        let none = UrlOptions::parse(&url, "x", &[]).err().unwrap().to_string();
        assert!(none.contains("has none"), "{none}");
        assert!(parse("ca").unwrap().file(&url, "ca").unwrap_err().to_string().contains("needs the name"));
        assert!(parse("unfenced=1").unwrap().flag(&url, "unfenced").is_err());
    }

    #[test]
    fn a_password_is_from_one_place() {
        let url = EngineUrl::from("redis://h");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "in file\n").unwrap();
        let query = format!("password-file={}", file.path().display());
        let (with, without) = (parse(&query).unwrap(), parse("").unwrap());
        let some = |text: &str| Some(String::from(text));
        assert_eq!(with.password(&url, None, some("env")).unwrap(), some("in file"));
        assert_eq!(without.password(&url, some("in URL"), some("env")).unwrap(), some("in URL"));
        assert_eq!(without.password(&url, None, some("env")).unwrap(), some("env"));
        assert_eq!(without.password(&url, None, None).unwrap(), None);
        assert!(with.password(&url, some("x"), None).unwrap_err().to_string().contains("leave one out"));
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let error = with.password(&url, None, None).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}
