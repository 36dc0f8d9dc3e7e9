//! The phases of a switch: one row for each.

#![deny(clippy::wildcard_enum_match_arm)]

use super::act::{Act, Former, Side};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The phase of a switch. The journal has a phase before its act is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The switch waits for its window and for the drawn part of its splay. Nothing has been checked yet.
    Scheduled,
    /// The files of both releases are leased and verified.
    Checking,
    /// The new release loads this host's configuration and modules, without a peer.
    Rehearsing,
    /// The switch waits until no job runs.
    Waiting,
    /// The old process is frozen and checked once more for jobs. Nothing has been stopped up to here.
    Freezing,
    /// The old process is ended; the switch waits until it is gone.
    Stopping,
    /// The new release is started from its versioned path; in `overlap` the old process goes on serving.
    Starting,
    /// The switch waits until the new process reaches the peers that the old process had reached.
    Proving,
    /// The roles change: the new process takes the jobs, the old process only jobs that the new process never received.
    Handing,
    /// The new process has to stay healthy for some time.
    Probation,
    /// The new release has passed; `current` follows. The journal's write that enters this phase is the commit.
    Flipping,
    /// The old process finishes its jobs, takes no new jobs, and is ended.
    FinishingOld,
    /// Ended: the new release is current.
    Committed,
    /// The way back of `overlap`: the old process takes the jobs again, the new process finishes its own.
    DrainingNew,
    /// The way back: the new process is ended; the switch waits until it is gone.
    StoppingNew,
    /// The way back: the previous release is started again.
    StartingOld,
    /// The way back: the switch waits until the previous release reaches its peers again.
    ProvingOld,
    /// The previous release does not come up either: a person is needed. Sidle tries again after each pause, for ever.
    Stranded,
    /// Ended: the previous release runs again; after a failed first switch nothing runs.
    RolledBack,
    /// Ended before anything was stopped: a check failed.
    Refused,
    /// Ended before anything was stopped: a person cancelled it.
    Cancelled,
    /// Ended before anything was stopped: still busy at the deadline.
    Expired,
    /// A person ended a stranded switch, to make room for another switch. `current` is unchanged.
    Abandoned,
}

/// The parts of a switch that its phases belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing has been stopped or started yet.
    BeforeStop,
    /// The new process may run and is not yet proven.
    Trial,
    /// The journal names the new release as proven.
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
    /// The old process if both run, else the new process.
    FormerIfBeside,
    /// The old process if both run, else no process.
    FormerOnlyBeside,
    /// No process.
    Nobody,
}

/// Which of the limits of a switch bounds a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// No limit. Before the stop the deadline of the switch applies.
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

/// The two processes of `overlap` in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lives {
    Together,
    Apart,
}

/// The properties of a phase.
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
        "giving new jobs to the new process"),
    row(Phase::Probation,  "probation",   Part::Trial,      Watch,          Always(New),      None,      Together, Limit::Probation, 1000,
        "on probation: the new process has to stay healthy"),
    row(Phase::Flipping,   "flipping",    Part::Committed,  Flip,           Always(New),      Some(New), Together, Limit::Unlimited, 1000,
        "making the new release current"),
    row(Phase::FinishingOld,   "finishing-old",    Part::Committed,  Drain(Old),     Always(New),      Some(New), Together, Limit::Unlimited,  100,
        "the new release is current; the old process finishes its jobs"),
    row(Phase::Committed,  "committed",   Part::Ended,      Settle,         Always(New),      Some(New), Apart,    Limit::Unlimited,  250,
        "done"),
    row(Phase::DrainingNew,  "draining-new",   Part::Back,       Drain(New),     FormerOnlyBeside, None,      Together, Limit::Drain,       50,
        "rolling back: the old process accepts new jobs again; the new process finishes the jobs that it runs"),
    row(Phase::StoppingNew, "stopping-new",  Part::Back,       Stop(New),      FormerOnlyBeside, None,      Together, Limit::Stop,        50,
        "rolling back: ending the new process"),
    row(Phase::StartingOld, "starting-old",  Part::Back,       Start(Old),     Always(Old),      None,      Apart,    Limit::Start,       50,
        "rolling back: starting the release that worked"),
    row(Phase::ProvingOld,  "proving-old",   Part::Back,       Prove(Old),     Always(Old),      None,      Apart,    Limit::Start,      250,
        "rolling back: waiting until the release that worked reaches its peers"),
    row(Phase::Stranded,   "stranded",    Part::Back,       Pause,          Always(Old),      None,      Apart,    Limit::Pause,     2000,
        "stranded: the release that worked does not come up; sidle tries again and again"),
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

    /// A description of the phase, for people.
    pub fn doing(self) -> &'static str {
        self.row().doing
    }

    /// The act of this phase.
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

    /// True if the process of `side` may run in this phase. Every other process has to end.
    pub fn allows(self, side: Side, former: Former) -> bool {
        let both = former == Former::Beside && self.is_beside();
        both || self.serves(former) == Some(side)
    }

    /// True if, in `overlap`, both processes run in this phase.
    pub fn is_beside(self) -> bool {
        self.row().lives == Lives::Together
    }

    /// The side that the supervisor keeps running (with back-off), as it does without a switch; it ends all processes that the phase does not
    /// allow. None: the machine handles the end of a process, as `Lost`, and the supervisor starts nothing.
    pub fn keeps(self) -> Option<Side> {
        self.row().keeps
    }

    /// The time until an unfinished act is performed again.
    pub fn interval(self) -> Duration {
        Duration::from_millis(self.row().interval_milliseconds)
    }

    /// The limit of this phase.
    pub(super) fn limit(self) -> Limit {
        self.row().limit
    }

    /// True while nothing has been stopped or started.
    pub fn is_before_stop(self) -> bool {
        self.row().part == Part::BeforeStop
    }

    /// True on the way to the new release, before the commit.
    pub fn is_forth(self) -> bool {
        self.is_before_stop() || self.is_trial()
    }

    /// True from the stop (or the start of the new process) to the commit: a failure here leads back.
    pub fn is_trial(self) -> bool {
        self.row().part == Part::Trial
    }

    /// True on the way back, before its end.
    pub fn is_back(self) -> bool {
        self.row().part == Part::Back
    }

    /// True after the commit; `current` may still have to follow, and the old process may still run.
    pub fn is_committed(self) -> bool {
        self.row().part == Part::Committed || self == Self::Committed
    }

    /// True if the switch is over; only its history line is left to write.
    pub fn is_ended(self) -> bool {
        self.row().part == Part::Ended
    }

    /// True if no process is known to serve: this time counts as downtime.
    pub fn is_down(self, former: Former) -> bool {
        former == Former::Apart && (self.is_back() || (self.is_trial() && self != Self::Probation))
    }

    /// The word in the journal and in `sidle status`.
    pub fn word(self) -> &'static str {
        self.row().word
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}
