//! The command line: grammar, printing, exit codes. Nothing else prints.

pub mod adopt;
pub mod agents;
pub mod author;
mod checks;
mod dry_run;
mod generalize;
pub mod hold;
pub mod host;
pub mod manual;
pub mod mirror;
mod own;
pub mod pack;
pub mod push;
pub mod rollout;
mod setup;
pub mod supervise;
mod switches;
mod terminal;
pub mod trust;
pub mod wanted;

pub use checks::{doctor, exposition, host_change, job, metrics, missed, status, trees, uses};
pub use terminal::{exit, facts, input, log, output, plain, tone};

pub use switches::{follow, order, reach, rehearse, rehearsing, story, switching, timing, upgrade};

use crate::adoption::AdoptingInstance;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::standard_error::Reader;
use crate::os::{OsError, clock, environment, file, memory, signals};
use crate::store::collect::Effect;
use crate::store::owners;
use crate::switch::driver::log::seconds;
use crate::switch::journal::files::InstanceFiles;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use output::Output;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing::{Level, debug};

/// Upgrade the agents that run a fleet: side by side, verified, reversible.
#[derive(Debug, Parser)]
#[command(name = "sidle", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// The heading of the global options.
const GLOBAL: &str = "Global options";

/// The options of every verb.
#[derive(Debug, Args)]
pub struct Common {
    /// Use this directory as the root of the host
    #[arg(long, global = true, value_name = "DIR", default_value = "/", help_heading = GLOBAL)]
    root: PathBuf,
    /// Read the settings from this file alone, instead of the host's files
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    config: Option<PathBuf>,
    /// Print JSON (with "schema": 1) instead of text
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Print errors only
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    quiet: bool,
    /// Pass these variables on to the programs that this command starts: names, or beginnings of names before a `*` [default: a short list, see `sidle(8)`]
    #[arg(long, global = true, value_name = "NAME", value_delimiter = ',', help_heading = GLOBAL)]
    pass_environment: Vec<String>,
    /// Log each detail to standard error
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set up a host in one go: trust a repository, write the settings, install a release; may be repeated
    Setup(setup::SetupArguments),
    /// Install a release from a bundle file or the repository; the running release stays as it is
    Install(host::InstallArguments),
    /// Try whether a release works on this host: unpack it beside the others, start its programs, remove it again
    Try(host::TryArguments),
    /// Install a release and switch to it
    Upgrade(upgrade::UpgradeArguments),
    /// List the installed releases
    List(host::ListArguments),
    /// Show the current, installed and running releases, and what a switch under way waits for
    Status(status::StatusArguments),
    /// Show past switches of an instance
    History(status::HistoryArguments),
    /// Show what this host knows of a job: claimed, running, queued, returned; and the switches since then
    Job(job::JobArguments),
    /// List when this host's agents could not hear their peers, and the command that lists what was published then
    Missed(missed::MissedArguments),
    /// Print the state of this host for Prometheus, or write a file for its textfile collector
    Metrics(metrics::MetricsArguments),
    /// Check this host for problems, and say how to fix each of them
    Doctor(doctor::DoctorArguments),
    /// Check what a switch to a release would break or lose on this host, and what brings it back; change nothing
    Rehearse(rehearsing::RehearseArguments),
    /// Show which functions the agent has called on this host, how often, and when last; without a count, those that configuration, highstate and log name
    Uses(uses::UsesArguments),
    /// Switch an instance to an installed release
    Switch(switching::SwitchArguments),
    /// Switch an instance back to its previous release, or to a named release
    Rollback(switching::RollbackArguments),
    /// Restart the current release, to load a changed configuration or to replace an unresponsive process
    Restart(switching::RestartArguments),
    /// Cancel a switch, before the new release becomes current
    Cancel(switches::cancel::CancelArguments),
    /// Hold an instance at its release: refuse switch, upgrade and restart; allow rollback
    Hold(hold::HoldArguments),
    /// End a hold
    Unhold(hold::UnholdArguments),
    /// Claim an instance for a rollout of a fleet, or end the claim
    #[command(subcommand)]
    Rollout(rollout::RolloutVerb),
    /// Compare the files of a release with the signed manifest
    Verify(host::VerifyArguments),
    /// Repair damaged files of installed releases: from other releases, a bundle file or the repository
    Repair(host::RepairArguments),
    /// Hash all files of the installed releases at low priority, and repair damaged files; for a timer
    Scrub(host::ScrubArguments),
    /// Delete old releases; keep current, previous, each release in use, and the newest N others (--keep)
    Collect(host::CollectArguments),
    /// Delete one release that is neither current, nor previous, nor in use
    Remove(host::RemoveArguments),
    /// Verify a release, then execute one of its programs
    Run(host::RunArguments),
    /// Take over the running agent (minion) of a distribution's package
    Adopt(adopt::AdoptArguments),
    /// Give an adopted agent back to the distribution's package
    Unadopt(adopt::UnadoptArguments),
    /// Refuse the start of another package's unit whose agent sidle runs
    #[command(hide = true)]
    MayStart(adopt::MayStartArguments),
    /// Prepare an image: remove what clones of this host must not have (journals, caches, the agent's keys); keep the releases
    Generalize(generalize::GeneralizeArguments),
    /// Supervise an instance: run its agent and its switches (started by the systemd unit)
    Supervise(supervise::SuperviseArguments),
    /// Set and show the repository that this host trusts
    #[command(subcommand)]
    Trust(trust::TrustVerb),
    /// Pack a directory into a release
    Pack(Box<pack::PackArguments>),
    /// Show the contents of a bundle, manifest or metadata file
    Inspect(author::InspectArguments),
    /// Make and show signing keys
    #[command(subcommand)]
    Key(author::KeyVerb),
    /// Manage a repository of signed releases
    #[command(subcommand)]
    Repo(author::RepoVerb),
    /// Bring sidle and a release to hosts over ssh: set them up, take over their agents or start their first, or call Salt without an agent
    Push(Box<push::PushArguments>),
    /// Copy a repository into a directory: verified, and only missing files
    Mirror(mirror::MirrorArguments),
    /// Write releases of a repository into one bundle file, for hosts without a network
    Export(author::ExportArguments),
    /// Write man pages, completions and the generated pages of docs/
    #[command(hide = true)]
    Manual(manual::ManualArguments),
    #[cfg(feature = "test-hooks")]
    #[command(hide = true)]
    TestFlip(host::TestFlipArguments),
}

