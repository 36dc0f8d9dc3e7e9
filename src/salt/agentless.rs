//! `salt-call --local` of a release on a host without a minion: its configuration, its cache and its temporary files have a place of their own.

/// Where all of it lies. Nothing of a host's own minion is read or written there.
const PLACE: &str = "/var/cache/sidle/call";
/// The command of a release.
pub const COMMAND: &str = "salt-call";

/// The script that makes the place.
pub fn prepare() -> String {
    format!(
        "set -eu\numask 077\nmkdir -p {PLACE}/etc {PLACE}/tmp\n\
         cat >{PLACE}/etc/minion <<'END'\n\
         root_dir: {PLACE}\nfile_client: local\ncachedir: {PLACE}/cache\npki_dir: {PLACE}/pki\nsock_dir: {PLACE}/run\nextension_modules: {PLACE}/extmods\n\
         log_file: {PLACE}/log\nEND\n"
    )
}

/// The variables of the call.
pub fn variables() -> Vec<String> {
    vec![format!("TMPDIR={PLACE}/tmp")]
}

/// The words of the call.
pub fn arguments(words: &[String]) -> Vec<String> {
    let own = ["--local".to_owned(), format!("--config-dir={PLACE}/etc")];
    own.into_iter().chain(words.iter().cloned()).collect()
}
