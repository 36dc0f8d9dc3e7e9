//! The intents of the supervisor's parts. A part owns its state and touches nothing; `Supervisor::carry_out` acts.

use crate::supervise::control::SwitchCommand;
use crate::switch::{Mode, Purpose};
use crate::version::Release;
use std::time::Duration;

/// A switch that the supervisor itself begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSwitch {
    /// The kind of switch.
    pub purpose: Purpose,
    /// The mode; None: the cheapest possible.
    pub mode: Option<Mode>,
    /// The release to go to.
    pub to: Release,
    /// The reason.
    pub reason: String,
    /// The beginning of the message if the switch is refused and a person is needed; None: sidle tries again by itself.
    pub unless: Option<String>,
}

impl OwnSwitch {
    /// A restart of the release that runs.
    pub fn restart(to: Release, reason: &str) -> Self {
        Self { purpose: Purpose::Restart, mode: None, to, reason: reason.to_owned(), unless: None }
    }

    /// A rollback without waiting, from a release that does not work.
    pub fn back(to: Release, reason: String) -> Self {
        Self { purpose: Purpose::Rollback, mode: Some(Mode::Now), to, reason, unless: None }
    }
}

/// What a part wants the supervisor to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Begin a switch of the supervisor's own.
    Begin(OwnSwitch),
    /// Begin the requested restart of an agent that is not healthy, with a note of the reason.
    RestartUnhealthy(Box<SwitchCommand>, String),
    /// Compare the process with the present configuration, and restart it if they differ.
    CompareConfiguration,
    /// Remove the mark of a waiting comparison.
    ForgetConfiguration,
    /// Give the agent back: sidle runs nothing for this instance any more.
    Unadopt,
    /// Check whether the host has changed since a release was proven; if so, repeat its rehearsal.
    CheckHost,
    /// Poll that rehearsal.
    PollRehearsal,
    /// End that rehearsal.
    StopRehearsal,
    /// The current release is in a crash loop, described by this text: leave it, if there is a release to go back to.
    LeaveLooping(String),
    /// The current release is damaged, as this text says: leave it, if the previous release is whole.
    LeaveDamaged(String),
    /// Show this problem in the status; None: no problem any more.
    ShowTrouble(Option<String>),
    /// Show this problem, and log that a person is needed.
    NeedPerson(String),
    /// Make new jobs wait until this time since boot; None: jobs wait no longer.
    HoldJobs(Option<Duration>),
    /// Watch every directory of these releases.
    Watch(Vec<Release>),
    /// Repair a release.
    Repair(Release),
    /// Scrub the package if a scrub is due.
    ScrubIfDue(Release),
}
