//! The phases of a switch: what each one does, whom it has running, and what it is called.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::switch::machine::{Act, Former, Side};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a switch is. What is journalled: a phase is written before its act is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Until its window opens, and the drawn part of its splay is over. Nothing has been looked at yet.
    Scheduled,
    /// The files of both releases are compared with what was signed, and leased.
    Checking,
    /// The new release loads this host's configuration and modules, without a peer.
    Rehearsing,
    /// Until no job runs.
    Waiting,
    /// The old process is frozen and looked at once more. Nothing has been stopped up to here.
    Freezing,
    /// The old process is ended and waited for.
    Stopping,
    /// The new release is started from its own versioned path; in `overlap` beside the old one, which goes on serving.
    Starting,
    /// Until the new process has reached the peers that the old one had reached.
    Proving,
    /// The gate moves: the new process takes the jobs, the old one only what the new one never got.
    Handing,
    /// The new process has to stay healthy for some time.
    Probation,
    /// The new release has passed; `current` follows. The journal's write that enters this phase is the commit.
    Flipping,
    /// The old process finishes what it has, takes nothing any more, and is ended.
    Retiring,
    /// Ended: the new release is the one.
    Committed,
    /// The way back of `overlap`: the old process takes the jobs again, the one on trial finishes what it has.
    Returning,
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

