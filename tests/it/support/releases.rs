//! Releases that a test makes up: their trees, what they require, and the bytes of their bundles taken apart.

use super::stage::{Author, DEMO, sidle, text};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Packs a release of the demonstration agent's package with another tree (a program is put into it) and these lines below `[requires]`.
pub fn release_of(author: &Author, version: &str, requires: &str, fill: impl Fn(&Path)) -> PathBuf {
    let home = author.repository().parent().unwrap().join(format!("made-{version}"));
    let tree = home.join("tree");
    super::trees::put(&tree, "bin/demo-agent", b"#!/bin/sh\nexec sleep 1000\n", 0o755);
    fill(&tree);
    let recipe = format!(
        "schema = 1\npackage = \"{DEMO}\"\nagent = \"demo\"\n[build]\ntree = \"tree\"\n[commands]\ndemo-agent = \"bin/demo-agent\"\n\
         [service]\ncommand = [\"demo-agent\"]\nconfig = \"/etc/demo-agent\"\n[requires]\n{requires}\n"
    );
    fs::write(home.join("recipe.toml"), recipe).unwrap();
    let (recipe, bundle) = (home.join("recipe.toml"), home.join("made.sidle"));
    let (key, repository) = (author.key(), author.repository());
    let arguments = ["pack", text(&recipe), "--version", version, "--repo", text(&repository), "--key", text(&key)];
    sidle(&[&arguments[..], &["--level", "3", "--output", text(&bundle)]].concat(), &[]).ok();
    bundle
}

/// A member of a bundle, as plain tar reading finds it.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: String,
    pub header: Range<usize>,
    pub content: Range<usize>,
    pub padding: Range<usize>,
}

/// The members of a bundle, in order; what follows the last one's padding is the end.
pub fn members(bundle: &[u8]) -> Vec<Member> {
    let mut members = Vec::new();
    let mut start = 0;
    while bundle[start] != 0 {
        let header = &bundle[start..start + 512];
        let field = |range: Range<usize>| {
            let bytes = &header[range];
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8(bytes[..end].to_vec()).unwrap()
        };
        let (name, prefix) = (field(0..100), field(345..500));
        let size = usize::from_str_radix(field(124..136).trim(), 8).unwrap();
        let content = start + 512..start + 512 + size;
        let end = content.end.next_multiple_of(512);
        members.push(Member {
            name: if prefix.is_empty() { name } else { format!("{prefix}/{name}") },
            header: start..start + 512,
            padding: content.end..end,
            content,
        });
        start = end;
    }
    members
}
