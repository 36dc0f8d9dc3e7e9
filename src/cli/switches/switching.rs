//! The verbs switch, rollback and restart.

use super::order::{Order, Terms};
use super::own_release;
use crate::cli::dry_run::DryRun;
use crate::cli::{Context, Ended, usage};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::self_upgrade;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::switch::Purpose;
use crate::switch::journal::files::InstanceFiles;
use crate::version::Release;
use clap::Args;

/// `sidle switch PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct SwitchArguments {
    /// The package
    package: PackageName,
    /// The release [default: the newest installed release, even if you rolled back from it before]
    release: Option<Release>,
    #[command(flatten)]
    dry: DryRun,
    /// With --dry-run: also load this host's configuration with the release, as a switch does before it begins; writes only below /run and lock files
    #[arg(long, requires = "dry_run")]
    rehearse: bool,
    #[command(flatten)]
    terms: Terms,
}

impl SwitchArguments {
    /// The default instance, to this release.
    pub fn to(package: &PackageName, release: &Release) -> Self {
        let (package, release) = (package.clone(), Some(release.clone()));
        Self { package, release, dry: DryRun::default(), rehearse: false, terms: Terms::default() }
    }
}

/// `sidle rollback PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The package
    package: PackageName,
    /// The release [default: the previous release]
    release: Option<Release>,
    /// Show what would be done, also to the configuration; change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    terms: Terms,
}

/// `sidle restart PACKAGE`
#[derive(Debug, Args)]
pub struct RestartArguments {
    /// The package [default: the package of --instance]
    #[arg(required_unless_present = "instance")]
    package: Option<PackageName>,
    /// Restart only if the configuration changed since the process started, or if the process is not healthy; during a switch, check again when the switch ends
    #[arg(long)]
    if_changed: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    terms: Terms,
}

/// Switches to an installed release.
pub fn switch(context: &Context, arguments: &SwitchArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    self_upgrade::refuse(package, "switch")?;
    let to = arguments.release.clone().map_or_else(|| newest(context, package), Ok)?;
    let files = arguments.terms.claim(context, package)?;
    let order = Order::new(context, files, &arguments.terms, Purpose::Switch, to)?;
    if arguments.rehearse { order.show_rehearsed() } else { begin(&order) }
}

fn newest(context: &Context, package: &PackageName) -> Result<Release, Report> {
    let releases = Store::new(&context.layout, package).releases()?;
    releases.into_iter().next_back().ok_or_else(|| {
        Report::of(Class::Failed, format!("cannot switch {package}: no release of it is installed"))
            .hint("`sidle install FILE` installs a release; `sidle list` shows the installed packages")
    })
}

/// Goes back to the previous release, or to a named one.
pub fn rollback(context: &Context, arguments: &RollbackArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    let files = arguments.terms.claim(context, package)?;
    let (instance, store) = (files.instance(), Store::new(&context.layout, package));
    let journal = files.journal()?;
    let previous = if package.is_sidle() {
        self_upgrade::previous(&journal, store.current(instance)?.as_ref())
    } else {
        journal.previous
    };
    let Some(to) = arguments.release.clone().or(previous) else {
        let kept: Vec<String> = store.releases()?.iter().map(Release::to_string).collect();
        let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
        return Err(Report::of(
            Class::NothingToDo,
            format!("cannot roll back {instance}: it has no previous release; installed releases: {kept}"),
        )
        .hint(format!("name an installed release: `sidle rollback {package} RELEASE`")));
    };
    if package.is_sidle() {
        return own_release::take_up(context, package, &to, Purpose::Rollback);
    }
    begin(&Order::new(context, files, &arguments.terms, Purpose::Rollback, to)?)
}

/// Restarts the current release.
pub fn restart(context: &Context, arguments: &RestartArguments) -> Result<Ended, Report> {
    let terms = &arguments.terms;
    let package = match (&arguments.package, &terms.instance) {
        (Some(package), _) => package.clone(),
        (None, Some(instance)) => Settings::read(&context.layout)?.instance(&context.layout, instance)?.0,
        (None, None) => {
            return Err(usage(
                "cannot restart: name a package or an instance",
                "`sidle restart PACKAGE`, or `sidle restart --instance INSTANCE`",
            ));
        }
    };
    self_upgrade::refuse(&package, "restart")?;
    let instance = terms.instance_of(&package);
    let current = InstanceFiles::new(&context.layout, &instance, &package).journal()?.proven;
    let to = current.ok_or_else(|| {
        Report::of(Class::NothingToDo, format!("cannot restart {instance}: it has no current release yet"))
            .hint(format!("`sidle switch {package}` makes an installed release current"))
    })?;
    let files = terms.claim(context, &package)?;
    let order = Order::new(context, files, terms, Purpose::Restart, to)?;
    match (arguments.if_changed, context.effect) {
        (false, _) => begin(&order),
        (true, Effect::Apply) => order.begin_if_changed(),
        (true, Effect::DryRun) => order.show_if_changed(),
    }
}

fn begin(order: &Order<'_>) -> Result<Ended, Report> {
    match order.context.effect {
        Effect::Apply => order.begin(),
        Effect::DryRun => order.show(),
    }
}
