//! Brings the files of a TUF repository from its mirrors, over HTTP(S) or from a directory, and gives out nothing that isn't what was signed.
//!
//! ```text
//! settings location credentials   where the mirrors are, and what lets us in
//! transport directory reply       one request, one answer: HTTP (the one file that names reqwest), or a directory
//! stream pace inflate             bodies: bounded, not too fast, not too slow, and opened where they may be packed
//! mirrors fault                   who is asked next, and what is made of what it did
//! metadata frames plan mirror     what is fetched: metadata, small targets (here), frames of a payload, whole repositories
//! kept broken                     what another run knows: verified frames, and releases that no mirror has whole
//! ```
//!
//! A datum's way: a name from signed metadata → a path whose parts lead nowhere else → the first mirror that may be asked → bytes within the
//! signed length → their digest → the caller. A mirror that gives other bytes is named, and not asked again in this run.

mod broken;
mod credentials;
mod directory;
mod error;
mod fault;
mod fetcher;
mod frames;
mod inflate;
mod kept;
mod location;
mod mark;
mod metadata;
mod mirror;
mod mirrors;
mod notice;
pub mod pace;
mod plan;
mod reply;
pub mod settings;
mod stream;
mod transport;

pub use error::{Blame, FetchError, MirrorFailure};
pub use fetcher::Fetcher;
pub use frames::Frames;
pub use location::Location;
pub use metadata::{Fresh, Refreshed};
pub use mirror::{Mirrored, Wanted as MirrorWanted};
pub use notice::{Instead, Notice, Origin};
pub use settings::DownloadSettings;

crate::reports!(FetchError);
