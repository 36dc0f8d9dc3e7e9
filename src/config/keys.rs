//! The documentation of every setting: `sidle.toml(5)` and `docs/settings.md` are made of this table. A test holds it against the structures that
//! are parsed, and each default against what an empty file comes to.

/// The keys of one table of the settings file.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// The line that begins it in the file; empty: the top of the file.
    pub table: &'static str,
    /// What is said of all its keys.
    pub text: &'static str,
    /// The keys.
    pub keys: &'static [Key],
}

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// Its type, or its possible values; times and rates have their units written.
    pub kind: &'static str,
    /// As it is written, in backticks; or in words.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// Whether the table of one mirror may have it, too.
    pub of_a_mirror: bool,
}

const fn key(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, default, meaning, of_a_mirror: false }
}

const fn mirror_key(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, default, meaning, of_a_mirror: true }
}

/// What is said of the whole file; a paragraph each.
pub const RULES: [&str; 6] = [
    "Files: `/etc/sidle/sidle.toml`, then `/etc/sidle/conf.d/*.toml` in the order of their names. A later file wins, key by key. Without any file, \
     the defaults apply. A wrong value or an unknown key is an error (exit code 2) that names the file and the line.",
    "A *time* is a whole number with `ms`, `s`, `m`, `h` or `d`: `\"90s\"`. A *rate* is bytes a second with `B`, `KiB`, `MiB` or `GiB`: `\"20MiB\"`. \
     Both are written in quotation marks.",
    "A *path* begins with `/`. With `--root DIR`, `config` and `extras_wheels` lie below `DIR`; the paths in `[repository]` do not.",
    "A *window* is `\"Sat 22:00-04:00\"`; days may be left out (every day), or listed (`\"Mon..Fri 01:00-03:00\"`, `\"Sun,Wed 12:30-13:00\"`). A window \
     whose end is not after its start ends on the next day.",
    "Commands read the settings each time. The supervisor reads them when it starts, and again on SIGHUP: \
     `systemctl kill -s HUP --kill-who=main sidle@NAME`.",
    "A second instance of a package: name it in `[instances.NAME]` with `package = \"salt-minion\"` and `config = \"/etc/salt-two\"`, enable \
     `sidle@NAME`, and add `--instance NAME` to each command.",
];

