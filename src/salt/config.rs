//! The minion's own options, as far as idleness and health rest on them.

use super::includes::{self, ConfigError};
use super::yaml::Value;
use crate::agent::Need;
use crate::digest::Digest;
use crate::os;
use crate::os::dir::{Dir, FileKind};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// A minion id is a host name; its file holds nothing else.
const ID_BYTES_MAX: u64 = 4096;

/// Grains, an engine or a key. A larger file is an error: its content would not be known.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The file that a minion writes when a job changes its schedule: the minion knows its content.
const OWN_SCHEDULE_NAME: &str = "_schedule.conf";

/// Salt's default port of a master's request server, and the one that `publish_port` counts as unset with (see [`Master::publish_port`]).
const REQUEST_PORT: u16 = 4506;

/// A master as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// True when it looks for addresses of IPv6.
    pub ipv6: bool,
}

impl MinionConfig {
    /// Reads the options of the minion configured in `directory` (absolute), as Salt reads them.
    pub fn read(directory: &Path) -> Result<Self, ConfigError> {
        let file = directory.join("minion");
        let options = Options { value: includes::read(directory, None)?, file };
        let root = options.path("root_dir", "/")?;
        let place = |key: &str, default: String| Ok::<_, ConfigError>(rooted(&root, &options.path(key, &default)?));
        let name = install_name(directory);
        Ok(Self {
            id: match options.text("id")? {
                Some(id) => Some(id),
                None => cached_id(directory)?,
            },
            cache_directory: place("cachedir", format!("/var/cache/{name}/minion"))?,
            // Not below a `cachedir` that was moved: Salt composes its default before it reads any option.
            extension_directory: place("extension_modules", format!("/var/cache/{name}/minion/extmods"))?,
            key_directory: place("pki_dir", format!("/etc/{name}/pki/minion"))?,
            socket_directory: place("sock_dir", format!("/var/run/{name}/minion"))?,
            pid_file: place("pidfile", "/var/run/salt-minion.pid".to_owned())?,
            masters: masters(&options)?,
            multiprocessing: options.truth("multiprocessing", true)?,
            user: options.text("user")?,
            ipv6: options.truth("ipv6", false)?,
        })
    }

    /// The digest of all that a minion loads only at its start: its options, its id, its own grains, and the engines that were synced to it.
    pub fn digest(directory: &Path) -> Result<Digest, ConfigError> {
        let options = includes::read(directory, Some(OWN_SCHEDULE_NAME))?;
        let grains = content(&directory.join("grains"))?;
        let engines = content_of_all(&Self::read(directory)?.extension_directory.join("engines"))?;
        // A missing part adds nothing.
        let more = [("grains", grains), ("engines", engines)]
            .map(|(name, digest)| digest.map_or_else(String::new, |digest| format!(" {name} {digest}")));
        let more = more.concat();
        Ok(Digest::of(format!("{options:?} {:?}{more}", cached_id(directory)?).as_bytes()))
    }

    /// The digest of the minion's keys and the master's. The start loads or makes them, so the digest counts once the minion is healthy.
    pub fn credentials(&self) -> Result<Digest, ConfigError> {
        let digest = |name| Ok::<_, ConfigError>(format!("{:?}\n", content(&self.key_directory.join(name))?));
        let all: Vec<String> =
            ["minion.pem", "minion.pub", "minion_master.pub"].into_iter().map(digest).collect::<Result<_, _>>()?;
        Ok(Digest::of(all.concat().as_bytes()))
    }

    /// Whether the options name an id. If not, Salt writes the host's name into `minion_id`.
    pub fn names_id(directory: &Path) -> Result<bool, ConfigError> {
        let options = Options { value: includes::read(directory, None)?, file: directory.join("minion") };
        Ok(options.text("id")?.is_some())
    }

    /// Where the entries of running jobs are.
    pub fn jobs_directory(&self) -> PathBuf {
        self.cache_directory.join("proc")
    }
}

/// The name in Salt's compiled-in paths (`salt/_syspaths.py`): Uyuni's bundle has its own, and its configuration in the directory
/// of that name. Elsewhere it is `salt` wherever the configuration lies.
fn install_name(directory: &Path) -> &'static str {
    const UYUNI: &str = "venv-salt-minion";
    if directory.file_name().is_some_and(|name| name == UYUNI) { UYUNI } else { "salt" }
}

