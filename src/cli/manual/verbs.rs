//! `sidle(8)`, and a page for each verb: names, usage and options from the grammar, the rest from the tables here.

use super::commands::exit_codes;
use super::{DATE, MAN, Page, built, markdown, verbs_of};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::Roff;
use std::fmt::Write as _;

/// A line of ENVIRONMENT or FILES, and the verbs whose pages have it. `sidle(8)` has all of them.
struct Entry {
    name: &'static str,
    meaning: &'static str,
    verbs: &'static [&'static str],
}

const AUTHORS: &[&str] = &["pack", "key", "repo"];
const FETCHES: &[&str] = &["setup", "install", "upgrade", "repair", "mirror"];
const SWITCHES: &[&str] =
    &["switch", "rollback", "restart", "cancel", "status", "history", "adopt", "unadopt", "supervise", "upgrade"];

const ENVIRONMENT: [Entry; 6] = [
    Entry {
        name: "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY",
        meaning: "Proxies for the repository, unless the setting `proxy` names one.",
        verbs: FETCHES,
    },
    Entry {
        name: "SOURCE_DATE_EPOCH",
        meaning: "Seconds since 1970: the time of every file in a payload. The same input then gives the same bytes.",
        verbs: &["pack"],
    },
    Entry {
        name: "SSH_AUTH_SOCK",
        meaning: "The socket of the ssh-agent that holds a key `ssh-agent:NAME`.",
        verbs: AUTHORS,
    },
    Entry {
        name: "SIDLE_SIGN",
        meaning: "Set for the program of a key `exec:COMMAND`: `public` asks for the public key, `sign` for a signature over standard input.",
        verbs: AUTHORS,
    },
    Entry {
        name: "SIDLE_TREE, SIDLE_VERSION, SIDLE_SOURCE",
        meaning: "Set for the build command of a recipe: the directory to fill, the version, and `--source`.",
        verbs: &["pack"],
    },
    Entry {
        name: "PATH, HOME, TMPDIR, USER, LOGNAME, SUDO_*, LANG, LC_*, TERM, TZ, NO_COLOR, *_proxy",
        meaning: "Passed on to programs of a release, if another user cannot have put files where the value points. Other variables are passed on only \
                  if the setting `pass_environment` or `--pass-environment` names them.",
        verbs: &["run", "supervise"],
    },
];

const FILES: [Entry; 9] = [
    Entry {
        name: "/etc/sidle/sidle.toml, /etc/sidle/conf.d/*.toml, /usr/lib/sidle/conf.d/*.toml",
        meaning: "Settings: `sidle.toml(5)`.",
        verbs: &["setup", "supervise", "switch"],
    },
    Entry {
        name: "/opt/sidle/PACKAGE/versions/RELEASE/",
        meaning: "The files of an installed release.",
        verbs: &["install", "upgrade", "verify", "repair", "scrub", "collect", "remove", "run", "list"],
    },
    Entry {
        name: "/opt/sidle/PACKAGE/current",
        meaning: "Link to the release that a boot starts (other instances: `current-INSTANCE`).",
        verbs: SWITCHES,
    },
    Entry {
        name: "/opt/sidle/PACKAGE/aside/RELEASE/",
        meaning: "Files that did not belong into a release, moved here by a repair.",
        verbs: &["repair", "scrub"],
    },
    Entry {
        name: "/var/lib/sidle/PACKAGE/RELEASE/",
        meaning: "The receipt of a release: its signed manifest, and the metadata that authorised it.",
        verbs: &["install", "verify", "repair"],
    },
    Entry {
        name: "/var/lib/sidle/trust/",
        meaning: "The trusted metadata of the repository.",
        verbs: &["trust", "setup", "install"],
    },
    Entry {
        name: "/var/lib/sidle/instances/INSTANCE/",
        meaning: "Journal, history, hold and verdicts of an instance.",
        verbs: &["switch", "rollback", "restart", "status", "history", "job", "hold", "unhold", "supervise"],
    },
    Entry { name: "/var/cache/sidle/", meaning: "Verified parts of downloads; may be deleted.", verbs: FETCHES },
    Entry {
        name: "/run/sidle/INSTANCE/",
        meaning: "The supervisor's status and control socket, and the gate.",
        verbs: &["supervise", "status", "job", "switch"],
    },
];

/// Verbs whose exit code says more than the general table.
const EXITS: [(&str, &str); 8] = [
    ("generalize", "3 if nothing is to be removed; 12 while a supervisor or an agent of this host runs."),
    (
        "setup",
        "3 if nothing is to be done; 7 if the root has another fingerprint; 12 if this host trusts, or its settings name, another repository.",
    ),
    ("doctor", "0 if nothing is worse than a note; else the code of the worst finding."),
    ("status", "4 while a switch is under way; else 0."),
    (
        "switch",
        "4 if the switch is still in progress (`--no-wait`, `--at-window`, or in a Salt job of the minion); 5 if the switch was rolled back.",
    ),
    ("upgrade", "3 if the newest release runs already; 5 if the switch was rolled back."),
    ("repo refresh", "3 if nothing is due yet."),
    ("run", "That of the program, once it was executed."),
];

const DESCRIPTION: &str = "sidle installs every release of an agent (first of all the Salt minion) into a directory of its own, starts the new release \
beside the running one, gives new jobs to the new process, and rolls back by itself if the new release fails. Releases come from a signed repository, or from one \
file. Nothing runs, and nothing is installed, that the pinned root of trust does not vouch for.";

pub(super) fn pages() -> Vec<Page> {
    let command = built();
    let verbs = verbs_of(&command);
    let own = Page { directory: MAN, name: "sidle.8".to_owned(), text: main(&command) };
    std::iter::once(own).chain(verbs.iter().map(|verb| of_verb(verb, &verbs))).collect()
}

