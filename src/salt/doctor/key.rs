//! What the masters make of the minion's key. A master that the running minion is proven to reach has accepted it; the others are asked by
//! the release's own Salt: the request that the minion sends at every start.

use super::explanations;
use super::ports::Listening;
use crate::agent::examination::{Case, Group, Severity};
use crate::os::dir::Dir;
use crate::os::process::{self, Program, Said};
use crate::os::{OsError, notify};
use crate::rehearsal::Part;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const SCRIPT: &str = include_str!("sign_in.py");
/// How long a master may take to answer a sign-in. A busy one takes a second or two.
const ANSWER_SECONDS: u64 = 8;
/// How long Salt takes to be loaded, on a slow host.
const LOAD_WAIT: Duration = Duration::from_secs(60);

/// Variables of a working agent: a guard in the tree must not take this for one.
const NOT_PASSED_ON: [&str; 3] = [notify::NOTIFY_SOCKET, "SIDLE_GATE", "SIDLE_ROLE"];

#[derive(Debug, Deserialize)]
struct Answer {
    name: String,
    standing: Standing,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Standing {
    Accepted,
    Pending,
    Denied,
    KeyChanged,
    Full,
    NoAnswer,
    Unknown,
}

/// Looks at the masters that listen.
pub fn check(group: &mut Group, case: Case<'_>, listening: &[Listening<'_>]) {
    let (proven, open): (Vec<_>, Vec<_>) =
        listening.iter().partition(|found| case.reaches.contains(&found.master.name));
    for found in proven {
        group.good(format!("{} has accepted the key: the running minion is signed in", found.master.name));
    }
    if open.is_empty() {
        return;
    }
    let what = "what the masters make of the minion's key";
    let Some(Part { tree, environment }) = case.release else {
        return group.unknown(
            what,
            "there is no intact current release whose Salt could ask the masters",
            "repair the current release first: `sidle repair PACKAGE`",
        );
    };
    let asked = Scratch::new(case.root).and_then(|scratch| {
        let mut program = Program::python(tree.join("bin/python3")).passing(case.passed.clone());
        program = program.argument("-c").argument(SCRIPT).argument(case.configuration).argument(&scratch.path);
        let masters: Vec<_> = open
            .iter()
            .map(|found| json!({"name": found.master.name, "uri": format!("tcp://{}", found.address)}))
            .collect();
        program = program.argument(ANSWER_SECONDS.to_string()).argument(json!(masters).to_string());
        program.environment.clone_from(environment);
        program.without.extend(NOT_PASSED_ON.map(Into::into));
        let patience = LOAD_WAIT + Duration::from_secs(ANSWER_SECONDS) * u32::try_from(open.len()).unwrap_or(u32::MAX);
        program.answer_within(patience)
    });
    let said = match asked {
        Ok(Some(said)) => said,
        Ok(None) => return group.unknown(what, "Salt did not answer in time", "look again when the host is less busy"),
        Err(error) => return group.unknown(what, error, "run `sidle doctor` as root"),
    };
    match answers(&said) {
        Ok(answers) => answers.iter().for_each(|answer| tell(group, answer)),
        Err(reason) if reason.contains("the minion has no key") => {
            let (severity, what) = (Severity::Warning, "the minion has no key yet, so that no master can know it");
            group.find(severity, "minion-key-missing", what, explanations::remedy("minion-key-missing"));
        }
        Err(reason) => {
            group.unknown(what, reason, "run `sidle doctor` as root; the minion's own log tells of each sign-in");
        }
    }
}

/// What the program printed, or the last line of why it could not.
fn answers(said: &Said) -> Result<Vec<Answer>, String> {
    let last = |text: &str| text.lines().last().unwrap_or("it said nothing").trim().to_owned();
    if !said.success {
        return Err(last(&said.errors));
    }
    // Modules of the host's may print before it.
    serde_json::from_str(&last(&said.output)).map_err(|error| error.to_string())
}

fn tell(group: &mut Group, Answer { name, standing, detail }: &Answer) {
    let mut error = |id, what: String| group.find(Severity::Error, id, what, explanations::remedy(id));
    match standing {
        Standing::Accepted => group.good(format!("{name} accepts the key")),
        Standing::Pending => {
            error("key-pending", format!("master {name} has this minion's key, but has not accepted the key"));
        }
        Standing::Denied => {
            let what = "refuses this minion's key: it was rejected, or another key has this id there";
            error("key-denied", format!("master {name} {what}"));
        }
        Standing::KeyChanged => {
            let what = "shows another key than the one that this minion knows";
            error("master-key-changed", format!("master {name} {what} ({detail})"));
        }
        Standing::Full => error("master-full", format!("master {name} takes no more minions")),
        Standing::NoAnswer => {
            let what = format!("takes connections, and did not answer a sign-in within {ANSWER_SECONDS} s ({detail})");
            error("master-silent", format!("master {name} {what}"));
        }
        Standing::Unknown => {
            let what = format!("what master {name} makes of the minion's key");
            group.unknown(&what, detail, "the minion's own log tells of each sign-in");
        }
    }
}

/// A private directory for what Salt writes; gone with its end.
struct Scratch {
    parent: Dir,
    name: String,
    path: std::path::PathBuf,
}

impl Scratch {
    fn new(root: &Path) -> Result<Self, OsError> {
        let parent = Dir::open_or_create(&root.join("run/sidle"), 0o755)?;
        let name = format!(".doctor-{}", process::own_number());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_after_what_modules_print_and_a_failure_is_its_last_line() {
        let said =
            |success, output: &str| Said { success, output: output.to_owned(), errors: "a\nRuntimeError: b\n".into() };
        let answer = r#"[{"name": "m", "standing": "key-changed", "detail": "d"}]"#;
        let read = answers(&said(true, &format!("hello\n{answer}\n"))).unwrap();
        assert_eq!((read[0].name.as_str(), read[0].standing), ("m", Standing::KeyChanged));
        assert_eq!(answers(&said(false, answer)).unwrap_err(), "RuntimeError: b");
        assert!(answers(&said(true, "")).is_err());
    }
}
