//! Installs a release from a bundle file in one streaming pass: verify, unpack beside what runs, sync, one rename, receipt. Nothing visible
//! changes before the rename; what a crash leaves, the next command under the package lock clears away.

use super::check::index_of;
use super::preflight::{self, Host};
use super::receipt::Receipt;
use super::{PackageLock, Result, Store, StoreError};
use crate::bundle::file::{BundleReader, BundledRelease, Head, PayloadHeader};
use crate::bundle::manifest::{Manifest, decompress};
use crate::bundle::unpack::unpack;
use crate::crash_point;
use crate::failure::Report;
use crate::layout::{self, Layout};
use crate::name::PackageName;
use crate::os::{dir::Dir, host, walk};
use crate::trust::{Authority, MetadataFiles, TrustedTargets, Warning, target};
use crate::version::Release;
use std::io::Read;

/// What to install, and how.
pub struct InstallRequest<'a> {
    /// Where everything lies.
    pub layout: &'a Layout,
    /// What judges the metadata.
    pub authority: &'a dyn Authority,
    /// This host.
    pub host: &'a Host,
    /// The release; None: the newest that fits.
    pub release: Option<&'a Release>,
    /// Whether to write.
    pub effect: super::collect::Effect,
    /// Gets the payload's bytes taken so far, and all of them.
    pub progress: &'a dyn Fn(u64, u64),
}

/// What an install came to.
#[derive(Debug)]
pub struct Installed {
    /// The package.
    pub package: PackageName,
    /// The release.
    pub release: Release,
    /// False: it was there already, with the same content.
    pub fresh: bool,
    /// Bytes of its files.
    pub content_bytes: u64,
    /// What to tell the operator.
    pub warnings: Vec<Warning>,
}

/// A release of a bundle that may be installed here.
struct Chosen {
    bundled: BundledRelease,
    manifest: Manifest,
    targets: TrustedTargets,
    warnings: Vec<Warning>,
}

/// Installs from the bundle that `reader` gives.
pub fn install(reader: impl Read, request: &InstallRequest<'_>) -> Result<Installed> {
    let (head, mut reader) = BundleReader::open(reader).map_err(Report::from)?;
    let chosen = choose(head, request)?;
    if let Some(unfit) = preflight::obstacles(&chosen.manifest, request.host, request.layout)? {
        return Err(StoreError::Unfit(unfit));
    }
    let header = go_to(&mut reader, &chosen)?;
    header.check(&chosen.manifest).map_err(Report::from)?;
    let store = Store::new(request.layout, &chosen.manifest.package);
    let release = chosen.manifest.release();
    if store.is_installed(&release)? {
        reader.finish().map_err(Report::from)?;
        return already_there(&store, chosen);
    }
    if request.effect == super::collect::Effect::Apply {
        let lock = store.lock()?;
        crash_point!("install.locked");
        let staged = store.stage(&lock, &chosen, reader, request.progress);
        if let Err(error) = staged {
            store.empty_staging(&lock)?;
            return Err(error);
        }
    }
    Ok(Installed {
        package: chosen.manifest.package.clone(),
        release,
        fresh: true,
        content_bytes: chosen.manifest.space.content_bytes,
        warnings: chosen.warnings,
    })
}

fn already_there(store: &Store, chosen: Chosen) -> Result<Installed> {
    let release = chosen.manifest.release();
    if store.manifest_digest(&release)? != chosen.bundled.manifest_digest {
        return Err(StoreError::OtherContent { release });
    }
    let content_bytes = chosen.manifest.space.content_bytes;
    Ok(Installed { package: chosen.manifest.package, release, fresh: false, content_bytes, warnings: chosen.warnings })
}

