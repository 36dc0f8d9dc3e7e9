//! The phases of a switch: one row for each.

#![deny(clippy::wildcard_enum_match_arm)]

use super::act::{Act, Former, Side};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

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

/// The parts of a switch that its phases belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing has been stopped or started yet.
    BeforeStop,
    /// The new process may be there and is not yet proven.
    Trial,
    /// The new release is current, or about to be.
    Committed,
    /// The way back.
    Back,
    /// Only the history line is left to write.
    Ended,
}

/// The side whose process takes the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serves {
    /// This side.
    Always(Side),
    /// The old process where it lives beside the new one, else the new one.
    FormerIfBeside,
    /// The old process where it lives beside the new one, else nobody.
    FormerOnlyBeside,
    /// Nobody.
    Nobody,
}

/// Which of the limits of a switch bounds a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// None. Before the stop the deadline of the switch bounds it.
    Unlimited,
    /// `stop_timeout`.
    Stop,
    /// `start_timeout`.
    Start,
    /// `rehearsal_timeout`, and the time of a rebuild.
    Rehearsal,
    /// `drain_timeout`.
    Drain,
    /// `probation`.
    Probation,
    /// The pause of a stranded switch.
    Pause,
}

/// Whether, in `overlap`, both processes live in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lives {
    Together,
    Apart,
}

/// What holds in a phase.
struct Row {
    phase: Phase,
    word: &'static str,
    part: Part,
    act: Act,
    serves: Serves,
    keeps: Option<Side>,
    lives: Lives,
    limit: Limit,
    interval_milliseconds: u64,
    doing: &'static str,
}

#[expect(clippy::too_many_arguments, reason = "the columns of a table")]
const fn row(
    phase: Phase,
    word: &'static str,
    part: Part,
    act: Act,
    serves: Serves,
    keeps: Option<Side>,
    lives: Lives,
    limit: Limit,
    interval_milliseconds: u64,
    doing: &'static str,
) -> Row {
    Row { phase, word, part, act, serves, keeps, lives, limit, interval_milliseconds, doing }
}

use Act::{
    AwaitBeginning, AwaitIdle, Check, Drain, Flip, Freeze, HandOver, Pause, Prove, Rehearse, Settle, Start, Stop, Watch,
};
use Lives::{Apart, Together};
use Serves::{Always, FormerIfBeside, FormerOnlyBeside, Nobody};
use Side::{Former as Old, Trial as New};

/// Every phase, in the order of the way forth and then back. The columns are those of [`Row`]; the second line of a row is for people.
#[rustfmt::skip] // a table is read by its columns
const TABLE: [Row; 23] = [
    row(Phase::Scheduled,  "scheduled",   Part::BeforeStop, AwaitBeginning, Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "scheduled"),
    row(Phase::Checking,   "checking",    Part::BeforeStop, Check,          Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "checking the files of both releases"),
    row(Phase::Rehearsing, "rehearsing",  Part::BeforeStop, Rehearse,       Always(Old),      Some(Old), Apart,    Limit::Rehearsal,  100,
        "rehearsing: loading this host's configuration and modules with the new release"),
    row(Phase::Waiting,    "waiting",     Part::BeforeStop, AwaitIdle,      Always(Old),      Some(Old), Apart,    Limit::Unlimited, 1000,
        "waiting until no job runs"),
    row(Phase::Freezing,   "freezing",    Part::BeforeStop, Freeze,         Always(Old),      None,      Apart,    Limit::Stop,        50,
        "pausing the old process, and looking once more for jobs"),
    row(Phase::Stopping,   "stopping",    Part::Trial,      Stop(Old),      Nobody,           None,      Apart,    Limit::Stop,        50,
        "stopping the old process"),
    row(Phase::Starting,   "starting",    Part::Trial,      Start(New),     FormerIfBeside,   None,      Together, Limit::Start,       50,
        "starting the new process"),
    row(Phase::Proving,    "proving",     Part::Trial,      Prove(New),     FormerIfBeside,   None,      Together, Limit::Start,      250,
        "waiting until the new process reaches its peers"),
    row(Phase::Handing,    "handing",     Part::Trial,      HandOver,       Always(New),      None,      Together, Limit::Start,       50,
        "handing the jobs over to the new process"),
    row(Phase::Probation,  "probation",   Part::Trial,      Watch,          Always(New),      None,      Together, Limit::Probation, 1000,
        "on probation: the new process has to stay healthy"),
    row(Phase::Flipping,   "flipping",    Part::Committed,  Flip,           Always(New),      Some(New), Together, Limit::Unlimited, 1000,
        "making the new release current"),
    row(Phase::Retiring,   "retiring",    Part::Committed,  Drain(Old),     Always(New),      Some(New), Together, Limit::Unlimited,  100,
        "the new release is current; the old process finishes its jobs"),
    row(Phase::Committed,  "committed",   Part::Ended,      Settle,         Always(New),      Some(New), Apart,    Limit::Unlimited,  250,
        "done"),
    row(Phase::Returning,  "returning",   Part::Back,       Drain(New),     FormerOnlyBeside, None,      Together, Limit::Drain,       50,
        "going back: the old process takes the jobs again, the new one finishes its own"),
    row(Phase::Retreating, "retreating",  Part::Back,       Stop(New),      FormerOnlyBeside, None,      Together, Limit::Stop,        50,
        "going back: ending the new process"),
    row(Phase::Restarting, "restarting",  Part::Back,       Start(Old),     Always(Old),      None,      Apart,    Limit::Start,       50,
        "going back: starting the release that worked"),
    row(Phase::Reproving,  "reproving",   Part::Back,       Prove(Old),     Always(Old),      None,      Apart,    Limit::Start,      250,
        "going back: waiting until the release that worked reaches its peers"),
    row(Phase::Stranded,   "stranded",    Part::Back,       Pause,          Always(Old),      None,      Apart,    Limit::Pause,     2000,
        "stranded: the release that worked does not come up; it is tried again and again"),
    row(Phase::RolledBack, "rolled-back", Part::Ended,      Settle,         Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "undone"),
    row(Phase::Refused,    "refused",     Part::Ended,      Settle,         Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "refused"),
    row(Phase::Cancelled,  "cancelled",   Part::Ended,      Settle,         Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "cancelled"),
    row(Phase::Expired,    "expired",     Part::Ended,      Settle,         Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "expired"),
    row(Phase::Abandoned,  "abandoned",   Part::Ended,      Settle,         Always(Old),      Some(Old), Apart,    Limit::Unlimited,  250,
        "abandoned"),
];

