//! Entry points for fuzzing. Each parses its input as the library does, and panics if a property does not hold. The
//! target is in `/fuzz`, with seeds in `/fuzz/seeds`.

use super::EngineUrl;

/// Checks that neither a URL nor an error about it shows the part before its last `@`.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let url = EngineUrl::from(text);
    let mut shown = vec![url.to_string(), format!("{url:?}"), super::redact(text)];
    shown.extend(url.refuse_ambiguous().err().map(|error| format!("{error} {error:?}")));
    #[cfg(any(
        feature = "cluster",
        feature = "etcd",
        feature = "mysql",
        feature = "redis",
        feature = "zookeeper"
    ))]
    shown.extend(
        super::servers::Servers::parse(&url, 1, &["ca", "unfenced"])
            .err()
            .map(|error| format!("{error} {error:?}")),
    );
    // Files that the URL names are not opened: fuzzing would read devices.
    #[cfg(feature = "cluster")]
    if !["ca=", "cert=", "key=", "token-file=", "password-file="].iter().any(|option| text.contains(option)) {
        shown.extend(super::cluster::parse_error(&url).map(|error| format!("{error} {error:?}")));
    }
    assert!(!shown[0].chars().any(char::is_control), "{:?}", shown[0]);
    let Some((scheme, rest)) = text.split_once("://") else { return };
    let Some((secret, after)) = rest.rsplit_once('@') else { return };
    // The check is skipped if the secret also occurs where a scheme or a host belongs.
    if secret.contains("s3cr3t") && !scheme.contains("s3cr3t") && !after.contains("s3cr3t") {
        for text in &shown {
            assert!(!text.contains("s3cr3t"), "{url:?} is shown as {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    /// Tries every prefix of each seed, and each seed with one character replaced by a character that has a meaning
    /// in URLs.
    #[test]
    fn changed_urls_never_panic_or_show_their_secret() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/url");
        for file in std::fs::read_dir(folder).expect("the target has seeds") {
            let seed = std::fs::read(file.unwrap().path()).unwrap();
            for at in 0..=seed.len() {
                super::url(&seed[..at]);
                for odd in
                    [&b"@"[..], b"/", b"?", b"#", b":", b"%40", b"[", b"\n", b",", b"\xff", b"\xc3\xa9"]
                {
                    super::url(&[&seed[..at], odd, &seed[at..]].concat());
                    super::url(&[&seed[..at], odd, seed.get(at + 1..).unwrap_or_default()].concat());
                }
            }
        }
    }
}
