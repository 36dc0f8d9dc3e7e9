//! The parts of a switch: its mode, its two sides, and the acts that the driver performs.

use serde::{Deserialize, Serialize};

/// The mode of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: both processes run, a gate gives each job to one of them, and the old process finishes its jobs.
    Overlap,
    /// Wait until no job runs, then stop the old process and start the new one.
    Idle,
    /// Stop the old process at once, whatever it runs.
    Now,
}

/// The two processes of a switch. In `idle` and `now` they never run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The old process: it worked before the switch, or the way back started it again.
    Former,
    /// The new process, on trial.
    Trial,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Former => Self::Trial,
            Self::Trial => Self::Former,
        }
    }
}

/// The part of the old process in a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Former {
    /// There is no old process: a first switch.
    None,
    /// It is ended before the new process starts: in `idle` and `now`, and in `overlap` after its loss.
    Apart,
    /// It runs at the same time as the new process and can serve again at any moment.
    Beside,
}

/// What the driver does in a phase. Every act may be performed twice, by another process, after a crash in its middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// Wait for the scheduled time; then check that no person holds the instance.
    AwaitBeginning,
    /// Lease and verify the files of both releases; record the peers that the running process reaches (the baseline).
    Check,
    /// Load this host's configuration and modules with the new release, without a peer; compare with the running release.
    Rehearse,
    /// Thaw the running process, if an interrupted `Freeze` left it frozen; wait until it is idle.
    AwaitIdle,
    /// Freeze the running process and check again. `Done`: frozen and idle. `NotYet`: busy again, and thawed.
    Freeze,
    /// End the process of this side and every other process that the phase does not allow; wait until they are gone.
    Stop(Side),
    /// Run the release of this side from its versioned path: keep a process that runs already, else verify and start the release. Processes
    /// that the phase does not allow end first. A process that was sent a deadly signal is not kept, and has to be gone first.
    Start(Side),
    /// Wait until the process of this side has reached its peers.
    Prove(Side),
    /// Change the roles at the gate; wait until both guards have reported the new roles.
    HandOver,
    /// Check the health of the process on trial. `Done`: it is healthy at this check. Unknown health is `Failed`.
    Watch,
    /// Make `current` name the journal's proven release.
    Flip,
    /// Let the process of this side finish its jobs while the other process serves; end the old process. `Stop` ends the process on trial.
    Drain(Side),
    /// Wait for the end of the pause. `Done`: a person asks for another try now.
    Pause,
    /// Thaw all processes, append the history line (once), write the verdicts, return the leases. `Done` ends the switch.
    Settle,
}
