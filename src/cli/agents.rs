//! The register of agents: the one file that names their implementations. Each entry names the parts that a kind of agent has.

use crate::agent::caller::Caller;
use crate::agent::traces::{Inquiry, JobTraces};
use crate::agent::{AgentError, AgentKind, Parts};
use crate::command::{self, CommandAgent};
use crate::demo::{self, DemoAgent};
use crate::layout::Layout;
use crate::name::SIDLE;
use crate::os::process;
use crate::salt::{self, SaltMinion};

/// All kinds of agents.
pub static ALL: [Parts; 4] = [
    Parts {
        rehearser: Some(&salt::rehearsal::SALT),
        adopter: Some(&salt::adoption::SaltAdopter),
        examiner: Some(&salt::doctor::SALT),
        caller: Some(salt::caller::caller),
        traces: Some(salt::traces::traces),
        introducer: Some(&salt::sign_in::FIRST),
        missed: Some(salt::options::missed::missed),
        tryout: Some(salt::tryout::tryout),
        describer: Some(salt::rehearsal::describing::describer),
        ..Parts::new("salt", |settings| Ok(Box::new(SaltMinion::new(settings))))
    },
    Parts {
        rehearser: Some(&demo::rehearsal::DEMO),
        ..Parts::new("demo", |settings| Ok(Box::new(DemoAgent::new(settings)?)))
    },
    Parts {
        commands: command::COMMANDS,
        ..Parts::new("command", |settings| Ok(Box::new(CommandAgent::new(settings)?)))
    },
    // This program's own releases: `sidle upgrade sidle` takes them up.
    Parts::new(SIDLE, |_| Err(AgentError::new("cannot supervise sidle: it is this program itself, and no agent"))),
];

/// The parts of a kind of agent.
pub fn parts(kind: &AgentKind) -> Result<&'static Parts, AgentError> {
    let known: Vec<&str> = ALL.iter().map(|parts| parts.kind).collect();
    ALL.iter().find(|parts| parts.kind == kind.as_str()).ok_or_else(|| {
        AgentError::new(format!(
            "cannot use the kind of agent {:?}: this sidle knows {}",
            kind.as_str(),
            known.join(", ")
        ))
    })
}

/// The job of an agent that this command runs in.
pub fn caller(layout: &Layout) -> Option<Caller> {
    let instances = layout.instances();
    ALL.iter().filter_map(|parts| parts.caller).find_map(|caller| caller(process::own_number(), &instances))
}

/// What the agent's own files tell of a job; None: no kind of agent knows its files by these options.
pub fn traces(inquiry: Inquiry<'_>) -> Option<JobTraces> {
    ALL.iter().filter_map(|parts| parts.traces).find_map(|traces| traces(inquiry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_an_unknown_one_is_refused() {
        for known in &ALL {
            assert_eq!(parts(&known.kind.parse().unwrap()).unwrap().kind, known.kind);
        }
        let refused = parts(&"zebra".parse().unwrap()).err().unwrap().to_string();
        assert_eq!(refused, "cannot use the kind of agent \"zebra\": this sidle knows salt, demo, command, sidle");
    }
}
