//! `sidle upgrade`: installs a release and switches to it.

use super::order::{Order, Terms};
use super::own_release;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::size;
use crate::cli::host::{FetchArguments, PlaceArguments, Source, from_file, install_from_repository, marks};
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::store::Store;
use crate::store::collect::Effect;
use crate::store::install::Installed;
use crate::switch::Purpose;
use crate::switch::driver::dry_run::Tree;
use crate::version::Release;
use clap::Args;
use std::path::PathBuf;

/// `sidle upgrade FILE|PACKAGE[@RELEASE]`
#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// A bundle file, or a package of the repository: its newest release that the setting `releases` admits, and that neither failed on this host nor was left by a rollback, or the named release
    #[arg(value_name = "FILE|PACKAGE[@RELEASE]")]
    what: PathBuf,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    fetch: FetchArguments,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    terms: Terms,
}

/// Installs a release, then switches to it. Exit code 3 if it is current already.
pub fn upgrade(context: &Context, arguments: &UpgradeArguments) -> Result<Ended, Report> {
    let how = (context.effect, arguments.place.hazards());
    let installed = match Source::of(context, &arguments.what, None, &arguments.fetch)? {
        Source::File(file) => from_file(context, &file, None, how)?,
        Source::Repository(wanted) => {
            let marks = marks(&context.layout, &wanted.package)?;
            let unwanted = |release: &Release| {
                marks
                    .get(release)
                    .is_some_and(|marks| marks.iter().any(|mark| ["bad", "declined"].contains(&mark.word)))
            };
            let instance = arguments.terms.instance_of(&wanted.package);
            let current = Store::new(&context.layout, &wanted.package).current(&instance)?;
            let forced = arguments.terms.force;
            // The current release may have been withdrawn; an upgrade never chooses an older release.
            let may_be = |release: &Release| {
                current.as_ref().is_none_or(|current| release >= current) && (forced || !unwanted(release))
            };
            install_from_repository(context, &wanted, &arguments.fetch, how, &may_be)?.installed
        }
    };
    let (package, release) = (installed.package.clone(), installed.release.clone());
    if package.is_sidle() {
        if installed.fresh && context.effect == Effect::DryRun {
            let value = serde_json::json!({"package": package, "release": release, "dry_run": true});
            context.output.result(format!("sidle {release} would be installed, tried, and become this program"), value);
            return Ok(Ended::Well);
        }
        return own_release::take_up(context, &package, &release, Purpose::Switch);
    }
    let instance = arguments.terms.instance_of(&package);
    if !installed.fresh && Store::new(&context.layout, &package).current(&instance)?.as_ref() == Some(&release) {
        let value = serde_json::json!({"package": package, "release": release, "switch": null});
        context.output.result(format!("{instance} has {release} already, and there is no newer release"), value);
        return Ok(Ended::As(Class::NothingToDo));
    }
    let files = arguments.terms.claim(context, &package)?;
    let order = Order::new(context, files, &arguments.terms, Purpose::Switch, release)?;
    if context.effect == Effect::DryRun {
        return show(&order, &installed);
    }
    context.output.step(format!("installed {package} {}", order.to));
    order.begin()
}

/// The dry run of the switch; the release may have to be installed first.
fn show(order: &Order<'_>, installed: &Installed) -> Result<Ended, Report> {
    let Installed { package, release, fresh, content_bytes, .. } = installed;
    let expected = order.dry_run(if *fresh { Tree::ToCome } else { Tree::Installed })?;
    let first = fresh
        .then(|| format!("{release} would be installed first ({}), and the mode decided then", size(*content_bytes)));
    let value =
        serde_json::json!({"package": package, "release": release, "fresh": fresh, "content_bytes": content_bytes});
    Ok(order.tell(&expected, first.into_iter().collect(), value))
}
