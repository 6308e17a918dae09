//! The format of log lines: text from outside is escaped, so that it cannot forge a line or control a terminal.

use lockkeeper_text::Printable;
use std::fmt::{Debug, Result};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Writes the fields of an event or a span as `name=value`, each escaped.
pub fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    let write = |writer: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn Debug| -> Result {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", Printable(&text)),
            name => write!(writer, "{}={}", name.trim_start_matches("r#"), Printable(&text)),
        }
    };
    debug_fn(write).delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn text_from_outside_stays_on_its_line() {
        let (lines, name) = (Lines::default(), "a\n2026 INFO forged\u{1b}[2J\u{202e}");
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).fmt_fields(fields());
        tracing::subscriber::with_default(log.with_writer(move || writer.clone()).finish(), || {
            let span = tracing::info_span!("acquire", lock = %name);
            span.in_scope(|| tracing::info!(lock = %name, number = 7, text = name, "asked for {name}"));
        });
        let written = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
        assert_eq!(written.lines().count(), 1, "{written}");
        assert!(written.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{written:?}");
        assert!(
            written.contains("number=7") && written.contains(r"lock=a\n2026 INFO forged\u{1b}[2J"),
            "{written}"
        );
    }
}
