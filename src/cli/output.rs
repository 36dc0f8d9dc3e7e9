//! Printing: text for people on a terminal or in a log, JSON for programs, progress where somebody watches.

use super::exit;
use crate::failure::Report;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};

/// How a command prints.
#[derive(Debug, Clone)]
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// As the options say.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// The result of a command: `text` for people, `value` (an object, to which the schema number is added) for programs.
    pub fn result(&self, text: &str, value: impl Serialize) {
        if self.json {
            let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
            if let Value::Object(fields) = &mut value {
                fields.insert("schema".to_owned(), json!(1));
            }
            print_line(&value.to_string());
        } else if !self.quiet && !text.is_empty() {
            print_line(text);
        }
    }

    /// A line that tells a person how far a command is; nothing in JSON.
    pub fn step(&self, text: &str) {
        if !self.json && !self.quiet {
            print_line(text);
        }
    }

    /// Something that is not as it should be and does not stop the command.
    pub fn warning(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "sidle: warning: {text}");
        }
    }

    /// A failure with its remedy, on standard error; in JSON on standard output.
    pub fn failure(&self, report: &Report) {
        if self.json {
            let code = exit::number(report.class);
            let error = json!({"class": exit::word(report.class), "code": code, "message": report.to_string(), "hint": report.hint});
            print_line(&json!({"schema": 1, "error": error}).to_string());
            return;
        }
        let _ = writeln!(std::io::stderr(), "sidle: {report}");
        if let Some(hint) = &report.hint {
            let _ = writeln!(std::io::stderr(), "  hint: {hint}");
        }
    }

    /// A bar of bytes on a terminal; invisible elsewhere.
    pub fn bar(&self, what: &'static str) -> ProgressBar {
        let visible = !self.json && !self.quiet && std::io::stderr().is_terminal();
        let bar = if visible { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
            bar.set_style(style);
        }
        bar.with_message(what)
    }
}

/// A reader that went away (`| head`) is no reason to fail.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
