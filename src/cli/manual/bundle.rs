//! `sidle-bundle(5)`: the sections about bundles of `docs/formats.md`.

use super::text_page;

/// Every format; the man page has what a reader of a bundle needs.
const FORMATS: &str = include_str!("../../../docs/formats.md");
const SECTIONS: [&str; 3] = ["Bundle file", "Payload", "Manifest"];

pub(super) fn man() -> String {
    let sections = FORMATS.split("\n## ").filter(|section| SECTIONS.iter().any(|name| section.starts_with(name)));
    let mut body = String::from(
        "## DESCRIPTION\n\nA bundle is one file with releases and everything that vouches for them: signed metadata, manifests and payloads. \
         `sidle export` and `sidle pack --output` write bundles; `sidle install FILE` verifies and installs releases of a bundle without a \
         network. JSON is UTF-8; digests are SHA-256 in lower-case hexadecimal.\n",
    );
    for section in sections {
        body.push_str("\n## ");
        body.push_str(section);
    }
    body.push_str("\n## See also\n\n`sidle-export(8)`, `sidle-inspect(8)`, `sidle-install(8)`, `sidle-pack(8)`\n");
    text_page("sidle-bundle", "file with signed releases of an agent", &body)
}
