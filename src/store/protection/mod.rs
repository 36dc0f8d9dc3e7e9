//! What a hardened host wants to know of a release's files before it lets them run: SELinux labels, and fapolicyd's list of trusted files.

pub mod fapolicyd;
mod file_contexts;
pub mod selinux;