/// What every verb gets.
pub struct Context {
    /// The paths below the root.
    pub layout: Layout,
    /// How to print.
    pub output: Output,
    /// Whether anything is changed.
    pub effect: Effect,
}

/// How a command ended.
pub enum Ended {
    /// It did what it should: exit code 0.
    Well,
    /// It ended with this class, and has printed why.
    As(Class),
}

/// Parses the command line, performs the verb, prints, and returns the exit code.
pub fn main() -> ExitCode {
    // Before anything else: a HUP that comes before a supervisor can handle it must not end it.
    let held = signals::hold();
    memory::keep_large_blocks_apart();
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let verb = matches.subcommand_name().unwrap_or_default().to_owned();
        Ok((Cli::from_arg_matches(&matches)?, verb, dry_run::effect_of(&matches)))
    });
    let (cli, verb, effect) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are no errors; both are printed by clap.
            output::refusal(&error);
            return if error.use_stderr() { exit::code(Class::Usage) } else { ExitCode::SUCCESS };
        }
    };
    // A supervisor delivers them itself.
    let held = if matches!(cli.verb, Verb::Supervise(_)) { held } else { signals::admit() };
    let output = Output::new(cli.common.json, cli.common.quiet, effect);
    log::install(cli.level(), cli.verb.reader());
    environment::pass(cli.common.pass_environment.clone());
    let began = clock::since_boot();
    debug!(version = env!("CARGO_PKG_VERSION"), root = %cli.common.root.display(), "sidle {verb} begins");
    let ended = absolute(&cli.common.root).map_err(Report::from).and_then(|root| {
        if cli.verb.reads_a_root() && Dir::open_if_exists(&root)?.is_none() {
            return Err(no_root(&root));
        }
        let config = cli.common.config.as_deref().map(absolute).transpose()?;
        let context = Context { layout: Layout::new(&root).with_settings_file(config), output: output.clone(), effect };
        held?;
        perform(cli.verb, &context)
    });
    let class = match &ended {
        Ok(Ended::Well) => None,
        Ok(Ended::As(class)) => Some(*class),
        Err(report) => Some(report.class),
    };
    let took = seconds(clock::since_boot().saturating_sub(began));
    debug!(exit = class.map_or(0, exit::number), took, "sidle ends");
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::As(class)) => exit::code(class),
        Err(report) => {
            output.failure(&report);
            exit::code(report.class)
        }
    }
}

