//! The highstate that one release makes of this host, in hashes: the head of `sidle_highstate.py` says what its report means.

use crate::rehearsal::states::{Asked, Depth};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Asks the program for the highstate. An older program does not know it, and says nothing of a highstate.
pub(super) const VARIABLE: &str = "SIDLE_HIGHSTATE";

/// The value of [`VARIABLE`].
pub(super) fn words(asked: &Asked) -> String {
    let depth = if asked.depth == Depth::Test { "test" } else { "render" };
    format!("{depth} {} {}", asked.longest.as_secs().max(1), asked.key)
}

/// What one release made of the host's highstate.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_highstate.py says what the fields mean")]
pub struct Highstate {
    pub source: String,
    pub pillar_age: Option<u64>,
    pub reasons: Vec<Reason>,
    pub states: Vec<State>,
    pub results: Option<Vec<Option<Outcome>>>,
    pub untested: Option<Untested>,
    pub grains: BTreeMap<String, String>,
    pub signatures: BTreeMap<String, BTreeMap<String, String>>,
}

/// Why there are no states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_highstate.py says what the fields mean")]
pub struct Reason {
    pub kind: String,
    pub name: String,
    pub sls: String,
}

/// A state, in hashes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_highstate.py says what the fields mean")]
pub struct State {
    pub id: String,
    pub sls: String,
    pub function: String,
    pub arguments: BTreeMap<String, String>,
    pub unstable: BTreeSet<String>,
    pub rendered_with: BTreeSet<String>,
    pub run_with: BTreeSet<String>,
    pub options: BTreeMap<String, String>,
}

/// What came of a state, in hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_highstate.py says what the fields mean")]
pub struct Outcome {
    pub result: Option<bool>,
    pub comment: String,
    pub changes: String,
}

/// The state that ended the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_highstate.py says what the fields mean")]
pub struct Untested {
    pub exception: String,
    pub id: String,
    pub function: String,
}

impl Reason {
    /// True when the host or a limit is the reason, and not what the release makes of the files.
    pub(super) fn is_of_host(&self) -> bool {
        ["memory", "pillar", "files", "time", "failed"].contains(&self.kind.as_str())
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        let name = &self.name;
        let place = if self.sls.is_empty() { String::new() } else { format!(" in {}", self.sls) };
        match self.kind.as_str() {
            "memory" => "there is no file system in memory for it, which needs root and a mount namespace".to_owned(),
            "pillar" => "the pillar is not cached on this host (`minion_pillar_cache: True` in the minion's configuration, and then \
                         `salt-call pillar.items`, caches it)"
                .to_owned(),
            "files" => "the minion has no top file in its cache: it has not applied its highstate from this master, or its cache was cleared"
                .to_owned(),
            "time" => "it did not end in time (a quarter of `rehearsal_timeout`)".to_owned(),
            "failed" => "its process failed".to_owned(),
            "empty" => "no state of the top file is for this host".to_owned(),
            "top" => "the top file cannot be rendered".to_owned(),
            "sls" => format!("{name} is not in the minion's cache: it cannot be rendered without the master"),
            "template" => format!("a template that is imported{place} is not in the minion's cache"),
            "renderer" => format!("the renderer {name} is gone{place}"),
            "function" => format!("the function {name} is gone, which is called{place}"),
            "requisite" if name.is_empty() => format!("a state{place} requires a state that does not exist"),
            "requisite" => format!("{name}{place} requires a state that does not exist, which the release no longer accepts"),
            "recursive" => format!("{name}{place} requires itself, which the release no longer accepts"),
            _ => format!("what is{} cannot be rendered", if place.is_empty() { " in the states".to_owned() } else { place }),
        }
    }
}

/// A state with what came of it.
pub(super) type Known<'a> = (&'a State, Option<&'a Outcome>);

impl Highstate {
    /// The states by id and function; several of one id and function by their number.
    pub(super) fn known(&self) -> BTreeMap<(&str, &str, usize), Known<'_>> {
        let (mut known, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for (index, state) in self.states.iter().enumerate() {
            let outcome = self.results.as_ref().and_then(|results| results.get(index)?.as_ref());
            let name = (state.id.as_str(), state.function.as_str());
            let number: &mut usize = numbers.entry(name).or_default();
            known.insert((name.0, name.1, *number), (state, outcome));
            *number += 1;
        }
        known
    }

    /// The default of an argument, as text.
    pub(super) fn default(&self, function: &str, argument: &str) -> Option<&String> {
        self.signatures.get(function)?.get(argument)
    }
}
