//! `SHA256SUMS`: the list that `sha256sum -c` reads.

use crate::digest::Digest;
use std::fmt::Write as _;

/// The list of these files (basename, digest), in this order.
pub fn text(files: &[(String, Digest)]) -> String {
    files.iter().fold(String::new(), |mut text, (name, digest)| {
        writeln!(text, "{digest}  {name}").expect("writing to a string cannot fail");
        text
    })
}
