//! The switch machine: from what an act came to, to the next phase. Pure and total: no time, no IO, no `_` arm.

#![deny(clippy::wildcard_enum_match_arm)]

use serde::{Deserialize, Serialize};
use std::fmt;

/// How many phases a switch may go through on its way forth. Stops a host whose jobs always come at the moment of the stop, and a
/// supervisor that dies over and over, from going round for ever. The way back is not counted: it is never given up.
pub const STEPS_MAXIMUM: u32 = 250;

/// How often the part of a switch during which nobody may be there is begun again (a flap in probation, a supervisor that died)
/// before the way back is taken. Stops a release that takes the supervisor, or the whole host, down with it.
pub const SETBACKS_MAXIMUM: u32 = 3;

/// What a switch may cost. A mode that costs nothing (overlap) will be a third one: it starts before it stops, so only the
/// order of phases after `Checking` depends on the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Wait until no job runs, then stop the old process and start the new one.
    Idle,
    /// The same without the wait.
    Now,
}

/// One of the two processes of a switch. In `idle` and `now` they never run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one that worked before the switch, or that the way back started again.
    Former,
    /// The one on trial.
    Trial,
}

/// Where a switch is. What is journalled: a phase is written before its act is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The files of both releases are compared with what was signed, and leased.
    Checking,
    /// Until no job runs.
    Waiting,
    /// The old process is frozen and looked at once more. Nothing has been stopped up to here.
    Freezing,
    /// The old process is ended and waited for.
    Stopping,
    /// The new release is started from its own versioned path.
    Starting,
    /// Until the new process has reached the peers that the old one had reached.
    Proving,
    /// The new process has to stay healthy for some time.
    Probation,
    /// The new release has passed; `current` follows. The journal's write that enters this phase is the commit.
    Flipping,
    /// Ended: the new release is the one.
    Committed,
    /// The way back: the process on trial is ended and waited for.
    Retreating,
    /// The release that worked is started again.
    Restarting,
    /// Until the release that worked has reached its peers again.
    Reproving,
    /// The release that worked doesn't come up either: a person is needed. It is tried again after a pause, for ever.
    Stranded,
    /// Ended: the release that worked is running again. Without one (a first switch) nothing runs.
    RolledBack,
    /// Ended before anything was stopped: it could not be done.
    Refused,
    /// Ended before anything was stopped: a person took it back.
    Cancelled,
    /// Ended before anything was stopped: still busy at the deadline.
    Expired,
    /// Ended by a person out of `Stranded`, to make room for another switch. `current` is as it was.
    Abandoned,
}

/// What the driver has to do in a phase. Every act may be performed twice, by another process, after a crash in its middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// Lease and verify the files of both releases; look which peers the running process has proven (the baseline).
    Check,
    /// Thaw the running process, if an interrupted `Freeze` left it frozen; look whether it is idle.
    AwaitIdle,
    /// Freeze the running process, look again. `Done`: frozen and idle. `NotYet`: not idle any more, thawed.
    Freeze,
    /// End this side's process, wait until it is gone. As only one side may run in `idle` and `now`, this may end every process
    /// of the instance's agent.
    Stop(Side),
    /// Make this side's release run and not be frozen, from its versioned path: adopt what runs already, else check and start it. What
    /// else runs of the instance's agent is ended first. What was sent a deadly signal is not adopted, and has to be gone first.
    Start(Side),
    /// Look whether this side's process has reached its peers.
    Prove(Side),
    /// Look whether the process on trial is healthy. `Done`: it is, at this look. Not known to be healthy is `Failed`.
    Watch,
    /// Make `current` name the journal's proven release.
    Flip,
    /// Nothing: let the pause pass. `Done`: a person asks for another try now.
    Pause,
    /// Thaw what runs, append the history line (once), note what the verdict says, give the leases back. `Done` ends the switch.
    Settle,
}

/// What an act came to. The texts are in the operator's words, for status and history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Not now, because of this; look again later.
    NotYet(String),
    /// It can't be done, because of this.
    Failed(String),
    /// The process it counted on is gone, as this tells.
    Lost(String),
    /// It was not done within the phase's limit, or the switch's deadline.
    Expired,
    /// A person takes the switch back.
    Cancelled,
}

/// What a supervisor finds when it comes back to a live switch: the process of the side that the phase has running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Survivor {
    /// It is alive.
    Alive,
    /// It is gone, or none was started yet; the host has been up all the time.
    Gone,
    /// The host was started anew since: no process is left.
    Rebooted,
}

/// What the next phase depends on beside phase and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Course {
    /// How the switch is done.
    pub mode: Mode,
    /// Whether there is a release that worked before.
    pub former: bool,
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
        (true, false) => Phase::Retreating,
    }
}

