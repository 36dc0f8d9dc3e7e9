//! Where the releases of a push come from. A repository behind HTTP is copied once into the cache; hosts are served from the copy.

use super::PushArguments;
use crate::bundle::member::ReleaseId;
use crate::cli::{Context, host::notices, mirror, usage};
use crate::config::Settings;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::fetch::{Fetcher, Location, MirrorWanted};
use crate::os::place::{Effect, Held, Place};
use crate::os::{clock, dir::Dir, lock};
use crate::push::{Bundle, Source, check_fingerprint};
use crate::trust::{Expiry, TrustedTargets};
use crate::trust_store::{Judge, Persist, TrustStore};
use crate::version::{Platform, Release};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a push waits for another one that copies the same repository: as long as a fetch may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// Opens the repository that the command line names, if its first root is the right one.
pub(super) fn open(context: &Context, arguments: &PushArguments, fingerprint: &Digest) -> Result<Source, Report> {
    let named = &arguments.repository;
    let directory = |path: &Path| Dir::open(path).map(Source::Directory).map_err(Report::from);
    let source = if named.contains("://") {
        match named.parse::<Location>()? {
            Location::Directory(path) => directory(&path)?,
            location @ Location::Http(_) => directory(&copied(context, arguments, location, fingerprint)?)?,
            Location::Stdio | Location::StdioByHand => return Err(not_here(named)),
        }
    } else if named.ends_with(':') {
        return Err(not_here(named));
    } else if Dir::open_if_exists(Path::new(named)).is_ok_and(|found| found.is_some()) {
        directory(Path::new(named))?
    } else {
        let bundle = Bundle::open(Path::new(named))?;
        if !bundle.releases().any(|id| is_wanted(arguments, &id)) {
            return Err(lacks(arguments, named));
        }
        Source::Bundle(bundle)
    };
    check_fingerprint(&source, fingerprint, named)?;
    Ok(source)
}

fn not_here(named: &str) -> Report {
    usage(format!("cannot push from {named}"), "name https://…, file:///DIR, or a bundle file")
}

fn lacks(arguments: &PushArguments, place: &str) -> Report {
    let release = arguments.release.as_ref().map_or_else(String::new, |release| format!(" {release}"));
    Report::of(Class::Failed, format!("cannot find {}{release} in {place}", arguments.package))
        .hint("name another --package or --release")
}

fn is_wanted(arguments: &PushArguments, id: &ReleaseId) -> bool {
    id.package == arguments.package && arguments.release.as_ref().is_none_or(|release| *release == id.release)
}

/// The directory of a copy of the wanted releases: for each platform the named one, or the newest.
fn copied(
    context: &Context,
    arguments: &PushArguments,
    location: Location,
    fingerprint: &Digest,
) -> Result<PathBuf, Report> {
    let own = context.layout.cache().join("push").join(fingerprint.to_string());
    let notices = notices(context);
    let settings = Settings::read(&context.layout)?.repository_at(&[location])?;
    // The copy is of this host, and changes none of the others: a dry run makes it, too.
    let cache = Place::open_or_create(&context.layout.cache(), 0o700, Effect::Apply)?;
    let into = Place::open_or_create(&own.join("repository"), 0o755, Effect::Apply)?;
    let _lock = lock_copy(context, arguments, &into)?;
    let mut fetcher = Fetcher::new(&settings, &cache, &notices)?;
    let trust_store = TrustStore::open_or_create(&own.join("trust"))?;
    let root = fetcher.root(1, &|bytes| Digest::of(bytes) == *fingerprint)?;
    trust_store.lock()?.pin(&root, fingerprint)?;
    let now = clock::now();
    let judge = Judge { trust_store: &trust_store, now, expiry: Expiry::Strict, persist: Persist::Store };
    let (metadata, targets) = mirror::metadata(&mut fetcher, &judge)?;
    let newest = newest(arguments, &targets);
    if newest.is_empty() {
        return Err(lacks(arguments, &arguments.repository));
    }
    let release = |id: &ReleaseId| newest.get(&id.platform) == Some(&id.release) && id.package == arguments.package;
    fetcher.mirror(
        &into,
        &targets,
        &metadata,
        &MirrorWanted { release: &release, frame_files: false, clean: false },
    )?;
    Ok(own.join("repository"))
}

/// Two pushes at once would write the same files.
fn lock_copy(context: &Context, arguments: &PushArguments, into: &Place) -> Result<Held, Report> {
    let lock = || into.lock(Path::new(""), 0o755, mirror::LOCK_NAME);
    if let Some(held) = lock()? {
        return Ok(held);
    }
    context.output.warning(&format!("waiting: another push copies {}", arguments.repository));
    lock::wait(LOCK_PATIENCE, lock)?.ok_or_else(|| {
        let message = format!("cannot copy {}: another push copies it", arguments.repository);
        Report::of(Class::Locked, message).hint("wait for the other push, then try again")
    })
}

fn newest(arguments: &PushArguments, targets: &TrustedTargets) -> BTreeMap<Platform, Release> {
    let mut newest: BTreeMap<Platform, Release> = BTreeMap::new();
    for (name, _) in targets.listed() {
        let id = name.rsplit_once('/').and_then(|(directory, _)| directory.parse::<ReleaseId>().ok());
        let Some(id) = id.filter(|id| is_wanted(arguments, id)) else { continue };
        match newest.get(&id.platform) {
            Some(known) if *known >= id.release => {}
            Some(_) | None => drop(newest.insert(id.platform, id.release)),
        }
    }
    newest
}
