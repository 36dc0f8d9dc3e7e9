//! Installs a release next to the running one: verify, unpack, sync, one rename, receipt. A bundle file is read in one streaming pass; a fetched
//! payload comes frame by frame. Nothing visible changes before the rename; `recover` removes the leftovers of a crash.

use super::check::{Depth, index_of};
use super::collect::Effect;
use super::held::HeldFiles;
use super::preflight::{Hazards, Host, HostFacts, Obstacle, Unfit};
use super::protection::{fapolicyd, selinux::Labels};
use super::receipt::Receipt;
use super::{PackageLock, Result, Store, StoreError};
use crate::bundle::file::{BundleError, BundleReader, BundledRelease, Head, Partial, PayloadHeader};
use crate::bundle::manifest::Manifest;
use crate::bundle::member::ReleaseId;
use crate::bundle::part::Part;
use crate::bundle::rebuild::{self, rebuild};
use crate::bundle::source::PayloadSource;
use crate::bundle::unpack::unpack;
use crate::crash_point;
use crate::digest::Digest;
use crate::failure::Report;
use crate::layout::{self, Layout};
use crate::name::PackageName;
use crate::os::dir::{Dir, FileKind};
use crate::os::{host, thread::helper, walk};
use crate::trust::{Authority, Floor, MetadataFiles, TrustedTargets, Warning, target};
use crate::version::Release;
use std::io::Read;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use tracing::debug;

/// The place of an install, and its options.
pub struct Placement<'a> {
    /// The layout.
    pub layout: &'a Layout,
    /// This host.
    pub host: &'a Host,
    /// What to do about an unfit place.
    pub hazards: Hazards,
    /// Whether to write.
    pub effect: Effect,
    /// Gets the payload's bytes so far, and all of them.
    pub progress: &'a dyn Fn(u64, u64),
}

/// The result of an install.
#[derive(Debug)]
pub struct Installed {
    /// The package.
    pub package: PackageName,
    /// The release.
    pub release: Release,
    /// False: the release was installed already, with the same content.
    pub fresh: bool,
    /// Bytes of its files.
    pub content_bytes: u64,
    /// Warnings for the operator.
    pub warnings: Vec<Warning>,
    /// The accepted obstacles.
    pub accepted: Vec<Obstacle>,
}

impl Installed {
    /// The warnings, and each accepted obstacle.
    pub fn remarks(&self) -> Vec<String> {
        let accepted = self.accepted.iter().map(|obstacle| format!("installed in spite of this: {obstacle}"));
        self.warnings.iter().map(ToString::to_string).chain(accepted).collect()
    }
}

/// A release that the trusted metadata lists, with its manifest.
#[derive(Debug)]
pub struct Approved {
    manifest_bytes: Vec<u8>,
    manifest_digest: Digest,
    manifest: Manifest,
    authority: Floor,
    warnings: Vec<Warning>,
}

impl Approved {
    /// Approves the release `id` with this compressed manifest if `targets` lists both of its files. The manifest is decompressed only after
    /// its digest was compared.
    pub fn new(
        targets: &TrustedTargets,
        id: &ReleaseId,
        manifest_bytes: Vec<u8>,
        warnings: Vec<Warning>,
    ) -> Result<Self> {
        let manifest_digest = Digest::of(&manifest_bytes);
        targets.require(&target::manifest(id), &manifest_digest).map_err(Report::from)?;
        let manifest = Manifest::decompressed(&manifest_bytes).map_err(Report::from)?;
        if manifest.id() != *id {
            return Err(StoreError::Mislabelled { listed: id.clone(), described: manifest.id() });
        }
        targets.require(&target::payload(id), &manifest.payload.sha256).map_err(Report::from)?;
        Ok(Self { manifest_bytes, manifest_digest, manifest, authority: targets.authority().clone(), warnings })
    }

