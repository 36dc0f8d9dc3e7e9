//! The switch machine: from what an act came to, to the next phase. Pure and total: no time, no IO, no `_` arm.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod act;
pub mod limits;
pub mod phase;

pub use act::{Act, Former, Mode, Side};

use crate::switch::machine::phase::Phase;
use std::fmt;

/// How many phases a switch may go through on its way forth. Stops a host whose jobs always come at the moment of the stop, and a
/// supervisor that dies over and over, from going round for ever. The way back is not counted: it is never given up.
pub const STEPS_MAXIMUM: u32 = 250;

/// How often the part of a switch during which nobody may be there is begun again (a flap in probation, a supervisor that died)
/// before the way back is taken. Stops a release that takes the supervisor, or the whole host, down with it.
pub const SETBACKS_MAXIMUM: u32 = 3;

/// What an act came to. The texts are in the operator's words, for status and history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Not now, because of this; look again later.
    NotYet(String),
    /// It can't be done, because of this.
    Failed(String),
    /// The process of this side, which it counted on, is gone, as this tells.
    Lost(Side, String),
    /// It was not done within the phase's limit, or the switch's deadline.
    Expired,
    /// A person takes the switch back.
    Cancelled,
}

/// What a supervisor finds when it comes back to a live switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Survivors {
    /// The host was started anew since: no process is left.
    Rebooted,
    /// The host has been up all the time; which sides' processes are alive.
    Alive {
        /// The old one.
        former: bool,
        /// The new one.
        trial: bool,
    },
}

/// What the next phase depends on beside phase and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Course {
    /// How the switch is done.
    pub mode: Mode,
    /// How the release that worked before takes part.
    pub former: Former,
    /// Transitions so far; see [`STEPS_MAXIMUM`].
    pub steps: u32,
    /// New beginnings so far; see [`SETBACKS_MAXIMUM`].
    pub setbacks: u32,
}

/// The phase that follows. A phase that follows itself means: perform its act again later.
pub fn next(phase: Phase, outcome: &Outcome, course: Course) -> Phase {
    let next = table(phase, outcome, course);
    let exhausted = course.steps >= STEPS_MAXIMUM && next != phase && next.is_forth();
    match (exhausted, phase.is_before_stop()) {
        (false, _) => next,
        (true, true) => Phase::Expired,
        (true, false) => way_back(course.former),
    }
}

/// Where the way back begins: with the old process beside, nobody has to be started.
fn way_back(former: Former) -> Phase {
    match former {
        Former::Beside => Phase::Returning,
        Former::Apart | Former::None => Phase::Retreating,
    }
}

