//! The author's verbs: keys, repositories, export, and a look into files. Packing has a file of its own.

mod export;
mod inspect;
mod key;
mod named_release;
mod repo;

pub use export::{ExportArguments, export, write as write_bundle};
pub use inspect::{InspectArguments, inspect, manifests};
pub use key::{KeyVerb, SigningArguments, SigningKeys, key};
pub use repo::{RepoVerb, packed_files, publication_facts, repo};
