//! What masters make of the minion's key: the release's own Salt sends the request that the minion sends at every start.

pub mod accepting;

use crate::agent::introduction::{Configured, FirstFile, Introduced, Introducer, Told};
use crate::agent::{AgentError, AgentSettings, introduction};
use crate::os::dir::Dir;
use crate::os::environment::Passed;
use crate::os::process::{self, Program, Said};
use crate::os::{OsError, notify};
use crate::rehearsal::Part;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCRIPT: &str = include_str!("sign_in.py");
/// How long a master may take to answer a sign-in. A busy one takes a second or two.
pub(super) const ANSWER_SECONDS: u64 = 8;
/// How long Salt takes to be loaded, on a slow host.
const LOAD_WAIT: Duration = Duration::from_secs(60);

/// Variables of a working agent: a guard in the tree must not take this for one.
const NOT_PASSED_ON: [&str; 3] = [notify::NOTIFY_SOCKET, "SIDLE_GATE", "SIDLE_ROLE"];

/// What a first minion's configuration is called: read before what a site adds.
const FIRST_FILE: &str = "minion.d/10-sidle-setup.conf";
/// Its first line, and how its others begin.
const FIRST_LINE: &str = "# Written by `sidle setup --start`.";
const OPTIONS: [&str; 3] = ["master: ", "id: ", "master_finger: "];

/// Brings up a host's first minion.
pub static FIRST: FirstMinion = FirstMinion;

/// See [`FIRST`].
#[derive(Debug)]
pub struct FirstMinion;

/// A master's answer.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) name: String,
    pub(super) standing: Standing,
    pub(super) detail: String,
}

/// What a master makes of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Standing {
    Accepted,
    Pending,
    Denied,
    KeyChanged,
    Full,
    NoAnswer,
    Unknown,
}

/// A minion, its release, and what its programs get of the environment.
#[derive(Clone, Copy)]
pub(super) struct Minion<'a> {
    pub(super) configuration: &'a Path,
    pub(super) release: &'a Part,
    pub(super) passed: &'a Passed,
    /// Below it lies the run directory.
    pub(super) root: &'a Path,
}

impl Minion<'_> {
    /// Calls a function of the programs with the configuration directory and these words; None: it took too long.
    fn call<T: DeserializeOwned>(self, call: &str, words: &[String], wait: Duration) -> Result<Option<T>, String> {
        let text = format!("{SCRIPT}\n\nimport sys\n\n{call}(*sys.argv[1:])\n");
        let mut program = Program::python(self.release.tree.join("bin/python3")).passing(self.passed.clone());
        program = program.argument("-c").argument(text).argument(self.configuration);
        program = words.iter().fold(program, Program::argument);
        program.environment.clone_from(&self.release.environment);
        program.without.extend(NOT_PASSED_ON.map(Into::into));
        let said = program.answer_within(LOAD_WAIT + wait).map_err(|error| error.to_string())?;
        said.as_ref().map(read).transpose()
    }

    /// What these masters, each with its URI, make of the key; None: it took too long.
    pub(super) fn ask(self, masters: &[(&str, String)]) -> Result<Option<Vec<Answer>>, String> {
        let named: Vec<_> = masters.iter().map(|(name, uri)| json!({"name": name, "uri": uri})).collect();
        let scratch = Scratch::new(self.root).map_err(|error| error.to_string())?;
        let words = [scratch.path.display().to_string(), ANSWER_SECONDS.to_string(), json!(named).to_string()];
        self.call("ask", &words, answers(masters.len()))
    }
}

fn answers(masters: usize) -> Duration {
    Duration::from_secs(ANSWER_SECONDS) * u32::try_from(masters).unwrap_or(u32::MAX)
}

/// What the program printed, or the last line of why it could not.
fn read<T: DeserializeOwned>(said: &Said) -> Result<T, String> {
    let last = |text: &str| text.lines().last().unwrap_or("it said nothing").trim().to_owned();
    if !said.success {
        return Err(last(&said.errors));
    }
    // Modules of the host's may print before it.
    serde_json::from_str(&last(&said.output)).map_err(|error| error.to_string())
}

/// A private directory for what Salt writes; gone with its end.
struct Scratch {
    parent: Dir,
    name: String,
    path: PathBuf,
}

