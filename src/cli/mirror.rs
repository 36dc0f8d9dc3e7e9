//! `sidle mirror`: a verified copy of a repository in a directory.

use super::dry_run::DryRun;
use super::facts::{Facts, count, size};
use super::host::{FetchArguments, notices, open_repository};
use super::{Context, Ended};
use crate::bundle::member::ReleaseId;
use crate::failure::{Class, Report};
use crate::fetch::{Fetcher, MirrorWanted, Mirrored};
use crate::os::clock;
use crate::os::dir::Dir;
use crate::os::lock::{LockFile, by};
use crate::os::place::Place;
use crate::store::collect::Effect;
use crate::trust::metadata::{Root, Signed};
use crate::trust::pattern::ReleasePattern;
use crate::trust::{Expiry, Floor, MetadataFiles, TrustedTargets, verify};
use crate::trust_store::{Judge, Persist, TrustStore};
use clap::Args;
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// `sidle mirror DIR`
#[derive(Debug, Args)]
pub struct MirrorArguments {
    /// A new directory, or the directory of an earlier copy: then only missing files are fetched
    directory: PathBuf,
    /// Copy only releases that match: `PACKAGE/RELEASE/PLATFORM` with `*`, `?` and `[…]`, as `salt-minion/3007.*/*`
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out releases that match this pattern, in the same form
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Write each frame of the payloads as a separate file, too: for web caches that do not keep parts of files
    #[arg(long)]
    frame_files: bool,
    /// Delete files of releases that the repository no longer lists, or that --include and --exclude leave out
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    fetch: FetchArguments,
}

/// A copy is for everybody to read, so that its lock has a name that tells whose it is.
pub(super) const LOCK_NAME: &str = ".sidle-lock";

/// `sidle mirror`: exit 3 where the copy is complete already.
pub fn mirror(context: &Context, arguments: &MirrorArguments) -> Result<Ended, Report> {
    let (include, exclude) = (patterns(&arguments.include)?, patterns(&arguments.exclude)?);
    let trust_store = TrustStore::open(&context.layout.trust())?;
    let tell = notices(context);
    let mut fetcher = open_repository(context, &arguments.fetch, &tell)?;
    let now = clock::now();
    let persist = if context.effect == Effect::DryRun { Persist::Forget } else { Persist::Store };
    let judge = Judge { trust_store: &trust_store, now, expiry: Expiry::Strict, persist };
    let (metadata, targets) = metadata(&mut fetcher, &judge)?;
    let place = Place::open_or_create(&arguments.directory, 0o755, context.effect)?;
    let Some(_lock) = place.lock(Path::new(""), 0o755, LOCK_NAME)? else {
        let holder = Dir::open(&arguments.directory).map(|into| LockFile::new(&into, LOCK_NAME).holder());
        let by = by(holder.ok().flatten().as_ref());
        return Err(Report::of(
            Class::Locked,
            format!("cannot copy into {}: another command writes there{by}", arguments.directory.display()),
        )
        .hint("wait for the other command, then try again"));
    };
    let fits = |globs: &[ReleasePattern], id: &ReleaseId| globs.iter().any(|glob| glob.fits(id));
    let release = |id: &ReleaseId| (include.is_empty() || fits(&include, id)) && !fits(&exclude, id);
    let wanted = MirrorWanted { release: &release, frame_files: arguments.frame_files, clean: arguments.delete };
    let mirrored = fetcher.mirror(&place, &targets, &metadata, &wanted)?;
    Ok(told(context, arguments, &mirrored, fetcher.wire_bytes()))
}

fn patterns(globs: &[String]) -> Result<Vec<ReleasePattern>, Report> {
    let pattern = |glob: &String| glob.parse().map_err(|error| Report::new(Class::Usage, &error, None));
    globs.iter().map(pattern).collect()
}

/// All metadata of the repository: every root, of which the pinned one is the pinned one, and what the newest leads to, as `judge` trusts it. An
/// upstream that is behind what this host has seen leaves its place to the next.
pub(super) fn metadata(
    fetcher: &mut Fetcher<'_>,
    judge: &Judge<'_>,
) -> Result<(MetadataFiles, TrustedTargets), Report> {
    let pin = judge.trust_store.load()?.pin;
    let is_pinned = |bytes: &[u8]| crate::digest::Digest::of(bytes) == pin.fingerprint;
    let pinned = fetcher.root(pin.version, &is_pinned)?;
    let judged: RefCell<Option<Result<TrustedTargets, Report>>> = RefCell::default();
    let objection = |files: &MetadataFiles| {
        let verified = judge.verification(files).map_err(Report::from);
        let targets = verified.and_then(|verified| Ok(verified.targets?));
        let reason = targets.as_ref().err().map(|report| report.message.clone());
        judged.replace(Some(targets));
        reason
    };
    let refreshed = fetcher.refresh_everything(&Floor::new(pinned.clone()), judge.now, &objection);
    // What is wrong with an upstream that was read says more than that no other is left.
    let targets = judged.into_inner().transpose()?;
    refreshed.outcome?;
    let targets = targets.expect("a refresh that ends well was judged");
    let mut files = refreshed.files;
    files.insert(format!("{}.root.json", pin.version), pinned.clone());
    // Hosts may have pinned an earlier one: each has to vouch for the next.
    let mut later = pinned;
    for version in (1..pin.version).rev() {
        let vouches = |bytes: &[u8]| vouches(bytes, &later);
        later = fetcher.root(version, &vouches)?;
        files.insert(format!("{version}.root.json"), later.clone());
    }
    Ok((files, targets))
}

fn vouches(earlier: &[u8], later: &[u8]) -> bool {
    let parse = |bytes| Signed::<Root>::parse("root.json", bytes);
    let (Ok(earlier), Ok(later)) = (parse(earlier), parse(later)) else { return false };
    earlier.header.version.checked_add(1) == Some(later.header.version) && verify::verify(&later, &earlier).is_ok()
}

fn told(context: &Context, arguments: &MirrorArguments, mirrored: &Mirrored, received: u64) -> Ended {
    for id in &mirrored.unsigned_sums {
        context
            .output
            .warning(&format!("no mirror has a valid SHA256SUMS.minisig of {id}: minisign cannot check this release"));
    }
    let mut facts = Facts::new().with("copy", arguments.directory.display());
    let (fetched, removed, key, bytes) = match context.effect {
        Effect::Apply => ("fetched", "removed", "received_bytes", received),
        Effect::DryRun => ("to fetch", "to remove", "lacking_bytes", mirrored.lacking_bytes),
    };
    facts.add(fetched, format!("{} ({})", count(mirrored.fetched.len(), "file"), size(bytes)));
    facts.add("there already", count(mirrored.kept, "target"));
    if !mirrored.removed.is_empty() {
        facts.add(removed, count(mirrored.removed.len(), "file"));
    }
    context.output.result(
        facts,
        json!({"fetched": mirrored.fetched, "kept": mirrored.kept, "removed": mirrored.removed, key: bytes}),
    );
    let nothing = mirrored.fetched.is_empty() && mirrored.removed.is_empty();
    if nothing { Ended::As(Class::NothingToDo) } else { Ended::Well }
}
