//! What a fetch tells while it runs, for operators.

use std::fmt;
use std::time::Duration;

/// Something that happened on the way. None of it is an error: what can't be had is told by the error at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A mirror gave what is not what was signed, or what no mirror may answer: it isn't asked any more in this run.
    Evil {
        /// Which.
        mirror: String,
        /// What it did.
        reason: String,
    },
    /// A mirror doesn't serve us, or has failed too often: it isn't asked any more in this run.
    GivenUp {
        /// Which.
        mirror: String,
        /// Why.
        reason: String,
    },
    /// A mirror failed, or was too slow.
    Failed {
        /// Which.
        mirror: String,
        /// Why.
        reason: String,
        /// It isn't asked before this time is over.
        pause: Duration,
    },
    /// The way to a mirror keeps no ranges: something else is tried.
    NoRanges {
        /// Which.
        mirror: String,
        /// What is fetched instead.
        instead: Instead,
    },
    /// Nothing can be asked for now.
    Waiting {
        /// How long.
        pause: Duration,
    },
    /// A kept part of an earlier run isn't as it was kept: it is fetched again.
    Spoiled {
        /// Its name.
        name: String,
    },
    /// A part could not be kept for another run.
    NotKept {
        /// Why.
        reason: String,
    },
    /// A file, or a frame of a payload, is there and verified.
    Received {
        /// Its bytes.
        bytes: u64,
        /// Where they come from.
        from: Origin,
    },
}

/// Where bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A mirror.
    Mirror,
    /// An earlier run, which kept them.
    Kept,
}

/// What is fetched where ranges don't get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// The frames' own files.
    FrameFiles,
    /// The whole payload.
    WholePayload,
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evil { mirror, reason } => write!(out, "the mirror {mirror} is refused: {reason}"),
            Self::GivenUp { mirror, reason } => write!(out, "the mirror {mirror} is not asked any more: {reason}"),
            Self::Failed { mirror, reason, pause } => {
                write!(out, "the mirror {mirror} failed, and is left alone for {:.1} s: {reason}", pause.as_secs_f64())
            }
            Self::NoRanges { mirror, instead } => {
                let instead = match instead {
                    Instead::FrameFiles => "the frames' own files are tried",
                    Instead::WholePayload => "the whole payload is fetched",
                };
                write!(out, "parts of a payload can't be had from {mirror}: {instead}")
            }
            Self::Waiting { pause } => write!(out, "waiting for {:.1} s", pause.as_secs_f64()),
            Self::Spoiled { name } => write!(out, "{name}, kept from an earlier run, has changed: fetched again"),
            Self::NotKept { reason } => write!(out, "what was fetched is not kept for another run: {reason}"),
            Self::Received { bytes, from: Origin::Mirror } => write!(out, "{bytes} bytes received"),
            Self::Received { bytes, from: Origin::Kept } => write!(out, "{bytes} bytes kept from an earlier run"),
        }
    }
}
