//! Colours of the words that tell a state: green is good, yellow a warning, red is bad. Only on a terminal, and never with `NO_COLOR` or `TERM=dumb`.

use crate::os::environment;
use anstyle::{AnsiColor, Style};
use std::io::IsTerminal;
use std::ops::Range;

/// How good a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// It works now.
    Warning,
    /// It does not work.
    Bad,
}

/// Where a word tells a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the beginning of a line.
    Label,
    /// Where it stands first in a line that begins with this word.
    After(&'static str),
    /// At the end of a line, or before a comma or a bracket.
    Last,
}

/// A word that tells a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toned(pub &'static str, pub Place, pub Tone);

impl Tone {
    /// The style of this tone.
    pub fn style(self) -> Style {
        let colour = match self {
            Self::Good => AnsiColor::Green,
            Self::Warning => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        colour.on_default()
    }
}

/// Whether colours are wanted on this stream.
pub fn is_coloured<S: IsTerminal + anstream::stream::RawStream>(stream: &S) -> bool {
    // In continuous integration (CI) the crate takes a dumb terminal for one with colours.
    let is_dumb = environment::variable("TERM").is_some_and(|term| term == "dumb");
    !is_dumb && IsTerminal::is_terminal(stream) && anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never
}

/// The parts of `text` that have a tone, in their order.
pub(super) fn parts(text: &str, words: &[Toned]) -> Vec<(Range<usize>, Tone)> {
    let mut found: Vec<(Range<usize>, Tone)> =
        words.iter().filter_map(|Toned(word, place, tone)| Some((part(text, word, *place)?, *tone))).collect();
    found.sort_by_key(|(range, _)| range.start);
    let mut end = 0;
    found.retain(|(range, _)| {
        let is_free = range.start >= end;
        end = end.max(range.end);
        is_free
    });
    found
}

fn part(text: &str, word: &str, place: Place) -> Option<Range<usize>> {
    let begin = text.len() - text.trim_start().len();
    let is_word = |at: usize| {
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + word.len()..].chars().next())
    };
    let mut all = text.match_indices(word).map(|(at, _)| at).filter(|at| is_word(*at));
    let at = match place {
        Place::Label => all.next().filter(|at| *at == begin),
        Place::After(label) => all.next().filter(|at| *at > begin && text[begin..].starts_with(label)),
        Place::Last => all.find(|at| matches!(text[at + word.len()..].chars().next(), None | Some(',' | ' '))),
    }?;
    Some(at..at + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_tone_at_its_place_alone() {
        let words = [
            Toned("error", Place::Label, Tone::Bad),
            Toned("whole", Place::After("tree"), Tone::Good),
            Toned("bad", Place::Last, Tone::Bad),
        ];
        assert_eq!(parts("error an error", &words), [(0..5, Tone::Bad)]);
        assert_eq!(parts("an error", &words), []);
        assert_eq!(parts("errors", &words), []);
        assert_eq!(parts("  tree  1.0-1 is whole; whole", &words), [(17..22, Tone::Good)]);
        assert_eq!(parts("  other 1.0-1 is whole", &words), []);
        assert_eq!(parts("1.0-1  bad (why)", &words), [(7..10, Tone::Bad)]);
        assert_eq!(parts("1.0-1  bad", &words), [(7..10, Tone::Bad)]);
    }
}
