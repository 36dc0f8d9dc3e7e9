//! The story of a switch: one step for each transition, written together with it, so that no crash separates the two.

use crate::switch::machine::Outcome;
use crate::switch::machine::phase::Phase;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Most steps kept of one switch: three times as many as a switch with a full way back has. A stranded switch, which is tried for ever, must
/// not swell the journal, which is written whole at every step.
pub const STEPS_KEPT_MAXIMUM: usize = 64;

/// Longest text kept with a step, in characters, for the same reason; the failure of the switch keeps more.
pub const WHY_LENGTH_MAXIMUM: usize = 300;

/// How a phase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Its act was done.
    Done,
    /// Its act has to wait, so an earlier phase begins again.
    NotYet,
    /// Its act failed.
    Failed,
    /// A process that it needs was gone.
    Lost,
    /// It took too long.
    Expired,
    /// A person cancelled the switch.
    Cancelled,
    /// The supervisor or the host went down.
    Interrupted,
}

/// The end of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryStep {
    /// Counts the steps of the switch, from 1. Missing numbers are steps that were dropped.
    pub number: u32,
    /// When it ended.
    pub at: Timestamp,
    /// The phase that ended.
    pub from: Phase,
    /// The phase that began; the same phase if it began again.
    pub to: Phase,
    /// How it ended.
    pub outcome: Ending,
    /// The reason, for people.
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

/// The first and the last steps of one switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Story {
    steps: Vec<StoryStep>,
}

/// The story decides nothing: the test that walks through all states of a switch must count states that differ only in it as one state.
impl Hash for Story {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Story {
    /// The steps, oldest first.
    pub fn steps(&self) -> &[StoryStep] {
        &self.steps
    }

    /// The steps after this number; 0: all steps.
    pub fn after(&self, number: u32) -> impl Iterator<Item = &StoryStep> {
        self.steps.iter().filter(move |step| step.number > number)
    }

    /// The number of the last step; 0: there is no step.
    pub fn last_number(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.number)
    }

    /// Adds a step. Beyond the maximum a step in the middle is dropped: the beginning and the end of a switch tell more.
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
        self.serialize(formatter)
    }
}