/// `salt.config.prepend_root_dir`, where the compiled-in root is `/`: what is not below `root` already is put there.
fn rooted(root: &Path, path: &Path) -> PathBuf {
    if path.starts_with(root) && path != root {
        return path.to_owned();
    }
    let below: PathBuf = path.components().filter(|component| matches!(component, Component::Normal(_))).collect();
    root.join(below)
}

/// The digest of a file; None: there is none.
fn content(path: &Path) -> Result<Option<Digest>, ConfigError> {
    let bytes = os::file::read_if_exists(path, FILE_BYTES_MAX)?;
    Ok(bytes.map(|bytes| Digest::of(&bytes)))
}

/// The digest of all files of a directory; None: it has none.
fn content_of_all(directory: &Path) -> Result<Option<Digest>, ConfigError> {
    let Some(found) = Dir::open_if_exists(directory)? else { return Ok(None) };
    let entries = found.entries()?;
    let files = entries.into_iter().filter(|(_, kind)| *kind == FileKind::File).map(|(name, _)| name);
    let mut names: Vec<_> = files.collect();
    names.sort();
    let told = |name: &OsString| Ok::<_, ConfigError>(format!("{name:?} {:?}\n", content(&directory.join(name))?));
    let all: Vec<String> = names.iter().map(told).collect::<Result<_, _>>()?;
    Ok((!all.is_empty()).then(|| Digest::of(all.concat().as_bytes())))
}

fn cached_id(directory: &Path) -> Result<Option<String>, ConfigError> {
    let bytes = os::file::read_if_exists(&directory.join("minion_id"), ID_BYTES_MAX)?;
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

struct Options {
    value: Value,
    file: PathBuf,
}

impl Options {
    fn wrong(&self, cause: String) -> ConfigError {
        ConfigError::Option(self.file.clone(), cause)
    }

    fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(format!("{key} is {}, not a text", other.kind()))),
        }
    }

    fn path(&self, key: &str, default: &str) -> Result<PathBuf, ConfigError> {
        Ok(PathBuf::from(self.text(key)?.unwrap_or_else(|| default.to_owned())))
    }

    fn truth(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        match self.value.get(key) {
            None => Ok(default),
            // Python's truth of what isn't a bool; Salt only warns of the wrong type.
            Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::Text(text)) if text == "0" || text.is_empty() => Ok(false),
            Some(Value::Text(text)) if text == "1" => Ok(true),
            Some(other) => Err(self.wrong(format!("{key} is {}, not True or False", other.kind()))),
        }
    }

    fn port(&self, key: &str) -> Result<Option<u16>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.wrong(format!("{key} is \"{text}\", not a port")))
    }
}

fn masters(options: &Options) -> Result<Masters, ConfigError> {
    let kind = options.text("master_type")?.unwrap_or_else(|| "str".to_owned());
    let need = match kind.as_str() {
        "disable" => return Ok(Masters::None),
        "str" => Need::All,
        // Both keep one of the list: failover the first that answers, distributed the one that the id's hash picks, then failover.
        "failover" | "distributed" => Need::Any,
        "func" => {
            let cause = "master_type is func: which master a function of the minion names can't be known from outside; name the masters in `master`";
            return Err(options.wrong(cause.to_owned()));
        }
        other => return Err(options.wrong(format!("master_type is \"{other}\", which Salt does not know"))),
    };
    let port = options.port("master_port")?.unwrap_or(REQUEST_PORT);
    let publish = options.port("publish_port")?.filter(|port| *port != REQUEST_PORT);
    let ip_only = options.text("master_uri_format")?.as_deref() == Some("ip_only");
    let mut found: Vec<Master> = Vec::new();
    for name in master_names(options, need)? {
        let (host, own) = if ip_only { (name.clone(), None) } else { host_and_port(options, &name)? };
        let request_port = own.unwrap_or(port);
        let master = Master { name, host, request_port, publish_port: publish };
        if !found.contains(&master) {
            found.push(master);
        }
    }
    if found.is_empty() {
        return Err(options.wrong("master names no master: set it, or master_type: disable".to_owned()));
    }
    Ok(Masters::Named(found, need))
}

fn master_names(options: &Options, need: Need) -> Result<Vec<String>, ConfigError> {
    let wrong = |value: &Value| options.wrong(format!("master names {}, not a host", value.kind()));
    match options.value.get("master") {
        // Salt's own default.
        None | Some(Value::Null) => Ok(vec!["salt".to_owned()]),
        // Failover takes "a, b" for a list (`Minion.eval_master`); elsewhere a comma is no part of any name.
        Some(Value::Text(text)) if need == Need::Any || text.contains(',') => {
            Ok(text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect())
        }
        Some(Value::Text(text)) => Ok(vec![text.trim().to_owned()]),
        Some(Value::List(items)) => items
            .iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.trim().to_owned()),
                other => Err(wrong(other)),
            })
            .collect(),
        Some(other) => Err(wrong(other)),
    }
}

