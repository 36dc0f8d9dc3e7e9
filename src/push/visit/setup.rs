//! The step `setup` on one host: `sidle setup` there, which asks for what it lacks, and the key of a first agent.

use super::{Ended, LINE_BYTES_MAXIMUM, Visit};
use crate::agent::findings::Findings;
use crate::agent::introduction::Acceptor;
use crate::failure::{Class, Reason, Report};
use crate::os::dialogue::{Dialogue, End};
use crate::os::place::Effect;
use crate::push::complaint::{self, Printed};
use crate::push::source::Request;
use crate::push::{Action, Destination, Start, Step, destination};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Most requests of a host for files. Stops a host that asks for ever.
const REQUESTS_MAXIMUM: u32 = 100_000;

/// The key of a first agent that its peers have not accepted, as `sidle setup --json` tells it.
#[derive(Debug, Deserialize)]
struct Waiting {
    id: String,
    key: String,
    peers: Vec<String>,
}

impl Visit<'_> {
    fn setup_words<'w>(&'w self, path: &'w str, repository: &'w str) -> Vec<String> {
        let fingerprint = self.push.fingerprint.to_string();
        let words = [path, "--json", "setup", "--repository", repository, "--fingerprint", &fingerprint, "--package"];
        words.into_iter().chain([self.push.package.as_str()]).map(str::to_owned).collect()
    }

    /// `sidle setup` on the host, which asks for what it lacks.
    pub(super) fn setup(&mut self, path: &str) -> Result<(), Report> {
        self.step(Step::Setup);
        let push = self.push;
        let mut words = self.setup_words(path, "stdio:by-hand");
        if let Some(release) = &push.release {
            words.extend(["--release".to_owned(), release.to_string()]);
        }
        if push.effect == Effect::DryRun {
            words.push("--dry-run".to_owned());
        }
        match &push.action {
            Action::Start(start) => return self.start(words, start),
            Action::Adopt(mode) => {
                words.push("--adopt".to_owned());
                words.extend(mode.iter().flat_map(|mode| ["--mode".to_owned(), mode.clone()]));
            }
            Action::Install | Action::Call(_) => {}
        }
        self.ask(&words).map(drop)
    }

    /// Brings up the host's first agent. Its key is shown first, so that who accepts keys need not look for it.
    fn start(&mut self, mut words: Vec<String>, start: &Start) -> Result<(), Report> {
        words.extend(["--start".to_owned(), "--master".to_owned(), start.peers.join(",")]);
        words.extend(self.to.id.iter().flat_map(|id| ["--id".to_owned(), id.clone()]));
        words.extend(start.pin.iter().flat_map(|pin| ["--pin-master".to_owned(), pin.clone()]));
        let within = |wait: Duration| [&words[..], &["--wait".to_owned(), format!("{}ms", wait.as_millis())]].concat();
        if let Some(acceptor) = &self.push.acceptor {
            let Some(waiting) = self.ask(&within(Duration::ZERO))? else { return Ok(()) };
            self.accept(&**acceptor, &waiting)?;
        }
        match self.ask(&within(start.wait))? {
            Some(waiting) => Err(waiting.report(self.to)?),
            None => Ok(()),
        }
    }

    fn accept(&mut self, acceptor: &dyn Acceptor, waiting: &Waiting) -> Result<(), Report> {
        let Waiting { id, key, .. } = waiting;
        // A host that was taken over must not get the name of another one.
        if !is_of(self.to, id) {
            return Err(other_id(self.to, id));
        }
        if acceptor.accept(id, key)? {
            self.outcome.did.push(format!("accepted the key of {id} ({key})"));
        }
        Ok(())
    }

    /// Asks the host's sidle. Some: the key of its first agent is not accepted.
    fn ask(&mut self, words: &[String]) -> Result<Option<Waiting>, Report> {
        let attempted = format!("set up {}", self.to.name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut dialogue = self.session(&words)?.converse(self.time)?;
        let mut printed = Printed::default();
        let result = self.serve(&attempted, &mut dialogue, &mut printed)?;
        let end = self.end(&attempted, dialogue)?;
        self.take_result(&attempted, result.as_deref(), &end, &printed)
    }

    /// Answers requests until the result comes.
    fn serve(
        &mut self,
        attempted: &str,
        dialogue: &mut Dialogue,
        printed: &mut Printed,
    ) -> Result<Option<Vec<u8>>, Report> {
        let silence = self.time.silence;
        for _ in 0..REQUESTS_MAXIMUM {
            let line = dialogue.line(LINE_BYTES_MAXIMUM);
            let line = line.map_err(|error| self.broken(attempted, &error, silence, &dialogue.stderr_tail()))?;
            let Some(line) = line else { return Ok(None) };
            let Some(request) = Request::parse(&line) else {
                if line.starts_with(b"{") {
                    return Ok(Some(line));
                }
                // A greeting of the shell.
                printed.take(&line);
                continue;
            };
            let (head, bytes) = self.push.source.answer(&request).encoded();
            for part in [head.as_bytes(), &bytes] {
                let said = dialogue.say(part, LINE_BYTES_MAXIMUM, &mut |count| self.sent(count));
                // A reader that has gone says why by its exit code.
                said.map_err(|error| self.broken(attempted, &error, silence, &dialogue.stderr_tail()))?;
            }
        }
        Err(Report::of(Class::Failed, format!("cannot {attempted}: it asks for files, or prints, without end")))
    }

    /// What `sidle setup --json` printed.
    fn take_result(
        &mut self,
        attempted: &str,
        line: Option<&[u8]>,
        end: &End,
        printed: &Printed,
    ) -> Result<Option<Waiting>, Report> {
        let result = line.and_then(|line| serde_json::from_slice::<Value>(line).ok());
        let code = end.code;
        let Some(result) = result.filter(Value::is_object) else {
            return Err(complaint::of_no_result(attempted, code, &end.errors, printed));
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(error) = result.get("error") {
            let class = serde_json::from_value(error["class"].clone()).unwrap_or(Class::Failed);
            let failed = Report::of(class, format!("cannot {attempted}"));
            let failed = text(&error["message"]).map_or(failed.clone(), |message| failed.because(message));
            return Err(match text(&error["hint"]) {
                Some(hint) => failed.hint(hint),
                None => failed,
            });
        }
        let steps = result["steps"].as_array().into_iter().flatten();
        self.outcome.did.extend(steps.filter(|step| step["changed"] == true).filter_map(|step| text(&step["text"])));
        self.outcome.release = text(&result["release"]).or_else(|| self.outcome.release.take());
        // A host with an older sidle does not give them.
        let adoption: Option<Findings> = serde_json::from_value(result["adoption"].clone()).ok().flatten();
        self.outcome.adoption = adoption.or_else(|| self.outcome.adoption.take());
        match code.and_then(self.push.class) {
            None if code == Some(0) => Ok(None),
            Some(Class::NothingToDo) => Ok(None),
            class => {
                if let Some(waiting) = Waiting::of(&result, class) {
                    return Ok(Some(waiting));
                }
                let package = &self.push.package;
                let message = format!("cannot {attempted}: it ended with exit code {}", code.unwrap_or(-1));
                Err(Report::of(class.unwrap_or(Class::Failed), message)
                    .hint(format!("look there: `sidle status {package}`, `sidle history {package}`")))
            }
        }
    }

    /// Names the repository in the host's own settings; the host asks it, so that it is known to be there.
    pub(super) fn settings(&mut self, path: &str, url: &str) -> Result<(), Report> {
        self.step(Step::Settings);
        let attempted = format!("name {url} in the settings of {}", self.to.name);
        if self.push.effect == Effect::DryRun {
            self.outcome.did.push(format!("would name {url} in the settings"));
            return Ok(());
        }
        let mut words = self.setup_words(path, url);
        words.extend(self.outcome.release.iter().flat_map(|release| ["--release".to_owned(), release.clone()]));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Ended { output, end } = self.run(&attempted, &words, b"")?;
        // After greetings of the shell.
        let mut printed = Printed::default();
        output.split(|byte| *byte == b'\n').for_each(|line| printed.take(line));
        let result = output.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        self.take_result(&attempted, result, &end, &printed).map(drop)
    }
}

impl Waiting {
    fn of(result: &Value, class: Option<Class>) -> Option<Self> {
        serde_json::from_value(result["waiting"].clone()).ok().filter(|_| class == Some(Class::Pending))
    }

    /// Err: the host tells an id that is none, or not the one that it was given. People would accept it as they read it.
    fn report(self, to: &Destination) -> Result<Report, Report> {
        let is_given = to.id.as_ref().is_none_or(|id| *id == self.id);
        if !is_given || destination::check("the id", &self.id).is_err() || !self.has_only_its_commands() {
            return Err(other_id(to, &self.id));
        }
        let message = format!("{} waits: nobody has accepted the key of {} ({})", to.name, self.id, self.key);
        let peers = self.peers.join("; ");
        let report = Report::of(Class::Pending, message).reason(Reason::KeyNotAccepted);
        Ok(report.hint(format!("{peers}; then run the same `sidle push` again")))
    }
}

impl Waiting {
    /// True if each command in the answer, which a person may copy, names this host's own id.
    fn has_only_its_commands(&self) -> bool {
        let own = ["-f", "-a"].map(|option| format!("`salt-key {option} {}`", self.id));
        let rest = |text: &String| own.iter().fold(text.clone(), |text, command| text.replace(command, ""));
        self.key.chars().all(|c| c.is_ascii_hexdigit() || c == ':')
            && self.peers.iter().map(rest).all(|text| !text.contains('`') && !text.contains("salt-key"))
    }
}

fn other_id(to: &Destination, id: &str) -> Report {
    let message = format!("cannot accept the key of {}: the host calls itself {id:?}", to.name);
    let hint = "name the minion's id: --id ID, or as the host's name in a roster";
    Report::of(Class::NotTrusted, message).hint(hint)
}

/// Whether a host may have this id: the one that it was given, or the name by which the command line reaches it.
fn is_of(to: &Destination, id: &str) -> bool {
    to.id.as_deref().or_else(|| to.host.rsplit('@').next()) == Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_gets_no_other_hosts_id() {
        let word = |word: &str| Destination::of_word(word).unwrap();
        let named = Destination { id: Some("db1".into()), ..word("web1") };
        for (to, id, may) in [
            (word("web1"), "web1", true),
            (word("adm@web1"), "web1", true),
            (word("web1"), "web1.prod.example.org", false),
            (word("web1"), "web12", false),
            (word("web1"), "db1", false),
            (word("web1.example.org"), "web1", false),
            (named.clone(), "db1", true),
            (named, "web1", false),
        ] {
            assert_eq!(is_of(&to, id), may, "{} as {id}", to.host);
        }
    }

    #[test]
    fn a_key_waits_where_the_host_says_so_and_is_pending() {
        let result = serde_json::json!({"waiting": {"id": "web1", "key": "ab:cd", "peers": ["on m1: accept it"]}});
        assert!(Waiting::of(&result, Some(Class::Pending)).is_some_and(|waiting| waiting.key == "ab:cd"));
        assert!(Waiting::of(&result, Some(Class::Failed)).is_none());
        assert!(Waiting::of(&serde_json::json!({"waiting": null}), Some(Class::Pending)).is_none());
    }

    /// A host that has sent a key under another id let a person accept it: the commands that it told were passed on.
    #[test]
    fn what_a_host_gives_a_person_to_type_is_about_its_own_key() {
        let to = Destination::of_word("web1").unwrap();
        let told = |key: &str, peer: &str| {
            Waiting { id: "web1".into(), key: key.into(), peers: vec![peer.into()] }
                .report(&to)
                .map(|report| report.hint)
        };
        let good = "on m1: `salt-key -f web1` must show this fingerprint (Salt 3008.5 and older 3008: ab:cd); then `salt-key -a web1`";
        assert!(told("ab:cd", good).is_ok() && told("ab:cd", "m2 does not answer: timed out").is_ok());
        for bad in
            [good.replace("-a web1", "-a db1"), good.replace("web1", "db1"), "run `sh`".into(), "salt-key -A".into()]
        {
            assert!(told("ab:cd", &bad).is_err(), "{bad}");
        }
        assert!(told("it is db1", good).is_err());
    }
}