impl Cli {
    /// The log level: a supervisor logs what happens, a command logs warnings.
    fn level(&self) -> Level {
        match (&self.verb, self.common.quiet, self.common.verbose) {
            (_, true, _) => Level::ERROR,
            (_, false, 1..) => Level::DEBUG,
            (Verb::Supervise(_), false, 0) => Level::INFO,
            (_, false, 0) => Level::WARN,
        }
    }
}

impl Verb {
    /// Whether the verb works on an existing root; such a verb refuses a root that is missing.
    fn reads_a_root(&self) -> bool {
        let makes_or_needs_none = matches!(
            self,
            Self::Setup(_)
                | Self::Install(_)
                | Self::Upgrade(_)
                | Self::Trust(_)
                | Self::Pack(_)
                | Self::Push(_)
                | Self::Inspect(_)
                | Self::Key(_)
                | Self::Repo(_)
                | Self::Mirror(_)
                | Self::Export(_)
                | Self::Manual(_)
        );
        !makes_or_needs_none
    }

    fn reader(&self) -> Reader {
        match self {
            Self::Supervise(_) => Reader::MayMissLines,
            _ => Reader::IsWaitedFor,
        }
    }
}

/// Refuses verbs that install or change releases in places that other users can change, and makes staging private. A rollback is never refused.
fn refuse_foreign_places(verb: &Verb, Context { layout, effect, .. }: &Context) -> Result<(), Report> {
    let brings = matches!(
        verb,
        Verb::Setup(_)
            | Verb::Install(_)
            | Verb::Try(_)
            | Verb::Upgrade(_)
            | Verb::Switch(_)
            | Verb::Adopt(_)
            | Verb::Remove(_)
            | Verb::Collect(_)
    );
    let own_run = match verb {
        Verb::Supervise(arguments) => owners::check_one(&layout.run(arguments.instance()))?,
        _ => None,
    };
    if brings && *effect == Effect::Apply {
        owners::close_staging(layout)?;
    }
    let all = if brings { owners::check(layout)? } else { Vec::new() };
    if let Some(foreign) = all.into_iter().chain(own_run).find(owners::Foreign::is_refused) {
        return Err(Report::of(
            Class::NotTrusted,
            format!("cannot use a place that other users can change: {foreign}"),
        )
        .hint(foreign.remedy()));
    }
    Ok(())
}

