//! Printing: text for people, JSON for programs, progress on a terminal. Only this file writes results and messages, so it escapes them: a line ends
//! where a line of [`Lines`] ends, never at a character of a text.

use super::screen::{Screen, width};
use super::times::local;
use crate::cli::exit;
use crate::cli::plain::{line, plain};
use crate::cli::tone::{Tone, Toned, is_coloured};
use crate::failure::Report;
use crate::store::collect::Effect;
use clap::error::{ContextKind, ContextValue};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};

/// How a command prints.
#[derive(Debug, Clone)]
pub struct Output {
    json: bool,
    quiet: bool,
    effect: Effect,
}

impl Output {
    /// As the options say.
    pub fn new(json: bool, quiet: bool, effect: Effect) -> Self {
        Self { json, quiet, effect }
    }

    /// Whether results are for programs.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The result of a command: `text` for people, `value` (an object, to which the schema number is added) for programs.
    pub fn result(&self, text: impl Into<Lines>, value: impl Serialize) {
        if self.json {
            let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
            if let Value::Object(fields) = &mut value {
                fields.insert("schema".to_owned(), json!(1));
                if self.effect == Effect::DryRun {
                    fields.insert("dry_run".to_owned(), json!(true));
                }
            }
            print_line(&value.to_string());
        } else if !self.quiet {
            if self.effect == Effect::DryRun {
                print_line("dry run: nothing was changed; without --dry-run:");
            }
            text.into().print();
        }
    }

    /// The progress of a command, for people; nothing in JSON.
    pub fn step(&self, text: impl Into<Lines>) {
        if !self.json && !self.quiet {
            text.into().print();
        }
    }

    /// A problem that does not stop the command.
    pub fn warning(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{} {}", label("sidle: warning:", Tone::Warning), local(&line(text)));
        }
    }

    /// A failure with its remedy, on standard error; in JSON on standard output.
    pub fn failure(&self, report: &Report) {
        if self.json {
            print_line(&json!({"schema": 1, "error": exit::error(report)}).to_string());
            return;
        }
        let _ = writeln!(std::io::stderr(), "{} {}", label("sidle:", Tone::Bad), local(&line(&report.headline())));
        for listed in &report.lines {
            let _ = writeln!(std::io::stderr(), "  {}", local(&line(listed)));
        }
        if let Some(hint) = &report.hint {
            let _ = writeln!(std::io::stderr(), "  hint: {}", local(&line(hint)));
        }
    }

    /// A bar of bytes on a terminal; invisible elsewhere.
    pub fn bar(&self, what: &'static str) -> ProgressBar {
        let bar = if self.is_redrawn() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:20} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
            bar.set_style(style);
        }
        bar.with_message(what)
    }

    /// Whether progress is redrawn: standard error is a terminal, and a person reads it.
    pub fn is_redrawn(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }
}

/// A text for people, line by line. Control characters in it are escaped, so no text ends a line or moves the cursor.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    content: Vec<String>,
    words: &'static [Toned],
    is_verbatim: bool,
}

impl Lines {
    fn of(lines: Vec<String>) -> Self {
        Self { content: lines, ..Self::default() }
    }

    /// Lines that a program may read: they stay as they are, also on a terminal.
    pub fn verbatim(lines: &[String]) -> Self {
        Self { is_verbatim: true, ..Self::of(lines.iter().map(|text| line(text)).collect()) }
    }

    /// Rows with their columns aligned, two spaces between, no space at the ends of lines.
    pub fn table(rows: &[Vec<String>]) -> Self {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| line(cell)).collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
        let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
        let aligned = |row: &Vec<String>| {
            let pad = |(cell, widest): (&String, &usize)| format!("{cell}{}", " ".repeat(widest - width(cell)));
            let cells: Vec<String> = row.iter().zip(&widths).map(pad).collect();
            cells.join("  ").trim_end().to_owned()
        };
        Self::of(rows.iter().map(aligned).collect())
    }

    /// The same with more lines below.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.content.extend(more.into().content);
        self
    }

    /// The same with these words in colour, on a terminal.
    #[must_use]
    pub fn toned(self, words: &'static [Toned]) -> Self {
        Self { words, ..self }
    }

    fn print(&self) {
        let screen = Screen::of(&std::io::stdout());
        for text in &self.content {
            if self.is_verbatim {
                print_line(text);
            } else {
                screen.print(&local(text), self.words);
            }
        }
    }
}

impl From<&str> for Lines {
    fn from(text: &str) -> Self {
        Self::of(if text.is_empty() { Vec::new() } else { vec![line(text)] })
    }
}

impl From<&String> for Lines {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Lines {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Vec<String>> for Lines {
    fn from(lines: Vec<String>) -> Self {
        Self::of(lines.iter().map(|text| line(text)).collect())
    }
}

/// Prints why clap refused a command line.
pub fn refusal(error: &clap::Error) {
    let text = error.to_string();
    let lines = text.lines().map(line).collect::<Vec<_>>().join("\n");
    let lines = whole_value(lines, error.get(ContextKind::InvalidValue));
    if lines == text.trim_end() {
        let _ = error.print();
    } else {
        let _ = writeln!(std::io::stderr(), "{lines}");
    }
}

/// The text with all of the refused value: clap leaves out what a terminal does not show, so two different values would look the same.
fn whole_value(text: String, value: Option<&ContextValue>) -> String {
    let Some(ContextValue::String(value)) = value else { return text };
    let parts =
        text.split_once("invalid value '").and_then(|(before, rest)| Some((before, rest.split_once("' for '")?)));
    match parts {
        Some((before, (_, after))) if plain(value) != *value => {
            format!("{before}invalid value '{}' for '{after}", plain(value))
        }
        Some(_) | None => text,
    }
}

/// The beginning of a message, in colour where standard error is a terminal.
fn label(text: &str, tone: Tone) -> String {
    let style = tone.style();
    if is_coloured(&std::io::stderr()) { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// A closed pipe (`| head`) is not an error.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_whatever_characters_are_in_them() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let Lines { content, .. } = Lines::table(&[row(["東京", "x"]), row(["e\u{301}", "y"]), row(["abcde", "z"])]);
        assert_eq!(content, ["東京   x", "e\u{301}      y", "abcde  z"]);
    }

    #[test]
    fn two_refused_values_are_shown_as_different_ones() {
        let value = |text: &str| ContextValue::String(text.to_owned());
        let said = || "error: invalid value '1' for '[RELEASE]': cannot read".to_owned();
        let shown = whole_value(said(), Some(&value("1\u{7f}")));
        assert_eq!(shown, "error: invalid value '1\\u{7f}' for '[RELEASE]': cannot read");
        assert_eq!(whole_value(said(), Some(&value("1"))), said());
        assert_eq!(whole_value("error: other".to_owned(), Some(&value("\u{7f}"))), "error: other");
    }

    #[test]
    fn a_text_of_any_length_and_content_is_one_line_of_its_own() {
        let rows = [vec!["a\nb".to_owned(), "\u{1b}".repeat(100_000)], vec!["cc".to_owned(), "d".to_owned()]];
        let Lines { content: lines, .. } =
            Lines::table(&rows).and("x\ny").and(vec!["1\r2".to_owned(), String::new()]).and("");
        assert!(lines[0].starts_with("a\\u{a}b  \\u{1b}\\u{1b}") && lines[0].ends_with('…'), "{}", lines[0]);
        assert_eq!(lines[1..], ["cc       d", "x\\u{a}y", "1\\u{d}2", ""]);
    }
}