#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
fn table(phase: Phase, outcome: &Outcome, course: Course) -> Phase {
    use Outcome::{Done, Failed, Lost, NotYet};
    use Phase::{
        Abandoned, Checking, Committed, Flipping, Freezing, Probation, Proving, Refused, Reproving, Restarting,
        Retreating, RolledBack, Starting, Stopping, Stranded, Waiting,
    };
    match (phase, outcome) {
        // The old process is as it was: every way out changes nothing.
        (Checking | Waiting | Freezing, Failed(_)) => Refused,
        (Checking | Waiting | Freezing, Outcome::Expired) => Phase::Expired,
        (Checking | Waiting | Freezing, Outcome::Cancelled) => Phase::Cancelled,
        (Checking, Done) => match (course.mode, course.former) {
            (Mode::Idle, true) => Waiting,
            (Mode::Idle, false) | (Mode::Now, _) => Stopping,
        },
        // Keeping the old process alive meanwhile is the supervisor's work, as ever.
        (Checking, NotYet(_) | Lost(_)) => Checking,
        (Waiting, Done) => Freezing,
        (Waiting | Freezing, NotYet(_)) => Waiting,
        // Nobody is there: no better moment. This is also how a release that doesn't stay up is left.
        (Waiting | Freezing, Lost(_)) | (Freezing, Done) => Stopping,

        // From here on the old process may be gone: out only over the way back.
        (Stopping, NotYet(_)) => Stopping,
        (Stopping, Done | Lost(_)) => Starting,
        // What was not ended yet can stay: the start adopts it.
        (Stopping, Failed(_) | Outcome::Expired | Outcome::Cancelled) if course.former => Restarting,
        (Stopping, Failed(_) | Outcome::Expired | Outcome::Cancelled) => Retreating,
        (Starting, NotYet(_)) => Starting,
        (Starting, Done) => Proving,
        (Proving, NotYet(_)) => Proving,
        (Proving, Done) => Probation,
        (Probation, NotYet(_)) => Probation,
        (Probation, Done) => Flipping,
        // A peer's hiccup is no reason to go back at once; proof and the whole probation are due again.
        (Probation, Failed(_) | Outcome::Expired) if course.setbacks < SETBACKS_MAXIMUM => Proving,
        (Starting | Proving | Probation, Failed(_) | Lost(_) | Outcome::Expired | Outcome::Cancelled) => Retreating,

        // Committed in the journal. A link that can't be moved is the host's defect; going back would cost an outage and mend nothing.
        (Flipping, Done) => Committed,
        (Flipping, NotYet(_) | Failed(_) | Lost(_) | Outcome::Expired | Outcome::Cancelled) => Flipping,

        // The way back is walked to its end: a cancellation finds it under way already.
        (Retreating, Done | Lost(_)) if course.former => Restarting,
        (Retreating, Done | Lost(_)) => RolledBack,
        (Retreating, NotYet(_) | Outcome::Cancelled) => Retreating,
        (Restarting, Done) => Reproving,
        (Restarting, NotYet(_) | Outcome::Cancelled) => Restarting,
        (Reproving, Done) => RolledBack,
        (Reproving, NotYet(_) | Outcome::Cancelled) => Reproving,
        (Retreating, Failed(_) | Outcome::Expired)
        | (Restarting | Reproving, Failed(_) | Lost(_) | Outcome::Expired) => Stranded,
        // Not over `Retreating`: the release that worked may be up, and only its peers down.
        (Stranded, Done | Outcome::Expired) if course.former => Restarting,
        (Stranded, Done | Outcome::Expired) => Retreating,
        (Stranded, NotYet(_) | Failed(_) | Lost(_)) => Stranded,
        (Stranded, Outcome::Cancelled) => Abandoned,

        (
            Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Done | NotYet(_) | Failed(_) | Lost(_) | Outcome::Expired | Outcome::Cancelled,
        ) => phase,
    }
}

/// The phase to go on with after an absence of the supervisor.
///
/// After a reboot the release that worked comes first (promises 3 and 6): what had not started the new one yet begins again with the
/// check, since a power cut may have hurt files; what may have started it goes back, since the trial may be why the host went down.
/// Within one boot what was under way goes on, but a process that nobody watched has to prove itself again, and one that died
/// unwatched has failed.
#[expect(clippy::match_same_arms, reason = "read phase by phase, not result by result")]
pub fn resumed(phase: Phase, survivor: Survivor, course: Course) -> Phase {
    use Phase::{
        Abandoned, Checking, Committed, Flipping, Freezing, Probation, Proving, Refused, Reproving, Restarting,
        Retreating, RolledBack, Starting, Stopping, Stranded, Waiting,
    };
    use Survivor::{Alive, Gone, Rebooted};
    let worn_out = course.setbacks >= SETBACKS_MAXIMUM || course.steps >= STEPS_MAXIMUM;
    match (phase, survivor) {
        (Stopping | Starting | Proving | Probation, Alive | Gone | Rebooted) if worn_out => Retreating,
        (Checking | Waiting | Freezing | Stopping, Rebooted) => Checking,
        (Checking | Waiting | Freezing | Stopping, Alive | Gone) => phase,
        (Starting, Alive | Gone) => Starting,
        (Proving | Probation, Alive) => Proving,
        (Proving | Probation, Gone | Rebooted) | (Starting, Rebooted) => Retreating,
        (Restarting, Alive | Gone | Rebooted) | (Reproving, Gone | Rebooted) => Restarting,
        (Reproving, Alive) => Reproving,
        (Stranded, Alive | Gone | Rebooted) if course.former => Restarting,
        (Retreating | Stranded, Alive | Gone | Rebooted) => Retreating,
        (
            Flipping | Committed | RolledBack | Refused | Phase::Cancelled | Phase::Expired | Abandoned,
            Alive | Gone | Rebooted,
        ) => phase,
    }
}

