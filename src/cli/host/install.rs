//! `sidle install`: a release beside what runs.

use crate::cli::facts::{Facts, size};
use crate::cli::{Context, Ended, input};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::keyring::{Adoption, Judge, Keyring};
use crate::os::clock;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::store::install::{Installed, Placement, install as install_bundle};
use crate::store::preflight::Host;
use crate::version::Release;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// `sidle install FILE`
#[derive(Debug, Args)]
pub struct InstallArguments {
    /// A bundle file
    file: PathBuf,
    /// The release, where the bundle holds several; without this the newest that fits this host
    #[arg(long)]
    release: Option<Release>,
    /// Verify and look at the space; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle install`
pub fn install(context: &Context, arguments: &InstallArguments) -> Result<Ended, Report> {
    let file = input::open(&arguments.file, "a bundle file, which `sidle export` or `sidle pack --repo` writes")?;
    let expiry = Settings::read(&context.layout)?.expiry_by_hand();
    let keyring = Keyring::open(&context.layout.trust())?;
    let (effect, adoption) =
        if arguments.dry_run { (Effect::Rehearse, Adoption::Forget) } else { (Effect::Apply, Adoption::Store) };
    let authority = Judge { keyring: &keyring, now: clock::now(), expiry, adoption };
    let bar = context.output.bar("installing");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let place = Placement { layout: &context.layout, host: &Host::look(), effect, progress: &progress };
    let reader = std::io::BufReader::with_capacity(1 << 20, file);
    let installed = install_bundle(reader, &authority, arguments.release.as_ref(), &place);
    bar.finish_and_clear();
    let installed = installed?;
    for warning in &installed.warnings {
        context.output.warning(&warning.to_string());
    }
    tell(context, &installed, effect)?;
    Ok(if installed.fresh { Ended::Well } else { Ended::As(Class::NothingToDo) })
}

fn tell(context: &Context, installed: &Installed, effect: Effect) -> Result<(), Report> {
    let Installed { package, release, fresh, content_bytes, .. } = installed;
    let store = Store::new(&context.layout, package);
    let current = store.current(&crate::name::InstanceName::default_of(package))?;
    let rehearsed = effect == Effect::Rehearse;
    let word = match (fresh, rehearsed) {
        (false, _) => "already installed",
        (true, true) => "would install",
        (true, false) => "installed",
    };
    let mut facts = Facts::new().with(word, format!("{package} {release}")).with("size", size(*content_bytes));
    if !rehearsed {
        facts.add("place", context.layout.versions(package).join(release.to_string()).display());
    }
    let current_text = current.as_ref().map_or_else(|| "none yet".to_owned(), ToString::to_string);
    facts.add("current", format!("{current_text} (unchanged)"));
    if !rehearsed && current.as_ref() != Some(release) {
        facts.add("next", format!("sidle switch {package} {release}"));
    }
    let value = json!({
        "package": package, "release": release, "fresh": fresh, "dry_run": rehearsed, "content_bytes": content_bytes, "current": current,
        "warnings": installed.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    context.output.result(&facts.to_string(), value);
    Ok(())
}