/// `salt.utils.network.parse_host_port`: `host`, `host:port`, `[v6]:port`, a bare v6 address.
fn host_and_port(options: &Options, name: &str) -> Result<(String, Option<u16>), ConfigError> {
    let port = |text: &str| {
        text.parse().map(Some).map_err(|_| options.wrong(format!("master \"{name}\" names \"{text}\", not a port")))
    };
    if let Some((host, rest)) = name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = if rest.is_empty() { None } else { port(rest.trim_start_matches(':'))? };
        return Ok((host.to_owned(), port));
    }
    match name.split_once(':') {
        Some((host, rest)) if !rest.contains(':') => Ok((host.to_owned(), port(rest)?)),
        _ => Ok((name.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::dir::Dir;

    fn config(text: &str) -> Result<MinionConfig, ConfigError> {
        let root = tempfile::tempdir().unwrap();
        Dir::open(root.path()).unwrap().write_atomic("minion", text.as_bytes(), 0o644).unwrap();
        MinionConfig::read(root.path())
    }

    fn named(text: &str) -> Vec<(String, u16, Option<u16>)> {
        match config(text).unwrap().masters {
            Masters::Named(masters, _) => {
                masters.into_iter().map(|master| (master.host, master.request_port, master.publish_port)).collect()
            }
            Masters::None => Vec::new(),
        }
    }

    #[test]
    fn paths_are_put_below_the_root_directory_unless_they_are_there() {
        let read = config("root_dir: /r\ncachedir: /r/c\npidfile: /p\nsock_dir: s\nid: a\n").unwrap();
        assert_eq!(read.cache_directory, Path::new("/r/c"));
        assert_eq!(read.pid_file, Path::new("/r/p"));
        assert_eq!(read.socket_directory, Path::new("/r/s"));
        let plain = config("{}\n").unwrap();
        assert_eq!(plain.cache_directory, Path::new("/var/cache/salt/minion"));
        assert_eq!((plain.id, plain.multiprocessing), (None, true));
    }

    #[test]
    fn masters_are_found_in_every_form_that_salt_takes() {
        assert_eq!(named("{}"), [("salt".to_owned(), 4506, None)]);
        assert_eq!(named("master: a:1\npublish_port: 7\n"), [("a".to_owned(), 1, Some(7))]);
        assert_eq!(named("master: '[::1]:9'\n"), [("::1".to_owned(), 9, None)]);
        assert_eq!(named("master: fe80::1\nmaster_port: 5\n"), [("fe80::1".to_owned(), 5, None)]);
        assert_eq!(named("master: ::1\nmaster_uri_format: ip_only\n"), [("::1".to_owned(), 4506, None)]);
        assert_eq!(named("master: [a, b:7]\npublish_port: 4506\n").len(), 2);
        assert_eq!(named("master: a, b\nmaster_type: failover\n").len(), 2);
        assert_eq!(config("master_type: disable\n").unwrap().masters, Masters::None);
    }

    #[test]
    fn a_minions_grains_and_synced_engines_are_part_of_what_it_loads_and_its_keys_of_what_it_signs_in_with() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            let directory = Dir::open_or_create(path.parent().unwrap(), 0o755).unwrap();
            directory.write_atomic(path.file_name().unwrap(), text.as_bytes(), 0o644).unwrap();
        };
        let place = root.path().display();
        put("minion", &format!("extension_modules: {place}/ext\npki_dir: {place}/pki\nid: a\n"));
        let look = || {
            let config = MinionConfig::read(root.path()).unwrap();
            (MinionConfig::digest(root.path()).unwrap(), config.credentials().unwrap())
        };
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
    }

    #[test]
    fn what_cannot_be_known_from_outside_is_said() {
        for (text, part) in [
            ("master_type: func\n", "can't be known from outside"),
            ("master_type: other\n", "does not know"),
            ("master_port: x\n", "not a port"),
            ("master: {a: b}\n", "not a host"),
            ("master: []\n", "names no master"),
            ("multiprocessing: maybe\n", "not True or False"),
        ] {
            let message = config(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        assert!(!config("multiprocessing: off\n").unwrap().multiprocessing);
    }
}