    /// The release's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

/// Installs `release` (None: the newest that fits) from the bundle in `reader`, whose metadata `authority` judges.
pub fn install(
    reader: impl Read,
    authority: &dyn Authority,
    release: Option<&Release>,
    place: &Placement<'_>,
) -> Result<Installed> {
    let (head, mut reader) = BundleReader::open(reader).map_err(Report::from)?;
    let approved = choose(head, authority, release, place.host)?;
    let accepted = preflight(&approved, place)?;
    let header = go_to(&mut reader, &approved.manifest.id())?;
    header.check(&approved.manifest).map_err(Report::from)?;
    if let Some(part) = &header.part {
        return install_part(approved, accepted, reader, part, place);
    }
    let mut whole = Some(reader);
    let finish = |reader: BundleReader<_>| -> Result<()> { Ok(reader.finish().map_err(Report::from)?) };
    let installed = put(approved, place, &mut |manifest, _, tree| {
        let Some(mut reader) = whole.take() else { return Ok(()) };
        unpack(manifest, &mut reader, tree, host::parallelism(), place.progress).map_err(Report::from)?;
        finish(reader)
    })?;
    // Without unpacking, too, the rest of the file is verified: a damaged bundle is never called good.
    whole.filter(|_| !installed.fresh).map_or(Ok(()), finish)?;
    Ok(Installed { accepted, ..installed })
}

/// Installs a release from a part of its payload and from files of this host: refused before anything is written where these are not all.
fn install_part<R: Read>(
    approved: Approved,
    accepted: Vec<Obstacle>,
    reader: BundleReader<R>,
    part: &Part,
    place: &Placement<'_>,
) -> Result<Installed> {
    let manifest = &approved.manifest;
    let store = Store::new(place.layout, &manifest.package);
    if !store.is_installed(&manifest.release())? {
        let there = part.frames(manifest).unwrap_or_default();
        let lacking = rebuild::wanted(manifest, &HeldFiles::of(&store, manifest)?);
        if lacking.iter().any(|frame| !there.contains(frame)) {
            return Err(Report::from(BundleError::NotInPart { id: manifest.id(), since: part.since() }).into());
        }
    }
    let mut whole = Some(Partial::new(reader, part, manifest));
    let finish = |payload: Partial<_>| -> Result<()> { Ok(payload.finish().map_err(Report::from)?) };
    let installed = put(approved, place, &mut |manifest, store, tree| {
        let Some(mut payload) = whole.take() else { return Ok(()) };
        let held = HeldFiles::of(store, manifest)?;
        rebuild(manifest, &held, &mut payload, tree, host::parallelism(), place.progress).map_err(Report::from)?;
        finish(payload)
    })?;
    whole.filter(|_| !installed.fresh).map_or(Ok(()), finish)?;
    Ok(Installed { accepted, ..installed })
}

/// Installs an approved release from files of this host and from `payload`; `accepted`: what its [`preflight`] gave; `held`: the files of this
/// host, if the caller has looked for them. A file that is gone meanwhile comes from `payload`.
pub fn install_fetched(
    approved: Approved,
    accepted: Vec<Obstacle>,
    mut held: Option<HeldFiles>,
    payload: &mut dyn PayloadSource,
    place: &Placement<'_>,
) -> Result<Installed> {
    let installed = put(approved, place, &mut |manifest, store, tree| {
        let held = held.take().map_or_else(|| HeldFiles::of(store, manifest), Ok)?;
        rebuild(manifest, &held, payload, tree, host::parallelism(), place.progress).map_err(Report::from)?;
        Ok(())
    })?;
    Ok(Installed { accepted, ..installed })
}

/// Refuses an unfit host with every obstacle, before anything is written. Returns the accepted obstacles.
pub fn preflight(approved: &Approved, place: &Placement<'_>) -> Result<Vec<Obstacle>> {
    let obstacles = HostFacts::gather(&approved.manifest, place.host, place.layout)?.obstacles(&approved.manifest);
    let is_accepted = place.hazards == Hazards::Accept && obstacles.iter().all(Obstacle::may_be_accepted);
    if obstacles.is_empty() || is_accepted {
        return Ok(obstacles);
    }
    Err(Unfit { place: place.layout.package(&approved.manifest.package), obstacles }.into())
}

/// Fills an empty tree with a manifest's files.
type Fill<'a> = dyn FnMut(&Manifest, &Store, &Dir) -> Result<()> + 'a;

fn put(approved: Approved, place: &Placement<'_>, fill: &mut Fill<'_>) -> Result<Installed> {
    let store = Store::new(place.layout, &approved.manifest.package);
    let release = approved.manifest.release();
    if store.is_installed(&release)? {
        return already_there(&store, approved);
    }
    if place.effect == Effect::Apply {
        let lock = store.lock()?;
        crash_point!("install.locked");
        // Another command may have installed it while this one waited.
        if store.is_installed(&release)? {
            return already_there(&store, approved);
        }
        if store.has_tree(&release)? {
            store.readmit(&lock, &approved)?;
            return Ok(installed(approved, true));
        }
        if let Err(error) = store.stage(&lock, &approved, fill) {
            store.empty_staging(&lock)?;
            return Err(error);
        }
    }
    Ok(installed(approved, true))
}

fn already_there(store: &Store, approved: Approved) -> Result<Installed> {
    let release = approved.manifest.release();
    if store.manifest_digest(&release)? != approved.manifest_digest {
        return Err(StoreError::OtherContent { release });
    }
    Ok(installed(approved, false))
}

fn installed(approved: Approved, fresh: bool) -> Installed {
    let (release, content_bytes) = (approved.manifest.release(), approved.manifest.space.content_bytes);
    let (package, warnings) = (approved.manifest.head.package, approved.warnings);
    Installed { package, release, fresh, content_bytes, warnings, accepted: Vec::new() }
}

/// The metadata's verdict first, then the release that fits best, then its own files.
fn choose(head: Head, authority: &dyn Authority, release: Option<&Release>, host: &Host) -> Result<Approved> {
    let Head { metadata, releases } = head;
    // Keeps the small files of one release only in memory.
    let bundled = best(releases, release, host);
    let files: MetadataFiles = metadata.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect();
    let (targets, mut warnings) = authority.judge(&files)?;
    drop(files);
    let bundled = bundled?;
    targets.require(&target::manifest(&bundled.id), &bundled.manifest_digest).map_err(Report::from)?;
    targets.require(&target::payload(&bundled.id), &bundled.payload_digest).map_err(Report::from)?;
    warnings.extend(targets.check_sums_signature(&bundled.checksums, &bundled.signature).map_err(Report::from)?);
    Approved::new(&targets, &bundled.id, bundled.manifest, warnings)
}

fn best(releases: Vec<BundledRelease>, release: Option<&Release>, host: &Host) -> Result<BundledRelease> {
    let there: Vec<String> = releases.iter().map(|bundled| bundled.id.to_string()).collect();
    let there = there.join(", ");
    let ids: Vec<ReleaseId> = releases.iter().map(|bundled| bundled.id.clone()).collect();
    let best = best_of(ids.iter(), release, host).cloned();
    let found = releases.into_iter().find(|bundled| Some(&bundled.id) == best.as_ref());
    found.ok_or_else(|| {
        let wanted = release.map_or_else(|| "any release".to_owned(), Release::to_string);
        StoreError::NothingFits { reason: format!("it does not have {wanted}; it has {there}") }
    })
}

/// The release to install on `host`: `release`, or the newest, for the platform that fits best. If none fits, the newest, so that preflight
/// names the obstacles.
pub fn best_of<'a>(
    ids: impl Iterator<Item = &'a ReleaseId>,
    release: Option<&Release>,
    host: &Host,
) -> Option<&'a ReleaseId> {
    let wanted: Vec<&ReleaseId> = ids.filter(|id| release.is_none_or(|release| id.release == *release)).collect();
    let fitting = wanted.iter().filter(|id| host.fit(&id.platform).is_some());
    let best = fitting.max_by_key(|id| (&id.release, host.fit(&id.platform)));
    best.or_else(|| wanted.iter().max_by_key(|id| &id.release)).copied()
}

