//! `sidle run`: a release's program, checked, leased, started from its real versioned path.

use super::list::packages;
use crate::cli::{Context, Ended, agents, instance_of};
use crate::config::Settings;
use crate::failure::Report;
use crate::name::{InstanceName, PackageName};
use crate::os::environment::Passed;
use crate::os::proc_fs;
use crate::os::process::{self, Directory};
use crate::run::{CountsUses, RunError, RunRequest, RunRole, run as become_program};
use crate::store::{Store, StoreError};
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::InstanceFiles;
use crate::version::Release;
use clap::Args;
use std::ffi::OsString;

/// `sidle run PACKAGE [COMMAND] [-- ARGUMENT…]`
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The package
    package: PackageName,
    /// A command of the release, such as salt-call [default: start the agent itself. Warning: if a minion runs already, this starts a second minion, and every job runs twice]
    command: Option<String>,
    /// The release [default: the current release]
    #[arg(long)]
    release: Option<Release>,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Wait for the supervisor's word on standard input, then become the instance's agent
    #[arg(long, hide = true)]
    await_start: bool,
    /// Give the agent all variables: the supervisor has them from its unit
    #[arg(long, hide = true, requires = "await_start")]
    all_variables: bool,
    /// Arguments of the command
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// `sidle run`
pub fn run(context: &Context, arguments: RunArguments) -> Result<Ended, Report> {
    let package = arguments.package;
    packages(context, Some(&package))?;
    let instance = instance_of(&package, arguments.instance.as_ref());
    let settings = Settings::read(&context.layout)?;
    let (_, configuration) = settings.instance(&context.layout, &instance)?;
    let store = Store::new(&context.layout, &package);
    let current = store.current(&instance)?.filter(|_| arguments.release.is_none());
    let role = if arguments.await_start { RunRole::Agent } else { RunRole::Tool };
    let passed = if arguments.all_variables { Passed::everything() } else { settings.passed(&instance) };
    let directory = directory(context, arguments.command.as_deref().unwrap_or_default());
    let shared = if role == RunRole::Tool { shared(context, &store, &instance) } else { Vec::new() };
    let mut request = RunRequest {
        shared,
        release: arguments.release,
        instance,
        command: arguments.command,
        arguments: arguments.arguments,
        configuration,
        passed,
        directory,
        role,
        counts_uses: if settings.count_uses { CountsUses::Yes } else { CountsUses::No },
        registry: agents::parts,
    };
    let failed = become_program(&store, &request);
    let (Some(current), RunError::Store(StoreError::Damaged { .. }), RunRole::Tool) = (current, &failed, request.role)
    else {
        return Err(failed.into());
    };
    let Some(previous) = InstanceFiles::new(&context.layout, &request.instance, &package).journal()?.previous else {
        return Err(failed.into());
    };
    // What a person, or cron, wants done is done by the release before.
    context.output.warning(&format!(
        "{package} {current} is damaged and cannot be repaired here: {previous} runs instead; {failed}"
    ));
    request.release = Some(previous);
    Err(become_program(&store, &request).into())
}

/// Variables of the running agent for its tools. Who may not look at the agent's process gets none.
fn shared(context: &Context, store: &Store, instance: &InstanceName) -> Vec<(&'static str, OsString)> {
    let find = || {
        let leader = SupervisorStatus::read(&context.layout, instance).ok()??.agent?.leader;
        let kind = store.head(&store.current(instance).ok()??).ok()?.agent;
        let names = agents::parts(&kind).ok()?.adopter?.shared_variables();
        let value = |name: &'static str| Some((name, proc_fs::environment_variable(leader.pid, name).ok()??));
        Some(names.iter().filter_map(|name| value(name)).collect())
    };
    find().unwrap_or_default()
}

/// Where a command works: where the person is, since its arguments name files from there. Python and pip take their own modules from there, too: for
/// root they work in `/` if another user could have put some there.
fn directory(context: &Context, command: &str) -> Directory {
    let takes_modules = command.contains("python") || command.contains("pip");
    match process::foreign_directory().filter(|_| takes_modules) {
        None => Directory::Callers,
        Some(here) => {
            context.output.warning(&format!(
                "{command} works in /: other users can write to {}, and it would run their files as root; name files by whole paths",
                here.display()
            ));
            Directory::Root
        }
    }
}

/// `sidle test-flip PACKAGE RELEASE`
#[cfg(feature = "test-hooks")]
#[derive(Debug, Args)]
pub struct TestFlipArguments {
    package: PackageName,
    release: Release,
}

/// Moves `current`, whatever runs: for tests of what must not be touched by it.
#[cfg(feature = "test-hooks")]
pub fn test_flip(context: &Context, arguments: &TestFlipArguments) -> Result<Ended, Report> {
    let store = Store::new(&context.layout, &arguments.package);
    let lock = store.lock()?;
    store.flip(&lock, &InstanceName::default_of(&arguments.package), &arguments.release)?;
    Ok(Ended::Well)
}
