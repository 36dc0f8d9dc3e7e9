//! What a release's Salt made of a configuration, as `asking.py` prints it. The guard reports `options` of its own process in the same form.

use super::{Master, Masters, MinionConfig};
use crate::agent::{AgentError, Need};
use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The form that this sidle reads.
const SCHEMA: u32 = 1;

/// A file or directory that the answer rests on: device, inode, size, times of change in nanoseconds; None: it is not there.
pub type Signature = Option<(u64, u64, u64, i128, i128)>;

/// How the id came about, where no option names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generated {
    /// Salt has kept it in a file.
    File,
    /// It would be the host's name: nothing is kept yet.
    Host,
    /// A function of the minion would name it.
    Function,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The form.
    pub schema: u32,
    /// Salt's version.
    #[serde(default)]
    pub version: Option<String>,
    /// Why Salt can't load the configuration, in its own words.
    pub failure: Option<String>,
    /// The options; None: there is a failure.
    #[serde(default)]
    pub options: Option<Options>,
    /// How the id came about; None: it is configured.
    #[serde(default)]
    pub generated: Option<Generated>,
    /// The file of a generated id, if it was looked for.
    #[serde(default)]
    pub id_file: Option<PathBuf>,
    /// The digest of what the files set, without the schedule that the minion writes itself; None: too much to tell.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// All files that the answer rests on; None: too many.
    pub files: Option<Vec<(PathBuf, Signature)>>,
}

impl Answer {
    /// Reads what the program printed: the last line, as modules of the host's may print before it.
    pub fn parse(output: &str) -> Result<Self, String> {
        let line = output.lines().last().unwrap_or_default();
        let answer: Self =
            serde_json::from_str(line).map_err(|error| format!("the answer cannot be understood: {error}"))?;
        if answer.schema != SCHEMA {
            return Err(format!("the answer has schema {}, and this sidle reads {SCHEMA}", answer.schema));
        }
        if answer.failure.is_none() && answer.options.is_none() {
            return Err("the answer has no options".to_owned());
        }
        Ok(answer)
    }

    /// The options, or Salt's own error.
    pub fn config(&self) -> Result<MinionConfig, String> {
        match (&self.options, &self.failure) {
            (Some(options), None) => {
                let mut config = options.config()?;
                if matches!(self.generated, Some(Generated::Host | Generated::Function)) {
                    config.id = None;
                }
                Ok(config)
            }
            (_, failure) => Err(failure.clone().unwrap_or_else(|| "the answer has no options".to_owned())),
        }
    }
}

/// The options of a minion, as Salt has derived them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "Salt's documentation says what its options mean")]
pub struct Options {
    pub id: String,
    pub cachedir: Option<PathBuf>,
    pub extension_modules: Option<PathBuf>,
    pub pki_dir: Option<PathBuf>,
    pub sock_dir: Option<PathBuf>,
    pub pidfile: Option<PathBuf>,
    #[serde(default)]
    pub log_file: Option<PathBuf>,
    pub user: Option<String>,
    pub multiprocessing: bool,
    pub masters: Vec<Master>,
    pub need: NeedOption,
    pub masters_unknown: Option<String>,
}

/// How many of the masters it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeedOption {
    /// `master_type: disable`.
    None,
    /// One.
    Any,
    /// Every one.
    All,
}

impl Options {
    /// Reads what a guard reports; None: it reports none, or another form.
    pub fn reported(value: &serde_json::Value) -> Option<Self> {
        serde_json::from_value(value.clone()).ok()
    }

    /// The options that sidle works with.
    pub fn config(&self) -> Result<MinionConfig, String> {
        let place = |name: &str, path: &Option<PathBuf>| match path {
            Some(path) if path.is_absolute() => Ok(path.clone()),
            Some(path) => Err(format!("{name} is \"{}\", which is no absolute path", path.display())),
            None => Err(format!("{name} is not set")),
        };
        Ok(MinionConfig {
            id: Some(self.id.clone()),
            cache_directory: place("cachedir", &self.cachedir)?,
            extension_directory: place("extension_modules", &self.extension_modules)?,
            key_directory: place("pki_dir", &self.pki_dir)?,
            socket_directory: place("sock_dir", &self.sock_dir)?,
            pid_file: place("pidfile", &self.pidfile)?,
            masters: self.masters(),
            multiprocessing: self.multiprocessing,
            user: self.user.clone(),
        })
    }

