//! The notices of a fetch, for operators.

use std::time::Duration;

/// An event of a fetch. None is an error: the error at the end names each file that could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum Notice {
    /// A mirror sent unsigned bytes, or broke the protocol: it is not asked again in this run.
    #[error("the mirror {mirror} is refused: {reason}")]
    Evil { mirror: String, reason: String },
    /// A mirror refuses this host, or failed too often: it is not asked again in this run.
    #[error("the mirror {mirror} is not asked any more: {reason}")]
    GivenUp { mirror: String, reason: String },
    /// A mirror failed, or was too slow; it is asked again after `pause`.
    #[error("the mirror {mirror} failed; next attempt in {:.1} s: {reason}", pause.as_secs_f64())]
    Failed { mirror: String, reason: String, pause: Duration },
    /// The mirror, or a proxy before it, ignores ranges.
    #[error("the mirror {mirror} sends no parts of a payload: {instead}")]
    NoRanges { mirror: String, instead: Instead },
    /// No mirror may be asked now.
    #[error("waiting for {:.1} s", pause.as_secs_f64())]
    Waiting { pause: Duration },
    /// A kept file of an earlier run has changed.
    #[error("{name}, kept from an earlier run, has changed: fetched again")]
    Spoiled { name: String },
    /// A frame could not be kept for another run.
    #[error("fetched frames are not kept for another run: {reason}")]
    NotKept { reason: String },
    /// A file, or a frame of a payload, is there and verified.
    #[error("{bytes} bytes {from}")]
    Received { bytes: u64, from: Origin },
}

/// The origin of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Origin {
    /// A mirror.
    #[error("received")]
    Mirror,
    /// An earlier run, which kept them.
    #[error("kept from an earlier run")]
    Kept,
}

/// What is fetched instead of ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Instead {
    /// The frames' own files.
    #[error("the frames' own files are tried")]
    FrameFiles,
    /// The whole payload.
    #[error("the whole payload is fetched")]
    WholePayload,
}