/// The metadata's verdict first, then the release that fits best, then its own files.
fn choose(head: Head, request: &InstallRequest<'_>) -> Result<Chosen> {
    let files: MetadataFiles = head.metadata.iter().map(|(name, bytes)| (name.to_string(), bytes.clone())).collect();
    let (targets, mut warnings) = request.authority.judge(&files)?;
    let bundled = best(head, request)?;
    targets.require(&target::manifest(&bundled.id), &bundled.manifest_digest).map_err(Report::from)?;
    targets.require(&target::payload(&bundled.id), &bundled.payload_digest).map_err(Report::from)?;
    warnings.extend(targets.check_sums_signature(&bundled.checksums, &bundled.signature).map_err(Report::from)?);
    let manifest = decompress(&bundled.manifest).and_then(|text| Manifest::parse(&text)).map_err(Report::from)?;
    if manifest.id() != bundled.id {
        let reason = format!("its manifest describes {}, and it is listed as {}", manifest.id(), bundled.id);
        return Err(StoreError::NothingFits { reason });
    }
    Ok(Chosen { bundled, manifest, targets, warnings })
}

fn best(head: Head, request: &InstallRequest<'_>) -> Result<BundledRelease> {
    let there: Vec<String> = head.releases.iter().map(|bundled| bundled.id.to_string()).collect();
    let there = there.join(", ");
    let wanted: Vec<BundledRelease> = head
        .releases
        .into_iter()
        .filter(|bundled| request.release.is_none_or(|release| bundled.id.release == *release))
        .collect();
    // Where nothing fits, the newest is taken on, so that preflight names what is in the way.
    let newest = wanted.iter().max_by_key(|bundled| bundled.id.release.clone()).cloned();
    let fitting = wanted.into_iter().filter(|bundled| request.host.fit(&bundled.id.platform).is_some());
    let best = fitting.max_by_key(|bundled| (bundled.id.release.clone(), request.host.fit(&bundled.id.platform)));
    best.or(newest).ok_or_else(|| {
        let wanted = request.release.map_or_else(|| "any release".to_owned(), Release::to_string);
        StoreError::NothingFits { reason: format!("it does not hold {wanted}; it holds {there}") }
    })
}

/// Skips to the chosen payload; those before it are compared with their digests as they pass.
fn go_to<R: Read>(reader: &mut BundleReader<R>, chosen: &Chosen) -> Result<PayloadHeader> {
    while let Some(header) = reader.next_payload().map_err(Report::from)? {
        if header.id == chosen.bundled.id {
            return Ok(header);
        }
    }
    Err(StoreError::NothingFits { reason: format!("the payload of {} is not in it", chosen.bundled.id) })
}

impl Store {
    fn stage<R: Read>(
        &self,
        lock: &PackageLock,
        chosen: &Chosen,
        mut reader: BundleReader<R>,
        progress: &dyn Fn(u64, u64),
    ) -> Result<()> {
        let release = chosen.manifest.release();
        let name = release.to_string();
        let package = Dir::open(&self.layout.package(&self.package))?;
        let staging = package.child(layout::STAGING)?;
        staging.make_dir(&name, 0o755)?;
        let tree = staging.child(&name)?;
        crash_point!("install.staged");
        unpack(&chosen.manifest, &mut reader, &tree, host::parallelism(), progress).map_err(Report::from)?;
        reader.finish().map_err(Report::from)?;
        crash_point!("install.unpacked");
        make_durable(&tree)?;
        crash_point!("install.synced");
        let index = index_of(&tree, &chosen.manifest)?;
        let versions = package.child(layout::VERSIONS)?;
        staging.rename_exclusive(&name, &versions, &name)?;
        crash_point!("install.renamed");
        versions.sync()?;
        let receipt =
            Receipt { manifest: &chosen.bundled.manifest, authority: chosen.targets.authority(), index: &index };
        self.write_receipt(lock, &release, &receipt)?;
        crash_point!("install.done");
        Ok(())
    }
}

/// One sync of the file system. Kernels before 5.8 lose write errors in syncfs(2): there every file is synced by itself, too.
fn make_durable(tree: &Dir) -> Result<()> {
    const SYNCFS_REPORTS_SINCE: (u32, u32) = (5, 8);
    if host::kernel() < SYNCFS_REPORTS_SINCE {
        walk::sync_files(tree)?;
    }
    Ok(tree.sync_filesystem()?)
}