/// `course.former` says how it is before this outcome: one that tells of the old process's loss parts the two for good.
#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
fn table(phase: Phase, outcome: &Outcome, course: Course) -> Phase {
    use Former::{Apart, Beside};
    use Outcome::{Cancelled, Done, Expired, Failed, Lost, NotYet};
    use Phase::{
        Abandoned, Checking, Committed, Flipping, Freezing, Handing, Probation, Proving, Refused, Rehearsing,
        Reproving, Restarting, Retiring, Retreating, Returning, RolledBack, Scheduled, Starting, Stopping, Stranded,
        Waiting,
    };
    let former = course.former;
    match (phase, outcome) {
        // The old process is as it was: every way out changes nothing.
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
        // Keeping the old process alive meanwhile is the supervisor's work, as ever.
        (Scheduled | Checking | Rehearsing, NotYet(_) | Lost(..)) => phase,
        (Waiting, Done) => Freezing,
        (Waiting | Freezing, NotYet(_)) => Waiting,
        // Nobody is there: no better moment. This is also how a release that doesn't stay up is left.
        (Waiting | Freezing, Lost(..)) | (Freezing, Done) => Stopping,

        // From here on the old process may be gone, unless it is beside: out only over the way back.
        (Stopping, NotYet(_)) => Stopping,
        (Stopping, Done | Lost(..)) => Starting,
        // What was not ended yet can stay: the start adopts it.
        (Stopping, Failed(_) | Expired | Cancelled) => match former {
            Apart | Beside => Restarting,
            Former::None => Retreating,
        },
        (Starting, Done) => Proving,
        (Proving, Done) => match former {
            Beside => Handing,
            Apart | Former::None => Probation,
        },
        (Handing, Done) => Probation,
        (Probation, Done) => Flipping,
        (Starting | Proving | Handing | Probation, NotYet(_)) => phase,
        // The new process is alone now, whether it is proven or not: it goes on as if the old one had been stopped.
        (Starting | Proving | Probation, Lost(Side::Former, _)) => phase,
        (Handing, Lost(Side::Former, _)) => Proving,
        // A peer's hiccup is no reason to go back at once; proof and the whole probation are due again.
        (Probation, Failed(_) | Expired) if course.setbacks < SETBACKS_MAXIMUM => Proving,
        (Starting | Proving | Handing | Probation, Failed(_) | Lost(Side::Trial, _) | Expired | Cancelled) => {
            way_back(former)
        }

        // Committed in the journal. A link that can't be moved is the host's defect; going back would cost an outage and mend nothing.
        (Flipping, Done) => match former {
            Beside => Retiring,
            Apart | Former::None => Committed,
        },
        (Flipping, NotYet(_) | Failed(_) | Lost(..) | Expired | Cancelled) => Flipping,
        (Retiring, Done | Lost(Side::Former, _)) => Committed,
        (Retiring, NotYet(_) | Failed(_) | Lost(Side::Trial, _) | Expired | Cancelled) => Retiring,

        // The way back is walked to its end: a cancellation finds it under way already.
        (Returning, NotYet(_) | Cancelled) => Returning,
        (Returning, Done | Failed(_) | Lost(..) | Expired) => Retreating,
        (Retreating, Done | Lost(Side::Trial, _)) => match former {
            Apart => Restarting,
            Beside | Former::None => RolledBack,
        },
        (Retreating, NotYet(_) | Lost(Side::Former, _) | Cancelled) => Retreating,
        (Restarting, Done) => Reproving,
        (Restarting, NotYet(_) | Cancelled) => Restarting,
        (Reproving, Done) => RolledBack,
        (Reproving, NotYet(_) | Cancelled) => Reproving,
        (Retreating, Failed(_) | Expired) | (Restarting | Reproving, Failed(_) | Lost(..) | Expired) => Stranded,
        // Not over `Retreating`: the release that worked may be up, and only its peers down.
        (Stranded, Done | Expired) => match former {
            Apart | Beside => Restarting,
            Former::None => Retreating,
        },
        (Stranded, NotYet(_) | Failed(_) | Lost(..)) => Stranded,
        (Stranded, Cancelled) => Abandoned,

        (
            Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Done | NotYet(_) | Failed(_) | Lost(..) | Expired | Cancelled,
        ) => phase,
    }
}

/// The phase to go on with after an absence of the supervisor. `course.former` says how it was before the absence.
///
/// After a reboot the release that worked comes first (promises 3 and 6): what had not started the new one yet begins again with the
/// check, since a power cut may have hurt files; what may have started it goes back, since the trial may be why the host went down.
/// Within one boot what was under way goes on, but a process that nobody watched has to prove itself again, and one that died
/// unwatched has failed.
#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
pub fn resumed(phase: Phase, found: Survivors, course: Course) -> Phase {
    use Phase::{
        Abandoned, Checking, Committed, Flipping, Freezing, Handing, Probation, Proving, Refused, Rehearsing,
        Reproving, Restarting, Retiring, Retreating, Returning, RolledBack, Scheduled, Starting, Stopping, Stranded,
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
        (Returning, Rebooted | Alive { .. }) => back,
        (Restarting, Rebooted | Alive { .. }) | (Reproving, Rebooted | Alive { former: false, .. }) => Restarting,
        (Reproving, Alive { former: true, .. }) => Reproving,
        (Stranded, Rebooted | Alive { .. }) => match course.former {
            Former::Apart | Former::Beside => Restarting,
            Former::None => Retreating,
        },
        (Retreating | Retiring, Rebooted | Alive { .. }) => phase,
        (
            Flipping | Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Rebooted | Alive { .. },
        ) => phase,
    }
}

impl Survivors {
    /// How the release that worked before takes part from here on.
    pub fn former(self, before: Former) -> Former {
        match (before, self) {
            (Former::Beside, Self::Rebooted | Self::Alive { former: false, .. }) => Former::Apart,
            (Former::Beside | Former::Apart | Former::None, Self::Rebooted | Self::Alive { .. }) => before,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Overlap => "overlap",
            Self::Idle => "idle",
            Self::Now => "now",
        })
    }
}
