//! What the masters make of the minion's key. A master that the running minion is proven to reach has accepted it; the others are asked by
//! the release's own Salt.

use super::explanations;
use super::ports::Listening;
use crate::agent::examination::{Case, Group, Severity};
use crate::salt::sign_in::{ANSWER_SECONDS, Answer, Minion, Standing};

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
    let Some(release) = case.release else {
        return group.unknown(
            what,
            "there is no intact current release whose Salt could ask the masters",
            "repair the current release first: `sidle repair PACKAGE`",
        );
    };
    let masters: Vec<(&str, String)> =
        open.iter().map(|found| (found.master.name.as_str(), format!("tcp://{}", found.address))).collect();
    let minion = Minion { configuration: case.configuration, release, passed: case.passed, root: case.root };
    match minion.ask(&masters) {
        Ok(Some(answers)) => answers.iter().for_each(|answer| tell(group, answer)),
        Ok(None) => group.unknown(what, "Salt did not answer in time", "look again when the host is less busy"),
        Err(reason) if reason.contains("the minion has no key") => {
            let (severity, what) = (Severity::Warning, "the minion has no key yet, so that no master can know it");
            group.find(severity, "minion-key-missing", what, explanations::remedy("minion-key-missing"));
        }
        Err(reason) => {
            group.unknown(what, reason, "run `sidle doctor` as root; the minion's own log tells of each sign-in");
        }
    }
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
