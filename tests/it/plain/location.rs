//! Releases are kept where they stay: what systemd-tmpfiles would take away is foretold, refused, and found where it was forced.

use crate::support::mounts::Mounted;
use crate::support::stage::{Author, Host, Ran, SIDLE, text};
use sidle::store::tmpfiles::{Fate, Rules};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub const RULES: &str = "etc/tmpfiles.d";
pub const SHIPPED: &str = "usr/lib/tmpfiles.d";
/// What the package brings.
pub const OURS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/sidle.conf"));
/// By the time of the last change, which a test can set; without a prefix the time of the inode's change counts, too.
pub const AGED: &str = "mM:10d";

pub fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Nothing below was used for months.
pub fn age(directory: &Path) {
    let done =
        Command::new("find").arg(directory).args(["-exec", "touch", "-h", "-d", "2020-01-01", "{}", "+"]).status();
    assert!(done.unwrap().success());
}

/// The real cleaner, on this root and by the rules in it.
pub fn tmpfiles(root: &Path, what: &[&str]) {
    let output = Command::new("systemd-tmpfiles").arg(format!("--root={}", text(root))).args(what).output();
    let output = output.expect("cannot start systemd-tmpfiles: apt-get install systemd");
    assert!(output.status.success(), "{output:?}");
}

/// What the real cleaner does to a file in `path`, by these fragments.
pub fn really(fragments: &[(&str, &str)], path: &str) -> (&'static str, &'static str) {
    let root = TempDir::new().unwrap();
    for (name, text) in fragments {
        put(&root.path().join(name), text);
    }
    let file = root.path().join(path).join("deep/file");
    put(&file, "");
    age(&root.path().join(path.split('/').next().unwrap()));
    let foretold = match Rules::read(root.path()).unwrap().fate(&Path::new("/").join(path)) {
        None => "left alone",
        Some(Fate::Cleaned(_)) => "cleaned",
        Some(Fate::Emptied(_)) => "emptied",
    };
    tmpfiles(root.path(), &["--clean"]);
    if !file.exists() {
        return (foretold, "cleaned");
    }
    tmpfiles(root.path(), &["--remove", "--boot"]);
    (foretold, if file.exists() { "left alone" } else { "emptied" })
}

/// Fragments by their names, a directory, and what becomes of it.
pub type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str);

#[test]
fn a_store_below_a_directory_that_is_cleaned_by_age_is_refused_unless_exempted_or_forced() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    put(&host.path(RULES).join("site.conf"), "d /opt - - - 30d\n");
    let refused = host.install(&bundle);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in ["systemd-tmpfiles removes what is old in /opt/sidle/demo-agent", "site.conf", "--force-place"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert!(!host.path("opt").exists() && !host.path("var/lib/sidle/demo-agent").exists(), "something was made");

    let forced = host.sidle(&["--json", "install", text(&bundle), "--force-place", "--dry-run"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(forced.json()["warnings"][0].as_str().unwrap().contains("site.conf"), "{forced:?}");

    put(&host.path(SHIPPED).join("sidle.conf"), OURS);
    let exempted = host.install(&bundle);
    assert_eq!((exempted.code, exempted.stderr.contains("tmpfiles")), (Some(0), false), "{exempted:?}");
    // The receipts matter as much as the tree.
    put(&host.path(SHIPPED).join("sidle.conf"), "x /opt/sidle\n");
    put(&host.path(RULES).join("site.conf"), "d /var/lib - - - 30d\n");
    let refused = host.install(&author.release("1.1", "good"));
    assert!(refused.code == Some(1) && refused.stderr.contains("/var/lib/sidle/demo-agent"), "{refused:?}");
}

/// This machine once more with a disk of its own over it, and a root directory that is its `/`.
pub struct Overlaid {
    pub disk: Mounted,
}

impl Overlaid {
    pub fn new() -> Self {
        let overlaid = Self { disk: Mounted::ext4(64, 8192) };
        for directory in ["upper", "work", "merged"] {
            fs::create_dir(overlaid.disk.path().join(directory)).unwrap();
        }
        overlaid
    }

    /// A file of the machine.
    pub fn path(&self, path: &str) -> PathBuf {
        self.disk.path().join("upper").join(path)
    }

    /// Installs a bundle into `/` after a shell has prepared it in `$merged`, in a mount namespace of its own.
    pub fn install(&self, bundle: &Path, author: &Author, preparation: &str) -> Ran {
        let disk = self.disk.path();
        let (root, fingerprint) = (author.repository().join("metadata/1.root.json"), author.fingerprint());
        let script = format!(
            "set -e; cd {disk}; merged={disk}/merged
            mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay merged
            for part in proc dev; do mount --rbind /$part merged/$part; done
            mkdir -p merged/in; [ -L merged/opt/sidle ] || mkdir -p merged/opt/sidle; cp {bundle} merged/in/bundle.sidle
            {sidle} --quiet --root merged trust pin {root} --fingerprint {fingerprint} || [ $? = 3 ]
            {preparation}
            exec chroot merged {sidle} install /in/bundle.sidle",
            disk = text(&disk),
            bundle = text(bundle),
            sidle = SIDLE,
            root = text(&root),
        );
        let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