// A phase is the number of its row.
const _: () = {
    let mut number = 0;
    while number < TABLE.len() {
        assert!(TABLE[number].phase as usize == number);
        number += 1;
    }
};

impl Phase {
    /// Every phase, in the order of the way forth and then back.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::Scheduled; TABLE.len()];
        let mut number = 0;
        while number < all.len() {
            all[number] = TABLE[number].phase;
            number += 1;
        }
        all
    };

    fn row(self) -> &'static Row {
        const ROWS: &[Row] = &TABLE;
        &ROWS[self as usize]
    }

    /// What is done in it, for people.
    pub fn doing(self) -> &'static str {
        self.row().doing
    }

    /// The one act of this phase.
    pub fn act(self) -> Act {
        self.row().act
    }

    /// The side whose process takes the jobs in this phase; None: neither.
    pub fn serves(self, former: Former) -> Option<Side> {
        match (self.row().serves, former) {
            (Serves::Always(side), _) => Some(side),
            (Serves::FormerIfBeside | Serves::FormerOnlyBeside, Former::Beside) => Some(Side::Former),
            (Serves::FormerIfBeside, Former::None | Former::Apart) => Some(Side::Trial),
            (Serves::FormerOnlyBeside, Former::None | Former::Apart) | (Serves::Nobody, _) => None,
        }
    }

    /// Whether a process of each side may be there in this phase. Whatever else runs is on its way out, or a defect.
    pub fn allows(self, side: Side, former: Former) -> bool {
        let both = former == Former::Beside && self.is_beside();
        both || self.serves(former) == Some(side)
    }

    /// A phase in which, in `overlap`, both processes live.
    pub fn is_beside(self) -> bool {
        self.row().lives == Lives::Together
    }

    /// The side that the supervisor keeps running by itself (with back-off), as it does without a switch; what this phase doesn't
    /// allow it ends, and if there is no release on that side, everything. In the other phases a process
    /// that ends is the machine's business: the supervisor reports it as `Lost` and starts nothing.
    pub fn keeps(self) -> Option<Side> {
        self.row().keeps
    }

    /// How long until an act that is not done yet is performed again.
    pub fn interval(self) -> Duration {
        Duration::from_millis(self.row().interval_milliseconds)
    }

    /// Which limit bounds it.
    pub(super) fn limit(self) -> Limit {
        self.row().limit
    }

    /// Nothing has been stopped or started yet.
    pub fn is_before_stop(self) -> bool {
        self.row().part == Part::BeforeStop
    }

    /// On the way to the new release, and not yet decided.
    pub fn is_forth(self) -> bool {
        self.is_before_stop() || self.is_trial()
    }

    /// The part of the way forth during which the new process may be there and is not yet proven: its failures lead back.
    pub fn is_trial(self) -> bool {
        self.row().part == Part::Trial
    }

    /// On the way back to the release that worked, and not yet there.
    pub fn is_back(self) -> bool {
        self.row().part == Part::Back
    }

    /// The new release is the one; `current` may still have to follow, the old process may still have to go.
    pub fn is_committed(self) -> bool {
        self.row().part == Part::Committed || self == Self::Committed
    }

    /// The switch is over; only its history line is left to write.
    pub fn is_ended(self) -> bool {
        self.row().part == Part::Ended
    }

    /// Nobody is known to serve: what a downtime is made of.
    pub fn is_outage(self, former: Former) -> bool {
        former == Former::Apart && (self.is_back() || (self.is_trial() && self != Self::Probation))
    }

    /// The journalled word, which is also what status prints.
    pub fn word(self) -> &'static str {
        self.row().word
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}
