//! The minion's own options, as far as idleness and health rest on them: a release's Salt, or the guard of a running process, says them.

pub mod answer;
pub mod asking;
pub mod kept;
pub mod missed;

use crate::agent::{AgentError, Need};
use crate::digest::Digest;
use crate::os::dir::{Dir, FileKind};
use crate::os::file;
use answer::Answer;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Grains, an engine or a key. A larger file is an error: its content would not be known.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A master as configured, its name taken apart by Salt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Master {
    /// As the configuration has it: the name in messages and history.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// Port of its request server.
    pub request_port: u16,
    /// Port of its publisher where the minion's configuration sets one. Otherwise the master tells it at sign-in. All three
    /// versions take 4506 as "not set" (`salt/channel/client.py`: `int(opts.get("publish_port", 4506)) != 4506`).
    pub publish_port: Option<u16>,
}

/// How the minion is to find its masters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Masters {
    /// These, and so many of them.
    Named(Vec<Master>, Need),
    /// It works without one (`master_type: disable`).
    None,
    /// They cannot be known from outside, because of this.
    Unknown(String),
}

/// What sidle needs of a minion's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinionConfig {
    /// Its id; None where Salt would make it from the host's name.
    pub id: Option<String>,
    /// Where it keeps its jobs and queues.
    pub cache_directory: PathBuf,
    /// Where its own extensions come to; grains below it are loaded by main.
    pub extension_directory: PathBuf,
    /// Where its keys are, and its master's.
    pub key_directory: PathBuf,
    /// Where its event sockets are.
    pub socket_directory: PathBuf,
    /// The file that holds main's process number.
    pub pid_file: PathBuf,
    /// Its masters.
    pub masters: Masters,
    /// False: jobs are threads of main.
    pub multiprocessing: bool,
    /// The user it runs as, where the configuration says so.
    pub user: Option<String>,
}

impl MinionConfig {
    /// The digest of the minion's keys and the master's. The start loads or makes them, so the digest counts once the minion is healthy.
    pub fn credentials(&self) -> Result<Digest, AgentError> {
        let digest = |name| Ok::<_, AgentError>(format!("{:?}\n", content(&self.key_directory.join(name))?));
        let all: Vec<String> =
            ["minion.pem", "minion.pub", "minion_master.pub"].into_iter().map(digest).collect::<Result<_, _>>()?;
        Ok(Digest::of(all.concat().as_bytes()))
    }

    /// Where the entries of running jobs are.
    pub fn jobs_directory(&self) -> PathBuf {
        self.cache_directory.join("proc")
    }
}

/// The digest of all that a minion loads only at its start: its options, its id, its own grains, and the engines that were synced to it. None: not
/// known. `directory`: its configuration directory.
pub fn digest(answer: &Answer, config: &MinionConfig, directory: &Path) -> Result<Option<Digest>, AgentError> {
    let Some(options) = answer.digest else { return Ok(None) };
    let grains = content(&directory.join("grains"))?;
    let engines = content_of_all(&config.extension_directory.join("engines"))?;
    // A missing part adds nothing.
    let more = [("grains", grains), ("engines", engines)]
        .map(|(name, digest)| digest.map_or_else(String::new, |digest| format!(" {name} {digest}")));
    Ok(Some(Digest::of(format!("{options}{}", more.concat()).as_bytes())))
}

/// The digest of a file; None: there is none.
fn content(path: &Path) -> Result<Option<Digest>, AgentError> {
    let bytes = file::read_if_exists(path, FILE_BYTES_MAX)?;
    Ok(bytes.map(|bytes| Digest::of(&bytes)))
}

/// The digest of all files of a directory; None: it has none.
fn content_of_all(directory: &Path) -> Result<Option<Digest>, AgentError> {
    let Some(found) = Dir::open_if_exists(directory)? else { return Ok(None) };
    let entries = found.entries()?;
    let files = entries.into_iter().filter(|(_, kind)| *kind == FileKind::File).map(|(name, _)| name);
    let mut names: Vec<_> = files.collect();
    names.sort();
    let told = |name: &OsString| Ok::<_, AgentError>(format!("{name:?} {:?}\n", content(&directory.join(name))?));
    let all: Vec<String> = names.iter().map(told).collect::<Result<_, _>>()?;
    Ok((!all.is_empty()).then(|| Digest::of(all.concat().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use answer::Options;

    #[test]
    fn what_a_start_loads_beside_its_options_changes_the_digest() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            let directory = Dir::open_or_create(path.parent().unwrap(), 0o755).unwrap();
            directory.write_atomic(path.file_name().unwrap(), text.as_bytes(), 0o644).unwrap();
        };
        let path = |name: &str| Some(root.path().join(name));
        let options = Options { extension_modules: path("ext"), pki_dir: path("pki"), ..answer::recorded() };
        let config = options.config().unwrap();
        let (schema, version, failure, generated, id_file) = (1, None, None, None, None);
        let (digest_of_options, files) = (Some(Digest::of(b"options")), None);
        let answer = Answer {
            schema,
            version,
            failure,
            options: Some(options),
            generated,
            id_file,
            digest: digest_of_options,
            files,
        };
        let look = || (digest(&answer, &config, root.path()).unwrap().unwrap(), config.credentials().unwrap());
        let mut before = look();
        put("ext/modules/own.py", "pass");
        assert_eq!(look(), before, "a module is loaded anew whenever it changes");
        for (name, text) in
            [("grains", "role: web\n"), ("ext/engines/e.py", "1"), ("ext/engines/e.py", "2"), ("grains", "{}\n")]
        {
            put(name, text);
            assert_ne!(look().0, before.0, "{name}");
            assert_eq!(look().1, before.1, "{name}");
            before = look();
        }
        for name in ["pki/minion.pem", "pki/minion_master.pub"] {
            put(name, "key");
            assert_eq!(look().0, before.0, "{name}");
            assert_ne!(look().1, before.1, "{name}");
            before = look();
        }
        let unknown = Answer { digest: None, ..answer.clone() };
        assert_eq!(digest(&unknown, &config, root.path()).unwrap(), None);
    }
}
