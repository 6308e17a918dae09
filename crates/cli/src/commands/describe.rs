//! Descriptions of holders and waiters. Text that they supplied is escaped, because it goes to a terminal.

use lockkeeper::{Guard, LockInfo, Participant};
use lockkeeper_text::Printable;
use std::time::Duration;

/// The metadata that is shown of holders and waiters: the program and the purpose.
const SHOWN_METADATA: [&str; 2] = ["command", "purpose"];

/// Describes a participant: `pid 123 on host (pg_dump: nightly backup) for 3 s`.
pub fn participant(participant: &Participant) -> String {
    let tag = &participant.tag;
    let kept = match &participant.detached {
        Some(detached) if detached.owner == tag.holder => {
            format!(", kept for at least {} more", age(detached.left()))
        }
        // The hold does not depend on the process that acquired it.
        Some(detached) => {
            let (owner, left) = (Printable(&detached.owner), age(detached.left()));
            return format!("{owner} for {}, and for {left} more unless released", age(participant.age()));
        }
        None => String::new(),
    };
    // A client of the HTTP or etcd API has no known process.
    if tag.pid == 0 {
        return format!("{} for {}", Printable(&tag.holder), age(participant.age()));
    }
    let shown: Vec<&str> =
        SHOWN_METADATA.iter().filter_map(|key| Some(tag.metadata.get(*key)?.as_str())).collect();
    let shown = if shown.is_empty() { String::new() } else { format!(" ({})", Printable(&shown.join(": "))) };
    let (host, age) = (Printable(&tag.host), age(participant.age()));
    format!("pid {} on {host}{shown} for {age}{kept}", tag.pid)
}

/// The fence and the time to live of a hold, if it has them: ` with fence 7, time to live 1200 ms`.
pub fn fence_and_ttl(guard: &Guard) -> String {
    let fence = guard.fence().map(|fence| format!(" with fence {fence}")).unwrap_or_default();
    let ttl = guard.ttl().map(|ttl| format!(", time to live {} ms", ttl.as_millis())).unwrap_or_default();
    format!("{fence}{ttl}")
}

/// A duration, rounded for display.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        0 => format!("{} ms", age.as_millis()),
        s @ 1..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s @ 3600..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// The holders of a lock, on one line.
pub fn holders(info: &LockInfo) -> String {
    match &info.holders[..] {
        [] => "nobody".into(),
        [holder] => self::participant(holder),
        [holder, others @ ..] => format!("{} and {} more", self::participant(holder), others.len()),
    }
}

/// The name of the program, without its folder. The arguments, or a command line for the shell, may contain secrets, and
/// so may a URL in the place of the program, from a command line without `--on`.
pub fn program(command: &[std::ffi::OsString], shell: bool) -> String {
    let program = match command.first() {
        Some(program) if !shell => std::path::Path::new(program),
        _ => std::path::Path::new("sh"),
    };
    let shown = lockkeeper::redact(&program.to_string_lossy());
    let program = std::path::Path::new(&shown);
    one_line(&program.file_name().unwrap_or(program.as_os_str()).to_string_lossy())
}

/// The text on one line, of limited length.
pub fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(200) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn a_program_is_shown_without_its_folder_and_without_secrets() {
        assert_eq!(program(&["/usr/bin/backup".into(), "--key=s3cret".into()], false), "backup");
        assert_eq!(program(&["./backup.sh".into()], false), "backup.sh");
        assert_eq!(program(&["echo s3cret".into()], true), "sh");
        assert_eq!(program(&["redis://user:s3cret@host".into()], false), "***@host");
    }
}
