//! The switch machine: a table from phase and outcome to the next phase. Pure and total: no time, no IO, no `_` arm.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod act;
pub mod limits;
pub mod phase;

pub use act::{Act, Former, Mode, Side};

use crate::switch::machine::phase::Phase;
use serde::Serialize as _;
use std::fmt;

/// Most phases on the way forth. Ends the switch of a host whose jobs always begin at the moment of the stop, and of a supervisor that dies over
/// and over. The way back has no limit: it is never given up.
pub const STEPS_MAXIMUM: u32 = 250;

/// Most repetitions of a trial (after lost health on probation, or a supervisor that died) before the switch goes back. Stops a release that
/// takes down the supervisor or the whole host.
pub const SETBACKS_MAXIMUM: u32 = 3;

/// The outcome of an act. Status and history show the texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It has to wait for this; try again later.
    NotYet(String),
    /// It can't be done, for this reason.
    Failed(String),
    /// It needs the process of this side, which is gone; the text says how it ended.
    Lost(Side, String),
    /// It was not done within the limit of the phase or the deadline of the switch.
    Expired,
    /// A person cancels the switch.
    Cancelled,
}

/// What a supervisor finds when it resumes a live switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Survivors {
    /// The host has rebooted: no process is left.
    Rebooted,
    /// The host has not rebooted; these processes are alive.
    Alive {
        /// The old process.
        former: bool,
        /// The new process.
        trial: bool,
    },
}

/// What the next phase depends on, in addition to phase and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Course {
    /// The mode of the switch.
    pub mode: Mode,
    /// The part of the old process.
    pub former: Former,
    /// Transitions so far; see [`STEPS_MAXIMUM`].
    pub steps: u32,
    /// Repetitions of the trial so far; see [`SETBACKS_MAXIMUM`].
    pub setbacks: u32,
}

/// Returns the next phase. The same phase means: perform its act again later.
pub fn next(phase: Phase, outcome: &Outcome, course: Course) -> Phase {
    let next = table(phase, outcome, course);
    let exhausted = course.steps >= STEPS_MAXIMUM && next != phase && next.is_forth();
    match (exhausted, phase.is_before_stop()) {
        (false, _) => next,
        (true, true) => Phase::Expired,
        (true, false) => way_back(course.former),
    }
}

/// The first phase of the way back: an old process that still runs need not be started.
fn way_back(former: Former) -> Phase {
    match former {
        Former::Beside => Phase::DrainingNew,
        Former::Apart | Former::None => Phase::StoppingNew,
    }
}

/// The table. `course.former`: before this outcome; an outcome with the loss of the old process ends the overlap.
#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
fn table(phase: Phase, outcome: &Outcome, course: Course) -> Phase {
    use Former::{Apart, Beside};
    use Outcome::{Cancelled, Done, Expired, Failed, Lost, NotYet};
    use Phase::{
        Abandoned, Checking, Committed, DrainingNew, FinishingOld, Flipping, Freezing, Handing, Probation, Proving,
        ProvingOld, Refused, Rehearsing, RolledBack, Scheduled, Starting, StartingOld, Stopping, StoppingNew, Stranded,
        Waiting,
    };
    let former = course.former;
    match (phase, outcome) {
        // The old process is untouched, so a switch that ends here has changed nothing.
        (Scheduled | Checking | Rehearsing | Waiting | Freezing, Failed(_)) => Refused,
        (Scheduled | Checking | Rehearsing | Waiting | Freezing, Expired) => Phase::Expired,
        (Scheduled | Checking | Rehearsing | Waiting | Freezing, Cancelled) => Phase::Cancelled,
        (Scheduled, Done) => Checking,
        (Checking, Done) => Rehearsing,
        (Rehearsing, Done) => match (course.mode, former) {
            (Mode::Overlap, Beside) => Starting,
            (Mode::Idle, Apart | Beside) => Waiting,
            (Mode::Overlap, Apart) | (Mode::Now, Apart | Beside) => Stopping,
            (Mode::Overlap | Mode::Idle | Mode::Now, Former::None) => Stopping,
        },
        // The supervisor keeps the old process running, as it does without a switch.
        (Scheduled | Checking | Rehearsing, NotYet(_) | Lost(..)) => phase,
        (Waiting, Done) => Freezing,
        (Waiting | Freezing, NotYet(_)) => Waiting,
        // No process runs, so there is no better moment for the stop. A release that does not stay up is left in this way, too.
        (Waiting | Freezing, Lost(..)) | (Freezing, Done) => Stopping,

        // From here on the old process may be gone, unless both run: a failure has to take the way back.
        (Stopping, NotYet(_)) => Stopping,
        (Stopping, Done | Lost(..)) => Starting,
        // The start keeps an old process that still runs.
        (Stopping, Failed(_) | Expired | Cancelled) => match former {
            Apart | Beside => StartingOld,
            Former::None => StoppingNew,
        },
        (Starting, Done) => Proving,
        (Proving, Done) => match former {
            Beside => Handing,
            Apart | Former::None => Probation,
        },
        (Handing, Done) => Probation,
        (Probation, Done) => Flipping,
        (Starting | Proving | Handing | Probation, NotYet(_)) => phase,
        // The new process now runs alone: the switch continues as after a stop of the old process.
        (Starting | Proving | Probation, Lost(Side::Former, _)) => phase,
        (Handing, Lost(Side::Former, _)) => Proving,
        // A short failure of a peer is no reason to go back: the proof and the whole probation begin again.
        (Probation, Failed(_) | Expired) if course.setbacks < SETBACKS_MAXIMUM => Proving,
        (Starting | Proving | Handing | Probation, Failed(_) | Lost(Side::Trial, _) | Expired | Cancelled) => {
            way_back(former)
        }

        // The journal is committed. A link that can't be moved is a defect of the host; going back would cost a downtime and repair nothing.
        (Flipping, Done) => match former {
            Beside => FinishingOld,
            Apart | Former::None => Committed,
        },
        (Flipping, NotYet(_) | Failed(_) | Lost(..) | Expired | Cancelled) => Flipping,
        (FinishingOld, Done | Lost(Side::Former, _)) => Committed,
        (FinishingOld, NotYet(_) | Failed(_) | Lost(Side::Trial, _) | Expired | Cancelled) => FinishingOld,

        // The way back always runs to its end; a cancellation changes nothing.
        (DrainingNew, NotYet(_) | Cancelled) => DrainingNew,
        (DrainingNew, Done | Failed(_) | Lost(..) | Expired) => StoppingNew,
        (StoppingNew, Done | Lost(Side::Trial, _)) => match former {
            Apart => StartingOld,
            Beside | Former::None => RolledBack,
        },
        (StoppingNew, NotYet(_) | Lost(Side::Former, _) | Cancelled) => StoppingNew,
        (StartingOld, Done) => ProvingOld,
        (StartingOld, NotYet(_) | Cancelled) => StartingOld,
        (ProvingOld, Done) => RolledBack,
        (ProvingOld, NotYet(_) | Cancelled) => ProvingOld,
        (StoppingNew, Failed(_) | Expired) | (StartingOld | ProvingOld, Failed(_) | Lost(..) | Expired) => Stranded,
        // Not by `StoppingNew`: the previous release may be running, with only its peers down.
        (Stranded, Done | Expired) => match former {
            Apart | Beside => StartingOld,
            Former::None => StoppingNew,
        },
        (Stranded, NotYet(_) | Failed(_) | Lost(..)) => Stranded,
        (Stranded, Cancelled) => Abandoned,

        (
            Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Done | NotYet(_) | Failed(_) | Lost(..) | Expired | Cancelled,
        ) => phase,
    }
}

