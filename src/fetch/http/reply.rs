//! A request and its answer, alike for every kind of mirror.

use crate::fetch::fault::Fault;
use std::ops::Range;
use std::time::Duration;

/// A request, without the file's path.
#[derive(Debug, Clone)]
pub(in crate::fetch) struct Ask {
    /// The whole file, or a part of it.
    pub(in crate::fetch) wanted: Wanted,
    /// Only if the file still has this strong validator.
    pub(in crate::fetch) if_range: Option<String>,
    /// The accepted coding of the body.
    pub(in crate::fetch) coding: Coding,
    /// Time limit until the answer begins.
    pub(in crate::fetch) patience: Duration,
}

/// How much of a file is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fetch) enum Wanted {
    /// All of it; longer files are of no use.
    Whole { bytes_maximum: u64 },
    /// These bytes.
    Part(Range<u64>),
}

impl Ask {
    /// A request for a whole file of at most `bytes_maximum` bytes.
    pub(in crate::fetch) fn whole(bytes_maximum: u64) -> Self {
        Self::of(Wanted::Whole { bytes_maximum })
    }

    /// A request for a part of a file.
    pub(in crate::fetch) fn part(range: Range<u64>) -> Self {
        Self::of(Wanted::Part(range))
    }

    fn of(wanted: Wanted) -> Self {
        Self { wanted, if_range: None, coding: Coding::Identity, patience: Duration::ZERO }
    }
}

/// An answer with a body.
#[derive(Debug)]
pub(in crate::fetch) struct Reply {
    /// The part of the file in the body.
    pub(in crate::fetch) span: Span,
    /// The announced length of the body, as it is coded.
    pub(in crate::fetch) length: Option<u64>,
    /// The coding of the body.
    pub(in crate::fetch) coding: Coding,
    /// The file's strong validator.
    pub(in crate::fetch) validator: Option<String>,
    /// The bytes.
    pub(in crate::fetch) body: Box<dyn Body>,
}

/// The coding of a body (RFC 9110 §8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::fetch) enum Coding {
    /// None: the sent bytes are hashed.
    #[default]
    Identity,
    /// None, or gzip.
    Gzip,
}

/// Whether a mirror has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fetch) enum Presence {
    /// It has no such file.
    Absent,
    /// It may have the file.
    Possible,
}

/// The part of a file in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fetch) enum Span {
    Whole,
    /// These bytes; `total`: the size of the whole file, where the mirror says it.
    Part {
        range: Range<u64>,
        total: Option<u64>,
    },
}

/// The bytes of an answer.
pub(in crate::fetch) trait Body: std::fmt::Debug {
    /// The next bytes, never empty; None at the end. Waits for at most `patience`.
    fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Fault>;
}

impl Reply {
    /// Refuses an announced length over `maximum` before a byte of it is read.
    pub(in crate::fetch) fn at_most(self, maximum: u64) -> Result<Self, Fault> {
        match self.length.filter(|length| *length > maximum) {
            Some(length) => Err(Fault::wrong(format!("it announces {length} bytes, at most {maximum} are allowed"))),
            None => Ok(self),
        }
    }

    /// Refuses a whole file that isn't `signed` bytes long.
    pub(in crate::fetch) fn exactly(self, signed: u64) -> Result<Self, Fault> {
        match self.length.filter(|length| *length != signed) {
            Some(length) => Err(Fault::wrong(format!("it announces {length} bytes of a file that has {signed}"))),
            None => Ok(self),
        }
    }

    /// Refuses a part that isn't the one asked for, of a file that is `signed` bytes long (RFC 9110 §14.4, §15.3.7). `Ok(None)`: it is no part.
    pub(in crate::fetch) fn part(self, asked: &Range<u64>, signed: u64) -> Result<Option<Self>, Fault> {
        let Span::Part { range, total } = &self.span else { return Ok(None) };
        if range != asked {
            let text = format!(
                "it gives bytes {} to {} where {} to {} were asked for",
                range.start, range.end, asked.start, asked.end
            );
            return Err(Fault::wrong(text));
        }
        if let Some(total) = total.filter(|total| *total != signed) {
            return Err(Fault::wrong(format!("it gives a part of {total} bytes where the file has {signed}")));
        }
        self.exactly(asked.end - asked.start).map(Some)
    }
}

/// Reads a Content-Range header: `bytes 0-9/100`.
pub(in crate::fetch) fn content_range(value: &str) -> Option<Span> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if plain { text.parse::<u64>().ok() } else { None }
    };
    let (start, end, total) = (number(first)?, number(last)?.checked_add(1)?, number(total)?);
    (start < end && end <= total).then_some(Span::Part { range: start..end, total: Some(total) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_read_strictly() {
        assert_eq!(content_range("bytes 0-9/100"), Some(Span::Part { range: 0..10, total: Some(100) }));
        for bad in [
            "bytes 0-9/*",
            "bytes */100",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "items 0-9/100",
            "0-9/100",
            "bytes 0-+9/100",
            "bytes 0-18446744073709551615/5",
        ] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
