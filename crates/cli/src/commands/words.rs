//! Holders and waiters in words. What they said of themselves is escaped: it goes to a terminal.

use lockkeeper::{Guard, LockInfo, Participant};
use lockkeeper_text::Printable;
use std::time::Duration;

/// What holders and waiters publish about themselves: the program, and what it does.
const SAID: [&str; 2] = ["command", "purpose"];

/// `pid 123 on host (pg_dump: nightly backup) for 3 s`.
pub fn who(participant: &Participant) -> String {
    let tag = &participant.tag;
    // A client of HTTP or etcd's API has no process that is known.
    if tag.pid == 0 {
        return format!("{} for {}", Printable(&tag.holder), age(participant.age()));
    }
    let said: Vec<&str> = SAID.iter().filter_map(|key| Some(tag.metadata.get(*key)?.as_str())).collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", Printable(&said.join(": "))) };
    format!("pid {} on {}{said} for {}", tag.pid, Printable(&tag.host), age(participant.age()))
}

/// ` with fence 7, time to live 1200 ms`, as far as the hold has these.
pub fn fence_and_ttl(guard: &Guard) -> String {
    let fence = guard.fence().map(|fence| format!(" with fence {fence}")).unwrap_or_default();
    let ttl = guard.ttl().map(|ttl| format!(", time to live {} ms", ttl.as_millis())).unwrap_or_default();
    format!("{fence}{ttl}")
}

/// Rounded as people do.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        0 => format!("{} ms", age.as_millis()),
        s @ 1..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s @ 3600..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// Who has the lock, for one line.
pub fn held_by(info: &LockInfo) -> String {
    match &info.holders[..] {
        [] => "nobody".into(),
        [holder] => who(holder),
        [holder, others @ ..] => format!("{} and {} more", who(holder), others.len()),
    }
}

/// The name of the program, without its folder. Arguments may be secrets, and so may a command line for the shell.
pub fn program(command: &[std::ffi::OsString], shell: bool) -> String {
    let program = match command.first() {
        Some(program) if !shell => std::path::Path::new(program),
        _ => std::path::Path::new("sh"),
    };
    one_line(&program.file_name().unwrap_or(program.as_os_str()).to_string_lossy())
}

/// A text on one line, and of bounded length.
pub fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(200) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}
