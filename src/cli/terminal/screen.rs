//! Lines as a terminal shows them: no wider than it, wrapped at words with a hanging indent, states in colour. Elsewhere a line stays whole, for `grep`.

use super::tone::{self, Toned, is_coloured};
use crate::os::terminal;
use std::fmt::Write as _;
use std::io::{Stdout, Write as _};
use std::ops::Range;
use unicode_width::UnicodeWidthChar as _;

/// A narrower terminal is written to as if it had so many columns: less than a path is no line.
const COLUMNS_MINIMUM: usize = 40;

/// How standard output shows lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    /// None: lines stay whole.
    columns: Option<usize>,
    is_coloured: bool,
}

impl Screen {
    /// What this stream is.
    pub(super) fn of(stream: &Stdout) -> Self {
        let columns = terminal::columns(stream).map(|columns| columns.max(COLUMNS_MINIMUM));
        Self { columns, is_coloured: is_coloured(stream) }
    }

    /// Prints a line. A closed pipe (`| head`) is not an error.
    pub(super) fn print(self, text: &str, words: &[Toned]) {
        let _ = writeln!(std::io::stdout(), "{}", self.shown(text, words));
    }

    fn shown(self, text: &str, words: &[Toned]) -> String {
        let parts = if self.is_coloured { tone::parts(text, words) } else { Vec::new() };
        let mut out = String::new();
        for (number, (indent, piece)) in wrapped(text, self.columns).into_iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            out.extend(std::iter::repeat_n(' ', indent));
            let mut at = piece.start;
            for (part, tone) in &parts {
                let (start, end) = (part.start.max(at), part.end.min(piece.end));
                if start < end {
                    let style = tone.style();
                    out.push_str(&text[at..start]);
                    let _ = write!(out, "{style}{}{style:#}", &text[start..end]);
                    at = end;
                }
            }
            out.push_str(&text[at..piece.end]);
        }
        out
    }
}

/// The pieces of `text` for lines of `columns`, each with its indent. Only blanks between two pieces are left out. A word is broken only if it is
/// longer than a whole line.
fn wrapped(text: &str, columns: Option<usize>) -> Vec<(usize, Range<usize>)> {
    let Some(columns) = columns else { return vec![(0, 0..text.len())] };
    let hanging = hanging(text, columns);
    let mut pieces = Vec::new();
    let (mut start, mut indent) = (0, 0);
    while let Some(end) = beyond(&text[start..], columns - indent).map(|at| start + at) {
        let content = start + text[start..].len() - text[start..].trim_start_matches(' ').len();
        // A blank right behind the last column is where a line may end, too.
        let blank = if text.as_bytes()[end] == b' ' { Some(end) } else { text[..end].rfind(' ') };
        let (cut, next) = match blank.filter(|blank| *blank > content) {
            Some(blank) => (blank, blank + text[blank..].len() - text[blank..].trim_start_matches(' ').len()),
            None => (end, end),
        };
        pieces.push((indent, start..start + text[start..cut].trim_end_matches(' ').len()));
        start = next;
        let word = width(text[start..].split(' ').next().unwrap_or_default());
        indent = if word > columns { hanging } else { hanging.min(columns - word) };
    }
    if start < text.len() || pieces.is_empty() {
        pieces.push((indent, start..text.len()));
    }
    pieces
}

/// The columns that a terminal needs for a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// 2 for a character of East Asia or a picture, 0 for a mark on the character before.
fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Where the first character stands that needs more than so many columns; None: the text fits.
fn beyond(text: &str, columns: usize) -> Option<usize> {
    let mut column = 0;
    let needs_more = |(_, c): &(usize, char)| {
        column += columns_of(*c);
        column > columns
    };
    text.char_indices().find(needs_more).map(|(at, _)| at)
}

/// Where the lines below the first begin: under the last column of a table in the left half, or two columns in.
fn hanging(text: &str, columns: usize) -> usize {
    let mut found = 2;
    let (mut blanks, mut column) = (0, 0);
    for c in text[..beyond(text, columns / 2).unwrap_or(text.len())].chars() {
        if c != ' ' && blanks >= 2 {
            found = column;
        }
        blanks = if c == ' ' { blanks + 1 } else { 0 };
        column += columns_of(c);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tone::{Place, Tone};

    fn shown(text: &str, columns: usize) -> String {
        Screen { columns: Some(columns), is_coloured: false }.shown(text, &[])
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_character_but_blanks_is_lost() {
        let path = format!("/opt/{}", "very-long/".repeat(12));
        let texts = [
            "  current    1.0-1 (what a boot starts, and what else has to be said about it at length)",
            "             since 3 s ago, deadline 2026-01-02T03:04:05Z, and more words than one line holds",
            "a sentence of one column that goes on and on and on until it is longer than the terminal",
            "short",
            "",
            "   ",
            "für 東京 🙂 für 東京 🙂 für 東京 🙂 für 東京 🙂 für 東京 🙂 für 東京 🙂 für",
            &path,
            &format!("  place      {path} and more"),
            &format!("x  {}", "y".repeat(39)),
            &format!("{}  {}", "x".repeat(40), "y".repeat(40)),
            &"z ".repeat(100),
            &"東京".repeat(60),
            &"e\u{301} ".repeat(60),
        ];
        for text in texts {
            for columns in 40..=100 {
                let shown = shown(text, columns);
                assert!(shown.lines().all(|line| width(line) <= columns), "{columns}: {shown}");
                let without = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                assert_eq!(without(&shown), without(text));
                assert!(shown.lines().skip(1).all(|line| !line.trim().is_empty()), "{columns}: {shown:?}");
            }
            assert_eq!(Screen { columns: None, is_coloured: false }.shown(text, &[]), *text);
        }
    }

    #[test]
    fn what_follows_hangs_below_its_column_and_words_stay_whole() {
        let text = "  current    1.0-1 (what a boot starts), and more";
        assert_eq!(shown(text, 40), "  current    1.0-1 (what a boot starts),\n             and more");
        assert_eq!(
            shown("one sentence that has some more words than fit", 40),
            "one sentence that has some more words\n  than fit"
        );
        let wide = "  name       東京都港区 東京都港区 東京都";
        assert_eq!(shown(wide, 40), "  name       東京都港区 東京都港区\n             東京都");
        let long = "  place      /opt/sidle/salt-minion/versions/1";
        assert_eq!(shown(long, 40), "  place\n       /opt/sidle/salt-minion/versions/1");
    }

    #[test]
    fn a_state_has_its_colour_also_across_two_lines() {
        let screen = Screen { columns: Some(40), is_coloured: true };
        let words = [Toned("error", Place::Label, Tone::Bad), Toned("not healthy", Place::After("running"), Tone::Bad)];
        assert_eq!(screen.shown("error x", &words), "\u{1b}[31merror\u{1b}[0m x");
        let text = "running  for a week now, but it is not healthy";
        let expected = "running  for a week now, but it is \u{1b}[31mnot\u{1b}[0m\n         \u{1b}[31mhealthy\u{1b}[0m";
        assert_eq!(screen.shown(text, &words), expected);
    }
}
