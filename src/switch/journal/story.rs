//! What happened in a switch, step by step: written with the very transition that it tells of, so that no crash parts the two.

use crate::switch::machine::Outcome;
use crate::switch::machine::phase::Phase;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Most steps kept of one switch: three times what a switch has that goes forth and all the way back. Stops a stranded switch, which is tried for
/// ever, from swelling the journal, which is written whole at every step.
pub const STEPS_KEPT_MAXIMUM: usize = 64;

/// Longest text kept with a step, in characters, for the same reason; the switch's failure has more of it.
pub const WHY_LENGTH_MAXIMUM: usize = 300;

/// What ended a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It was done.
    Done,
    /// Its moment had passed before it could be done.
    NotYet,
    /// It could not be done.
    Failed,
    /// A process that it counted on was gone.
    Lost,
    /// It took too long.
    Expired,
    /// A person took the switch back.
    Cancelled,
    /// The supervisor was away meanwhile, or the host.
    Interrupted,
}

/// How one phase ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoryStep {
    /// Counts the steps of the switch, from 1. Where numbers are missing, steps were left out.
    pub number: u32,
    /// When it ended.
    pub at: Timestamp,
    /// The phase that ended.
    pub from: Phase,
    /// The phase that began: the same one where it was begun anew.
    pub to: Phase,
    /// What ended it.
    pub outcome: Ending,
    /// Why, in the operator's words; None: there is nothing to say.
    pub why: Option<String>,
    /// How long it took, by the wall clock.
    pub took_milliseconds: u64,
}

impl StoryStep {
    /// How long the phase took.
    pub fn took(&self) -> Duration {
        Duration::from_millis(self.took_milliseconds)
    }
}

/// The steps of one switch, the first ones and the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Story {
    steps: Vec<StoryStep>,
}

/// What was decides nothing: switches that differ in it alone go on alike, and whoever walks through all states of a switch meets them once.
impl Hash for Story {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Story {
    /// The steps, oldest first.
    pub fn steps(&self) -> &[StoryStep] {
        &self.steps
    }

    /// The steps after the one with this number; 0: all.
    pub fn after(&self, number: u32) -> impl Iterator<Item = &StoryStep> {
        self.steps.iter().filter(move |step| step.number > number)
    }

    /// The number of the last step; 0: there is none.
    pub fn last_number(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.number)
    }

    /// Adds a step. How a switch began and how it ended tell more than what it tried in between: beyond the maximum the oldest of the second half
    /// goes.
    pub(in crate::switch) fn add(
        &mut self,
        from: Phase,
        to: Phase,
        outcome: Ending,
        why: Option<&str>,
        at: Timestamp,
        took: u64,
    ) {
        let number = self.last_number().saturating_add(1);
        if self.steps.len() >= STEPS_KEPT_MAXIMUM {
            self.steps.remove(STEPS_KEPT_MAXIMUM / 2);
        }
        let why = why.map(|why| why.chars().take(WHY_LENGTH_MAXIMUM).collect());
        self.steps.push(StoryStep { number, at, from, to, outcome, why, took_milliseconds: took });
    }
}

impl From<&Outcome> for Ending {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::NotYet(_) => Self::NotYet,
            Outcome::Failed(_) => Self::Failed,
            Outcome::Lost(..) => Self::Lost,
            Outcome::Expired => Self::Expired,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Done => "done",
            Self::NotYet => "not-yet",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        })
    }
}
