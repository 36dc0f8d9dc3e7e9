//! `salt-call --local` of a release on a host without a minion: its configuration, its cache and its temporary files have a place of their own.

/// Where all of it lies. Nothing of a host's own minion is read or written there.
const PLACE: &str = "/var/cache/sidle/call";
/// The command of a release.
pub const COMMAND: &str = "salt-call";

/// The script that makes the place.
pub fn prepare() -> String {
    let configuration = configuration(PLACE);
    format!(
        "set -eu\numask 077\nmkdir -p {PLACE}/etc {PLACE}/tmp\ncat >{PLACE}/etc/minion <<'END'\n{configuration}END\n"
    )
}

/// The configuration of a call that writes at this place alone.
pub fn configuration(place: &str) -> String {
    format!(
        "root_dir: {place}\nfile_client: local\ncachedir: {place}/cache\npki_dir: {place}/pki\nsock_dir: {place}/run\nextension_modules: {place}/extmods\n\
         log_file: {place}/log\n"
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
