//! The repository on the command line: its options, its warnings and its progress. `acquire` does the work.

use crate::acquire::{Acquired, Request, acquire};
use crate::cli::wanted::Wanted;
use crate::cli::{Context, usage};
use crate::config::Settings;
use crate::failure::Report;
use crate::fetch::{Fetcher, Location, Notice};
use crate::os::place::Place;
use crate::store::collect::Effect;
use crate::store::preflight::Hazards;
use crate::version::Release;
use clap::Args;

/// From where to fetch, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct FetchArguments {
    /// Fetch from this URL instead of the configured repository; repeat the option for mirrors, which are asked in this order. `stdio:` asks the program that started sidle (with --json)
    #[arg(long, value_name = "URL")]
    repository: Vec<Location>,
    /// Ask even mirrors that served wrong bytes of this release before
    #[arg(long)]
    refetch: bool,
    /// For timers: before the download, wait a random time up to the setting `splay` in `[repository]`
    #[arg(long)]
    unattended: bool,
}

/// Installs the wanted release, or the newest that fits and that `may_be` admits.
pub fn install(
    context: &Context,
    wanted: &Wanted,
    arguments: &FetchArguments,
    (effect, hazards): (Effect, Hazards),
    may_be: &dyn Fn(&Release) -> bool,
) -> Result<Acquired, Report> {
    let notices = notices(context);
    let mut fetcher = open(context, arguments, &notices)?;
    fetch_and_install(context, &mut fetcher, wanted, arguments, (effect, hazards, None), may_be)
}

/// Installs the wanted release, or the newest that fits, from a repository that is open already.
pub fn install_by(
    context: &Context,
    fetcher: &mut Fetcher<'_>,
    wanted: &Wanted,
    effect: Effect,
) -> Result<Acquired, Report> {
    let how = (effect, Hazards::Refuse, None);
    fetch_and_install(context, fetcher, wanted, &FetchArguments::default(), how, &|_| true)
}

/// The release that [`install_by`] would install; refuses what it would refuse, and writes nothing. `root`: what is trusted; None: the trust store.
pub fn preview_by(
    context: &Context,
    fetcher: &mut Fetcher<'_>,
    wanted: &Wanted,
    root: Option<&[u8]>,
) -> Result<Acquired, Report> {
    let how = (Effect::DryRun, Hazards::Refuse, root);
    fetch_and_install(context, fetcher, wanted, &FetchArguments::default(), how, &|_| true)
}

fn fetch_and_install(
    context: &Context,
    fetcher: &mut Fetcher<'_>,
    wanted: &Wanted,
    arguments: &FetchArguments,
    (effect, hazards, root): (Effect, Hazards, Option<&[u8]>),
    may_be: &dyn Fn(&Release) -> bool,
) -> Result<Acquired, Report> {
    let settings = Settings::read(&context.layout)?;
    let (package, patterns) = (&wanted.package, settings.releases());
    let is_chosen = wanted.release.is_none() && !package.is_sidle();
    if is_chosen && !patterns.is_empty() && !patterns.iter().any(|pattern| pattern.is_about(package)) {
        let text = format!("`releases` in the settings has no pattern for {package}: any release may be chosen");
        context.output.warning(&text);
    }
    let acquired = acquire(
        fetcher,
        &context.layout,
        &Request {
            package: &wanted.package,
            release: wanted.release.as_ref(),
            may_be,
            patterns,
            unattended: arguments.unattended,
            refetch: arguments.refetch,
            effect,
            root,
            hazards,
            expiry_by_hand: settings.expiry_by_hand(),
            fetching: &progress(context, "fetching"),
            installing: &progress(context, "installing"),
        },
    )?;
    warn(context, &acquired.installed);
    Ok(acquired)
}

/// Shows the warnings of an install.
pub fn warn(context: &Context, installed: &crate::store::install::Installed) {
    for remark in installed.remarks() {
        context.output.warning(&remark);
    }
}

/// A progress bar that appears with the first bytes and goes with the last.
pub fn progress(context: &Context, what: &'static str) -> impl Fn(u64, u64) {
    let bar = std::cell::OnceCell::new();
    move |done, total| {
        let bar = bar.get_or_init(|| context.output.bar(what));
        bar.set_length(total);
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }
}

/// Shows the notices of a fetch as warnings.
pub fn notices(context: &Context) -> impl Fn(&Notice) + use<'_> {
    |notice| match notice {
        Notice::Received { .. } => {}
        other => context.output.warning(&other.to_string()),
    }
}

/// The repository of the command line, or of the settings.
pub fn open<'a>(
    context: &Context,
    arguments: &FetchArguments,
    tell: &'a dyn Fn(&Notice),
) -> Result<Fetcher<'a>, Report> {
    let named = &arguments.repository;
    refuse_talk_with_people(context, named)?;
    let settings = Settings::read(&context.layout)?;
    let settings = if named.is_empty() { settings.repository() } else { settings.repository_at(named) }?;
    let cache = Place::open_or_create(&context.layout.cache(), 0o700, context.effect)?;
    Ok(Fetcher::new(&settings, &cache, tell)?)
}

/// Refuses `stdio:` where standard output is for people, and a second `stdio:`: there is one program at the other end.
pub fn refuse_talk_with_people(context: &Context, places: &[Location]) -> Result<(), Report> {
    match places.iter().filter(|place| place.is_stdio()).count() {
        0 => Ok(()),
        _ if !context.output.is_json() => Err(usage(
            "cannot fetch from stdio: without --json: standard output is for people then",
            "add --json; docs/formats.md says what is asked, and how to answer",
        )),
        1 => Ok(()),
        _ => Err(usage("cannot fetch from stdio: twice", "name stdio: once")),
    }
}

/// Whether the command line or the settings name a repository.
pub fn is_named(context: &Context, arguments: &FetchArguments) -> Result<bool, Report> {
    Ok(!arguments.repository.is_empty() || Settings::read(&context.layout)?.names_a_repository())
}