/// Every setting.
pub const SECTIONS: [Section; 4] = [
    Section {
        title: "Switches",
        table: "",
        text: "For every instance. These keys stand at the top of a file, before the first `[…]`.",
        keys: &[
            key("probation", "time", "`\"60s\"`", "how long a release must stay healthy before it becomes current"),
            key(
                "start_timeout",
                "time",
                "`\"120s\"`",
                "until a release must run, and again until it must reach its masters. A process that starts beside another process has a low CPU \
                 priority for the first half",
            ),
            key(
                "stop_timeout",
                "time",
                "`\"30s\"`",
                "`systemctl stop`: how long the agent may take to end; then it is killed. In a switch: until a killed process must be gone, else the \
                 switch goes back. Keep it below `TimeoutStopSec` of the unit (120 s)",
            ),
            key(
                "switch_deadline",
                "time",
                "`\"30m\"`",
                "how long a switch in mode `idle`, and `sidle unadopt`, wait for running jobs; then nothing is changed. `--deadline` overrules it",
            ),
            key(
                "retire_timeout",
                "time",
                "`\"30m\"`",
                "how long a switch waits for the last jobs of the old process. After that the switch is over, and the old process finishes its jobs \
                 by itself",
            ),
            key(
                "drain_timeout",
                "time",
                "`\"30m\"`",
                "when a switch goes back: how long the process on trial may take to finish its jobs",
            ),
            key(
                "rehearsal",
                "`\"refuse\"`, `\"report\"`, `\"off\"`",
                "`\"refuse\"`",
                "what a rehearsal may do: refuse the switch, only report, or not happen. `\"off\"` also ends the checks of `host_look`",
            ),
            key(
                "rehearsal_timeout",
                "time",
                "`\"120s\"`",
                "until a rehearsal must be over. It has a low CPU priority for a quarter of this time",
            ),
            key(
                "extras",
                "`\"refuse\"`, `\"report\"`, `\"rebuild\"`",
                "`\"refuse\"`",
                "packages that `salt-pip` installed over a release, and that the next release would not see: refuse the switch, only report, or \
                 install them for the next release, too, with its own `salt-pip`",
            ),
            key(
                "extras_wheels",
                "path",
                "none",
                "directory of packages for `extras = \"rebuild\"`. Without it: from where pip's configuration says",
            ),
            key(
                "extras_timeout",
                "time",
                "`\"10m\"`",
                "until `extras = \"rebuild\"` must be done; without effect otherwise",
            ),
            key(
                "restore_configuration",
                "`true`, `false`",
                "`false`",
                "a rollback, and a failed switch, put the agent's configuration back as it was",
            ),
            key(
                "windows",
                "list of windows",
                "`[]`: always",
                "when switches, restarts and rollbacks may begin. A failed switch goes back at any time",
            ),
            key("timezone", "name, such as `\"Europe/Berlin\"`", "the host's", "the time zone of the windows"),
            key(
                "job_splay",
                "time",
                "`\"60s\"`",
                "a switch or restart that a job of the agent asks for begins at a random time within this; a rollback does not wait. `--splay` \
                 overrules it",
            ),
        ],
    },
    Section {
        title: "Agent, trees and bundles",
        table: "",
        text: "At the top of a file, too.",
        keys: &[
            key(
                "restart_pause",
                "time",
                "`\"1s\"`",
                "pause before an agent that ended is started again; doubles each time",
            ),
            key("restart_pause_limit", "time", "`\"60s\"`", "the longest such pause"),
            key(
                "fall_back_within",
                "time",
                "`\"10m\"`",
                "a release that never stays up is left for the previous release, if it became current no longer ago than this",
            ),
            key(
                "host_look",
                "time",
                "`\"10m\"`",
                "how often the supervisor checks whether the host's libraries changed under the current and the previous release",
            ),
            key(
                "scrub_every",
                "time",
                "`\"7d\"`",
                "how often the supervisor hashes all files of its package; `\"0s\"`: never",
            ),
            key("scrub_rate", "rate", "`\"20MiB\"`", "how fast a scrub reads"),
            key(
                "keep_extra",
                "number",
                "`1`",
                "releases that `sidle collect` keeps besides current and previous. `--keep` overrules it",
            ),
            key(
                "by_hand_grace",
                "time",
                "`\"90d\"`",
                "how long the timestamp and snapshot metadata in a bundle file may have expired. Root and targets metadata may not have expired",
            ),
        ],
    },
    Section {
        title: "Instances",
        table: "[instances.NAME]",
        text: "For one instance. The default instance of a package has the package's name, and needs no entry.",
        keys: &[
            key("package", "name", "NAME", "the package whose releases this instance runs"),
            key(
                "config",
                "path",
                "what the release's manifest names (Salt: `/etc/salt`)",
                "the agent's configuration directory",
            ),
            key("windows", "list of windows", "the general `windows`", "instead of the general windows; `[]`: always"),
            key("timezone", "name", "the general `timezone`", "instead of the general time zone"),
            key(
                "pass_environment",
                "list of names",
                "none",
                "variables of the caller that the release's programs get, although loaders and interpreters obey them",
            ),
        ],
    },
    Section {
        title: "Repository",
        table: "[repository]",
        text: "Where releases are fetched from. Keys marked * may also stand in the table of one mirror: \
               `mirrors = [{ url = \"https://…\", token_file = \"…\" }]`. With `--repository URL`, credentials go to that URL only if the settings name \
               the same URL; `ca_file` and `system_ca` count for each.",
        keys: &[
            mirror_key(
                "url",
                "URL",
                "none",
                "where `metadata/` and `targets/` are: `https://`, `http://` or `file:///`. A URL has no user or password in it",
            ),
            key(
                "mirrors",
                "list of URLs or tables",
                "none",
                "instead of `url`: several places, asked in this order. A later file that sets `url` or `mirrors` replaces both",
            ),
            mirror_key(
                "ca_file",
                "path, or list of paths",
                "none",
                "certificates (PEM) of authorities that are trusted besides the host's",
            ),
            mirror_key("system_ca", "`true`, `false`", "`true`", "`false`: only `ca_file` counts"),
            mirror_key(
                "client_certificate",
                "path",
                "none",
                "certificate chain (PEM) of this host; needs `client_key`, and `https://`",
            ),
            mirror_key("client_key", "path", "none", "its private key (PEM); mode 0600"),
            mirror_key(
                "token_file",
                "path",
                "none",
                "its first line is sent as bearer token, over `https://` only; mode 0600",
            ),
            mirror_key(
                "netrc",
                "path",
                "none",
                "users and passwords by host, also of the proxy; to mirrors over `https://` only; mode 0600. A mirror's own `token_file` or `netrc` \
                 replaces both general keys",
            ),
            key(
                "proxy",
                "URL, or `\"none\"`",
                "`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`",
                "proxy: `http://`, `https://` or `socks5h://`, without a user or password",
            ),
            key("rate_limit", "rate", "none: no limit", "how fast a fetch receives"),
            key("splay", "time", "`\"0s\"`", "a run with `--unattended` begins at a random time within this"),
            key("connect_timeout", "time", "`\"10s\"`", "until a connection stands"),
            key("stall_timeout", "time", "`\"30s\"`", "until the next byte arrives"),
            key("total_timeout", "time", "`\"2h\"`", "for everything that one run fetches"),
            key("attempts", "number", "`5`", "failures in a row after which a mirror is not asked again in this run"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, parse};
    use std::path::Path;

    /// What the settings come to; those of a repository need a place to come from.
    fn outcome(text: &str, table: &str) -> String {
        let place = if table == "[repository]" { "\nurl = \"https://a.example\"\n" } else { "" };
        let settings = Settings::from(parse(Path::new("sidle.toml"), &format!("{table}{place}\n{text}\n")).unwrap());
        if place.is_empty() { format!("{settings:?}") } else { format!("{:?}", settings.repository().unwrap()) }
    }

    #[test]
    fn every_default_that_is_written_as_a_value_is_what_an_empty_file_comes_to() {
        let mut compared = 0;
        for section in SECTIONS.iter().filter(|section| section.table != "[instances.NAME]") {
            for key in section.keys {
                let value = key.default.split('`').nth(1).filter(|_| key.default.starts_with('`'));
                let Some(value) = value.filter(|value| !value.ends_with("PROXY")) else { continue };
                let set = outcome(&format!("{} = {value}", key.name), section.table);
                assert_eq!(set, outcome("", section.table), "{}", key.name);
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
