//! An author who has packed the releases of Salt that most tests want, packed once for all of them and kept as the trees are, and hosts that have them.

use super::salt::tree;
use super::shared;
use super::stage::{Author, Host, SIDLE, text};
use sidle::digest::Digest;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// What nearly every test with Salt installs.
const RELEASES: [&str; 3] = ["3006.30", "3007.17", "3008.5"];

/// What another program has made is kept for so long: several checkouts may be tested in turn.
const KEPT: Duration = Duration::from_secs(3 * 60 * 60);

/// From one long-term release to the next: the upgrade that everybody makes. `scripts/quickstart` shows it.
pub const LONG_TERM: [&str; 2] = ["3006.30", "3008.5"];

/// An author of one's own, who has packed `RELEASES` already. The files are shared with others: they are replaced, never written to.
pub fn author() -> Author {
    author_of(&RELEASES)
}

/// The same of these releases, at least: where tests share a place, all of them are packed for some test.
pub fn author_of(releases: &[&str]) -> Author {
    let is_kept = releases.iter().all(|release| RELEASES.contains(release));
    let releases = if shared().is_some() && is_kept { &RELEASES } else { releases };
    let cache = Path::new(text(&tree(releases[0]))).ancestors().nth(2).unwrap().to_owned();
    let name = format!("author-{}", key(releases));
    let kept = once(&cache.join(&name), &cache.join("authors.lock"), |building| {
        remove_old(&cache);
        let author = Author::new();
        for version in releases {
            author.salt(version);
        }
        copy(author.directory(), building);
    });
    let near = shared().map(|shared| once(&shared.join(&name), &shared.join("lock"), |building| copy(&kept, building)));
    let directory = tempfile::Builder::new().prefix("author").tempdir().unwrap();
    copy(&near.unwrap_or(kept), directory.path());
    // A link to it would lock the others' repositories, too.
    let _ = fs::remove_file(directory.path().join("repository/author/lock"));
    Author::of(directory)
}

/// A host that trusts an author of `author_of`, and has these of its releases, installed in this order. Where the tests of a run share a place, they are
/// installed once for all of them.
pub fn host(author: &Author, releases: &[&str]) -> Host {
    let install = |host: &Host| releases.iter().for_each(|release| drop(host.install(&author.salt(release)).ok()));
    // What this author packs only now is not in the others' repositories.
    let is_kept = releases.iter().all(|release| RELEASES.contains(release));
    let Some(shared) = shared().filter(|_| is_kept) else {
        let host = Host::new(author);
        install(&host);
        return host;
    };
    let made = format!("{} {releases:?}", author.fingerprint());
    let name = format!("host-{}", &Digest::of(made.as_bytes()).to_string()[..16]);
    Host::over(&once(&shared.join(name), &shared.join("lock"), |building| {
        let host = Host::new(author);
        install(&host);
        fs::rename(host.root(), building).unwrap();
    }))
}

/// What is made once, by whoever needs it first: `make` makes it at another place, and it is moved here.
pub fn once(path: &Path, lock: &Path, make: impl FnOnce(&Path)) -> PathBuf {
    let lock = fs::File::create(lock).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if !path.is_dir() {
        // Of this path alone: another may be made at the same time, under another lock.
        let building = path.with_file_name(format!(".{}.building", path.file_name().unwrap().to_string_lossy()));
        let _ = fs::remove_dir_all(&building);
        make(&building);
        fs::rename(building, path).unwrap();
    }
    path.to_owned()
}

/// What makes the packed releases what they are: the program, the trees, and the day, since metadata expires.
fn key(releases: &[&str]) -> String {
    let program = fs::metadata(SIDLE).unwrap();
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let trees: Vec<PathBuf> = releases.iter().map(|version| tree(version)).collect();
    let made = format!("{SIDLE} {} {} {} {day} {trees:?}", program.len(), program.mtime(), program.mtime_nsec());
    Digest::of(made.as_bytes()).to_string()[..16].to_owned()
}

/// Links where both are on one file system: hundreds of megabytes.
fn copy(from: &Path, to: &Path) {
    let is_done = |option: &str| {
        let copied = Command::new("cp").args([option, "-T"]).arg(from).arg(to).output().unwrap();
        copied.status.success()
    };
    assert!(is_done("-al") || is_done("-a"), "{} can't be copied", from.display());
}

fn remove_old(cache: &Path) {
    for entry in fs::read_dir(cache).unwrap().flatten() {
        let is_old = entry
            .metadata()
            .and_then(|seen| seen.modified())
            .is_ok_and(|then| then.elapsed().is_ok_and(|age| age > KEPT));
        if is_old && entry.file_name().to_string_lossy().contains("author-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
