//! The roles of the processes at the gate, from the journal. Pure: every turn derives them again.

use crate::agent::gate::{GateRole, Origin, Roles, Slot};
use crate::switch::journal::record::Switch;
use crate::switch::machine::phase::Phase;
use crate::switch::machine::{Former, Side};

/// A live process with a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarded {
    /// The pid of its leader.
    pub leader: u32,
    /// Why it was started.
    pub origin: Origin,
}

/// Jobs that only the leaving process may have received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backlog {
    /// It may have such jobs, or still receive some.
    Possible,
    /// It has taken all of them: the process with this leader receives everything since.
    Taken {
        /// The leader.
        by: u32,
    },
}

/// Returns the roles during a switch. `backlog`: of the side that does not serve.
pub fn roles(live: &Switch, former: Option<Guarded>, trial: Option<Guarded>, backlog: Backlog, prove: u64) -> Roles {
    let side = live.serves();
    let (first, other) = match side {
        Some(Side::Former) => (former, trial),
        Some(Side::Trial) => (trial, former),
        // A process that still runs is about to be ended; until then it works as usual.
        None => (trial.or(former), if trial.is_some() { former } else { None }),
    };
    let slot = |guarded: Guarded, role| Slot { leader: guarded.leader, role, origin: guarded.origin };
    let slots = match (first, other) {
        (Some(first), Some(other)) => {
            vec![slot(first, GateRole::Active), slot(other, reserve(live.phase, backlog, first.leader))]
        }
        // A process that runs alone takes all jobs, whatever its side.
        (Some(only), None) | (None, Some(only)) => vec![slot(only, GateRole::Active)],
        (None, None) => Vec::new(),
    };
    let incumbent = matches!(live.phase, Phase::FinishingOld) || live.phase.is_ended();
    let announce = first.filter(|_| incumbent).map(|guarded| guarded.leader);
    // On probation the old process need not make round trips: they would only add load on the masters of a fleet.
    let prover = trial.filter(|_| live.phase == Phase::Probation).map(|guarded| guarded.leader);
    Roles { slots, announce, prove, prover }
}

/// Returns the roles without a live switch.
pub fn alone(process: Option<Guarded>, prove: u64) -> Roles {
    let slot = process.map(|guarded| Slot { leader: guarded.leader, role: GateRole::Active, origin: guarded.origin });
    Roles { slots: slot.into_iter().collect(), announce: process.map(|guarded| guarded.leader), prove, prover: None }
}

/// The role of the side that does not serve; `serving`: the leader of the other side.
fn reserve(phase: Phase, backlog: Backlog, serving: u32) -> GateRole {
    match phase {
        // The new process is not proven yet.
        Phase::Starting | Phase::Proving => GateRole::Standby,
        // It may be ended at any moment, and would lose a job that it takes now.
        Phase::StoppingNew => GateRole::Closed,
        // A process that was started again since then has not subscribed yet: it would miss jobs.
        Phase::FinishingOld | Phase::DrainingNew if backlog == (Backlog::Taken { by: serving }) => GateRole::Closed,
        // On probation the old process takes the jobs that the new process misses. In other phases there is one process.
        Phase::FinishingOld
        | Phase::DrainingNew
        | Phase::Handing
        | Phase::Probation
        | Phase::Flipping
        | Phase::Scheduled
        | Phase::Checking
        | Phase::Rehearsing
        | Phase::Waiting
        | Phase::Freezing
        | Phase::Stopping
        | Phase::StartingOld
        | Phase::ProvingOld
        | Phase::Stranded
        | Phase::Committed
        | Phase::RolledBack
        | Phase::Refused
        | Phase::Cancelled
        | Phase::Expired
        | Phase::Abandoned => GateRole::Draining,
    }
}

/// The role of a new process until it has read the roles.
pub fn first_role(live: Option<&Switch>, side: Side) -> GateRole {
    match live {
        Some(live) if live.former() == Former::Beside && live.serves() != Some(side) => GateRole::Standby,
        Some(_) | None => GateRole::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_process_drains_again_when_the_process_that_took_everything_over_is_another() {
        let taken = Backlog::Taken { by: 10 };
        assert_eq!(reserve(Phase::FinishingOld, taken, 10), GateRole::Closed);
        assert_eq!(reserve(Phase::FinishingOld, taken, 11), GateRole::Draining, "the new one has not subscribed yet");
        assert_eq!(reserve(Phase::FinishingOld, Backlog::Possible, 10), GateRole::Draining);
        assert_eq!(reserve(Phase::StoppingNew, Backlog::Possible, 11), GateRole::Closed);
    }
}