fn main(command: &Command) -> String {
    let headed = command.clone().subcommand_help_heading("VERBS").subcommand_value_name("VERB");
    let mut page = head(headed.clone());
    section(&mut page, &format!("## Description\n\n{DESCRIPTION}\n"));
    let man = man(headed);
    append(&mut page, |bytes| man.render_options_section(bytes));
    append(&mut page, |bytes| man.render_subcommands_section(bytes));
    let mut rest = format!("## Exit status\n\n{}", exit_codes());
    entries(&mut rest, "Environment", ENVIRONMENT.iter());
    entries(&mut rest, "Files", FILES.iter());
    rest.push_str(
        "\n## Examples\n\n    sidle trust pin 1.root.json --fingerprint SHA256\n    sidle install salt-minion-3007.17.sidle\n    sidle switch \
         salt-minion\n    sidle rollback salt-minion\n\n## See also\n\n`sidle.toml(5)`, `sidle-bundle(5)`, `salt-minion(1)`\n",
    );
    section(&mut page, &rest);
    page
}

fn of_verb(verb: &Command, verbs: &[Command]) -> Page {
    let words = verb.get_bin_name().unwrap_or_else(|| verb.get_name()).trim_start_matches("sidle ").to_owned();
    let first = words.split(' ').next().unwrap_or_default();
    let hidden = |argument: clap::Arg| {
        let is_general = argument.is_global_set() || argument.get_id() == "help";
        argument.hide(is_general)
    };
    let plain = verb.clone().mut_args(hidden);
    let has_options = plain.get_arguments().any(|argument| !argument.is_hide_set());
    let has_verbs = plain.has_subcommands();
    let plain = plain.subcommand_help_heading("VERBS").subcommand_value_name("VERB");
    let mut page = head(plain.clone());
    let man = man(plain.clone());
    append(&mut page, |bytes| man.render_description_section(bytes));
    if has_options {
        append(&mut page, |bytes| man.render_options_section(bytes));
    }
    if has_verbs {
        append(&mut page, |bytes| man.render_subcommands_section(bytes));
    }
    let more = plain.get_after_help().map(|more| format!("{more}\n\n")).unwrap_or_default();
    let mut rest =
        format!("{more}The global options `--root`, `--json`, `--quiet` and `--verbose` are in `sidle(8)`.\n");
    let exit = EXITS.iter().find(|(verb, _)| *verb == words).map(|(_, text)| format!("{text} ")).unwrap_or_default();
    let _ = write!(rest, "\n## Exit status\n\n{exit}`sidle(8)` lists the exit codes.\n");
    entries(&mut rest, "Environment", ENVIRONMENT.iter().filter(|entry| entry.verbs.contains(&first)));
    entries(&mut rest, "Files", FILES.iter().filter(|entry| entry.verbs.contains(&first)));
    let siblings = verbs.iter().map(page_name).filter(|name| {
        let same_family = name.strip_prefix("sidle-").is_some_and(|name| name.split('-').next() == Some(first));
        same_family && *name != page_name(verb)
    });
    let others: Vec<String> = siblings.map(|name| format!("`{name}(8)`")).collect();
    let all = [vec!["`sidle(8)`".to_owned(), "`sidle.toml(5)`".to_owned()], others].concat();
    let _ = write!(rest, "\n## See also\n\n{}\n", all.join(", "));
    section(&mut page, &rest);
    Page { directory: MAN, name: format!("{}.8", page_name(verb)), text: page }
}

fn page_name(verb: &Command) -> String {
    verb.get_display_name().unwrap_or_else(|| verb.get_name()).to_owned()
}

fn man(command: Command) -> Man {
    let source = format!("sidle {}", env!("CARGO_PKG_VERSION"));
    Man::new(command).section("8").date(DATE).source(source).manual("sidle")
}

fn head(command: Command) -> String {
    let man = man(command);
    let mut page = String::new();
    append(&mut page, |bytes| man.render_title(bytes));
    append(&mut page, |bytes| man.render_name_section(bytes));
    append(&mut page, |bytes| man.render_synopsis_section(bytes));
    page
}

/// Appends a section; a buffer in memory takes every byte.
fn append(page: &mut String, render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) {
    let mut bytes = Vec::new();
    if render(&mut bytes).is_ok() {
        let text = String::from_utf8_lossy(&bytes);
        // Each part begins with roff's own definition of its quotation marks; the title's is enough.
        let text = text.strip_prefix(PREAMBLE).filter(|_| !page.is_empty()).unwrap_or(&text);
        page.push_str(&marked(text));
    }
}

/// What help texts have in backticks, in bold.
fn marked(text: &str) -> String {
    let line = |line: &str| match line.matches('`').count() {
        count if count > 0 && count % 2 == 0 => {
            let parts = line.split('`').enumerate();
            parts
                .map(|(place, part)| if place % 2 == 1 { format!("\\fB{part}\\fR") } else { part.to_owned() })
                .collect()
        }
        _ => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// What `Roff` writes first.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

fn section(page: &mut String, text: &str) {
    let mut roff = Roff::default();
    markdown::append(&mut roff, text);
    page.push_str(&roff.to_roff());
}

fn entries(text: &mut String, title: &str, entries: impl Iterator<Item = &'static Entry>) {
    let rows: Vec<String> = entries.map(|entry| format!("| `{}` | {} |\n", entry.name, entry.meaning)).collect();
    if !rows.is_empty() {
        let _ = write!(text, "\n## {title}\n\n| name | meaning |\n|---|---|\n{}", rows.concat());
    }
}