/// Skips to a release's payload; the digests of skipped payloads are compared.
fn go_to<R: Read>(reader: &mut BundleReader<R>, id: &ReleaseId) -> Result<PayloadHeader> {
    while let Some(header) = reader.next_payload().map_err(Report::from)? {
        if header.id == *id {
            return Ok(header);
        }
    }
    Err(StoreError::NothingFits { reason: format!("the payload of {id} is not in it") })
}

impl Store {
    fn has_tree(&self, release: &Release) -> Result<bool> {
        let versions = self.versions()?;
        let found = versions.map_or(Ok(None), |versions| versions.stat(release.to_string()))?;
        Ok(found.is_some_and(|stat| stat.kind == FileKind::Directory))
    }

    /// Writes the lost receipt of a tree that is in use or `current`, and checks that it is what was signed; if it is not, `sidle repair` mends it.
    fn readmit(&self, lock: &PackageLock, approved: &Approved) -> Result<()> {
        let release = approved.manifest.release();
        let receipt = Receipt { manifest: &approved.manifest_bytes, authority: &approved.authority, index: None };
        self.write_receipt(lock, &release, &receipt)?;
        self.tell_fapolicyd()?;
        let problems = self.check(&release, Depth::Full)?;
        self.verdict(&release, problems)
    }

