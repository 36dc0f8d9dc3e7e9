//! Fetches the files of a TUF repository from its mirrors, over HTTP(S), from a directory or from who started this program, and returns only signed bytes.
//!
//! ```text
//! settings location credentials   places of the mirrors, and credentials
//! transport directory stdio reply   one request, one answer: HTTP (the one file that names reqwest), a directory, or who started this program
//! stream pace inflate             bodies: bounded, neither too fast nor too slow, and decompressed
//! mirrors fault                   the next mirror to ask, and the consequences of a failure
//! fetcher metadata frames plan mirror   metadata, small targets, frames of a payload, whole repositories
//! kept broken                     memory of earlier runs: verified frames, and mirrors with wrong bytes
//! ```
//!
//! The way of a file: signed name → path that leads nowhere else → first mirror that may be asked → bytes within the signed length → digest →
//! caller. A mirror that sends other bytes is named, and not asked again in this run.

mod broken;
mod error;
mod fetcher;
mod frames;
mod http;
mod kept;
mod mark;
mod metadata;
mod mirror;
mod mirrors;
mod notice;
pub mod pace;
mod plan;
pub mod settings;

use http::{credentials, directory, fault, inflate, location, reply, stdio, stream, transport};

pub use error::{Blame, FetchError, MirrorFailure};
pub use fetcher::Fetcher;
pub use frames::Frames;
pub use location::Location;
pub use metadata::{Fresh, Refreshed};
pub use mirror::{Mirrored, Wanted as MirrorWanted};
pub use notice::{Instead, Notice, Origin};
pub use settings::DownloadSettings;

crate::reports!(FetchError);