fn perform(verb: Verb, context: &Context) -> Result<Ended, Report> {
    refuse_foreign_places(&verb, context)?;
    match verb {
        Verb::Setup(arguments) => setup::setup(context, &arguments),
        Verb::Install(arguments) => host::install(context, &arguments),
        Verb::Try(arguments) => host::try_release(context, &arguments),
        Verb::Upgrade(arguments) => upgrade::upgrade(context, &arguments),
        Verb::List(arguments) => host::list(context, &arguments),
        Verb::Status(arguments) => status::status(context, &arguments),
        Verb::History(arguments) => status::history(context, &arguments),
        Verb::Job(arguments) => job::job(context, &arguments),
        Verb::Missed(arguments) => missed::missed(context, &arguments),
        Verb::Metrics(arguments) => metrics::metrics(context, &arguments),
        Verb::Doctor(arguments) => doctor::doctor(context, &arguments),
        Verb::Rehearse(arguments) => rehearsing::rehearse(context, &arguments),
        Verb::Uses(arguments) => uses::uses(context, &arguments),
        Verb::Switch(arguments) => switching::switch(context, &arguments),
        Verb::Rollback(arguments) => switching::rollback(context, &arguments),
        Verb::Restart(arguments) => switching::restart(context, &arguments),
        Verb::Cancel(arguments) => switches::cancel::cancel(context, &arguments),
        Verb::Hold(arguments) => hold::hold(context, &arguments),
        Verb::Unhold(arguments) => hold::unhold(context, &arguments),
        Verb::Rollout(verb) => rollout::rollout(context, &verb),
        Verb::Verify(arguments) => host::verify(context, &arguments),
        Verb::Repair(arguments) => host::repair(context, &arguments),
        Verb::Scrub(arguments) => host::scrub(context, &arguments),
        Verb::Collect(arguments) => host::collect(context, &arguments),
        Verb::Remove(arguments) => host::remove(context, &arguments),
        Verb::Run(arguments) => host::run(context, arguments),
        Verb::Adopt(arguments) => adopt::adopt(context, &arguments),
        Verb::Unadopt(arguments) => adopt::unadopt(context, &arguments),
        Verb::MayStart(arguments) => adopt::may_start(context, &arguments),
        Verb::Generalize(arguments) => generalize::generalize(context, &arguments),
        Verb::Supervise(arguments) => supervise::supervise(context, &arguments),
        Verb::Trust(verb) => trust::trust(context, &verb),
        Verb::Pack(arguments) => pack::pack(context, &arguments),
        Verb::Inspect(arguments) => author::inspect(context, &arguments),
        Verb::Key(verb) => author::key(context, &verb),
        Verb::Repo(verb) => author::repo(context, &verb),
        Verb::Push(arguments) => push::push(context, &arguments),
        Verb::Mirror(arguments) => mirror::mirror(context, &arguments),
        Verb::Export(arguments) => author::export(context, &arguments),
        Verb::Manual(arguments) => manual::manual(context, &arguments),
        #[cfg(feature = "test-hooks")]
        Verb::TestFlip(arguments) => host::test_flip(context, &arguments),
    }
}

/// A path of the command line as an absolute path: the root goes into links of processes and into environments.
fn absolute(root: &Path) -> Result<PathBuf, OsError> {
    if root.is_absolute() { Ok(root.to_owned()) } else { Ok(file::canonical(Path::new("."))?.join(root)) }
}

fn no_root(root: &Path) -> Report {
    Report::of(Class::Failed, format!("cannot read the root {}: there is no such directory", root.display()))
        .hint("check --root; `sidle trust pin` and `sidle install` make a new root")
}

/// An instance to be adopted, with the agents that this program knows.
pub fn adopting(layout: &Layout, instance: &InstanceName, package: &PackageName) -> AdoptingInstance {
    AdoptingInstance { files: InstanceFiles::new(layout, instance, package), registry: agents::parts }
}

/// A wrong use of the command line that clap cannot detect.
pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Report {
    Report::of(Class::Usage, message.into()).hint(hint.into())
}

/// The instance that a command is about, and its package: an instance that no settings name is its package's default one.
pub fn instance_of(package: &PackageName, instance: Option<&InstanceName>) -> InstanceName {
    instance.cloned().unwrap_or_else(|| InstanceName::default_of(package))
}

/// `SOURCE_DATE_EPOCH`, the time that reproducible builds use (reproducible-builds.org); 0 without one.
pub fn source_date_epoch() -> Result<u64, Report> {
    let Some(value) = environment::variable("SOURCE_DATE_EPOCH") else { return Ok(0) };
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        usage(
            "cannot use SOURCE_DATE_EPOCH: it is not a number of seconds",
            "unset it, or set it to seconds since 1970",
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn help_is_a_verb_but_has_no_page_of_its_own() {
        for words in [&["sidle", "help"][..], &["sidle", "help", "switch"], &["sidle", "trust", "help"]] {
            let shown = <super::Cli as clap::CommandFactory>::command().try_get_matches_from(words).unwrap_err();
            assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayHelp, "{words:?}");
        }
        let pages = super::manual::pages();
        assert!(pages.iter().all(|page| !page.name.contains("help") && !page.text.contains("sidle help")));
    }
}