impl Scratch {
    fn new(root: &Path) -> Result<Self, OsError> {
        let parent = Dir::open_or_create(&root.join("run/sidle"), 0o755)?;
        let name = format!(".sign-in-{}", process::own_number());
        parent.remove_tree(&name)?;
        parent.make_dir(&name, 0o700)?;
        let path = parent.path().join(&name);
        Ok(Self { parent, name, path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of one that was killed lies in memory until the next boot, and holds no key.
        let _ = self.parent.remove_tree(&self.name);
    }
}

/// What the program says of a configuration.
#[derive(Deserialize)]
struct Named {
    id: String,
    masters: Option<Vec<String>>,
    pin: Option<String>,
}

/// What the program says of a first minion.
#[derive(Deserialize)]
struct Shown {
    id: String,
    key: String,
    whole: String,
    masters: Vec<Answer>,
}

impl FirstMinion {
    fn minion<'a>(settings: &'a AgentSettings, root: &'a Path) -> Result<Minion<'a>, AgentError> {
        let release =
            settings.release.as_ref().ok_or_else(|| AgentError::new("cannot ask Salt: no release is there"))?;
        let configuration = &settings.config_directory;
        Ok(Minion { configuration, release, passed: &settings.passed, root })
    }
}

impl Introducer for FirstMinion {
    fn configured(&self, settings: &AgentSettings, root: &Path) -> Result<Configured, AgentError> {
        let named = Self::minion(settings, root)?.call::<Named>("configured", &[], Duration::ZERO);
        let named = named.map_err(|why| AgentError::new(format!("cannot load the minion's configuration: {why}")))?;
        let Named { id, masters: peers, pin } = named
            .ok_or_else(|| AgentError::new("cannot load the minion's configuration: Salt did not answer in time"))?;
        Ok(Configured { id, peers, pin })
    }

    fn file(&self, told: &Told) -> FirstFile {
        // JSON is YAML, whatever a name looks like.
        let mut lines = vec![FIRST_LINE.to_owned(), format!("master: {}", json!(told.peers))];
        lines.extend(told.id.iter().map(|id| format!("id: {}", json!(id))));
        lines.extend(told.pin.iter().map(|pin| format!("master_finger: {}", json!(pin))));
        let text = lines.join("\n") + "\n";
        FirstFile { path: FIRST_FILE.into(), text }
    }

    fn wrote(&self, text: &[u8]) -> bool {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines();
        lines.next() == Some(FIRST_LINE) && lines.all(|line| OPTIONS.iter().any(|option| line.starts_with(option)))
    }

    fn introduce(&self, settings: &AgentSettings, root: &Path) -> Result<Introduced, AgentError> {
        let minion = Self::minion(settings, root)?;
        let scratch = Scratch::new(minion.root)?;
        let words = [scratch.path.display().to_string(), ANSWER_SECONDS.to_string()];
        let shown = minion.call("introduce", &words, answers(8));
        let shown =
            shown.map_err(|why| AgentError::new(format!("cannot show the minion's key to its masters: {why}")))?;
        let late = || AgentError::new("cannot show the minion's key to its masters: Salt did not answer in time");
        let Shown { id, key, whole, masters } = shown.ok_or_else(late)?;
        let peers = masters.into_iter().map(|answer| (answer.name.clone(), standing(&id, &whole, answer))).collect();
        Ok(Introduced { id, key, peers })
    }
}

/// `whole`: the fingerprint that masters of 3008 print, of the whole file of the key.
fn standing(id: &str, whole: &str, Answer { name, standing, detail }: Answer) -> introduction::Standing {
    use introduction::Standing as To;
    let refused = |why: &str, remedy: String| To::Refused(format!("master {name} {why}"), remedy);
    match standing {
        Standing::Accepted => To::Accepted,
        Standing::Pending => To::Waits(format!(
            "on {name}: `salt-key -f {id}` must show this fingerprint (Salt 3008.5 and older 3008: {whole}); then `salt-key -a {id}`"
        )),
        Standing::NoAnswer => To::Silent(detail),
        Standing::Unknown => To::Silent(format!("its answer is not understood: {detail}")),
        Standing::Full => {
            refused("takes no more minions", format!("on {name}: raise `max_minions`, or remove minions that are gone"))
        }
        Standing::Denied => refused(
            "refuses the key: it was rejected, or another key has this id there",
            format!(
                "on {name}: `salt-key -l all`; delete the other key if this host replaces that one (`salt-key -d {id}`), or choose another id (--id)"
            ),
        ),
        Standing::KeyChanged => refused(
            &format!("shows another key than the pinned or known one ({detail})"),
            format!(
                "on {name}: `grep -v -e ----- /etc/salt/pki/master/master.pub | sha256sum` prints the right fingerprint (as `salt-key -F master` does, except in Salt 3008.5 and older 3008); correct --pin-master, or remove the old key from this host's pki directory (minion_master.pub)"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_after_what_modules_print_and_a_failure_is_its_last_line() {
        let said =
            |success, output: &str| Said { success, output: output.to_owned(), errors: "a\nRuntimeError: b\n".into() };
        let answer = r#"[{"name": "m", "standing": "key-changed", "detail": "d"}]"#;
        let answers = |said: &Said| read::<Vec<Answer>>(said);
        let told = answers(&said(true, &format!("hello\n{answer}\n"))).unwrap();
        assert_eq!((told[0].name.as_str(), told[0].standing), ("m", Standing::KeyChanged));
        assert_eq!(answers(&said(false, answer)).unwrap_err(), "RuntimeError: b");
        assert!(answers(&said(true, "")).is_err());
    }

    #[test]
    fn the_first_file_has_what_is_told_and_nothing_else() {
        let told = Told { peers: vec!["m1".into(), "no: yaml".into()], id: Some("web17".into()), pin: None };
        let file = FIRST.file(&told);
        assert_eq!(file.path, Path::new(FIRST_FILE));
        let lines: Vec<&str> = file.text.lines().skip(1).collect();
        assert_eq!(lines, [r#"master: ["m1","no: yaml"]"#, r#"id: "web17""#]);
        let pinned = FIRST.file(&Told { peers: vec!["m1".into()], id: None, pin: Some("ab:cd".into()) });
        assert!(FIRST.wrote(file.text.as_bytes()) && FIRST.wrote(pinned.text.as_bytes()));
        // The next `setup --start` took such a file for its own, and the line was gone.
        assert!(!FIRST.wrote((file.text + "user: salt\n").as_bytes()) && !FIRST.wrote(b"master: m1\n"));
    }
}
