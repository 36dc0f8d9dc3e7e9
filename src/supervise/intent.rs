//! What the parts of the supervisor want done. A part owns its memory, touches nothing, and is told of the host; `Supervisor::carry_out` acts.

use super::control::SwitchCommand;
use crate::switch::{Mode, Purpose};
use crate::version::Release;
use std::time::Duration;

/// A switch that the supervisor itself begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSwitch {
    /// The kind of switch.
    pub purpose: Purpose,
    /// What it may cost; None: as little as can be had.
    pub mode: Option<Mode>,
    /// The release to go to.
    pub to: Release,
    /// Why.
    pub reason: String,
    /// What the refusal of such a switch is told with, where it needs a person; None: it is tried again by itself.
    pub unless: Option<String>,
}

impl OwnSwitch {
    /// A restart of the release that runs.
    pub fn restart(to: Release, reason: &str) -> Self {
        Self { purpose: Purpose::Restart, mode: None, to, reason: reason.to_owned(), unless: None }
    }

    /// A rollback that waits for nothing: what it leaves does not work.
    pub fn back(to: Release, reason: String) -> Self {
        Self { purpose: Purpose::Rollback, mode: Some(Mode::Now), to, reason, unless: None }
    }
}

/// What a part wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Begin a switch of the supervisor's own.
    Begin(OwnSwitch),
    /// Begin the restart that a person asked for, and note why on it.
    RestartUnhealthy(Box<SwitchCommand>, String),
    /// Compare the configuration that the process runs with with what is there, and restart it where they differ.
    CompareConfiguration,
    /// Forget that a configuration is to be compared.
    ForgetConfiguration,
    /// Give the agent back: nothing is meant to run any more.
    Unadopt,
    /// See whether the host has changed under a proven release; if so, rehearse that again.
    CheckHost,
    /// Go on with that rehearsal.
    PollRehearsal,
    /// End that rehearsal.
    StopRehearsal,
    /// The current release is in a crash loop, as this tells: leave it, if there is a release to go back to.
    LeaveLooping(String),
    /// The current release is damaged, as this tells: leave it, if the release before is whole.
    LeaveDamaged(String),
    /// Show this in the status; None: nothing is wrong any more.
    ShowTrouble(Option<String>),
    /// Show this, and log that sidle alone can't mend it.
    NeedPerson(String),
    /// Let jobs that begin wait until this time since boot; None: they wait no longer.
    HoldJobs(Option<Duration>),
    /// Watch every directory of these releases.
    Watch(Vec<Release>),
    /// Repair a release.
    Repair(Release),
    /// Scrub the package if its last scrub is long enough ago.
    ScrubIfDue(Release),
}
