//! The keys at a master on this machine, by the master's own `salt-key`.

use crate::agent::introduction::Acceptor;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::os::dialogue::{End, Patience};
use crate::os::process::Program;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long `salt-key` may take: a second, and more with 10,000 keys on a busy master.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most that it may print: all denied keys of an id come with it, and everybody may send those.
const OUTPUT_BYTES_MAXIMUM: usize = 16 << 20;
/// Longest id: a name of a host has 253 characters at most.
const ID_BYTES_MAXIMUM: usize = 253;

/// What `salt-key` calls the keys that it knows of an id.
const ACCEPTED: &str = "minions";
const WAITING: &str = "minions_pre";
const REJECTED: &str = "minions_rejected";
/// How the PEM of a minion's key may be named.
const FRAMES: [&str; 2] = ["PUBLIC KEY", "RSA PUBLIC KEY"];

/// A master's `salt-key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaltKey {
    /// The program.
    pub program: PathBuf,
    /// The master's configuration directory; None: the program's own choice, `/etc/salt`.
    pub configuration: Option<PathBuf>,
}

impl SaltKey {
    /// Runs it; what it prints.
    fn run(&self, words: &[&str]) -> Result<String, Report> {
        let mut program = Program::new(&self.program);
        if let Some(directory) = &self.configuration {
            program = program.argument("--config-dir").argument(directory);
        }
        let program = words.iter().fold(program, Program::argument);
        let attempted = format!("run `{} {}`", self.program.display(), words.join(" "));
        let hint = "run `sidle push` on a master, as root, or leave out --accept";
        let failed = |why: String| Report::of(Class::Failed, format!("cannot {attempted}: {why}")).hint(hint);
        let said = || -> Result<(Vec<u8>, End), OsError> {
            let mut dialogue = program.converse(Patience::new(PATIENCE, PATIENCE))?;
            dialogue.close_input();
            Ok((dialogue.rest(OUTPUT_BYTES_MAXIMUM)?, dialogue.end()?))
        };
        let (output, end) = said().map_err(|error| failed(error.to_string()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if end.code == Some(0) {
            return Ok(output);
        }
        let last = output.lines().chain(end.errors.lines()).last().unwrap_or("it said nothing");
        Err(failed(last.trim().to_owned()))
    }

    /// The fingerprint of each key with this id, by what the master has made of it.
    ///
    /// Of the keys themselves: what `salt-key --finger` prints is another fingerprint on masters of 3008.5 and older 3008 (salt#69970).
    fn known(&self, id: &str) -> Result<BTreeMap<String, String>, Report> {
        let printed = self.run(&["--no-color", "--out", "json", "--print", id])?;
        fingerprints(&printed, id).ok_or_else(|| {
            let message = format!("cannot read what `{} --print {id}` prints", self.program.display());
            Report::of(Class::Failed, message)
        })
    }
}

impl Acceptor for SaltKey {
    fn accept(&self, id: &str, key: &str) -> Result<bool, Report> {
        refuse_pattern(id)?;
        let known = self.known(id)?;
        let is = |known: &BTreeMap<String, String>, what: &str| known.get(what).is_some_and(|found| found == key);
        if is(&known, ACCEPTED) {
            return Ok(false);
        }
        let cannot = |class: Class, why: &str| Report::of(class, format!("cannot accept the key of {id}: {why}"));
        if !is(&known, WAITING) {
            return Err(match known {
                known if known.contains_key(ACCEPTED) => cannot(Class::Conflict, "this master has accepted another key of this id")
                    .hint(format!("if the host was set up anew: `salt-key -d {id}`, then the same again; else choose another id (--id)")),
                known if known.contains_key(WAITING) => {
                    cannot(Class::NotTrusted, "another key waits at this master than the host has")
                        .hint(format!("find out whose it is; `salt-key -d {id}` removes it"))
                }
                known if is(&known, REJECTED) => cannot(Class::Conflict, "this master has rejected it")
                    .hint(format!("`salt-key -d {id}`, then the same again")),
                _ => cannot(Class::Failed, "no such key waits at this master")
                    .hint("run `sidle push` on one of the masters that --master names"),
            });
        }
        self.run(&["--no-color", "--yes", "--accept", id])?;
        // salt-key accepts by the id alone.
        if is(&self.known(id)?, ACCEPTED) {
            return Ok(true);
        }
        Err(cannot(Class::NotTrusted, "the key changed while it was accepted")
            .hint(format!("look at once: `salt-key -f {id}`; `salt-key -d {id}` removes it")))
    }
}

/// Refuses what `salt-key` could take for a pattern, a list or an option: a host says its id itself.
fn refuse_pattern(id: &str) -> Result<(), Report> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !id.is_empty() && id.len() <= ID_BYTES_MAXIMUM && id.chars().all(is_plain) && !id.starts_with('-') {
        return Ok(());
    }
    let message =
        format!("cannot accept the key of {id:?}: the id has other characters than letters, digits, `.`, `-`, `_`");
    Err(Report::of(Class::Usage, message).hint("accept it by hand, or choose another id (--id)"))
}

/// The fingerprints of one id's keys in what `salt-key --out json --print ID` prints.
fn fingerprints(text: &str, id: &str) -> Option<BTreeMap<String, String>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(BTreeMap::new());
    }
    let all: BTreeMap<String, BTreeMap<String, serde_json::Value>> = serde_json::from_str(text).ok()?;
    let of_id = |(what, mut keys): (String, BTreeMap<String, serde_json::Value>)| {
        // What is no key has a fingerprint that no key has.
        Some((what, keys.remove(id)?.as_str().and_then(fingerprint).unwrap_or_default()))
    };
    Some(all.into_iter().filter_map(of_id).collect())
}

