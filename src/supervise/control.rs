//! The control socket: one line of JSON is the request, one line the answer. Only the owner of the instance and root may use it.

use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::{OsError, random, socket};
use crate::saved;
use crate::switch::driver::dry_run::ExpectedSwitch;
use crate::switch::driver::requests::BadReleases;
use crate::switch::schedule::{When, later};
use crate::switch::{Adopted, Mode, NewSwitch, Purpose, Request};
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

/// The socket's name in the instance's run directory.
pub const SOCKET_NAME: &str = "control";
/// Longest line either way: a request with a long reason, an answer with a long error.
pub const LINE_LENGTH_MAXIMUM: u64 = 64 * 1024;
/// How long a command waits for a supervisor's answer: it may be verifying a release.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// A command to a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Command {
    /// Begin a switch.
    Switch(Box<SwitchCommand>),
    /// Begin a restart if the configuration has changed since the start of the running process.
    RestartIfChanged(Box<SwitchCommand>),
    /// Begin the first switch, from a process that sidle did not start.
    Adopt {
        /// The switch.
        switch: Box<SwitchCommand>,
        /// The process.
        adopted: Box<Adopted>,
    },
    /// End the agent once it is idle, and run no agent any more.
    Unadopt {
        /// How long to wait until it is idle, seconds.
        deadline_seconds: u64,
    },
    /// Say what a switch would come to, and change nothing.
    DryRun {
        /// The switch.
        switch: Box<SwitchCommand>,
        /// A restart that is only wanted if the configuration has changed.
        if_changed: bool,
    },
    /// Cancel the live switch.
    Cancel,
    /// Only log that a command was refused before it asked the supervisor.
    Refused {
        /// The purpose of the refused switch.
        purpose: Purpose,
        /// Its release.
        to: Release,
        /// The refusal.
        why: Report,
    },
}

impl Command {
    /// The requested switch, if the command is about one.
    pub fn switch(&self) -> Option<&SwitchCommand> {
        match self {
            Self::Switch(switch)
            | Self::RestartIfChanged(switch)
            | Self::Adopt { switch, .. }
            | Self::DryRun { switch, .. } => Some(switch),
            Self::Unadopt { .. } | Self::Cancel | Self::Refused { .. } => None,
        }
    }
}

/// The command to switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchCommand {
    /// The request.
    #[serde(flatten)]
    pub request: Request,
    /// The requested mode; None: the cheapest possible.
    pub mode: Option<Mode>,
    /// How long to wait for running jobs, seconds.
    pub deadline_seconds: u64,
    /// Allow a release that failed on this host before.
    pub force: bool,
    /// When to begin.
    #[serde(default)]
    pub when: When,
}

impl SwitchCommand {
    /// Whether the switch may be to a release that failed on this host.
    pub fn bad_releases(&self) -> BadReleases {
        if self.force { BadReleases::TryAgain } else { BadReleases::Refuse }
    }

    /// Makes the new switch in `mode`, with notes. Draws the splay.
    pub fn planned(self, mode: Mode, notes: Vec<String>, now: Timestamp) -> Result<NewSwitch, OsError> {
        self.planned_with(mode, notes, now, random::up_to)
    }

    /// The same for a dry run, which draws no splay.
    pub fn dry_run(self, mode: Mode, notes: Vec<String>, now: Timestamp) -> Result<NewSwitch, OsError> {
        self.planned_with(mode, notes, now, |_| Ok(0))
    }

    fn planned_with(
        self,
        mode: Mode,
        notes: Vec<String>,
        now: Timestamp,
        draw: impl FnOnce(u64) -> Result<u64, OsError>,
    ) -> Result<NewSwitch, OsError> {
        let schedule = self.when.drawn(now, draw)?;
        let deadline = match &schedule {
            Some(schedule) => schedule.deadline(self.deadline_seconds),
            None => later(now, self.deadline_seconds),
        };
        Ok(NewSwitch { request: self.request, mode, deadline, schedule, notes, adopted: None })
    }
}

/// The answer of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The request is in the journal.
    Accepted {
        /// The number of its switch.
        switch: u64,
        /// What the switch would come to, for a dry run; nothing is in the journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<Box<ExpectedSwitch>>,
    },
    /// The request is refused.
    Refused(Report),
}

/// Sends a command to the supervisor of an instance; None: no supervisor listens.
pub fn ask(layout: &Layout, instance: &InstanceName, command: &Command) -> Result<Option<Answer>, Report> {
    let Some(directory) = Dir::open_if_exists(&layout.run(instance))? else { return Ok(None) };
    let Some(mut stream) = socket::connect(&directory, SOCKET_NAME, ANSWER_WAIT)? else { return Ok(None) };
    let path = directory.path().join(SOCKET_NAME);
    let failed = |source| Report::from(OsError::new("talk to the supervisor on", &path, source));
    stream.write_all(&saved::line(command)).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_LENGTH_MAXIMUM)).read_line(&mut answer).map_err(failed)?;
    answered(&answer, &path).map(Some)
}

/// Reads the answer of the supervisor that listens on `path`.
pub fn answered(line: &str, path: &Path) -> Result<Answer, Report> {
    if line.is_empty() {
        return Err(Report::of(Class::Failed, format!("cannot get an answer from the supervisor on {}: it closed the connection", path.display())).hint("the supervisor may have ended just now, or the host has no file descriptor or process left: `sidle status` shows whether the supervisor runs; then try again"));
    }
    serde_json::from_str(line).map_err(|error| {
        Report::of(Class::Failed, format!("cannot understand the supervisor's answer on {}", path.display()))
            .because(error.to_string())
            .hint("the supervisor may be of another version of sidle: restart the supervisor")
    })
}

/// Reads a command.
pub fn parse(line: &str) -> Result<Command, Report> {
    serde_json::from_str(line).map_err(|error| {
        Report::of(Class::Usage, "cannot understand the command")
            .because(error.to_string())
            .hint("the command may be of another version of sidle than the supervisor: restart the supervisor")
    })
}
