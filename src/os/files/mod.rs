//! Files: an open directory and what is done relative to it, locks, walks, watches, and what lies below them.

pub mod dir;
pub(in crate::os) mod dir_changes;
pub mod file;
pub(in crate::os) mod file_stat;
pub mod ground;
pub mod labels;
pub mod lock;
pub mod mounts;
pub mod place;
pub mod space;
pub mod walk;
pub mod watch;
