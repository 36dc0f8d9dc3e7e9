//! Who may do what with jobs, as the journal has it: the roles of the gate. Pure; they are derived anew at every turn, so that nothing has to be
//! remembered of them.

use crate::agent::gate::{GateRole, Origin, Roles, Slot};
use crate::switch::journal::record::Switch;
use crate::switch::machine::phase::Phase;
use crate::switch::machine::{Former, Side};

/// A process that lives and has a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarded {
    /// Its leader's pid.
    pub leader: u32,
    /// Why it was started.
    pub origin: Origin,
}

/// Whether a process that is on its way out has seen everything that the other one never got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backlog {
    /// It may hold, or still receive, what nobody else has.
    Possible,
    /// It has.
    Seen,
}

/// The roles while a switch is live. `backlog` is that of the side that doesn't serve.
pub fn roles(live: &Switch, former: Option<Guarded>, trial: Option<Guarded>, backlog: Backlog, prove: u64) -> Roles {
    let side = live.serves();
    let (first, other) = match side {
        Some(Side::Former) => (former, trial),
        Some(Side::Trial) => (trial, former),
        // Whoever still lives is about to be ended; until then it works as ever.
        None => (trial.or(former), if trial.is_some() { former } else { None }),
    };
    let slot = |guarded: Guarded, role| Slot { leader: guarded.leader, role, origin: guarded.origin };
    let slots = match (first, other) {
        (Some(first), Some(other)) => vec![slot(first, GateRole::Active), slot(other, reserve(live.phase, backlog))],
        // One alone takes everything, whatever was planned for it.
        (Some(only), None) | (None, Some(only)) => vec![slot(only, GateRole::Active)],
        (None, None) => Vec::new(),
    };
    let incumbent = matches!(live.phase, Phase::Retiring) || live.phase.is_ended();
    let announce = first.filter(|_| incumbent).map(|guarded| guarded.leader);
    // On probation the old process has shown what it can, and a fleet's masters are asked often enough.
    let prover = trial.filter(|_| live.phase == Phase::Probation).map(|guarded| guarded.leader);
    Roles { slots, announce, prove, prover }
}

/// The roles without a live switch.
pub fn alone(process: Option<Guarded>, prove: u64) -> Roles {
    let slot = process.map(|guarded| Slot { leader: guarded.leader, role: GateRole::Active, origin: guarded.origin });
    Roles { slots: slot.into_iter().collect(), announce: process.map(|guarded| guarded.leader), prove, prover: None }
}

/// What the side that doesn't serve may do.
fn reserve(phase: Phase, backlog: Backlog) -> GateRole {
    match (phase, backlog) {
        // It has not been shown to work.
        (Phase::Starting | Phase::Proving, Backlog::Possible | Backlog::Seen) => GateRole::Standby,
        // In retreating it is ended at any moment, with what it would take now.
        (Phase::Retiring | Phase::Returning, Backlog::Seen)
        | (Phase::Retreating, Backlog::Possible | Backlog::Seen) => GateRole::Closed,
        // On probation of the other one it is the safety net.
        (_, Backlog::Possible | Backlog::Seen) => GateRole::Draining,
    }
}

/// The role of a process that is about to be started, until it has read the roles.
pub fn first_role(live: Option<&Switch>, side: Side) -> GateRole {
    match live {
        Some(live) if live.former() == Former::Beside && live.serves() != Some(side) => GateRole::Standby,
        Some(_) | None => GateRole::Active,
    }
}
