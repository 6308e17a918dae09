//! The files of the page, compiled into the binary so that it needs no installation.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::borrow::Cow;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal: $kind:ident,)+) => {
        const FILES: &[(&str, &str, &str)] =
            &[$((concat!("/", $path), $kind, include_str!(concat!("../assets/", $path))),)+];
    };
}

files! {
    "index.html": HTML,
    "style.css": CSS,
    "icon.svg": PICTURE,
    "main.js": SCRIPT,
    "dom.js": SCRIPT,
    "api.js": SCRIPT,
    "colours.js": SCRIPT,
    "run.js": SCRIPT,
    "film.js": SCRIPT,
    "diagram.js": SCRIPT,
    "paint.js": SCRIPT,
    "map.js": SCRIPT,
    "inside.js": SCRIPT,
    "code.js": SCRIPT,
    "player.js": SCRIPT,
    "drive.js": SCRIPT,
    "figures.js": SCRIPT,
    "gallery.js": SCRIPT,
    "check.js": SCRIPT,
    "compare.js": SCRIPT,
    "quiz.js": SCRIPT,
    "lessons.js": SCRIPT,
    "menus.js": SCRIPT,
    "share.js": SCRIPT,
    "lecture.js": SCRIPT,
}

/// The scripts of a saved run, which needs no server; concatenated in this order.
const LECTURE: &[&str] = &[
    "/dom.js",
    "/colours.js",
    "/film.js",
    "/paint.js",
    "/diagram.js",
    "/map.js",
    "/inside.js",
    "/code.js",
    "/player.js",
    "/lecture.js",
];

/// Serves a file of the page.
pub async fn serve(uri: Uri) -> Response {
    let path = if uri.path() == "/" { "/index.html" } else { uri.path() };
    if path == "/lecture.html" {
        return answer(HTML, lecture());
    }
    match text_of(path) {
        Some((kind, text)) => answer(kind, text.into_owned()),
        None => (StatusCode::NOT_FOUND, "not found").into_response(),
    }
}

fn answer(kind: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// A file of the page: its content type and text.
fn text_of(path: &str) -> Option<(&'static str, Cow<'static, str>)> {
    let (_, kind, text) = FILES.iter().find(|(known, _, _)| *known == path)?;
    Some((kind, fresh(path).map_or(Cow::Borrowed(*text), Cow::Owned)))
}

/// For development of the page: reads its files from a folder at run time. Only in debug builds.
fn fresh(path: &str) -> Option<String> {
    let folder = std::env::var_os("LOCKKEEPER_PAGE_FILES").filter(|_| cfg!(debug_assertions))?;
    std::fs::read_to_string(std::path::Path::new(&folder).join(path.trim_start_matches('/'))).ok()
}

/// The page that a user saves for a lecture: one HTML file with the player, and placeholders for the title and the
/// recorded run. The scripts are concatenated, without imports and exports.
fn lecture() -> String {
    let style = text_of("/style.css").map(|(_, text)| text).unwrap_or_default();
    let scripts: Vec<String> =
        LECTURE.iter().filter_map(|path| text_of(path)).map(|(_, text)| without_modules(&text)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>TITLE_OF_THE_RUN</title>\n\
         <style>\n{style}\n</style>\n<body class=\"lecture\">\n<div id=\"app\"></div>\n\
         <script id=\"the-run\" type=\"application/json\">THE_RUN_ITSELF</script>\n\
         <script>\n\"use strict\";\n(() => {{\n{}\n}})();\n</script>\n</body>\n</html>\n",
        scripts.join("\n")
    )
}

/// The text of a module without its imports and exports, to be concatenated with the others.
fn without_modules(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("import "));
    let lines = lines.map(|line| line.strip_prefix("export ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn page_loads_nothing_from_other_hosts() {
        for (path, _, text) in FILES {
            let outside = text.replace("http://www.w3.org/", "");
            assert!(!outside.contains("://"), "{path} refers to another host");
        }
    }

    #[test]
    fn modules_import_only_what_is_served() {
        for (path, kind, text) in FILES {
            for line in text.lines().filter(|line| *kind == SCRIPT && line.starts_with("import ")) {
                let name = line.rsplit('"').nth(1).and_then(|from| from.strip_prefix('.'));
                assert!(name.is_some_and(|name| text_of(name).is_some()), "{path}: {line}");
            }
        }
    }

    /// The scripts of a saved page share one scope.
    #[test]
    fn saved_page_declares_no_name_twice() {
        let mut seen = BTreeSet::new();
        let page = lecture();
        for line in page.lines() {
            let declared =
                ["const ", "function ", "class ", "let "].iter().find_map(|word| line.strip_prefix(word));
            let Some(rest) = declared else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(name.is_empty() || seen.insert(name.clone()), "{name} is declared twice");
        }
        assert!(seen.contains("Player"));
        assert!(!page.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
    }
}
