//! The bundle file: releases for carrying by hand, in one canonical USTAR. The reader checks form alone and believes nothing: what the metadata,
//! manifests and payloads mean is for trust and the manifest to say.

mod head;
mod input;
mod payload;
mod reader;
mod writer;

pub use head::{BundledRelease, Head};
pub use payload::BundledPayload;
pub use reader::{BundleReader, PayloadHeader};
pub use writer::BundleWriter;

use super::member::MemberName;
use super::ustar::{self, Kind, Member};
use crate::failure::Class;
use std::fmt;
use std::io;

/// Mode of every member.
const MODE: u32 = 0o644;
/// Time of every member: a bundle is the same file whenever it is written.
const MTIME: u64 = 0;

/// Why a bundle file can't be read or written.
#[derive(Debug)]
pub enum BundleError {
    /// It is something else altogether.
    NotABundle,
    /// It ends too early.
    Truncated {
        /// The member in which it ends.
        member: String,
    },
    /// Bytes are not what they must be.
    Garbled {
        /// The member, or the place between members.
        member: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A member is larger than its kind may be, or there are too many.
    TooLarge {
        /// The member.
        member: String,
    },
    /// The file can't be read or written.
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The writer was given members out of order, or a payload of another length or digest than announced.
    Misuse {
        /// The member.
        member: String,
    },
}

impl BundleError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::NotABundle | Self::Truncated { .. } | Self::Garbled { .. } | Self::TooLarge { .. } => {
                Class::Integrity
            }
            Self::Io { source, .. } if crate::os::is_no_space(source) => Class::NoSpace,
            Self::Io { .. } | Self::Misuse { .. } => Class::Failed,
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotABundle => Some("name a file that `sidle export` or `sidle pack --repo` wrote".to_owned()),
            Self::Truncated { .. } | Self::Garbled { .. } => {
                Some("the file was damaged on its way: copy it again, and compare its size".to_owned())
            }
            Self::TooLarge { .. } | Self::Io { .. } | Self::Misuse { .. } => None,
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotABundle => formatter.write_str("cannot read the file as a bundle: it is not a sidle bundle"),
            Self::Truncated { member } => write!(formatter, "cannot read the bundle: it ends too early, in {member}"),
            Self::Garbled { member, what } => write!(formatter, "cannot read the bundle: {member}: {what}"),
            Self::TooLarge { member } => write!(formatter, "cannot read the bundle: {member} is larger than it may be"),
            Self::Io { verb, source } => write!(formatter, "cannot {verb} the bundle: {source}"),
            Self::Misuse { member } => write!(formatter, "cannot write the bundle: {member} is not what was announced"),
        }
    }
}

impl std::error::Error for BundleError {}

/// Bytes copied or skipped at a time.
const COPY_BYTES: usize = 1 << 18;

fn header_of(name: &MemberName, size: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(512);
    let path = name.to_string();
    Member { path: &path, kind: Kind::File(size), mode: MODE, mtime: MTIME }.write_header(&mut header);
    header
}

fn padding(size: u64) -> usize {
    usize::try_from(ustar::padding(size)).unwrap_or(0)
}

fn garbled(member: &str, what: &'static str) -> BundleError {
    BundleError::Garbled { member: member.to_owned(), what }
}
