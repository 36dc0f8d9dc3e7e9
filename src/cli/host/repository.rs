//! A release out of the repository: the metadata first, then the manifest, then the frames that this host lacks. The network comes before the
//! package's lock, so that a slow one holds up nobody.

use crate::bundle::manifest::{self, Frame, Manifest};
use crate::bundle::member::ReleaseId;
use crate::bundle::rebuild;
use crate::bundle::unpack::{FrameSource, PayloadSource, SourceError};
use crate::cli::Context;
use crate::cli::facts::size;
use crate::cli::wanted::Wanted;
use crate::config::Settings;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::fetch::{FetchError, Fetcher, Location, Notice};
use crate::name::PackageName;
use crate::os::clock;
use crate::os::dir::Dir;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::store::held::HeldFiles;
use crate::store::install::{Approved, Installed, Placement, best_of, install_fetched, preflight};
use crate::store::preflight::{Hazards, Host};
use crate::trust::{Expiry, Target, TrustedTargets, Verdict, Warning, publish, target};
use crate::trust_store::{Judge, Persist, TrustStore};
use crate::version::Release;
use clap::Args;
use std::collections::BTreeSet;

/// From where to fetch, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct FetchArguments {
    /// Fetch from this URL instead of the configured repository; may be repeated, asked in this order
    #[arg(long, value_name = "URL")]
    repository: Vec<Location>,
    /// Ask mirrors again that served wrong bytes of this release
    #[arg(long)]
    refetch: bool,
    /// For timers: wait a random time up to the setting `splay` first
    #[arg(long)]
    unattended: bool,
}

/// What was installed out of a repository, and what that cost.
#[derive(Debug)]
pub struct FromRepository {
    /// What the install came to.
    pub installed: Installed,
    /// Bytes received for it, metadata included.
    pub received_bytes: u64,
    /// Bytes of the whole payload.
    pub payload_bytes: u64,
    /// Bytes of its frames that this host lacked.
    pub lacking_bytes: u64,
}

impl FromRepository {
    /// In a few words: `0.6 MiB instead of 64.1 MiB`.
    pub fn told(&self, effect: Effect) -> String {
        let fetched = if effect == Effect::DryRun { self.lacking_bytes } else { self.received_bytes };
        format!("{} (the whole payload has {})", size(fetched), size(self.payload_bytes))
    }
}

/// Installs what is wanted; without a named release the newest one that fits and that `may_be` lets pass.
pub fn install(
    context: &Context,
    wanted: &Wanted,
    arguments: &FetchArguments,
    (effect, hazards): (Effect, Hazards),
    may_be: &dyn Fn(&Release) -> bool,
) -> Result<FromRepository, Report> {
    let tell = notices(context);
    let mut fetcher = open(context, arguments, &tell)?;
    let trust_store = TrustStore::open(&context.layout.trust())?;
    let persist = if effect == Effect::Apply { Persist::Store } else { Persist::Forget };
    if arguments.unattended {
        fetcher.splay();
    }
    let (targets, warnings) = refresh(&mut fetcher, &trust_store, persist, &wanted.package)?;
    let host = Host::read();
    let id = choose(&targets, wanted, &host, may_be)?;
    let store = Store::new(&context.layout, &id.package);
    let manifest = fetch_manifest(&mut fetcher, &targets, &id, &store, arguments.refetch)?;
    let approved = Approved::new(&targets, &id, manifest, warnings)?;
    let payload = targets.require(&target::payload(&id), &approved.manifest().payload.sha256)?;
    let bar = context.output.bar("installing");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let place = Placement { layout: &context.layout, host: &host, hazards, effect, progress: &progress };
    preflight(&approved, &place)?;
    let mut source = Payload { fetcher: &mut fetcher, name: target::payload(&id), target: payload };
    if arguments.refetch {
        source.fetcher.forget_broken(&source.target)?;
    }
    let mut lacking_bytes = 0;
    if !store.is_installed(&id.release)? {
        let lacking = rebuild::wanted(approved.manifest(), &HeldFiles::of(&store, approved.manifest())?);
        lacking_bytes = lacking.iter().map(|frame| frame.length).sum();
        if effect == Effect::Apply {
            let bar = context.output.bar("fetching");
            source.fetch(&lacking, &bar)?;
        }
    }
    let installed = install_fetched(approved, &mut source, &place)?;
    bar.finish_and_clear();
    super::install::warn(context, &installed);
    let payload_bytes = source.target.length;
    if effect == Effect::Apply {
        source.done()?;
    }
    Ok(FromRepository { installed, received_bytes: fetcher.wire_bytes(), payload_bytes, lacking_bytes })
}