    fn masters(&self) -> Masters {
        let need = match (&self.masters_unknown, self.need) {
            (Some(reason), _) => return Masters::Unknown(reason.clone()),
            (None, NeedOption::None) => return Masters::None,
            (None, NeedOption::Any) => Need::Any,
            (None, NeedOption::All) => Need::All,
        };
        Masters::Named(self.masters.clone(), need)
    }
}

/// The error of a configuration that a release's Salt can't load.
pub(super) fn cannot_load(directory: &Path, version: Option<&str>, why: &str) -> AgentError {
    let salt = version.map_or_else(|| "Salt".to_owned(), |version| format!("Salt {version}"));
    AgentError::new(format!("{salt} cannot load the configuration in {}: {why}", directory.display()))
}

/// The options of an empty configuration, as 3006.30 has them.
#[cfg(test)]
pub(crate) fn recorded() -> Options {
    serde_json::from_str(
        r#"{"cachedir": "/var/cache/salt/minion", "extension_modules": "/var/cache/salt/minion/extmods", "pki_dir": "/etc/salt/pki/minion",
        "sock_dir": "/var/run/salt/minion", "pidfile": "/var/run/salt-minion.pid", "log_file": "/var/log/salt/minion", "id": "a",
        "user": "root", "transport": "zeromq", "multiprocessing": true, "ipv6": false, "need": "all", "masters_unknown": null,
        "masters": [{"name": "salt", "host": "salt", "request_port": 4506, "publish_port": null}]}"#,
    )
    .expect("a recorded answer is one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(more: &Value) -> Result<Answer, String> {
        let mut all = json!({"schema": 1, "version": "3006.30", "failure": null, "options": recorded(), "files": []});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Answer::parse(&format!("a module prints\n{all}\n"))
    }

    #[test]
    fn an_answer_is_taken_as_salt_gave_it_and_a_failure_in_salts_words() {
        let config = answer(&json!({})).unwrap().config().unwrap();
        assert_eq!(config.jobs_directory(), Path::new("/var/cache/salt/minion/proc"));
        assert_eq!(
            (config.id.as_deref(), config.user.as_deref(), config.multiprocessing),
            (Some("a"), Some("root"), true)
        );
        let Masters::Named(masters, Need::All) = config.masters else { panic!("{config:?}") };
        assert_eq!((masters[0].name.as_str(), masters[0].request_port, masters[0].publish_port), ("salt", 4506, None));
        let refused = answer(&json!({"failure": "Error parsing configuration file: m", "options": null})).unwrap();
        assert_eq!(refused.config().unwrap_err(), "Error parsing configuration file: m");
        let told = cannot_load(Path::new("/etc/salt"), refused.version.as_deref(), "x").message;
        assert_eq!(told, "Salt 3006.30 cannot load the configuration in /etc/salt: x");
        for host in ["host", "function"] {
            assert_eq!(answer(&json!({"generated": host})).unwrap().config().unwrap().id, None, "nothing is kept yet");
        }
        assert!(answer(&json!({"generated": "file"})).unwrap().config().unwrap().id.is_some());
    }

    #[test]
    fn what_is_no_answer_is_refused_and_never_a_default() {
        for (more, part) in [
            (json!({"schema": 2}), "schema 2"),
            (json!({"options": null}), "no options"),
            (json!({"options": {"id": 5}}), "cannot be understood"),
        ] {
            let refused = answer(&more).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        for output in ["", "Traceback", "{}"] {
            assert!(Answer::parse(output).is_err(), "{output}");
        }
        let of = |cachedir: Option<&str>| Options { cachedir: cachedir.map(Into::into), ..recorded() }.config();
        assert!(of(None).unwrap_err().contains("cachedir is not set"));
        assert!(of(Some("var")).unwrap_err().contains("no absolute path"));
    }

    #[test]
    fn masters_that_cannot_be_known_are_unknown_and_the_rest_is_known() {
        let masters = |need, unknown: Option<&str>| {
            Options { need, masters_unknown: unknown.map(Into::into), ..recorded() }.config().unwrap().masters
        };
        assert!(matches!(masters(NeedOption::Any, None), Masters::Named(_, Need::Any)));
        assert_eq!(masters(NeedOption::None, None), Masters::None);
        assert_eq!(masters(NeedOption::All, Some("func")), Masters::Unknown("func".to_owned()));
        assert_eq!(Options::reported(&serde_json::to_value(recorded()).unwrap()), Some(recorded()));
        assert_eq!(Options::reported(&json!(["a"])), None, "another form");
    }
}
