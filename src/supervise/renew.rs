//! The supervisor becomes the program that lies at its own path now, a newer one say, under the agents that it runs: they don't notice.

use super::Supervisor;
use super::events::{Event, Events};
use crate::failure::{Class, Report};
use crate::os::process::{self, Input, Program, Said};
use crate::os::signals;
use std::time::Duration;
use tracing::{info, warn};

/// What makes `sidle supervise` look whether it could work, and nothing else.
pub const CHECK_ARGUMENT: &str = "--check";
/// How long a new program may take to say that it can work here: the agents' switch stands still meanwhile.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// How long to listen for what was asked before this process becomes another program.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(5);

/// Whether the supervisor is to become the program that lies at its path now.
#[derive(Debug)]
pub(super) enum Renewal {
    /// It isn't.
    NotWanted,
    /// It is.
    Wanted,
    /// It was, but can't, because of this.
    Failed(String),
}

impl Renewal {
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::NotWanted | Self::Wanted => None,
        }
    }
}

/// Becomes `program`. Comes back with what was asked meanwhile, which goes first, or when it failed.
pub(super) async fn become_program(program: &Program, supervisor: &mut Supervisor, events: &mut Events) -> Event {
    let held = signals::hold();
    let event = events.next(LAST_WORDS_WAIT).await;
    if let Err(error) = held {
        supervisor.renewal_failed(&error.into());
    } else if matches!(event, Event::Timer | Event::Child | Event::Changed) {
        info!(instance = %supervisor.settings.instance, "the supervisor becomes the program that lies at its path now");
        supervisor.renewal_failed(&program.execute(Input::Inherited).into());
    }
    if let Err(error) = signals::admit() {
        supervisor.renewal_failed(&error.into());
    }
    event
}

impl Supervisor {
    /// The program to become, where that is asked for and it works.
    pub(super) fn successor(&mut self) -> Option<Program> {
        if !matches!(self.renewal, Renewal::Wanted) || self.ending.is_some() {
            return None;
        }
        let found = tried();
        found.inspect_err(|report| self.renewal_failed(report)).ok()
    }

    /// It goes on as the program that it is.
    pub(super) fn renewal_failed(&mut self, report: &Report) {
        let why = report.to_string();
        warn!(instance = %self.settings.instance, why, "the supervisor stays the program that it is");
        self.renewal = Renewal::Failed(why);
    }
}

/// The program to become: it has shown that it runs, and that it can read what this host has for it. An error changes nothing.
fn tried() -> Result<Program, Report> {
    let path = process::own_path()?;
    let refused = |causes: Vec<String>| Report {
        class: Class::Failed,
        message: format!("cannot go on as {}: it does not work here", path.display()),
        causes,
        hint: Some(format!("the supervisor goes on as it is; try `{} --version`", path.display())),
    };
    let program = Program { arguments: process::own_arguments(), ..Program::new(&path) };
    let said = program.clone().argument(CHECK_ARGUMENT).answer_within(CHECK_WAIT);
    match said {
        Ok(Some(Said { success: true, .. })) => Ok(program),
        Ok(Some(Said { errors, .. })) => Err(refused(errors.lines().take(1).map(str::to_owned).collect())),
        Ok(None) => Err(refused(vec![format!("it did not answer within {} s", CHECK_WAIT.as_secs())])),
        Err(error) => Err(refused(vec![error.to_string()])),
    }
}
