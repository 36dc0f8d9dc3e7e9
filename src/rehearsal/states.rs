//! What an agent would do on this host by its own configuration: a rehearsal asks both releases, and compares.

use crate::os::{self, random};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far the question goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Nothing is asked.
    Off,
    /// What would be done.
    #[default]
    Render,
    /// Also what would come of it, as far as the agent can tell without doing it.
    Test,
}

impl Depth {
    /// The depth of this name; another name: the default.
    pub fn named(name: &str) -> Self {
        match name {
            "off" => Self::Off,
            "test" => Self::Test,
            _ => Self::Render,
        }
    }
}

/// The question, for both releases of one rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How far it goes.
    pub depth: Depth,
    /// How long one release may take.
    pub longest: Duration,
    /// Random hexadecimal digits: by this key both releases hash what must not leave them. Without it nobody can find a value by guessing.
    pub key: String,
}

/// One release may take this part of the time limit of a rehearsal: both must fit in, with all else.
const PART: u32 = 4;
/// Nobody tries 2^128 keys.
const KEY_BYTES: usize = 16;

impl Asked {
    /// The question with a new key; None: nothing is asked.
    pub fn new(depth: Depth, rehearsal: Duration) -> Result<Option<Self>, os::OsError> {
        if depth == Depth::Off {
            return Ok(None);
        }
        let mut key = [0; KEY_BYTES];
        random::fill(&mut key)?;
        let key = u128::from_ne_bytes(key);
        Ok(Some(Self { depth, longest: rehearsal / PART, key: format!("{key:032x}") }))
    }
}

/// How far a comparison went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Extent {
    /// Nothing could be compared.
    Nothing,
    /// What would be done.
    Rendered,
    /// Also what would come of it.
    Tested,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// How far it went.
    pub compared: Extent,
    /// How many states the new release has.
    pub states: usize,
    /// Those that differ, in the order in which they are applied.
    pub differences: Vec<Difference>,
    /// True: what was found is a reason not to switch, as the policy for rehearsals weighs reasons.
    pub refuses: bool,
    /// Why it did not go further; None: it went as far as was asked.
    pub why: Option<String>,
}

/// A state that is not the same with both releases. It has names only, and no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its id.
    pub id: String,
    /// Its function.
    pub function: String,
    /// The file that has it.
    pub sls: String,
    /// What differs.
    pub what: Vec<What>,
    /// Names of the arguments that differ, where they may be told.
    pub arguments: Vec<String>,
    /// The causes that are known.
    pub causes: Vec<String>,
}

/// What differs in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Only the former release has the state.
    Missing,
    /// Only the new release has the state.
    New,
    /// Its function is not in the new release.
    Function,
    /// Its arguments.
    Arguments,
    /// Whether it succeeds.
    Result,
    /// What it would change.
    Changes,
    /// The text of its result.
    Text,
    /// It ends the run.
    Run,
}

impl Difference {
    /// True when only the words of the result differ: nothing is done otherwise.
    pub fn is_of_text(&self) -> bool {
        self.what == [What::Text]
    }
}
