//! Which frames of a payload a bundle file has, where it leaves out those that a host with an earlier release needs no copy of.

use super::limits::{FRAMES_MAXIMUM, LIST_MAXIMUM};
use super::manifest::{Frame, Manifest};
use crate::digest::Digest;
use crate::version::Release;
use std::fmt;
use std::ops::RangeInclusive;

const FIRST_LINE: &str = "sidle frames 1";

/// The frames of one payload that a bundle file has: the text of its member `FRAMES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// A host with one of these releases has the content of all other frames.
    pub since: Vec<Release>,
    /// The digest of the frames' bytes, one after another.
    pub sha256: Digest,
    /// The numbers of the frames, ascending, no two ranges adjacent.
    frames: Vec<RangeInclusive<usize>>,
}

/// Why a text says nothing of a payload's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a list of frames as sidle writes it")]
pub struct NoPart;

impl Part {
    /// These frames, ascending.
    pub fn new(since: Vec<Release>, sha256: Digest, numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut frames: Vec<RangeInclusive<usize>> = Vec::new();
        for number in numbers {
            match frames.last_mut() {
                Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
                _ => frames.push(number..=number),
            }
        }
        Self { since, sha256, frames }
    }

    /// Reads the text. Only what [`fmt::Display`] writes is one.
    pub fn parse(text: &[u8]) -> Result<Self, NoPart> {
        let text = std::str::from_utf8(text).map_err(|_| NoPart)?;
        let mut lines = text.lines().skip(1).peekable();
        let mut since = Vec::new();
        while let Some(release) = lines.peek().and_then(|line| line.strip_prefix("since ")) {
            since.push(release.parse().map_err(|_| NoPart)?);
            lines.next();
        }
        let sha256 = lines.next().and_then(|line| line.strip_prefix("sha256 ")).ok_or(NoPart)?;
        let sha256 = sha256.parse().map_err(|_| NoPart)?;
        let mut numbers = Vec::new();
        for line in lines {
            let (first, last) = line.strip_prefix("frames ").and_then(|range| range.split_once('-')).ok_or(NoPart)?;
            let (first, last): (usize, usize) = (first.parse().map_err(|_| NoPart)?, last.parse().map_err(|_| NoPart)?);
            if last >= FRAMES_MAXIMUM || numbers.last().is_some_and(|before| *before >= first) {
                return Err(NoPart);
            }
            numbers.extend(first..=last);
        }
        let read = Self::new(since, sha256, numbers);
        let is_one = !read.since.is_empty() && read.since.len() <= LIST_MAXIMUM && read.to_string() == text;
        if is_one { Ok(read) } else { Err(NoPart) }
    }

    /// These frames of the payload; None: it has fewer.
    pub fn frames(&self, manifest: &Manifest) -> Option<Vec<Frame>> {
        self.frames.iter().cloned().flatten().map(|number| manifest.frames.get(number).copied()).collect()
    }

    /// The releases before it, for people: `3008.5-1 or 3006.30-2`.
    pub fn since(&self) -> String {
        self.since.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{FIRST_LINE}")?;
        for release in &self.since {
            writeln!(out, "since {release}")?;
        }
        writeln!(out, "sha256 {}", self.sha256)?;
        for range in &self.frames {
            writeln!(out, "frames {}-{}", range.start(), range.end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_frames_has_one_spelling() {
        let since: Vec<Release> = vec!["3008.5-1".parse().unwrap(), "3006.30-2".parse().unwrap()];
        let digest = Digest::of(b"x");
        let part = Part::new(since, digest, [0, 1, 2, 7, 9, 10]);
        let text = part.to_string();
        let expected = "since 3008.5-1\nsince 3006.30-2\nsha256 DIGEST\nframes 0-2\nframes 7-7\nframes 9-10\n";
        assert_eq!(text, format!("{FIRST_LINE}\n{}", expected.replace("DIGEST", &digest.to_string())));
        assert_eq!(Part::parse(text.as_bytes()), Ok(part));
        let none = Part::new(vec!["1-1".parse().unwrap()], digest, []);
        assert_eq!(Part::parse(none.to_string().as_bytes()), Ok(none), "the metadata alone is new");
        for (right, wrong) in [
            ("frames 0-2", "frames 2-0"),
            ("frames 0-2", "frames 0-1\nframes 2-2"),
            ("frames 7-7", "frames 07-7"),
            ("frames 7-7", "frames 7"),
            ("frames 9-10", "frames 9-99999999999"),
            ("frames 9-10", "frames 1-10"),
            ("since 3008.5-1\nsince 3006.30-2\n", ""),
            ("frames 1\n", "frames 2\n"),
            ("\nframes 9-10\n", "\nframes 9-10"),
            ("sha256 ", "sha512 "),
        ] {
            assert!(text.contains(right), "{right}");
            assert_eq!(Part::parse(text.replacen(right, wrong, 1).as_bytes()), Err(NoPart), "{wrong}");
        }
    }
}
