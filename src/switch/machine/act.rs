//! The parts of a switch: its mode, its two sides, and the acts that the driver performs.

use serde::{Deserialize, Serialize};

/// What a switch may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: the new process comes up beside the old one, a gate gives each job to one of them, the old one finishes what it has.
    Overlap,
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

/// How the release that worked before takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Former {
    /// There is none: a first switch.
    None,
    /// Its process is ended before the new one starts; so in `idle` and `now`, and in `overlap` once that process was lost.
    Apart,
    /// Its process lives beside the new one and can serve again at any moment.
    Beside,
}

/// What the driver has to do in a phase. Every act may be performed twice, by another process, after a crash in its middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// Look whether it is time; once it is, whether a person holds the instance by now.
    AwaitBeginning,
    /// Lease and verify the files of both releases; look which peers the running process has proven (the baseline).
    Check,
    /// Let the new release load what this host has for it, without a peer; compare with what the running release loads.
    Rehearse,
    /// Thaw the running process, if an interrupted `Freeze` left it frozen; look whether it is idle.
    AwaitIdle,
    /// Freeze the running process, look again. `Done`: frozen and idle. `NotYet`: not idle any more, thawed.
    Freeze,
    /// End this side's process, wait until it is gone, and every other process of the instance's agent that the phase does not allow.
    Stop(Side),
    /// Make this side's release run and not be frozen, from its versioned path: adopt what runs already, else check and start it. What
    /// else runs that the phase does not allow is ended first. What was sent a deadly signal is not adopted, and has to be gone first.
    Start(Side),
    /// Look whether this side's process has reached its peers.
    Prove(Side),
    /// Move the gate, wait until both processes have said that they follow.
    HandOver,
    /// Look whether the process on trial is healthy. `Done`: it is, at this look. Not known to be healthy is `Failed`.
    Watch,
    /// Make `current` name the journal's proven release.
    Flip,
    /// Let this side's process finish what it has while the other one serves. The old one is ended, too; the one on trial `Stop` ends.
    Drain(Side),
    /// Nothing: let the pause pass. `Done`: a person asks for another try now.
    Pause,
    /// Thaw what runs, append the history line (once), note what the verdict says, give the leases back. `Done` ends the switch.
    Settle,
}