impl Phase {
    /// Every phase, in the order of the way forth and then back.
    pub const ALL: [Self; 18] = [
        Self::Checking,
        Self::Waiting,
        Self::Freezing,
        Self::Stopping,
        Self::Starting,
        Self::Proving,
        Self::Probation,
        Self::Flipping,
        Self::Committed,
        Self::Retreating,
        Self::Restarting,
        Self::Reproving,
        Self::Stranded,
        Self::RolledBack,
        Self::Refused,
        Self::Cancelled,
        Self::Expired,
        Self::Abandoned,
    ];

    /// The one act of this phase.
    pub fn act(self) -> Act {
        match self {
            Self::Checking => Act::Check,
            Self::Waiting => Act::AwaitIdle,
            Self::Freezing => Act::Freeze,
            Self::Stopping => Act::Stop(Side::Former),
            Self::Starting => Act::Start(Side::Trial),
            Self::Proving => Act::Prove(Side::Trial),
            Self::Probation => Act::Watch,
            Self::Flipping => Act::Flip,
            Self::Retreating => Act::Stop(Side::Trial),
            Self::Restarting => Act::Start(Side::Former),
            Self::Reproving => Act::Prove(Side::Former),
            Self::Stranded => Act::Pause,
            Self::Committed | Self::RolledBack | Self::Refused | Self::Cancelled | Self::Expired | Self::Abandoned => {
                Act::Settle
            }
        }
    }

    /// Which side may run in this phase; None: neither. Whatever else runs is on its way out, or a defect.
    pub fn runs(self) -> Option<Side> {
        match self {
            Self::Checking
            | Self::Waiting
            | Self::Freezing
            | Self::Restarting
            | Self::Reproving
            | Self::Stranded
            | Self::RolledBack
            | Self::Refused
            | Self::Cancelled
            | Self::Expired
            | Self::Abandoned => Some(Side::Former),
            Self::Starting | Self::Proving | Self::Probation | Self::Flipping | Self::Committed => Some(Side::Trial),
            Self::Stopping | Self::Retreating => None,
        }
    }

    /// The side that the supervisor keeps running by itself (with back-off), as it does without a switch; whatever else runs of the
    /// instance's agent it ends, and if there is no release on that side, everything. In the other phases a process
    /// that ends is the machine's business: the supervisor reports it as `Lost` and starts nothing.
    pub fn keeps(self) -> Option<Side> {
        match self {
            Self::Checking
            | Self::Waiting
            | Self::RolledBack
            | Self::Refused
            | Self::Cancelled
            | Self::Expired
            | Self::Abandoned => Some(Side::Former),
            Self::Flipping | Self::Committed => Some(Side::Trial),
            Self::Freezing
            | Self::Stopping
            | Self::Starting
            | Self::Proving
            | Self::Probation
            | Self::Retreating
            | Self::Restarting
            | Self::Reproving
            | Self::Stranded => None,
        }
    }

    /// Nothing has been stopped yet.
    pub fn is_before_stop(self) -> bool {
        matches!(self, Self::Checking | Self::Waiting | Self::Freezing)
    }

    /// On the way to the new release, and not yet decided.
    pub fn is_forth(self) -> bool {
        self.is_before_stop() || self.is_trial()
    }

    /// The part of the way forth during which the old process may be gone and the new one is not yet proven: its failures lead back.
    pub fn is_trial(self) -> bool {
        matches!(self, Self::Stopping | Self::Starting | Self::Proving | Self::Probation)
    }

    /// On the way back to the release that worked, and not yet there.
    pub fn is_back(self) -> bool {
        matches!(self, Self::Retreating | Self::Restarting | Self::Reproving | Self::Stranded)
    }

    /// The switch is over; only its history line is left to write.
    pub fn is_ended(self) -> bool {
        !self.is_forth() && !self.is_back() && self != Self::Flipping
    }

    /// Nobody is known to serve: what an outage is made of, in `idle` and `now`.
    pub fn is_outage(self) -> bool {
        self.is_back() || (self.is_trial() && self != Self::Probation)
    }

    /// The journalled word, which is also what status prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Checking => "checking",
            Self::Waiting => "waiting",
            Self::Freezing => "freezing",
            Self::Stopping => "stopping",
            Self::Starting => "starting",
            Self::Proving => "proving",
            Self::Probation => "probation",
            Self::Flipping => "flipping",
            Self::Committed => "committed",
            Self::Retreating => "retreating",
            Self::Restarting => "restarting",
            Self::Reproving => "reproving",
            Self::Stranded => "stranded",
            Self::RolledBack => "rolled-back",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Idle => "idle",
            Self::Now => "now",
        })
    }
}