impl Phase {
    /// What is done in it, for people.
    pub fn doing(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Checking => "checking the files of both releases",
            Self::Rehearsing => "rehearsing: loading this host's configuration and modules with the new release",
            Self::Waiting => "waiting until no job runs",
            Self::Freezing => "pausing the old process, and looking once more for jobs",
            Self::Stopping => "stopping the old process",
            Self::Starting => "starting the new process",
            Self::Proving => "waiting until the new process reaches its peers",
            Self::Handing => "handing the jobs over to the new process",
            Self::Probation => "on probation: the new process has to stay healthy",
            Self::Flipping => "making the new release current",
            Self::Retiring => "the new release is current; the old process finishes its jobs",
            Self::Returning => "going back: the old process takes the jobs again, the new one finishes its own",
            Self::Retreating => "going back: ending the new process",
            Self::Restarting => "going back: starting the release that worked",
            Self::Reproving => "going back: waiting until the release that worked reaches its peers",
            Self::Stranded => "stranded: the release that worked does not come up; it is tried again and again",
            Self::Committed => "done",
            Self::RolledBack => "undone",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Abandoned => "abandoned",
        }
    }

    /// Every phase, in the order of the way forth and then back.
    pub const ALL: [Self; 23] = [
        Self::Scheduled,
        Self::Checking,
        Self::Rehearsing,
        Self::Waiting,
        Self::Freezing,
        Self::Stopping,
        Self::Starting,
        Self::Proving,
        Self::Handing,
        Self::Probation,
        Self::Flipping,
        Self::Retiring,
        Self::Committed,
        Self::Returning,
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
            Self::Scheduled => Act::AwaitBeginning,
            Self::Checking => Act::Check,
            Self::Rehearsing => Act::Rehearse,
            Self::Waiting => Act::AwaitIdle,
            Self::Freezing => Act::Freeze,
            Self::Stopping => Act::Stop(Side::Former),
            Self::Starting => Act::Start(Side::Trial),
            Self::Proving => Act::Prove(Side::Trial),
            Self::Handing => Act::HandOver,
            Self::Probation => Act::Watch,
            Self::Flipping => Act::Flip,
            Self::Retiring => Act::Drain(Side::Former),
            Self::Returning => Act::Drain(Side::Trial),
            Self::Retreating => Act::Stop(Side::Trial),
            Self::Restarting => Act::Start(Side::Former),
            Self::Reproving => Act::Prove(Side::Former),
            Self::Stranded => Act::Pause,
            Self::Committed | Self::RolledBack | Self::Refused | Self::Cancelled | Self::Expired | Self::Abandoned => {
                Act::Settle
            }
        }
    }

    /// The side that is to serve in this phase: its process takes the jobs. None: neither.
    pub fn serves(self, former: Former) -> Option<Side> {
        match (self, former) {
            (
                Self::Scheduled
                | Self::Checking
                | Self::Rehearsing
                | Self::Waiting
                | Self::Freezing
                | Self::Restarting
                | Self::Reproving
                | Self::Stranded
                | Self::RolledBack
                | Self::Refused
                | Self::Cancelled
                | Self::Expired
                | Self::Abandoned,
                Former::None | Former::Apart | Former::Beside,
            )
            | (Self::Starting | Self::Proving | Self::Returning | Self::Retreating, Former::Beside) => {
                Some(Side::Former)
            }
            (Self::Starting | Self::Proving, Former::None | Former::Apart)
            | (
                Self::Handing | Self::Probation | Self::Flipping | Self::Retiring | Self::Committed,
                Former::None | Former::Apart | Former::Beside,
            ) => Some(Side::Trial),
            (Self::Stopping, Former::None | Former::Apart | Former::Beside)
            | (Self::Returning | Self::Retreating, Former::None | Former::Apart) => None,
        }
    }

    /// Whether a process of each side may be there in this phase. Whatever else runs is on its way out, or a defect.
    pub fn allows(self, side: Side, former: Former) -> bool {
        let both = former == Former::Beside && self.is_beside();
        both || self.serves(former) == Some(side)
    }

    /// A phase in which, in `overlap`, both processes live.
    pub fn is_beside(self) -> bool {
        matches!(
            self,
            Self::Starting
                | Self::Proving
                | Self::Handing
                | Self::Probation
                | Self::Flipping
                | Self::Retiring
                | Self::Returning
                | Self::Retreating
        )
    }

    /// The side that the supervisor keeps running by itself (with back-off), as it does without a switch; what this phase doesn't
    /// allow it ends, and if there is no release on that side, everything. In the other phases a process
    /// that ends is the machine's business: the supervisor reports it as `Lost` and starts nothing.
    pub fn keeps(self) -> Option<Side> {
        match self {
            Self::Scheduled
            | Self::Checking
            | Self::Rehearsing
            | Self::Waiting
            | Self::RolledBack
            | Self::Refused
            | Self::Cancelled
            | Self::Expired
            | Self::Abandoned => Some(Side::Former),
            Self::Flipping | Self::Retiring | Self::Committed => Some(Side::Trial),
            Self::Freezing
            | Self::Stopping
            | Self::Starting
            | Self::Proving
            | Self::Handing
            | Self::Probation
            | Self::Returning
            | Self::Retreating
            | Self::Restarting
            | Self::Reproving
            | Self::Stranded => None,
        }
    }

    /// Nothing has been stopped or started yet.
    pub fn is_before_stop(self) -> bool {
        matches!(self, Self::Scheduled | Self::Checking | Self::Rehearsing | Self::Waiting | Self::Freezing)
    }

    /// On the way to the new release, and not yet decided.
    pub fn is_forth(self) -> bool {
        self.is_before_stop() || self.is_trial()
    }

    /// The part of the way forth during which the new process may be there and is not yet proven: its failures lead back.
    pub fn is_trial(self) -> bool {
        matches!(self, Self::Stopping | Self::Starting | Self::Proving | Self::Handing | Self::Probation)
    }

    /// On the way back to the release that worked, and not yet there.
    pub fn is_back(self) -> bool {
        matches!(self, Self::Returning | Self::Retreating | Self::Restarting | Self::Reproving | Self::Stranded)
    }

    /// The new release is the one; `current` may still have to follow, the old process may still have to go.
    pub fn is_committed(self) -> bool {
        matches!(self, Self::Flipping | Self::Retiring | Self::Committed)
    }

    /// The switch is over; only its history line is left to write.
    pub fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Committed | Self::RolledBack | Self::Refused | Self::Cancelled | Self::Expired | Self::Abandoned
        )
    }

    /// Nobody is known to serve: what an outage is made of.
    pub fn is_outage(self, former: Former) -> bool {
        former == Former::Apart && (self.is_back() || (self.is_trial() && self != Self::Probation))
    }

    /// The journalled word, which is also what status prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Checking => "checking",
            Self::Rehearsing => "rehearsing",
            Self::Waiting => "waiting",
            Self::Freezing => "freezing",
            Self::Stopping => "stopping",
            Self::Starting => "starting",
            Self::Proving => "proving",
            Self::Handing => "handing",
            Self::Probation => "probation",
            Self::Flipping => "flipping",
            Self::Retiring => "retiring",
            Self::Committed => "committed",
            Self::Returning => "returning",
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