/// Tells the operator what a fetch meets on its way.
pub fn notices(context: &Context) -> impl Fn(&Notice) {
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
    let settings = Settings::read(&context.layout)?;
    let named = &arguments.repository;
    let settings = if named.is_empty() { settings.repository() } else { settings.repository_at(named) }?;
    let cache = Dir::open_or_create(&context.layout.cache(), 0o700)?;
    Ok(Fetcher::new(&settings, &cache, tell)?)
}

/// Whether there is a repository to ask.
pub fn is_named(context: &Context, arguments: &FetchArguments) -> Result<bool, Report> {
    Ok(!arguments.repository.is_empty() || Settings::read(&context.layout)?.names_a_repository())
}

/// Brings the newest metadata and has it judged. What is newer and valid is adopted, whatever comes of the rest.
fn refresh(
    fetcher: &mut Fetcher<'_>,
    trust_store: &TrustStore,
    persist: Persist,
    package: &PackageName,
) -> Result<(TrustedTargets, Vec<Warning>), Report> {
    let now = clock::now();
    let floor = trust_store.load()?.floor;
    let refreshed = fetcher.refresh(&floor, Some(package), now);
    let judge = Judge { trust_store, now, expiry: Expiry::Strict, persist };
    let judged = judge.verification(&refreshed.files)?;
    refreshed.outcome?;
    Ok((judged.targets?, judged.warnings))
}

/// The release to install, among those that the metadata lists.
fn choose(
    targets: &TrustedTargets,
    wanted: &Wanted,
    host: &Host,
    may_be: &dyn Fn(&Release) -> bool,
) -> Result<ReleaseId, Report> {
    let listed: Vec<ReleaseId> = targets.listed().filter_map(|(name, _)| release_of(name)).collect();
    let of_package = || listed.iter().filter(|id| id.package == wanted.package);
    let admitted = of_package().filter(|id| wanted.release.is_some() || may_be(&id.release));
    if let Some(id) = best_of(admitted, wanted.release.as_ref(), host) {
        return Ok(id.clone());
    }
    if wanted.release.is_none() && of_package().next().is_some() {
        return Err(Report {
            class: Class::NothingToDo,
            message: format!(
                "cannot upgrade {wanted}: the repository lists nothing newer that has neither failed here nor been left by a rollback"
            ),
            causes: Vec::new(),
            hint: Some(format!(
                "`sidle list` shows what is held against releases; name one that you mean: {wanted}@RELEASE"
            )),
        });
    }
    let mut there: Vec<String> = of_package().map(|id| id.release.to_string()).collect();
    there.dedup();
    if there.is_empty() {
        return Err(unknown(wanted, &listed));
    }
    Err(Report {
        class: Class::NotTrusted,
        message: format!("cannot install {wanted}: the repository lists {}", there.join(", ")),
        causes: Vec::new(),
        hint: Some("it may have been withdrawn, or not be published yet: ask the repository's owner".to_owned()),
    })
}

