//! A release out of the repository into the store: the metadata first, then the manifest, then the frames that this host lacks. The network
//! comes before the package's lock, so that a slow mirror delays no other command.

use crate::bundle::manifest::{self, Frame, Manifest};
use crate::bundle::member::ReleaseId;
use crate::bundle::rebuild;
use crate::bundle::source::{FrameSource, PayloadSource, SourceError};
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::fetch::{FetchError, Fetcher};
use crate::layout::Layout;
use crate::name::PackageName;
use crate::os::clock;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::store::held::HeldFiles;
use crate::store::install::{Approved, Installed, Placement, best_of, install_fetched, preflight};
use crate::store::preflight::{Hazards, Host, demand};
use crate::trust::pattern::ReleasePattern;
use crate::trust::{Expiry, Floor, Target, TrustedTargets, Verdict, Warning, by_hand, publish, target};
use crate::trust_store::{Judge, Persist, TrustStore};
use crate::version::Release;
use std::collections::BTreeSet;

/// The release to bring, and how.
pub struct Request<'a> {
    /// The package.
    pub package: &'a PackageName,
    /// The release; None: the newest that fits this host and that `may_be` admits.
    pub release: Option<&'a Release>,
    /// Without `release`: true for a release that may be chosen.
    pub may_be: &'a dyn Fn(&Release) -> bool,
    /// Without `release`: the setting `releases`. One of these has to fit; a package that none is about has no limit.
    pub patterns: &'a [ReleasePattern],
    /// Wait for a random part of the settings' splay first.
    pub unattended: bool,
    /// Ask mirrors again that served wrong bytes.
    pub refetch: bool,
    /// Apply it, or only say what would be done.
    pub effect: Effect,
    /// A root that is trusted for this request alone: then nothing is written, whatever `effect` says. None: the trust store is trusted.
    pub root: Option<&'a [u8]>,
    /// Refuse a store on an unfit file system (noexec, network), or install all the same.
    pub hazards: Hazards,
    /// How long ago metadata may have expired that a person brings (`stdio:by-hand`).
    pub expiry_by_hand: Expiry,
    /// Gets the fetched bytes so far, and all of them.
    pub fetching: &'a dyn Fn(u64, u64),
    /// Gets the installed bytes so far, and all of them.
    pub installing: &'a dyn Fn(u64, u64),
}

impl Request<'_> {
    fn name(&self) -> String {
        self.release.map_or_else(|| self.package.to_string(), |release| format!("{} {release}", self.package))
    }

    /// A root that is trusted for one request installs nothing.
    fn real_effect(&self) -> Effect {
        if self.root.is_some() { Effect::DryRun } else { self.effect }
    }
}

/// What the metadata is verified by.
enum Trust<'a> {
    /// The trust store, which takes newer metadata in.
    Store(TrustStore),
    /// A root, for this request alone.
    Root(&'a [u8]),
}

impl<'a> Trust<'a> {
    fn of(layout: &Layout, request: &Request<'a>) -> Result<Self, Report> {
        request.root.map_or_else(|| Ok(Self::Store(TrustStore::open(&layout.trust())?)), |root| Ok(Self::Root(root)))
    }

    fn floor(&self) -> Result<Floor, Report> {
        match self {
            Self::Store(store) => Ok(store.load()?.floor),
            Self::Root(root) => Ok(Floor::new(root.to_vec())),
        }
    }
}

/// A release that was installed out of a repository, and its cost.
#[derive(Debug)]
pub struct Acquired {
    /// The result of the install.
    pub installed: Installed,
    /// Received bytes, metadata included.
    pub received_bytes: u64,
    /// Bytes of the whole payload.
    pub payload_bytes: u64,
    /// Bytes of the frames that this host lacked.
    pub lacking_bytes: u64,
}

