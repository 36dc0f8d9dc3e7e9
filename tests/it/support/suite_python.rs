//! The root of a Debian suite as a place to build trees of Salt with the suite's own Python. Trees and downloads are kept as long as the root is.

use super::boot::archive;
use super::release::release_file;
use super::stage::{Author, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROJECT: &str = env!("CARGO_MANIFEST_DIR");

/// A tree takes half a minute; each package that has to be downloaded comes on top.
const SECONDS_MAXIMUM: &str = "500";

/// Runs a script of shell in the root `$1`, unpacked at `$2`: this project lies at /project there, read-only, and the cache `$4` at /cache. What pip
/// is told here holds there, too. With a directory `$6`, that lies at /srv.
const ENTER: &str = r#"set -e
archive=$1 work=$2 project=$3 cache=$4 script=$5 srv=$6
mount -t tmpfs -o size=4g,mode=755 tmpfs "$work"
tar --zstd -xf "$archive" -C "$work" '--exclude=./dev/*'
cd "$work"
mkdir -p project cache etc/ssl/certs
mount --bind "$project" project
mount -o remount,bind,ro project
mount --bind "$cache" cache
[ -z "$srv" ] || mount --bind "$srv" srv
mount -t proc proc proc
mount --rbind /dev dev
for file in resolv.conf hosts pip.conf; do [ ! -e "/etc/$file" ] || cp -L --remove-destination "/etc/$file" etc/; done
[ ! -d /etc/ssl/certs ] || mount --bind /etc/ssl/certs etc/ssl/certs
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 XDG_CACHE_HOME=/cache
unset PYENV_ROOT SIDLE_PYTHON TMPDIR
exec chroot . /bin/sh -ec "$script""#;

/// All that a command has printed.
pub fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Trees that a suite's Python has built: the root is made anew every month, and then they are, too.
fn cache_of(archive: &Path) -> PathBuf {
    let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    let name = archive.file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.zst");
    let suite = name.split('+').next().unwrap();
    let cache = home.join("sidle/of-suites").join(suite);
    for stale in fs::read_dir(&cache).into_iter().flatten().flatten().filter(|entry| entry.file_name() != name) {
        fs::remove_dir_all(stale.path()).unwrap();
    }
    fs::create_dir_all(cache.join(name)).unwrap();
    cache.join(name)
}

/// Packs releases, each a version and the number of its build, and exports them: sidle's own package is installed in the root, and all is done there, since
/// `sidle pack` starts the tree's Python. Built is what is not kept.
const PACK: &str = r#"dpkg --install /srv/sidle.deb >&2
for release in $releases; do
    version=${release%-*}
    tree=$(/project/scripts/trees "$version")/salt-$version
    sidle pack /project/bundles/salt-minion/salt-minion.toml --version "$version" --revision "${release##*-}" --tree "$tree" --level 1 \
        --repo /srv/repository --key /srv/key.pem --output "/srv/$release.sidle"
done"#;

/// Runs a script of shell in a fresh root of the suite, where this directory, if any, lies at /srv; gives what it printed, and the directory that is its
/// cache.
pub fn inside(suite: &str, script: &str, srv: Option<&Path>) -> (Output, PathBuf) {
    let archive = archive(suite);
    let cache = cache_of(&archive);
    let work = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command.args([
        SECONDS_MAXIMUM,
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
    ]);
    command.args(["sh", "-c", ENTER, "sh", text(&archive), text(work.path()), PROJECT, text(&cache), script]);
    command.arg(srv.unwrap_or(Path::new("")));
    (command.stdin(Stdio::null()).output().unwrap(), cache)
}

/// Releases of Salt on the suite's own Python, packed by this author in a root of the suite: `3008.5-1`.
pub fn packed_in_suite(suite: &str, author: &Author, releases: [&str; 2]) -> [PathBuf; 2] {
    fs::copy(release_file("deb"), author.directory().join("sidle.deb")).unwrap();
    let script = format!("releases='{}'\n{PACK}", releases.join(" "));
    let (output, _) = inside(suite, &script, Some(author.directory()));
    assert!(output.status.success(), "{}", said(&output));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    releases.map(|release| author.directory().join(format!("{release}.sidle")))
}
