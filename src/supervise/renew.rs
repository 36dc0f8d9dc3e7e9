//! Renewal: the supervisor replaces itself by the program at its own path, for example a newer version; its agents run on.

use super::Supervisor;
use super::events::{Event, Events};
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::environment::Passed;
use crate::os::process::{self, Directory, Input, Program, Said};
use crate::os::signals;
use crate::store::own_program;
use std::time::Duration;
use tracing::{info, warn};

/// How long the check of a new program may take: switches stand still meanwhile.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// How long to listen for last events before the program is replaced.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(5);

/// A request to renew the supervisor.
#[derive(Debug)]
pub(super) enum Renewal {
    /// No request.
    NotWanted,
    /// Requested.
    Wanted,
    /// Failed, for this reason.
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

/// Becomes `program`. Returns if that failed, or with an event that has to be handled first.
pub(super) async fn become_program(program: &Program, supervisor: &mut Supervisor, events: &mut Events) -> Event {
    let held = signals::hold();
    let event = events.next(LAST_WORDS_WAIT).await;
    if let Err(error) = held {
        supervisor.renewal_failed(&error.into());
    } else if matches!(event, Event::Timer | Event::Child | Event::Changed) {
        info!(instance = %supervisor.settings.instance, "the supervisor replaces itself by the program at its path");
        supervisor.renewal_failed(&program.execute(Input::Inherited).into());
    }
    if let Err(error) = signals::admit() {
        supervisor.renewal_failed(&error.into());
    }
    event
}

impl Supervisor {
    /// Returns the new program, if a renewal is requested and the program works.
    pub(super) fn successor(&mut self) -> Option<Program> {
        if !matches!(self.renewal, Renewal::Wanted) || self.ending.is_some() {
            return None;
        }
        let found = tried(self.driver.files().layout(), self.settings.commands.check);
        found.inspect_err(|report| self.renewal_failed(report)).ok()
    }

    /// Logs that the present program continues.
    pub(super) fn renewal_failed(&mut self, report: &Report) {
        let why = report.to_string();
        warn!(instance = %self.settings.instance, why, "the renewal has failed: the supervisor goes on with its present program");
        self.renewal = Renewal::Failed(why);
    }
}

/// Checks that the new program runs, and that it can read the files of this host. An error changes nothing.
fn tried(layout: &Layout, check: &str) -> Result<Program, Report> {
    let path = own_program::path(layout)?;
    let refused = |causes: Vec<String>| {
        let message = format!("cannot renew the supervisor: {} does not work here", path.display());
        let hint = format!("the supervisor goes on with its present program; try `{} --version`", path.display());
        Report { causes, ..Report::of(Class::Failed, message).hint(hint) }
    };
    // The words may name files from where this process works, and it is the same process afterwards.
    let program = Program::new(&path).passing(Passed::everything()).working(Directory::Callers);
    let program = Program { arguments: process::own_arguments(), ..program };
    let said = program.clone().argument(check).answer_within(CHECK_WAIT);
    match said {
        Ok(Some(Said { success: true, .. })) => Ok(program),
        Ok(Some(Said { errors, .. })) => Err(refused(errors.lines().take(1).map(str::to_owned).collect())),
        Ok(None) => Err(refused(vec![format!("it did not answer within {} s", CHECK_WAIT.as_secs())])),
        Err(error) => Err(refused(vec![error.to_string()])),
    }
}
