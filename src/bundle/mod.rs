//! The formats of a release: a payload of independent frames, the manifest that describes every byte of it, and the file that carries
//! releases by hand. Readers regenerate the expected bytes and compare.

pub mod elf;
pub mod file;
mod format;
pub mod handles;
#[cfg(test)]
mod hostile;
mod memory;
pub mod pack;
pub mod parallel;
pub mod rebuild;
pub mod recipe;
pub mod source;
pub mod survey;
pub mod systems;
pub mod unpack;
mod writeback;
pub mod written;

pub use format::{compression, contents, frames, host_versions, limits, manifest, member, part, path, problems, ustar};
use format::{judge, wire};

crate::reports!(file::BundleError, manifest::ManifestError, pack::PackError, recipe::RecipeError, unpack::UnpackError);
