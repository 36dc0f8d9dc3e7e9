//! Trust: TUF metadata (specification 1.0), read, verified and published. Pure over bytes and a time; no file, clock or network.
//!
//! `canonical` and `reader` read JSON strictly, `metadata`, `delegation` and `pattern` turn it into types, `key` and `scheme` verify signatures. `verify` has the checks of the
//! client workflow above a host's `floor`; `refresh`, `search` and `browse` are the machines that ask for files and put them through the checks, whatever
//! they come from; `by_hand` gives it what a bundle carries, `trusted` tells what
//! came of it. `publish` builds and signs, `target` names what is signed, `minisign` serves checks without sidle.

pub mod authority;
pub mod browse;
pub mod by_hand;
pub mod canonical;
pub mod delegation;
pub mod error;
pub mod floor;
pub mod key;
pub mod limits;
pub mod metadata;
pub mod minisign;
pub mod object;
pub mod pattern;
pub mod publish;
pub mod reader;
pub mod refresh;
pub mod scheme;
pub mod search;
pub mod target;
pub mod trusted;
pub mod verify;

pub use authority::Authority;
pub use browse::Browse;
pub use by_hand::{MetadataFiles, Verdict, Verification};
pub use error::TrustError;
pub use floor::{BY_HAND_GRACE, Expiry, Floor, Warning};
pub use key::{KeyId, PublicKey};
pub use metadata::{Role, Target};
pub use publish::{SignError, Signer};
pub use refresh::{Answer, MetadataRequest, Refresh};
pub use search::{DelegatedFiles, Listed, Search};
pub use trusted::TrustedTargets;

crate::reports!(TrustError);

#[cfg(test)]
mod tests;
