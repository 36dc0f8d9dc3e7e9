//! The formats of a release: a payload of independent frames, the manifest that describes every byte of it, and the file that carries
//! releases by hand. Readers regenerate the expected bytes and compare.

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
