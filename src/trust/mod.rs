//! Trust: TUF metadata (specification 1.0), read, verified and published. Pure over bytes and a time; no file, clock or network.
//!
//! `canonical` and `reader` read JSON strictly; `metadata`, `delegation` and `pattern` turn it into types; `key` and `scheme` verify signatures.
//! `verify` has every check of the client workflow above a host's `floor`; `refresh` and `search` ask for files and put them through the checks;
//! `by_hand` gives them the files of a bundle, `trusted` looks targets up. `publish` builds and signs, `target` names what is signed, `minisign`
//! serves checks without sidle.

mod client;
pub mod error;
mod format;
pub mod minisign;
pub mod publish;

pub use by_hand::Verification;
pub use error::TrustError;
pub use floor::{BY_HAND_GRACE, DelegatedFiles, Expiry, Floor, MetadataFiles, Warning};
pub use key::{KeyId, PublicKey};
pub use metadata::Target;
pub use publish::{SignError, Signer};
pub use refresh::Refresh;
pub use request::{Answer, MetadataRequest};
pub use role::Role;
pub use search::{Listed, Search};
pub use trusted::{Authority, TrustedTargets, Verdict};

crate::reports!(TrustError);

#[cfg(test)]
mod tests;

pub use client::{by_hand, floor, refresh, request, search, trusted, verify};

pub use format::{canonical, delegation, key, limits, metadata, pattern, reader, role, scheme, target};
