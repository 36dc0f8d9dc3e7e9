//! `sidle run`: a release's program, checked, leased, started from its real versioned path.

use super::list::packages;
use crate::cli::{Context, Ended, agents, instance_of};
use crate::config::Settings;
use crate::failure::Report;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::run::{Passed, RunError, RunRequest, RunRole, run as become_program};
use crate::store::{Store, StoreError};
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
    let is_adopted = role == RunRole::Agent && Dir::open_if_exists(&context.layout.adoption(&instance))?.is_some();
    let passed = if is_adopted { Passed::Everything } else { Passed::Named(settings.pass_environment(&instance)) };
    let mut request = RunRequest {
        release: arguments.release,
        instance,
        command: arguments.command,
        arguments: arguments.arguments,
        configuration,
        passed,
        role,
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