/// The SHA-256 fingerprint of a key in PEM as minions print it: of the lines between the first and the last. None: it is not one public key alone, so that
/// Salt might read another key out of it.
fn fingerprint(pem: &str) -> Option<String> {
    let lines: Vec<&str> = pem.lines().filter(|line| !line.trim().is_empty()).collect();
    let [first, body @ .., last] = &lines[..] else { return None };
    let is_key = FRAMES
        .iter()
        .any(|name| *first == format!("-----BEGIN {name}-----") && *last == format!("-----END {name}-----"));
    if !is_key || body.iter().any(|line| line.contains('-')) {
        return None;
    }
    let text: String = body.iter().flat_map(|line| [*line, "\n"]).collect();
    let digest = Digest::of(text.as_bytes()).to_string();
    let bytes: Vec<&str> = digest.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok()).collect();
    Some(bytes.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_taken_for_a_pattern_a_list_or_an_option() {
        for good in ["web1", "web1.example.org", "a_b-c"] {
            refuse_pattern(good).unwrap();
        }
        for bad in ["", "*", "web?", "web[12]", "web1,web2", "-d", "a b", "a/../b", "wéb"] {
            assert_eq!(refuse_pattern(bad).unwrap_err().class, Class::Usage, "{bad:?}");
        }
    }

    #[test]
    fn the_fingerprints_of_one_id_are_those_that_minions_print() {
        let pem = "-----BEGIN PUBLIC KEY-----\nAAAA\nBBBB\n-----END PUBLIC KEY-----";
        let expected = fingerprint(pem).unwrap();
        for pem in [pem.to_owned(), format!("{pem}\n"), pem.replace('\n', "\r\n")] {
            let text = serde_json::json!({"local": {"master.pub": "k"}, "minions_pre": {"web1": pem, "web2": "k"}});
            let found = fingerprints(&text.to_string(), "web1").unwrap();
            assert_eq!(found, BTreeMap::from([(WAITING.to_owned(), expected.clone())]));
        }
        assert_eq!(expected.len(), 95);
        assert_eq!(fingerprints("\n", "web1"), Some(BTreeMap::new()));
        assert_eq!(fingerprints("no json", "web1"), None);
    }

    /// The lines between the first and the last are those of the key that is wanted, or the frame is another one.
    #[test]
    fn what_is_not_one_key_alone_has_no_fingerprint() {
        let key = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----";
        assert!(fingerprint(key).is_some() && fingerprint(&key.replace("PUBLIC", "RSA PUBLIC")).is_some());
        let one_line = key.replace('\n', "");
        for bad in
            ["", "x", "x\nAAAA\ny", &format!("{key}\n{key}"), &format!("{one_line}\nAAAA\n-----END PUBLIC KEY-----")]
        {
            assert_eq!(fingerprint(bad), None, "{bad}");
        }
    }
}
