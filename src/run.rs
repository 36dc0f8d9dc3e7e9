//! `run`: check, lease, exec. A release's programs start only this way: from the real versioned path, never through `current`.

use crate::agent::gate::{GATE_VARIABLE, ROLE_VARIABLE, USES_VARIABLE};
use crate::agent::{AgentSettings, Answers, Registry};
use crate::bundle::manifest::{Head, Service};
use crate::crash_point;
use crate::failure::Class;
use crate::loaded;
use crate::name::InstanceName;
use crate::os::environment::Passed;
use crate::os::process::{Directory, Input, Program};
use crate::os::{OsError, file};
use crate::rehearsal::Part;
use crate::store::{Store, StoreError};
use crate::switch::process::{
    INSTANCE_VARIABLE, LEADER_VARIABLE, RELEASE_VARIABLE, ROOT_VARIABLE, START_WORD, TRIAL_VARIABLE,
};
use crate::version::Release;
use std::ffi::OsString;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

/// Room in an agent's environment: setproctitle(3) writes titles over arguments and environment, and a cut title cannot be read back (Salt's
/// `ProcessPayload(jid=…)`).
const TITLE_ROOM_BYTES: usize = 1024;
const TITLE_ROOM_VARIABLE: &str = "SIDLE_TITLE_ROOM";

/// What a supervisor tells its agent.
const OF_THE_SUPERVISOR: [&str; 3] = [GATE_VARIABLE, ROLE_VARIABLE, TRIAL_VARIABLE];
/// What an agent is told here.
const OF_THE_AGENT: [&str; 6] =
    [INSTANCE_VARIABLE, ROOT_VARIABLE, RELEASE_VARIABLE, LEADER_VARIABLE, TITLE_ROOM_VARIABLE, USES_VARIABLE];

/// The program to run.
#[derive(Debug)]
pub struct RunRequest {
    /// The release; None: the instance's current one.
    pub release: Option<Release>,
    /// The instance.
    pub instance: InstanceName,
    /// A command of the release; None: its service.
    pub command: Option<String>,
    /// Arguments of that command.
    pub arguments: Vec<OsString>,
    /// The agent's configuration directory; None: the one that the manifest names, below the root.
    pub configuration: Option<PathBuf>,
    /// The variables of the caller that the program gets.
    pub passed: Passed,
    /// Variables of the running agent that a tool of the caller's gets, too, unless the caller passes his own.
    pub shared: Vec<(&'static str, OsString)>,
    /// Where a tool works; an agent works in `/`.
    pub directory: Directory,
    /// Its role.
    pub role: RunRole,
    /// Whether the agent's guard counts what the host uses.
    pub counts_uses: CountsUses,
    /// The known agents, which can name the configuration that they load.
    pub registry: Registry,
}

/// Whether a guard counts what the host uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountsUses {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// The role of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunRole {
    /// A tool of the caller.
    Tool,
    /// The instance's agent; it waits on standard input for the supervisor's permission.
    Agent,
}

/// Why a release's program can't be started.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum RunError {
    /// The store refuses the release.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// There is no current release.
    #[error("cannot run {instance}: it has no current release yet")]
    NoCurrent { instance: InstanceName },
    /// The release has no such command.
    #[error("cannot run {command:?}: {release} offers {}", commands.join(", "))]
    NoCommand { command: String, commands: Vec<String>, release: Release },
    /// The supervisor ended before it allowed the start.
    #[error("cannot start the agent: its supervisor has ended")]
    Abandoned,
}

impl RunError {
    /// The kind of failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Os(error) => error.class(),
            Self::NoCommand { .. } => Class::Usage,
            Self::NoCurrent { .. } | Self::Abandoned => Class::Failed,
        }
    }

    /// The remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Os(error) => error.hint(),
            Self::NoCurrent { instance } => Some(format!(
                "`sidle switch {instance}` makes an installed release the current one; --release names another"
            )),
            Self::NoCommand { .. } => Some(
                "name one of these, or no command for the release's service: `sidle run PACKAGE [COMMAND]`".to_owned(),
            ),
            Self::Abandoned => None,
        }
    }
}

crate::reports!(RunError);

/// Becomes the program. Returns only when that failed.
pub fn run(store: &Store, request: &RunRequest) -> RunError {
    match prepare(store, request) {
        Err(error) => error,
        Ok((program, _lease)) => {
            crash_point!("run.ready");
            let input = if request.role == RunRole::Agent { Input::Null } else { Input::Inherited };
            RunError::Os(program.execute(input))
        }
    }
}

