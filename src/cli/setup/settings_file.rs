//! The settings file that `sidle setup` writes, and replaces: the repository's place.

use std::path::Path;

/// Its name.
pub const NAME: &str = "10-repository.toml";
/// Largest such file read: a URL and a path.
pub const BYTES_MAXIMUM: u64 = 64 * 1024;
/// Its first line: a file without it is the administrator's.
const MARK: &str = "# Written by `sidle setup`, which replaces this file. Put other settings into other files.";

/// The file for the repository at `url`, whose server these authorities vouch for.
pub fn content(url: &str, ca: Option<&Path>) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let url = quoted(url);
    let ca = ca.map_or_else(String::new, |ca| format!("ca_file = {}\n", quoted(&ca.to_string_lossy())));
    format!("{MARK}\n[repository]\nurl = {url}\n{ca}")
}

/// Whether `sidle setup` wrote the file, and nobody has added to it.
pub fn is_own(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let own = |line: &str| ["[repository]", "url = ", "ca_file = "].iter().any(|begin| line.starts_with(begin));
    let mut lines = text.lines();
    lines.next() == Some(MARK) && lines.all(own)
}
