//! URLs in error messages and logs: without passwords and tokens, also where the URL is malformed.

/// Options whose values are shown. All others may be secrets.
const HARMLESS: [&str; 11] = [
    "application_name",
    "ca",
    "cert",
    "connect_timeout",
    "dbname",
    "in-order",
    "keep",
    "key",
    "sslmode",
    "token-file",
    "unfenced",
];

/// The URL without what may be a secret: everything between the scheme and the last `@`, and the values of options that are not known to
/// be harmless.
///
/// `redis://u:se/cret@h/0?password=x` becomes `redis://***@h/0?password=***`.
pub(crate) fn without_password(url: &str) -> String {
    let (scheme, rest) = split_scheme(url);
    // A password that contains a slash or a question mark ends the authority too early for a parser, so that any `@` may be the one
    // that ends the password. An encoded one may be a mistake.
    let (hidden, shown) = match rest.rfind('@').max(rest.rfind("%40").map(|at| at + 2)) {
        Some(at) => ("***@", &rest[at + 1..]),
        None => ("", rest),
    };
    let (address, options) = match shown.split_once('?') {
        Some((address, options)) => (address, format!("?{}", harmless(options))),
        None => (shown, String::new()),
    };
    // Parts after `#` mean nothing to any engine.
    let address = address.split_once('#').map_or(address.into(), |(address, _)| format!("{address}#***"));
    format!("{scheme}{hidden}{address}{options}")
}

/// The scheme with what separates it from the rest. Without `//` it ends at the first colon.
fn split_scheme(url: &str) -> (&str, &str) {
    let scheme_end = match (url.find("://"), url.find(':')) {
        (Some(at), Some(colon)) if at == colon => at + 3,
        (_, Some(colon)) => colon + 1,
        (_, None) => 0,
    };
    // No scheme has other characters: then it is something else, which may be secret.
    let is_scheme =
        url[..scheme_end].trim_end_matches(['/', ':']).bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_scheme { url.split_at(scheme_end) } else { ("", url) }
}

/// Options with the values that are known to be harmless.
fn harmless(options: &str) -> String {
    let shown = options.split('&').map(|option| match option.split_once('=') {
        Some((name, value)) if HARMLESS.contains(&name) && !value.contains([';', '#']) => option.into(),
        Some((name, _)) => format!("{}=***", name.split([';', '#', '?']).next().unwrap_or_default()),
        None if HARMLESS.contains(&option) => option.into(),
        None => String::from("***"),
    });
    shown.collect::<Vec<String>>().join("&")
}

/// Whether a parser may take a part of a password for something else: an `@` comes after the first `/`, `?` or `#`.
pub(super) fn is_ambiguous(url: &str) -> bool {
    let (_, rest) = split_scheme(url);
    rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@') || rest[end..].contains("%40"))
}

/// A reason without the parts of the URL that it quotes in backquotes.
pub(super) fn without_quotes(reason: &str) -> String {
    let parts = reason.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 1 { "`…`" } else { part }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_harmless_options_are_shown() {
        for url in [
            "nonsense",
            "file:///var/lib/locks",
            "postgres://h/db?sslmode=require",
            "redis://a:1,b:2?unfenced",
            "lockkeeper://a,b:7421?ca=/etc/ca.pem&in-order&token-file=/run/token",
        ] {
            assert_eq!(without_password(url), url);
        }
        assert_eq!(without_password("redis://u:secret@h:1/0"), "redis://***@h:1/0");
        assert_eq!(
            without_password("postgres://h/db?password=x&dbname=y"),
            "postgres://h/db?password=***&dbname=y"
        );
    }

    /// `hunter2` is the secret, or the two halves of one.
    #[test]
    fn passwords_never_reach_messages() {
        for url in [
            "redis://u:hunter2@h",
            "redis://u:hun/ter2@h",
            "redis://u:hun@ter2@h",
            "redis://u:hun/ter2@h/0",
            "redis://u:hun?ter2@h",
            "redis://u:hun#ter2@h",
            "redis://u:hun/t@er2@h:6379/0",
            "redis://:hunter2@h",
            "redis://hunter2@h",
            "redis:u:hunter2@h",
            "redis:/u:hunter2@h",
            "redis:///u:hunter2@h",
            "redis://u:hunter2@",
            "u:hunter2@h",
            "hunter2@h",
            "//u:hunter2@h",
            "redis ://u:hunter2@h",
            "redis://u:hun://ter2@h",
            "redis://u:hunter2%40h",
            "redis://u:hun[ter2@h]",
            "redis://u:hun\nter2@h",
            "redis://h?password=hunter2",
            "redis://h/0?PASSWORD=hunter2",
            "redis://h?pass%77ord=hunter2",
            "postgres://h/db?user=u&password=hun&ter2",
            "postgres://h/db?password=hun/ter2@x&sslmode=require",
            "postgres://h/db?sslmode=x;password=hunter2",
            "lockkeeper://h?token=hunter2",
            "lockkeeper://h?hunter2",
            "lockkeeper://token:hun?ter2@h?ca=/x",
            "etcd://u:hun/ter2@h1,h2/path",
            "etcd://h/#hunter2",
        ] {
            let shown = without_password(url);
            assert!(!shown.contains("hun") && !shown.contains("er2"), "{url:?} is shown as {shown:?}");
        }
    }

    /// The parts of a URL that an engine quotes in its error.
    #[tokio::test]
    async fn errors_about_malformed_urls_quote_no_part_of_a_password() {
        let malformed = [
            "u:hun/ter2@h",
            "u:hun?ter2@h",
            "u:hun#ter2@h",
            "u:hun ter2@h",
            "hun:ter2:hun@h:x",
            "u:12/hunter2@h:x",
        ];
        for scheme in ["redis", "etcd", "zookeeper", "postgres", "lockkeeper", "gopher", "file"] {
            for rest in malformed {
                let url = format!("{scheme}://{rest}");
                // Those that reach a server fail later, for another reason.
                let opened =
                    tokio::time::timeout(std::time::Duration::from_millis(1), crate::engine::open(&url));
                let Ok(Err(error)) = opened.await else { continue };
                let text = format!("{error} {error:?}");
                assert!(!text.contains("hun") && !text.contains("ter2"), "{url}: {text}");
            }
        }
    }
}
