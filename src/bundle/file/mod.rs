//! The bundle file: releases for carrying by hand, in one canonical USTAR. The reader checks only the form; metadata and manifests decide
//! about trust.

mod head;
mod input;
mod payload;
mod reader;
mod writer;

pub use head::{BundledRelease, Head};
pub use payload::{BundledPayload, Partial};
pub use reader::{BundleReader, PayloadHeader};
pub use writer::BundleWriter;

use super::member::{MemberName, ReleaseId};
use super::ustar::{self, Kind, Member};
use crate::failure::Class;
use std::io;

/// Mode of every member.
const MODE: u32 = 0o644;
/// Time of every member: a bundle is the same file whenever it is written.
const MTIME: u64 = 0;

/// Why a bundle file can't be read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum BundleError {
    /// The file has another format.
    #[error("cannot read the file as a bundle: it is not a sidle bundle")]
    NotABundle,
    /// The file ends within this member.
    #[error("cannot read the bundle: it ends too early, in {member}")]
    Truncated { member: String },
    /// A member, or the place between members, has wrong bytes.
    #[error("cannot read the bundle: {member}: {what}")]
    Garbled { member: String, what: &'static str },
    /// The header of a member is whole, but other than sidle writes it: another program has packed the same files.
    #[error("cannot read the bundle: the header of a member is not damaged, but not as sidle writes it")]
    Repacked,
    /// A member is larger than its kind may be, or there are too many.
    #[error("cannot read the bundle: {member} is larger than it may be")]
    TooLarge { member: String },
    /// The file has a part of a payload, and a frame is not in it.
    #[error(
        "cannot take all of {id} from the bundle: it has only what changed since {since}, and this host lacks more"
    )]
    NotInPart { id: ReleaseId, since: String },
    /// The file can't be read or written (`verb`).
    #[error("cannot {verb} the bundle: {source}")]
    Io { verb: &'static str, source: io::Error },
    /// The writer got members out of order, or a payload of another length or digest than announced.
    #[error("cannot write the bundle: {member} is not what was announced")]
    Misuse { member: String },
}

impl BundleError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::NotABundle
            | Self::Truncated { .. }
            | Self::Garbled { .. }
            | Self::Repacked
            | Self::TooLarge { .. } => Class::Integrity,
            Self::Io { source, .. } if crate::os::is_no_space(source) => Class::NoSpace,
            Self::NotInPart { .. } | Self::Io { .. } | Self::Misuse { .. } => Class::Failed,
        }
    }

    /// A remedy for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotABundle => Some("name a file that `sidle export` or `sidle pack --repo` wrote".to_owned()),
            Self::Truncated { .. } | Self::Garbled { .. } => {
                Some("the file was damaged in transit: copy it again, and compare its size".to_owned())
            }
            Self::Repacked => Some(
                "another program, such as tar, has packed its files: copy the bundle file itself, as it was exported"
                    .to_owned(),
            ),
            Self::NotInPart { id, since } => Some(format!(
                "install {} {since} first, or repair it (`sidle repair {}`); or take a bundle file with the whole release",
                id.package, id.package
            )),
            Self::TooLarge { .. } | Self::Io { .. } | Self::Misuse { .. } => None,
        }
    }
}

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