/// Fetches and installs what `request` asks for.
pub fn acquire(fetcher: &mut Fetcher<'_>, layout: &Layout, request: &Request<'_>) -> Result<Acquired, Report> {
    let trust = Trust::of(layout, request)?;
    if request.unattended {
        fetcher.splay();
    }
    if fetcher.is_local() {
        fetcher.keep_nothing();
    }
    let (targets, warnings) = refresh(fetcher, &trust, request)?;
    let (host, store) = (Host::of(layout.root()), Store::new(layout, request.package));
    let (id, manifest) = find(fetcher, &targets, request, &host, &store)?;
    let approved = Approved::new(&targets, &id, manifest, warnings)?;
    let payload = targets.require(&target::payload(&id), &approved.manifest().payload.sha256)?;
    let (hazards, effect, progress) = (request.hazards, request.real_effect(), request.installing);
    let place = Placement { layout, host: &host, hazards, effect, progress };
    let accepted = preflight(&approved, &place)?;
    let mut source = Payload { fetcher, name: target::payload(&id), target: payload };
    if request.refetch {
        source.fetcher.forget_broken(&source.target)?;
    }
    let (mut lacking_bytes, mut held) = (0, None);
    if !store.is_installed(&id.release)? {
        let files = HeldFiles::of(&store, approved.manifest())?;
        let lacking = rebuild::wanted(approved.manifest(), &files);
        held = Some(files);
        lacking_bytes = lacking.iter().map(|frame| frame.length).sum();
        if effect == Effect::Apply && !source.fetcher.is_local() && !lacking.is_empty() {
            // Without room for both the release and its frames they go into it as they come.
            let release = demand(approved.manifest(), layout)?;
            if source.fetcher.can_keep(&lacking, release)? {
                source.fetch(&lacking, request.fetching)?;
            }
        }
    }
    let installed = install_fetched(approved, accepted, held, &mut source, &place)?;
    let (payload_bytes, received_bytes) = (source.target.length, source.fetcher.wire_bytes());
    if effect == Effect::Apply {
        source.done()?;
    }
    Ok(Acquired { installed, received_bytes, payload_bytes, lacking_bytes })
}

/// Fetches the newest metadata and judges it. Newer valid metadata is adopted, whatever comes of the rest. What a person carries here may be older than
/// what this host has seen, as a bundle file may.
fn refresh(
    fetcher: &mut Fetcher<'_>,
    trust: &Trust<'_>,
    request: &Request<'_>,
) -> Result<(TrustedTargets, Vec<Warning>), Report> {
    let now = clock::now();
    let expiry = if fetcher.is_by_hand() { request.expiry_by_hand } else { Expiry::Strict };
    let floor = trust.floor()?;
    let refreshed = fetcher.refresh(&floor, Some(request.package), now, expiry);
    let judged = match trust {
        Trust::Store(trust_store) => {
            let persist = if request.real_effect() == Effect::Apply { Persist::Store } else { Persist::Forget };
            Judge { trust_store, now, expiry, persist }.verification(&refreshed.files)?
        }
        Trust::Root(_) => by_hand::verify(&floor, &refreshed.files, now, expiry),
    };
    refreshed.outcome?;
    Ok((judged.targets?, judged.warnings))
}

/// The release to install, and its compressed manifest. A person may carry older releases than the trusted metadata lists: then the newest that is there.
fn find(
    fetcher: &mut Fetcher<'_>,
    targets: &TrustedTargets,
    request: &Request<'_>,
    host: &Host,
    store: &Store,
) -> Result<(ReleaseId, Vec<u8>), Report> {
    let (mut absent, mut failure) = (Vec::new(), None);
    loop {
        let id = choose(targets, request, host, &absent).map_err(|error| failure.take().unwrap_or(error))?;
        if let Some(manifest) = fetch_manifest(fetcher, targets, &id, store, request.refetch)? {
            return Ok((id, manifest));
        }
        let error = Report::from(FetchError::NotFound { name: target::manifest(&id) });
        if !fetcher.is_by_hand() || request.release.is_some() {
            return Err(error);
        }
        failure = Some(error);
        absent.push(id);
    }
}

/// The release to install, among the listed releases that are not `absent`.
fn choose(
    targets: &TrustedTargets,
    request: &Request<'_>,
    host: &Host,
    absent: &[ReleaseId],
) -> Result<ReleaseId, Report> {
    let listed: Vec<ReleaseId> = targets.listed().filter_map(|(name, _)| release_of(name)).collect();
    let of_package = || listed.iter().filter(|id| id.package == *request.package);
    let set: Vec<&ReleasePattern> = request.patterns.iter().filter(|one| one.is_about(request.package)).collect();
    let is_set = |id: &&ReleaseId| request.release.is_some() || set.is_empty() || set.iter().any(|one| one.fits(id));
    let admitted = of_package().filter(is_set).filter(|id| request.release.is_some() || (request.may_be)(&id.release));
    let admitted = admitted.filter(|id| !absent.contains(id));
    if let Some(id) = best_of(admitted, request.release, host) {
        return Ok(id.clone());
    }
    let wanted = request.name();
    let mut there: Vec<String> = of_package().map(|id| id.release.to_string()).collect();
    there.dedup();
    if there.is_empty() {
        return Err(unknown(&wanted, &listed));
    }
    if !of_package().any(|id| is_set(&id)) {
        let message = format!(
            "cannot choose a release of {wanted}: the repository lists {}, and `releases` in the settings admits none of them",
            there.join(", ")
        );
        return Err(Report::of(Class::Failed, message)
            .hint(format!("change `releases` in [repository] of the settings; or name a release: {wanted}@RELEASE")));
    }
    if request.release.is_none() {
        let among = if set.is_empty() { "" } else { ", among those that `releases` in the settings admits" };
        let message = format!(
            "cannot upgrade {wanted}: the repository lists nothing newer that has neither failed here nor been left by a rollback{among}"
        );
        let hint =
            format!("`sidle list` shows why releases are excluded; name a release to install it: {wanted}@RELEASE");
        return Err(Report::of(Class::NothingToDo, message).hint(hint));
    }
    let message = format!("cannot install {wanted}: the repository lists {}", there.join(", "));
    Err(Report::of(Class::NotTrusted, message)
        .hint("the release may be withdrawn, or not be published yet: ask the repository's owner"))
}

