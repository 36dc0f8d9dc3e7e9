//! The log on standard error. Only this file writes log lines, so only this file escapes them.
//!
//! ```text
//! 2026-11-23T03:17:18.042Z WARN  switch 2 goes back to 1.0-1 instance=demo-agent from=proving to=stopping-new why="exited with code 1"
//! ```
//!
//! In the journal each line begins with its level instead, as sd-daemon(3) has it: `<4>switch 2 goes back …`. error: a person must act; warn:
//! something failed, and sidle handled it; info: what happens; debug (`--verbose`): how.

use crate::cli::plain::{plain, quoted};
use crate::os::clock;
use crate::os::standard_error::{self, Reader, StandardError};
use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Longest line, bytes: a pipe takes it in one write (4096, pipe(7)), so that no line is torn, and texts from outside can't fill the log.
const LINE_BYTES_MAXIMUM: usize = 4_000;
/// Longest value of a field, bytes: a longer value must not hide the fields after it.
const VALUE_BYTES_MAXIMUM: usize = 1_500;
/// Only sidle's own lines are written: libraries may log secrets (headers, addresses with passwords).
const OWN_TARGET: &str = "sidle";

/// Writes all lines up to `level` from now on. Only the first call has an effect.
pub fn install(level: Level, reader: Reader) {
    let output = Output { error: StandardError::new(reader), lost: 0 };
    let log = Log { level, is_journal: standard_error::is_journal(), output: Mutex::new(output) };
    // Only a second call fails.
    let _ = tracing::subscriber::set_global_default(log);
}

struct Log {
    level: Level,
    is_journal: bool,
    output: Mutex<Output>,
}

struct Output {
    error: StandardError,
    /// Lines lost since the last written line.
    lost: u64,
}

impl Output {
    fn write(&mut self, line: &str, lost: impl Fn(u64) -> String) {
        if self.lost > 0 && self.error.write(lost(self.lost).as_bytes()) {
            self.lost = 0;
        }
        if self.lost > 0 || !self.error.write(line.as_bytes()) {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

impl Log {
    fn line(&self, level: Level, text: &str) -> String {
        let mut line = if self.is_journal {
            format!("<{}>{text}", number(level))
        } else {
            format!("{} {:<5} {text}", clock::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ"), level.as_str())
        };
        shorten(&mut line, LINE_BYTES_MAXIMUM);
        line.push('\n');
        line
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let own = target.strip_prefix(OWN_TARGET).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        own && metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = *event.metadata().level();
        let line = self.line(level, &text.joined());
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write(&line, |lost| {
            self.line(Level::WARN, &format!("{lost} log lines were lost, since no program read them"))
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The levels of syslog(3).
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// An event's message and fields, escaped.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn take(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = plain(value);
            return;
        }
        let mut value = quoted(value);
        shorten(&mut value, VALUE_BYTES_MAXIMUM);
        write!(self.fields, " {}={value}", field.name()).expect("a String takes everything");
    }

    fn joined(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, &format!("{value:?}"));
    }
}

/// Cuts a text that is too long at the end of a character, and marks the cut.
fn shorten(text: &mut String, bytes: usize) {
    const CUT: &str = "…";
    if text.len() <= bytes {
        return;
    }
    let quoted = text.starts_with('"');
    let room = bytes.saturating_sub(CUT.len() + 1);
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text.push_str(CUT);
    if quoted {
        text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(is_journal: bool) -> Log {
        let output = Output { error: StandardError::new(Reader::IsWaitedFor), lost: 0 };
        Log { level: Level::INFO, is_journal, output: Mutex::new(output) }
    }

    /// The line of a message with one field.
    fn text(message: &str, value: &str) -> String {
        let mut value = quoted(value);
        shorten(&mut value, VALUE_BYTES_MAXIMUM);
        Text { message: plain(message), fields: format!(" reason={value}") }.joined()
    }

    #[test]
    fn a_hostile_text_stays_one_line_and_one_field() {
        let forged = "because\n2026-01-01T00:00:00.000Z ERROR all is lost\u{1b}[2J\u{9b}2J\u{202e}\" switch=9";
        let line = log(false).line(Level::WARN, &text("switch 2 is refused", forged));
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
        assert!(line.contains("\\u{1b}[2J\\u{9b}2J\\u{202e}\\\" switch=9\""), "{line:?}");
        assert!(line.contains("Z WARN  switch 2 is refused reason=\"because\\u{a}2026"), "{line:?}");
    }

    #[test]
    fn a_line_fits_a_pipe_and_a_long_value_hides_no_other() {
        let line = log(false).line(Level::INFO, &text(&"m".repeat(9_000), "x"));
        assert!(line.len() <= 4_096 && line.ends_with("…\n"), "{}", line.len());
        let line = text("m", &"\u{1}".repeat(9_000));
        assert!(line.len() <= VALUE_BYTES_MAXIMUM + 16 && line.ends_with("…\""), "{line}");
    }

    #[test]
    fn the_journal_is_given_levels_that_it_understands() {
        for (level, prefix) in
            [(Level::ERROR, "<3>"), (Level::WARN, "<4>"), (Level::INFO, "<6>"), (Level::DEBUG, "<7>")]
        {
            assert_eq!(log(true).line(level, "text"), format!("{prefix}text\n"));
        }
    }
}
