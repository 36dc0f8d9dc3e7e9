//! The documentation of every setting: `sidle.toml(5)` and `docs/settings.md` are made of this table, and the defaults are read from it. A test holds it
//! against the structures that are parsed.

use serde::de::DeserializeOwned;
use toml::de::ValueDeserializer;

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
pub const RULES: [&str; 7] = [
    "Files: `/etc/sidle/sidle.toml`, then all files of `/usr/lib/sidle/conf.d/*.toml` (of packages) and `/etc/sidle/conf.d/*.toml` (yours), in the \
     order of their names. A file in `/etc/sidle/conf.d` replaces the whole file of the same name in `/usr/lib/sidle/conf.d`; an empty file, or a link \
     to `/dev/null`, switches that file off. If two files set the same key, the last file in this order wins. Without any file, the defaults apply. A wrong value \
     or an unknown key is an error (exit code 2) that names the file and the line.",
    "With `--config FILE`, a command reads only `FILE`; `FILE` is not below `--root`. The commands that a supervisor starts read the file of the \
     supervisor.",
    "A *time* is a whole number with `ms`, `s`, `m`, `h` or `d`: `\"90s\"`. A *rate* is bytes a second with `B`, `KiB`, `MiB` or `GiB`: \
     `\"20MiB\"`. Both are written in quotation marks.",
    "A *path* begins with `/`. With `--root DIR`, the paths in `config` and `extras_wheels` are below `DIR`, as are the settings files; the paths in \
     `[repository]` are not.",
    "A *window* is `\"Sat 22:00-04:00\"`; days may be left out (every day), or listed (`\"Mon..Fri 01:00-03:00\"`, `\"Sun,Wed 12:30-13:00\"`). A \
     window whose end is not after its start ends on the next day.",
    "Commands read the settings each time. The supervisor reads the settings when it starts, and again on SIGHUP: `systemctl kill -s HUP \
     --kill-who=main sidle@NAME`. `sidle status` says when the files have changed since then.",
    "A second instance of a package: name it in `[instances.NAME]` with `package = \"salt-minion\"` and `config = \"/etc/salt-two\"`, enable \
     `sidle@NAME`, and add `--instance NAME` to each command that has this option.",
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
                "limit for each of these steps: starting a process, reaching its masters, giving the jobs to it; so a switch that fails may take several \
                 times as long. A process that starts beside another process has a low CPU priority for the first half of this time",
            ),
            key(
                "stop_timeout",
                "time",
                "`\"30s\"`",
                "`systemctl stop`: the time between SIGTERM and SIGKILL. In a switch: the limit of the phases \
                 `freezing` (then the switch ends as `expired`), `stopping` (then it rolls back) and `stopping-new` (then it is `stranded`). Keep this \
                 time below `TimeoutStopSec` of the unit (120 s)",
            ),
            key(
                "switch_deadline",
                "time",
                "`\"30m\"`",
                "how long a switch in mode `idle`, and `sidle unadopt`, wait for running jobs; then they give up and change nothing. `--deadline` \
                 overrules this setting",
            ),
            key(
                "retire_timeout",
                "time",
                "`\"30m\"`",
                "how long a switch waits for the last jobs of the old process. After that the switch ends as `committed`; the old process takes no new \
                 jobs, and stays (`finishing` in `sidle status`) until its last job ends. During `sidle adopt` there is no limit",
            ),
            key(
                "drain_timeout",
                "time",
                "`\"30m\"`",
                "when a switch in mode `overlap` rolls back: how long sidle waits for the jobs of the new process. After that sidle kills the new process: its \
                 jobs keep running, but their returns are lost",
            ),
            key(
                "rehearsal",
                "`\"refuse\"`, `\"report\"`, `\"off\"`",
                "`\"refuse\"`",
                "a rehearsal is the preflight of a switch: the new release loads this host's configuration and modules without a master. If it \
                 finds a problem, or cannot be done: refuse the switch, or only report the reason. `\"off\"`: no rehearsal; the supervisor also stops its \
                 regular check whether the host's libraries changed (`host_check_every`)",
            ),
            key(
                "rehearsal_timeout",
                "time",
                "`\"120s\"`",
                "how long a rehearsal may take; then the switch ends, and nothing is changed. A rehearsal has a low CPU priority for the first \
                 quarter of this time",
            ),
            key(
                "highstate",
                "`\"render\"`, `\"test\"`, `\"off\"`",
                "`\"render\"`",
                "what a rehearsal compares of the states that the running and the new release apply to this host: the highstate that each of them \
                 renders from the minion's cache (`\"render\"`); also what each of them says with `test=True` (`\"test\"`), which runs the checks of \
                 states, as `onlyif` and `unless`; nothing (`\"off\"`). One release may take a quarter of `rehearsal_timeout`",
            ),
            key(
                "count_uses",
                "`true`, `false`",
                "`true`",
                "the guard in the minion counts which functions of which modules are called: names, days and numbers, never arguments, for 90 \
                 days. `sidle uses` shows the count, and rehearsals refuse a release that lacks something that is used. A change counts from the next \
                 start of the minion on",
            ),
            key(
                "extras",
                "`\"refuse\"`, `\"report\"`, `\"rebuild\"`",
                "`\"refuse\"`",
                "packages that `salt-pip` installed into a release, and that the next release would not find. If both have the same minor version \
                 of Python, sidle copies the packages; else refuse the switch, or install the packages for the next release, too, with the \
                 `salt-pip` of that release. `\"report\"`: only report the packages",
            ),
            key(
                "extras_wheels",
                "path",
                "none",
                "directory with the packages for `extras = \"rebuild\"`, which then needs no network. If not set: the index that pip's \
                 configuration names",
            ),
            key(
                "extras_timeout",
                "time",
                "`\"10m\"`",
                "how long the copy of packages may take, or their install by `extras = \"rebuild\"`",
            ),
            key(
                "windows",
                "list of windows",
                "`[]`: always",
                "when switches, restarts and rollbacks may begin. A failed switch rolls back even outside the windows",
            ),
            key("timezone", "name, such as `\"Europe/Berlin\"`", "the host's", "the time zone of the windows"),
            key(
                "job_splay",
                "time",
                "`\"60s\"`",
                "a switch or restart that is started by a Salt job of the same minion begins at a random time within this time; a rollback begins \
                 at once. `--splay` overrules this setting",
            ),
        ],
    },
    Section {
        title: "Agent, trees and bundles",
        table: "",
        text: "For every instance. These keys stand at the top of a file, too.",
        keys: &[
            key(
                "restart_pause",
                "time",
                "`\"1s\"`",
                "pause before the supervisor starts an agent that ended again; the pause doubles each time",
            ),
            key(
                "restart_pause_limit",
                "time",
                "`\"60s\"`",
                "the longest pause before an agent that ended is started again",
            ),
            key(
                "fall_back_within",
                "time",
                "`\"10m\"`",
                "if the agent of the current release ends again and again, and the release became current less than this time ago, the supervisor \
                 rolls back to the previous release, in mode `now`",
            ),
            key(
                "host_check_every",
                "time",
                "`\"10m\"`",
                "how often the supervisor checks whether the host's libraries changed under the current and the previous release",
            ),
            key(
                "scrub_every",
                "time",
                "`\"7d\"`",
                "how often the supervisor hashes all files of the package's releases, and repairs damaged files; `\"0s\"`: never",
            ),
            key(
                "scrub_rate",
                "rate",
                "`\"20MiB\"`",
                "how fast a scrub (`sidle scrub`, or the supervisor's) reads files",
            ),
            key(
                "keep_extra",
                "number",
                "`1`",
                "how many releases `sidle collect` keeps besides current and previous. `--keep` overrules this setting",
            ),
            key(
                "by_hand_grace",
                "time",
                "`\"90d\"`",
                "how long ago the timestamp and snapshot metadata in a bundle file may have expired. Root and targets metadata must not be expired",
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
            key("windows", "list of windows", "the general `windows`", "the windows of this instance; `[]`: always"),
            key("timezone", "name", "the general `timezone`", "the time zone of this instance's windows"),
            key(
                "pass_environment",
                "list of names",
                "none",
                "environment variables, such as `LD_LIBRARY_PATH` or `AWS_*`, that sidle passes to the release's programs. Without an entry here, \
                 programs get a short list (docs/hosts.md, \"Programs of a release\"), and an agent also what its systemd unit sets",
            ),
        ],
    },
    Section {
        title: "Repository",
        table: "[repository]",
        text: "The repository from which sidle fetches releases. Keys marked * may also stand in the table of one mirror: `mirrors = [{ url = \
               \"https://…\", token_file = \"…\" }]`. With `--repository URL`, credentials go to that URL only if the settings name the same URL; \
               `ca_file` and `system_ca` apply to every URL.",
        keys: &[
            mirror_key(
                "url",
                "URL",
                "none",
                "the directory that contains `metadata/` and `targets/`: `https://`, `http://` or `file:///`. A URL must not contain a user or \
                 password",
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
                "certificates (PEM) of authorities that sidle trusts besides the host's authorities",
            ),
            mirror_key(
                "system_ca",
                "`true`, `false`",
                "`true`",
                "whether sidle trusts the host's authorities; `false`: only `ca_file`",
            ),
            mirror_key(
                "client_certificate",
                "path",
                "none",
                "certificate chain (PEM) of this host; needs `client_key`, and `https://`",
            ),
            mirror_key("client_key", "path", "none", "the private key (PEM) of `client_certificate`; file mode 0600"),
            mirror_key(
                "token_file",
                "path",
                "none",
                "file whose first line sidle sends as bearer token, over `https://` only; file mode 0600",
            ),
            mirror_key(
                "netrc",
                "path",
                "none",
                "file in netrc format with users and passwords for each host, also for the proxy; sent to mirrors over `https://` only; file mode \
                 0600. If the table of a mirror has `token_file` or `netrc`, neither of the general keys is used for this mirror",
            ),
            key(
                "proxy",
                "URL, or `\"none\"`",
                "`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`",
                "the proxy: `http://`, `https://` or `socks5h://`, without a user or password (see `netrc`); `\"none\"`: no proxy. If not set, \
                 sidle uses these environment variables",
            ),
            key(
                "releases",
                "list of patterns",
                "`[]`: all",
                "the releases among which `sidle install`, `upgrade` and `setup` choose if they name none: `[\"salt-minion/3006.*/*\"]` stays with 3006. \
                 The form is that of `sidle mirror --include`. A package without a pattern has no limit",
            ),
            key("rate_limit", "rate", "none: no limit", "how fast sidle downloads"),
            key(
                "splay",
                "time",
                "`\"0s\"`",
                "a command with `--unattended` first waits a random time up to this time, before it downloads",
            ),
            key("connect_timeout", "time", "`\"10s\"`", "how long a connection may take to open"),
            key("stall_timeout", "time", "`\"30s\"`", "how long sidle waits for the next byte of a download"),
            key("total_timeout", "time", "`\"2h\"`", "how long all downloads of one command may take"),
            key(
                "attempts",
                "number",
                "`5`",
                "after this number of failures in a row, a command does not ask the same mirror again",
            ),
        ],
    },
];

/// The default of a key at the top of a file.
pub(super) fn default<T: DeserializeOwned>(name: &str) -> T {
    let top = SECTIONS.iter().filter(|section| section.table.is_empty());
    let key = top.flat_map(|section| section.keys).find(|key| key.name == name);
    let written = key.and_then(|key| key.default.strip_prefix('`')?.split('`').next());
    let value = written.and_then(|written| T::deserialize(ValueDeserializer::parse(written).ok()?).ok());
    value.expect("a test reads all defaults of this table")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::path::Path;

    /// What the settings come to; those of a repository need a place to come from.
    fn outcome(text: &str, table: &str) -> String {
        let place = if table == "[repository]" { "\nurl = \"https://a.example\"\n" } else { "" };
        let settings = parse(Path::new("sidle.toml"), &format!("{table}{place}\n{text}\n")).unwrap();
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
