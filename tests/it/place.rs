//! Releases are kept where they stay: what systemd-tmpfiles would take away is foretold, refused, and found where it was forced.

use crate::support::mounts::Mounted;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, text};
use sidle::store::tmpfiles::{Fate, Rules};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const RULES: &str = "etc/tmpfiles.d";
const SHIPPED: &str = "usr/lib/tmpfiles.d";
/// What the package brings.
const OURS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/sidle.conf"));
/// By the time of the last change, which a test can set; without a prefix the time of the inode's change counts, too.
const AGED: &str = "mM:10d";

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Nothing below was used for months.
fn age(directory: &Path) {
    let done =
        Command::new("find").arg(directory).args(["-exec", "touch", "-h", "-d", "2020-01-01", "{}", "+"]).status();
    assert!(done.unwrap().success());
}

/// The real cleaner, on this root and by the rules in it.
fn tmpfiles(root: &Path, what: &[&str]) {
    let output = Command::new("systemd-tmpfiles").arg(format!("--root={}", text(root))).args(what).output();
    let output = output.expect("cannot start systemd-tmpfiles: apt-get install systemd");
    assert!(output.status.success(), "{output:?}");
}

/// What the real cleaner does to a file in `path`, by these fragments.
fn really(fragments: &[(&str, &str)], path: &str) -> (&'static str, &'static str) {
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
type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str);

#[test]
fn what_is_foretold_of_a_directory_is_what_systemd_tmpfiles_does_to_it() {
    // An age that everything has: `X` takes the age of a directory above, and not by which time it is told.
    let aged = |line: &str| line.replace("OLD", "0");
    let cases: [Case; 17] = [
        (&[], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD")], "opt/sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - -")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - infinity")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/sidle")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/s*")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/*")], "opt/.sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nX /opt/sidle")], "opt/sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nd /opt/sidle - - - -")], "opt/sidle/a", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "e /opt/* - - - OLD")], "opt/sidle/a", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d! /opt - - - OLD")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "D /opt - - - -")], "opt/sidle", "emptied"),
        (&[("etc/tmpfiles.d/a.conf", "R! /opt/s*")], "opt/sidle/a", "emptied"),
        // Precedence: a name in /etc masks the same name, the first line for a path counts, in the order of the names.
        (
            &[("etc/tmpfiles.d/a.conf", ""), ("usr/lib/tmpfiles.d/a.conf", "d /opt - - - OLD")],
            "opt/sidle",
            "left alone",
        ),
        (
            &[("usr/lib/tmpfiles.d/b.conf", "d /opt - - - OLD"), ("etc/tmpfiles.d/a.conf", "d /opt - - - -")],
            "opt/a",
            "left alone",
        ),
        (
            &[("usr/lib/tmpfiles.d/a.conf", "d /opt - - - OLD"), ("etc/tmpfiles.d/b.conf", "d /opt - - - -")],
            "opt/a",
            "cleaned",
        ),
        (&[("usr/lib/tmpfiles.d/a.conf", "d \"/opt/a b\" - - - OLD")], "opt/a b", "cleaned"),
    ];
    for (fragments, path, expected) in cases {
        let fragments: Vec<(&str, String)> = fragments.iter().map(|(name, text)| (*name, aged(text))).collect();
        let fragments: Vec<(&str, &str)> = fragments.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(really(&fragments, path), (expected, expected), "{path} by {fragments:?}");
    }
}

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

#[test]
fn cleaning_leaves_the_running_release_alone_and_what_another_lost_is_found_and_mended_offline() {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    let host = Host::new(&author);
    put(&host.path(RULES).join("site.conf"), &format!("d /opt - - - {AGED}\n"));
    for bundle in &bundles {
        host.sidle(&["install", text(bundle), "--force-place"]).ok();
    }
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    // As the stamps of unpacked bundles are: written anew, and all that it says of the other files is that they were there once.
    let stamp = host.path("opt/sidle/demo-agent/versions/1.1-1/stamp");
    age(&host.path("opt"));
    fs::write(&stamp, "1.1-1").unwrap();
    tmpfiles(&host.root(), &["--clean"]);

    let running = host.sidle(&["verify", DEMO, "1.0-1", "--full"]);
    assert_eq!(running.code, Some(0), "the running release was touched: {running:?}");
    assert_eq!(host.answering("after"), "1.0");
    // The control: what nobody leased is gone, its stamp is there.
    assert!(stamp.exists() && !host.path("opt/sidle/demo-agent/versions/1.1-1/bin").exists());
    fs::remove_file(&stamp).unwrap();
    let lost = host.sidle(&["verify", DEMO, "1.1-1"]);
    assert_eq!(lost.code, Some(6), "{lost:?}");
    let refused = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    host.sidle(&["repair", DEMO, "1.1-1", "--from", text(&bundles[1])]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.answering("mended"), "1.1");
    drop(supervisor);
}

/// This machine once more with a disk of its own over it, and a root directory that is its `/`.
struct Overlaid {
    disk: Mounted,
}

impl Overlaid {
    fn new() -> Self {
        let overlaid = Self { disk: Mounted::ext4(64, 8192) };
        for directory in ["upper", "work", "merged"] {
            fs::create_dir(overlaid.disk.path().join(directory)).unwrap();
        }
        overlaid
    }

    /// A file of the machine.
    fn path(&self, path: &str) -> PathBuf {
        self.disk.path().join("upper").join(path)
    }

    /// Installs a bundle into `/` after a shell has prepared it in `$merged`, in a mount namespace of its own.
    fn install(&self, bundle: &Path, author: &Author, preparation: &str) -> Ran {
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

#[test]
fn mount_a_host_of_its_own_refuses_what_does_not_stay_or_does_not_work() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Overlaid::new();
    let cases = [
        ("mount -t tmpfs tmpfs merged/opt/sidle", "/opt/sidle is in memory (tmpfs)"),
        ("mount -t tmpfs -o ro tmpfs merged/opt/sidle", "/opt/sidle is mounted read-only"),
        ("mount --bind merged/opt merged/opt; mount -o remount,bind,noexec merged/opt", "mounted with noexec"),
        ("export TRANSACTIONAL_UPDATE=true", "snapshot of a transactional update"),
        (
            "mkdir -p merged/usr/keep; touch merged/run/ostree-booted; rmdir merged/opt/sidle; ln -s /usr/keep merged/opt/sidle",
            "/usr/keep/demo-agent/versions/1.0-1 belongs to the operating system's image",
        ),
        (
            "rm merged/run/ostree-booted; mkdir -p merged/var/tmp/sidle; ln -sfn /var/tmp/sidle merged/opt/sidle",
            "systemd-tmpfiles removes what is old in /var/tmp/sidle/demo-agent/versions/1.0-1: the usual rule for /var/tmp",
        ),
    ];
    for (preparation, told) in cases {
        let refused = host.install(&bundle, &author, preparation);
        assert!(refused.code == Some(1) && refused.stderr.contains(told), "{told}: {refused:?}");
        assert!(!host.path("var/lib/sidle/demo-agent").exists(), "{told}: something was made");
    }
    let good = host.install(&bundle, &author, "rm merged/opt/sidle");
    assert_eq!(good.code, Some(0), "{good:?}");
}
