//! The password, from the places where libpq looks for it.

use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::UrlOptions;
use std::path::Path;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Sets the password of one host, if the URL has none: from the file of `password-file`, from `PGPASSWORD`, or from the
/// line for this host in the file of `passfile`, of `PGPASSFILE`, or in `~/.pgpass`.
pub(super) fn complete(url: &EngineUrl, options: &UrlOptions, host: &mut Config) -> Result<()> {
    let given = host.get_password().map(|password| String::from_utf8_lossy(password).into_owned());
    let environment = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
    if let Some(password) = options.password(url, given, environment)? {
        host.password(password);
        return Ok(());
    }
    let (file, named) = match options.file(url, "passfile")? {
        Some(file) => (file.to_owned(), true),
        None => match std::env::var_os("PGPASSFILE").filter(|file| !file.is_empty()) {
            Some(file) => (file.into(), true),
            None => match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
                Some(home) => (Path::new(&home).join(".pgpass"), false),
                None => return Ok(()),
            },
        },
    };
    if !named && !file.exists() {
        return Ok(());
    }
    let lines = lockkeeper_files::read_secret_text(&file).map_err(|error| {
        url.bad(format!("cannot read the file of passwords (passfile, PGPASSFILE or ~/.pgpass): {error}"))
    })?;
    if let Some(password) = find(&lines, &wanted(host)) {
        host.password(password);
    }
    Ok(())
}

/// Host, port, database and user, as a line of the file names them.
fn wanted(config: &Config) -> [String; 4] {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        // A socket in its usual place.
        Some(Host::Unix(path))
            if ["/var/run/postgresql", "/run/postgresql", "/tmp"]
                .iter()
                .any(|usual| path == Path::new(usual)) =>
        {
            "localhost".into()
        }
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let user = config.get_user().map_or_else(|| std::env::var("USER").unwrap_or_default(), str::to_owned);
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    [host, port, database, user]
}

/// The password of the first line `host:port:database:user:password` that fits; `*` fits everything.
fn find(lines: &str, wanted: &[String; 4]) -> Option<String> {
    lines.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let fits = wanted.iter().all(|wanted| {
            fields.next().is_some_and(|(field, escaped)| field == *wanted || field == "*" && !escaped)
        });
        fields.next().filter(|_| fits).map(|(password, _)| password)
    })
}

/// The five fields of a line, each with whether it has an escaped character: `\:` and `\\` stand for `:` and `\`. The
/// password is the rest of the line.
fn fields(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), false)];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            '\\' => {
                fields[last].0.extend(characters.next());
                fields[last].1 = true;
            }
            ':' if fields.len() < 5 => fields.push((String::new(), false)),
            other => fields[last].0.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let lines = "# comment\ndb:5432:app:me:one\ndb:*:*:me:two:with\\:colons\\\\\n[::1\n\\*:*:*:*:escaped\n*:*:*:ada:three\n";
        let find = |host: &str, port: &str, database: &str, user: &str| {
            find(lines, &[host, port, database, user].map(String::from))
        };
        assert_eq!(find("db", "5432", "app", "me").as_deref(), Some("one"));
        assert_eq!(find("db", "5433", "app", "me").as_deref(), Some("two:with:colons\\"));
        assert_eq!(find("other", "1", "x", "ada").as_deref(), Some("three"));
        assert_eq!(find("*", "1", "x", "y").as_deref(), Some("escaped"));
        assert_eq!(find("other", "1", "x", "me"), None);
    }
}