    fn stage(&self, lock: &PackageLock, approved: &Approved, fill: &mut Fill<'_>) -> Result<()> {
        let release = approved.manifest.release();
        let name = release.to_string();
        let package = Dir::open(&self.layout.package(&self.package))?;
        let staging = package.child(layout::STAGING)?;
        staging.make_dir(&name, 0o755)?;
        let tree = staging.child(&name)?;
        crash_point!("install.staged");
        debug!(package = %self.package, "{release} is unpacked into staging");
        fill(&approved.manifest, self, &tree)?;
        crash_point!("install.unpacked");
        if let Some(labels) = Labels::of(&self.layout, &self.package, &release)? {
            labels.apply(&tree, &approved.manifest)?;
        }
        // The index is made meanwhile: to write files to a disk changes no stat.
        let indexed = || index_of(&tree, &approved.manifest, Digest::of(&approved.manifest_bytes));
        let sync = || make_durable(&tree);
        let (synced, index) = thread::scope(|scope| {
            let syncing = helper(scope, sync);
            let index = indexed();
            let joined = |syncing: ScopedJoinHandle<'_, _>| syncing.join().unwrap_or_else(|panic| resume_unwind(panic));
            (syncing.map_or_else(sync, joined), index)
        });
        synced?;
        let index = index?;
        crash_point!("install.synced");
        let versions = package.child(layout::VERSIONS)?;
        fapolicyd::trust(&self.layout, &approved.manifest)?;
        // That of an earlier tree, which is gone: this tree must not count as installed by it.
        let receipts = Dir::open(&self.layout.receipts(&self.package))?;
        receipts.remove_tree(&name)?;
        receipts.sync()?;
        staging.rename_exclusive(&name, &versions, &name)?;
        crash_point!("install.renamed");
        versions.sync()?;
        let receipt =
            Receipt { manifest: &approved.manifest_bytes, authority: &approved.authority, index: Some(&index) };
        self.write_receipt(lock, &release, &receipt)?;
        crash_point!("install.done");
        debug!(package = %self.package, "{release} is installed");
        Ok(())
    }
}

/// Syncs the file system. Kernels before 5.8 lose write errors in syncfs(2): there every file is synced by itself, too.
fn make_durable(tree: &Dir) -> Result<()> {
    const SYNCFS_REPORTS_SINCE: (u32, u32) = (5, 8);
    if host::kernel() < SYNCFS_REPORTS_SINCE {
        walk::sync_files(tree)?;
    }
    Ok(tree.sync_filesystem()?)
}