/// A package that the repository doesn't have: a slip of the pen, more often than not.
fn unknown(wanted: &Wanted, listed: &[ReleaseId]) -> Report {
    let packages: BTreeSet<&str> = listed.iter().map(|id| id.package.as_str()).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let (there, hint) = if packages.is_empty() {
        (
            "it lists no release".to_owned(),
            "ask the repository's owner: nothing is published there for this host's roles",
        )
    } else {
        (
            format!("it lists {}", packages.join(", ")),
            "name one of them; or it was withdrawn, or is not published yet: ask the repository's owner",
        )
    };
    Report {
        class: Class::Failed,
        message: format!("cannot install {wanted}: the repository has no release of that package; {there}"),
        causes: Vec::new(),
        hint: Some(hint.to_owned()),
    }
}

/// The release whose manifest a target is.
fn release_of(name: &str) -> Option<ReleaseId> {
    let id: ReleaseId = name.rsplit_once('/')?.0.parse().ok()?;
    (target::manifest(&id) == name).then_some(id)
}

/// The compressed manifest: made out of an installed release's by a patch where there is one, else whole.
fn fetch_manifest(
    fetcher: &mut Fetcher<'_>,
    targets: &TrustedTargets,
    id: &ReleaseId,
    store: &Store,
    refetch: bool,
) -> Result<Vec<u8>, Report> {
    let name = target::manifest(id);
    let listed = targets.find(&name)?;
    if refetch {
        fetcher.forget_broken(&listed)?;
    }
    match patched(fetcher, targets, id, store)? {
        Some(bytes) if listed.hashes.fit(&bytes) => Ok(bytes),
        _ => Ok(fetcher.target(&name, &listed)?),
    }
}

/// The manifest as a patch makes it; None where there is no patch for what the host has, or none to be had: a mirror may lack it.
fn patched(
    fetcher: &mut Fetcher<'_>,
    targets: &TrustedTargets,
    id: &ReleaseId,
    store: &Store,
) -> Result<Option<Vec<u8>>, Report> {
    for release in store.releases()?.into_iter().rev() {
        let Ok(held) = store.manifest_bytes(&release) else { continue };
        // The signed name has the digest of what the patch is for: nothing else is decompressed.
        let name = target::manifest_patch(id, &Digest::of(&held));
        let Verdict::Listed(listed) = targets.lookup(&name) else { continue };
        let Ok(patch) = fetcher.target(&name, &listed) else { return Ok(None) };
        let made = manifest::decompress(&held).and_then(|text| manifest::apply(&text, &patch));
        return Ok(made.ok());
    }
    Ok(None)
}

/// A payload behind a repository's mirrors.
pub struct Payload<'a, 'b> {
    fetcher: &'a mut Fetcher<'b>,
    name: String,
    target: Target,
}

impl<'a, 'b> Payload<'a, 'b> {
    /// The payload of an installed release. Its manifest says all that must be known of it.
    pub fn of(fetcher: &'a mut Fetcher<'b>, manifest: &Manifest) -> Self {
        let target = publish::target(manifest.payload.length, manifest.payload.sha256);
        Self { fetcher, name: target::payload(&manifest.id()), target }
    }

    /// Brings frames into the cache, where the install finds them.
    pub fn fetch(&mut self, frames: &[Frame], bar: &indicatif::ProgressBar) -> Result<(), Report> {
        bar.set_length(frames.iter().map(|frame| frame.length).sum());
        let mut source = self.fetcher.frames(&self.name, &self.target, frames)?;
        for frame in frames {
            let error = source.next(frame).err();
            if let Some(error) = error {
                let hint = error.error.downcast_ref::<FetchError>().and_then(FetchError::hint);
                return Err(Report::new(error.class, &error, hint));
            }
            bar.inc(frame.length);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// The frames have come to where they belong: the cache may forget them.
    pub fn done(self) -> Result<(), Report> {
        Ok(self.fetcher.done(&self.target)?)
    }
}

impl PayloadSource for Payload<'_, '_> {
    fn frames<'a>(&'a mut self, wanted: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        Ok(Box::new(self.fetcher.frames(&self.name, &self.target, wanted)?))
    }
}