/// Returns the phase to continue with after an absence of the supervisor. `course.former`: before the absence.
///
/// After a reboot the proven release comes first (promises 3 and 6): a switch that has not started the new process yet begins again with the
/// check, because a power cut may have damaged files; a switch that may have started it goes back, because the trial may have taken down the
/// host. Without a reboot the switch continues, but a process that ran without a supervisor has to reach its peers again, and a process that
/// died meanwhile has failed.
#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
pub fn resumed(phase: Phase, found: Survivors, course: Course) -> Phase {
    use Phase::{
        Abandoned, Checking, Committed, DrainingNew, FinishingOld, Flipping, Freezing, Handing, Probation, Proving,
        ProvingOld, Refused, Rehearsing, RolledBack, Scheduled, Starting, StartingOld, Stopping, StoppingNew, Stranded,
        Waiting,
    };
    use Survivors::{Alive, Rebooted};
    let worn_out = course.setbacks >= SETBACKS_MAXIMUM || course.steps >= STEPS_MAXIMUM;
    let back = way_back(found.former(course.former));
    match (phase, found) {
        (Stopping | Starting | Proving | Handing | Probation, Rebooted | Alive { .. }) if worn_out => back,
        (Scheduled, Rebooted | Alive { .. }) => Scheduled,
        (Checking | Rehearsing | Waiting | Freezing | Stopping, Rebooted) => Checking,
        (Checking | Rehearsing | Waiting | Freezing | Stopping, Alive { .. }) => phase,
        (Starting, Alive { .. }) => Starting,
        (Proving | Handing | Probation, Alive { trial: true, .. }) => Proving,
        (Proving | Handing | Probation, Alive { trial: false, .. } | Rebooted) | (Starting, Rebooted) => back,
        (DrainingNew, Rebooted | Alive { .. }) => back,
        (StartingOld, Rebooted | Alive { .. }) | (ProvingOld, Rebooted | Alive { former: false, .. }) => StartingOld,
        (ProvingOld, Alive { former: true, .. }) => ProvingOld,
        (Stranded, Rebooted | Alive { .. }) => match course.former {
            Former::Apart | Former::Beside => StartingOld,
            Former::None => StoppingNew,
        },
        (StoppingNew | FinishingOld, Rebooted | Alive { .. }) => phase,
        (
            Flipping | Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Rebooted | Alive { .. },
        ) => phase,
    }
}

impl Survivors {
    /// The part of the old process from now on.
    pub fn former(self, before: Former) -> Former {
        match (before, self) {
            (Former::Beside, Self::Rebooted | Self::Alive { former: false, .. }) => Former::Apart,
            (Former::Beside | Former::Apart | Former::None, Self::Rebooted | Self::Alive { .. }) => before,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}