/// The program, after the checks, with the lease that must be held while it runs.
pub fn prepare(store: &Store, request: &RunRequest) -> Result<(Program, crate::store::lease::Lease), RunError> {
    if request.role == RunRole::Agent {
        wait_for_the_word()?;
    }
    let release = if let Some(release) = &request.release {
        release.clone()
    } else {
        let current = store.current(&request.instance)?;
        current.ok_or_else(|| RunError::NoCurrent { instance: request.instance.clone() })?
    };
    let lease = store.lease(&release)?;
    store.verify_or_repair(&release)?;
    let manifest = store.head(&release)?;
    // The real path: no link in it may move later.
    let tree = file::canonical(store.tree(&release)?.path())?;
    let program = program(&tree, &manifest, request, store)?;
    if request.role == RunRole::Agent {
        note_configuration(&tree, &manifest, request, store);
    }
    lease.keep_across_exec()?;
    Ok((program, lease))
}

fn configuration_of(manifest: &Head, request: &RunRequest, store: &Store) -> PathBuf {
    request.configuration.clone().unwrap_or_else(|| store.layout().on_host(Path::new(&manifest.service.config)))
}

/// A later change of the configuration is perhaps not loaded. Without a note sidle assumes that, so a failure to write loses nothing.
fn note_configuration(tree: &Path, manifest: &Head, request: &RunRequest, store: &Store) {
    let note = |digest| loaded::note(store.layout(), &request.instance, digest);
    // First a note without a digest: a reader without a note may assume that the present configuration is loaded.
    let _ = note(None);
    let configuration = configuration_of(manifest, request, store);
    let part = Part::of(tree.to_owned(), manifest, &configuration);
    let state = store.layout().instance(&request.instance);
    let settings = AgentSettings::new(&configuration).asking(part, Answers::Kept(state));
    let settings = AgentSettings { passed: request.passed.clone(), ..settings };
    let agent = (request.registry)(&manifest.agent).and_then(|parts| (parts.observer)(&settings));
    let digest = agent.and_then(|agent| agent.configuration());
    let _ = note(digest.ok().flatten());
}

/// Waits until the supervisor has journaled the start; if the supervisor ends before, this process ends.
fn wait_for_the_word() -> Result<(), RunError> {
    let mut word = String::new();
    let read = std::io::stdin().lock().read_line(&mut word);
    read.map_err(|source| OsError::new("wait at", Path::new("standard input"), source))?;
    if word == START_WORD { Ok(()) } else { Err(RunError::Abandoned) }
}

fn program(tree: &Path, manifest: &Head, request: &RunRequest, store: &Store) -> Result<Program, RunError> {
    let configuration = configuration_of(manifest, request, store);
    let (command, arguments) = match &request.command {
        Some(command) => (command.clone(), request.arguments.clone()),
        None => service(manifest, &configuration, &request.arguments),
    };
    let Some(path) = manifest.commands.get(&command) else {
        let commands = manifest.commands.keys().cloned().collect();
        return Err(RunError::NoCommand { command, commands, release: manifest.release() });
    };
    let mut program = Program { arguments, ..Program::new(tree.join(path.as_path())) }.passing(request.passed.clone());
    let places = places_of_the_host(manifest, request);
    for (name, value) in &manifest.service.environment {
        // The author's value is for hosts that have none.
        if !(places.contains(&name.as_str()) && request.passed.names(name)) {
            program = program.variable(name, Service::expanded(value, &configuration));
        }
    }
    if request.role == RunRole::Tool {
        program.directory = request.directory.clone();
        for (name, value) in request.shared.iter().filter(|(name, _)| !request.passed.names(name)) {
            program = program.variable(name, value);
        }
        // It is not the agent in whose job it may run.
        program.without = [&OF_THE_SUPERVISOR[..], &OF_THE_AGENT].concat().into_iter().map(Into::into).collect();
    } else {
        program.passed = program.passed.with_names(OF_THE_SUPERVISOR.map(str::to_owned));
        program = program
            .variable(INSTANCE_VARIABLE, request.instance.as_str())
            .variable(ROOT_VARIABLE, store.layout().root())
            .variable(RELEASE_VARIABLE, manifest.release().to_string())
            .variable(LEADER_VARIABLE, std::process::id().to_string())
            .variable(TITLE_ROOM_VARIABLE, "-".repeat(TITLE_ROOM_BYTES));
        match request.counts_uses {
            CountsUses::Yes => program.without.push(USES_VARIABLE.into()),
            CountsUses::No => program = program.variable(USES_VARIABLE, "off"),
        }
    }
    Ok(program)
}

/// Variables that name a host's own places, and are for the host to say.
fn places_of_the_host(manifest: &Head, request: &RunRequest) -> &'static [&'static str] {
    let parts = (request.registry)(&manifest.agent).ok();
    parts.and_then(|parts| parts.adopter).map_or(&[], |adopter| adopter.shared_variables())
}

fn service(manifest: &Head, configuration: &Path, more: &[OsString]) -> (String, Vec<OsString>) {
    let mut words = manifest.service.command.iter();
    let command = words.next().cloned().unwrap_or_default();
    (command, words.map(|word| Service::expanded(word, configuration)).chain(more.iter().cloned()).collect())
}
