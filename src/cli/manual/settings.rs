//! `sidle.toml(5)` and `docs/settings.md`, from the table beside the parser.

use super::{GENERATED, text_page};
use crate::config::keys::{Key, RULES, SECTIONS, Section};
use std::fmt::Write as _;

pub(super) fn document() -> String {
    let mut page = format!("# Settings\n\n{GENERATED}\n\n`man sidle.toml` has the same text.\n");
    for rule in RULES {
        page.push('\n');
        page.push_str(rule);
        page.push('\n');
    }
    for section in &SECTIONS {
        append(&mut page, section);
    }
    page
}

pub(super) fn man() -> String {
    let mut body = String::from("## Description\n");
    for rule in RULES {
        body.push('\n');
        body.push_str(rule);
        body.push('\n');
    }
    for section in &SECTIONS {
        append(&mut body, section);
    }
    body.push_str(
        "\n## Examples\n\n    probation = \"5m\"\n    windows = [\"Sat 22:00-04:00\"]\n    timezone = \"Europe/Berlin\"\n\n    [repository]\n    \
         mirrors = [\"https://a.example/sidle\", \"https://b.example/sidle\"]\n    ca_file = \"/etc/sidle/ca.pem\"\n\
         \n## See also\n\n`sidle(8)`, `sidle-supervise(8)`\n",
    );
    text_page("sidle.toml", "settings of sidle", &body)
}

fn append(page: &mut String, section: &Section) {
    let table = if section.table.is_empty() { String::new() } else { format!("`{}`. ", section.table) };
    let _ = write!(
        page,
        "\n## {}\n\n{table}{}\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
        section.title, section.text
    );
    for Key { name, kind, default, meaning, of_a_mirror } in section.keys {
        let star = if *of_a_mirror { " *" } else { "" };
        let _ = writeln!(page, "| `{name}`{star} | {kind} | {default} | {meaning} |");
    }
}
