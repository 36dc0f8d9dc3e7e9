//! The formats of a release: a payload of independent frames, the manifest that describes every byte of it, and the one file that carries
//! releases by hand. Reading, here, is regenerating what must be there and comparing.

pub mod compression;
pub mod elf;
pub mod file;
pub mod frames;
pub mod handles;
#[cfg(test)]
mod hostile;
mod judge;
pub mod limits;
pub mod manifest;
pub mod member;
mod memory;
pub mod pack;
pub mod parallel;
pub mod path;
pub mod problems;
pub mod rebuild;
pub mod recipe;
pub mod source;
mod survey;
pub mod unpack;
pub mod ustar;
mod wire;

crate::reports!(file::BundleError, manifest::ManifestError, pack::PackError, recipe::RecipeError, unpack::UnpackError);