/// The error for a package that the repository doesn't have: mostly a misspelt name.
fn unknown(wanted: &str, listed: &[ReleaseId]) -> Report {
    let packages: BTreeSet<&str> = listed.iter().map(|id| id.package.as_str()).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let (there, hint) = if packages.is_empty() {
        let hint = "ask the repository's owner: nothing is published there for this host's roles";
        ("it lists no release".to_owned(), hint)
    } else {
        let hint = "name a listed package; or ask the repository's owner: it may be withdrawn, or not published yet";
        (format!("it lists {}", packages.join(", ")), hint)
    };
    let message = format!("cannot install {wanted}: the repository has no release of that package; {there}");
    Report::of(Class::Failed, message).hint(hint)
}

/// The release whose manifest the target `name` is.
fn release_of(name: &str) -> Option<ReleaseId> {
    let id: ReleaseId = name.rsplit_once('/')?.0.parse().ok()?;
    (target::manifest(&id) == name).then_some(id)
}

/// The compressed manifest: an installed release's with a patch applied, or else the whole file. None: it is not there.
fn fetch_manifest(
    fetcher: &mut Fetcher<'_>,
    targets: &TrustedTargets,
    id: &ReleaseId,
    store: &Store,
    refetch: bool,
) -> Result<Option<Vec<u8>>, Report> {
    let name = target::manifest(id);
    let listed = targets.find(&name)?;
    if refetch {
        fetcher.forget_broken(&listed)?;
    }
    // A patch spares bytes on the wire, and costs more time than to read the whole file: it has to be compressed again.
    let made = if fetcher.is_local() { None } else { patched(fetcher, targets, id, store)? };
    match made {
        Some(bytes) if listed.hashes.fit(&bytes) => Ok(Some(bytes)),
        _ => match fetcher.target(&name, &listed) {
            Err(FetchError::NotFound { .. }) => Ok(None),
            brought => Ok(Some(brought?)),
        },
    }
}

/// The manifest as a patch makes it; None without a patch for an installed manifest, or where the mirror lacks it.
fn patched(
    fetcher: &mut Fetcher<'_>,
    targets: &TrustedTargets,
    id: &ReleaseId,
    store: &Store,
) -> Result<Option<Vec<u8>>, Report> {
    for release in store.releases()?.into_iter().rev() {
        let Ok(held) = store.manifest_bytes(&release) else { continue };
        // The signed name has the digest of the patched manifest: nothing else is decompressed.
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
    /// The payload of an installed release, by its manifest.
    pub fn of(fetcher: &'a mut Fetcher<'b>, manifest: &Manifest) -> Self {
        let target = publish::target(manifest.payload.length, manifest.payload.sha256);
        Self { fetcher, name: target::payload(&manifest.id()), target }
    }

    /// Brings frames into the cache, where the install finds them. `progress` gets the bytes so far, and all of them.
    pub fn fetch(&mut self, frames: &[Frame], progress: &dyn Fn(u64, u64)) -> Result<(), Report> {
        let total = frames.iter().map(|frame| frame.length).sum();
        let mut done = 0;
        let mut source = self.fetcher.frames(&self.name, &self.target, frames)?;
        for frame in frames {
            if let Err(error) = source.next(frame) {
                let hint = error.error.downcast_ref::<FetchError>().and_then(FetchError::hint);
                return Err(Report::new(error.class, &error, hint));
            }
            done += frame.length;
            progress(done, total);
        }
        Ok(())
    }

    /// Removes the frames from the cache: the release is installed.
    pub fn done(self) -> Result<(), Report> {
        Ok(self.fetcher.done(&self.target)?)
    }
}

impl PayloadSource for Payload<'_, '_> {
    fn frames<'a>(&'a mut self, wanted: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        Ok(Box::new(self.fetcher.frames(&self.name, &self.target, wanted)?))
    }
}
