//! Escapes untrusted text (reasons, names, errors of other programs) for a line of a log or a terminal.

use std::fmt::Write as _;

/// Longest line shown to people, bytes: untrusted text must not hide everything before it.
const LINE_BYTES_MAXIMUM: usize = 8_000;

/// `text` in which nothing ends the line, moves the cursor, or turns the direction of writing: such characters are written as `\u{1b}`, and a
/// backslash before what looks like that as two, so that nobody can write what looks like an escape.
pub fn plain(text: &str) -> String {
    escaped(text, usize::MAX)
}

/// The same as a line for people: cut where it is longer than anybody reads.
pub fn line(text: &str) -> String {
    escaped(text, LINE_BYTES_MAXIMUM)
}

fn escaped(text: &str, bytes_maximum: usize) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if out.len() >= bytes_maximum {
            out.push('…');
            break;
        }
        let after = || rest.as_str().trim_start_matches('\\');
        let is_doubled = c == '\\' && (after().starts_with("u{") || after().starts_with(is_harmful));
        push(&mut out, c, is_doubled);
    }
    out
}

/// The same between quotes, where it has to be told apart from what comes after it.
pub fn quoted(text: &str) -> String {
    let bare = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ',' | ':' | '/' | '@' | '+' | '%' | '#');
    if !text.is_empty() && text.chars().all(|c| bare(c) && !is_harmful(c)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    text.chars().for_each(|c| push(&mut out, c, matches!(c, '"' | '\\')));
    out.push('"');
    out
}

fn push(out: &mut String, c: char, is_doubled: bool) {
    if is_doubled {
        out.push('\\');
        out.push(c);
    } else if is_harmful(c) {
        write!(out, "{}", c.escape_unicode()).expect("a String takes everything");
    } else {
        out.push(c);
    }
}

/// Control characters (C0, DEL, C1), separators of lines and paragraphs, and what is invisible or changes the direction of writing
/// (Unicode TR 36, TR 9: bidi controls; zero-width characters, tags).
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_line_or_reaches_the_terminal() {
        let hostile = [
            ("a\nERROR forged", "a\\u{a}ERROR forged"),
            ("a\r\nb", "a\\u{d}\\u{a}b"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{85}next\u{2028}line\u{2029}", "\\u{85}next\\u{2028}line\\u{2029}"),
            ("\0\u{7f}\t", "\\u{0}\\u{7f}\\u{9}"),
            ("\u{202e}txt.exe\u{2066}\u{200b}", "\\u{202e}txt.exe\\u{2066}\\u{200b}"),
            ("\\u{a}", "\\\\u{a}"),
            ("\\\\u{a}\\\n", "\\\\\\\\u{a}\\\\\\u{a}"),
            (r"'it'\''s' a\x2db", r"'it'\''s' a\x2db"),
            ("für 東京 🙂", "für 東京 🙂"),
        ];
        for (text, expected) in hostile {
            assert_eq!(plain(text), expected);
        }
        let all: String = (0..=0x0010_ffff).filter_map(char::from_u32).collect();
        assert!(!plain(&all).chars().any(is_harmful) && !quoted(&all).chars().any(is_harmful));
    }

    #[test]
    fn no_line_is_longer_than_anybody_reads() {
        let long = line(&"\u{1b}ä".repeat(100_000));
        assert!(long.ends_with("ä…") && long.len() < LINE_BYTES_MAXIMUM + 20, "{}", long.len());
        assert_eq!(line("short"), "short");
    }

    #[test]
    fn no_value_can_be_mistaken_for_the_next_field() {
        for (text, expected) in [
            ("1.1-1", "1.1-1"),
            ("", "\"\""),
            ("x switch=9", "\"x switch=9\""),
            ("\" switch=9 why=\"", "\"\\\" switch=9 why=\\\"\""),
            ("\\\"", "\"\\\\\\\"\""),
            ("a=b", "\"a=b\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
