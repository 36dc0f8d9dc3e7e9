//! Packages that salt-pip installed while a minion was adopted go back to the packaged minion; what both sides changed stays as it is.

use crate::support::salt::tree;
use sidle::agent::adoption::{Adopter as _, ExtrasBack, Trees};
use sidle::rehearsal::Part;
use sidle::salt::adoption::SaltAdopter;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// User and group of the packaged minion's directory.
const OWNER: (u32, u32) = (65534, 65533);

/// A release for Python 3.11.
const RELEASE: &str = "3008.5";

/// A packaged tree and a release, each with a directory of extras.
struct Host(TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(host.ours()).unwrap();
        // By this file of Salt's the Python of its package finds extras.
        let site = host.packaged().join("lib/python3.11/site-packages");
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("_salt_onedir_extras.py"), "").unwrap();
        host
    }

    fn ours(&self) -> PathBuf {
        self.0.path().join("ours")
    }

    fn packaged(&self) -> PathBuf {
        self.0.path().join("packaged")
    }

    fn theirs(&self) -> PathBuf {
        self.packaged().join("extras-3.11")
    }

    fn trees(&self) -> Trees {
        let environment = vec![("SALT_EXTRAS_DIR".into(), self.ours().into_os_string())];
        let packaged = Part { tree: self.packaged(), environment: Vec::new() };
        Trees { packaged, release: Part { tree: tree(RELEASE), environment }, leader: None }
    }

    fn record(&self) -> String {
        SaltAdopter.extras(&self.trees()).unwrap().unwrap()
    }

    fn give(&self, record: &str) -> ExtrasBack {
        let plan = SaltAdopter.extras_back(&self.trees(), record, true).unwrap();
        let given = SaltAdopter.extras_back(&self.trees(), record, false).unwrap();
        let planned = given.given.iter().chain(&given.failed);
        assert!(
            planned.clone().count() == plan.given.len() && plan.conflicts == given.conflicts,
            "{plan:?}, {given:?}"
        );
        given
    }
}

/// As pip writes it into its list.
const DIGEST: &str = "import base64, hashlib, sys\n\
    print(base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1] + '/__init__.py', 'rb').read()).digest()).rstrip(b'=').decode())";

/// Installs one version of a package, with this file beside its own.
fn put(directory: &Path, name: &str, version: &str, more: &str) {
    forget(directory, name);
    let (package, info) = (directory.join(name), directory.join(format!("{name}-{version}.dist-info")));
    for directory in [&package, &info] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(package.join("__init__.py"), version).unwrap();
    fs::write(package.join(more), "").unwrap();
    fs::write(info.join("METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")).unwrap();
    let files =
        [format!("{name}/__init__.py"), format!("{name}/{more}"), format!("{name}-{version}.dist-info/METADATA")];
    let files = files.join(",,\n");
    fs::write(info.join("RECORD"), format!("{files},,\n{name}-{version}.dist-info/RECORD,,\n../bin/{name},,\n"))
        .unwrap();
}

fn forget(directory: &Path, name: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().split('-').next() == Some(name) {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

fn version(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name).join("__init__.py")).unwrap_or_default()
}

#[test]
fn packages_that_are_new_since_the_adoption_go_back_and_what_the_package_changed_stays() {
    let host = Host::new();
    let (ours, theirs) = (host.ours(), host.theirs());
    for name in ["same", "newer", "both", "gone", "lost"] {
        put(&theirs, name, "1", "old.py");
        put(&ours, name, "1", "old.py");
    }
    put(&ours, "own", "1", "old.py");
    // As the scripts of Salt's package do: its salt-pip works as that user where the minion does.
    chown(&theirs, Some(OWNER.0), Some(OWNER.1)).unwrap();
    let record = host.record();
    put(&ours, "newer", "2", "new.py");
    put(&ours, "both", "2", "new.py");
    put(&theirs, "both", "3", "new.py");
    put(&ours, "fresh", "1", "new.py");
    fs::set_permissions(ours.join("fresh/new.py"), fs::Permissions::from_mode(0o4700)).unwrap();
    put(&ours, "evil", "2", "new.py");
    forget(&ours, "gone");
    forget(&theirs, "lost");
    // Who owns the directory may put a link there at any time.
    let victim = host.0.path().join("victim");
    fs::create_dir(&victim).unwrap();
    symlink(&victim, theirs.join("evil")).unwrap();

    let back = host.give(&record);
    assert_eq!(
        (back.given, back.conflicts),
        (["fresh 1", "lost 1", "newer 2"].map(str::to_owned).to_vec(), vec!["both 2".to_owned()])
    );
    assert_eq!((back.removed, back.unfit), (vec!["gone".to_owned()], Vec::new()));
    assert!(back.failed.len() == 1 && back.failed[0].starts_with("evil 2: "), "{:?}", back.failed);
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "no link is followed");
    let versions = ["same", "newer", "both", "gone", "lost", "fresh", "own"].map(|name| version(&theirs, name));
    assert_eq!(versions, ["1", "2", "3", "1", "1", "1", ""]);
    assert!(theirs.join("newer/new.py").exists() && !theirs.join("newer/old.py").exists());
    assert!(theirs.join("newer-2.dist-info/RECORD").exists() && !theirs.join("newer-1.dist-info").exists());
    for (made, mode) in [("fresh", 0o755), ("fresh/new.py", 0o744), ("fresh-1.dist-info/RECORD", 0o644)] {
        let found = fs::metadata(theirs.join(made)).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OWNER.0, OWNER.1, mode), "{made}");
    }
    assert_eq!(version(&ours, "fresh"), "1", "nothing is taken away here");
    assert!(host.give(&record).given.is_empty(), "once");
}

#[test]
fn packages_for_another_python_stay_and_are_told_and_a_directory_of_the_package_is_made() {
    let host = Host::new();
    let record = host.record();
    put(&host.ours(), "fresh", "1", "new.py");
    let given = host.give(&record);
    assert_eq!((given.given, given.into), (vec!["fresh 1".to_owned()], Some(host.theirs())));
    assert_eq!(version(&host.theirs(), "fresh"), "1");
    // The package has been upgraded to one with another Python.
    fs::rename(host.packaged().join("lib/python3.11"), host.packaged().join("lib/python3.13")).unwrap();
    let back = host.give(&record);
    assert_eq!((back.given, back.unfit), (Vec::new(), vec!["fresh 1".to_owned()]));
    assert!(!host.packaged().join("extras-3.13").exists() && version(&host.ours(), "fresh") == "1");
}

/// `salt-pip install --upgrade` leaves the description of the earlier version; which of the two counted was a matter of the directory's order, and half a
/// package went back.
#[test]
fn of_two_descriptions_of_a_package_the_one_whose_files_are_there_counts() {
    let host = Host::new();
    let record = host.record();
    let (ours, theirs) = (host.ours(), host.theirs());
    for (name, digests) in [("upgraded", true), ("unknown", false)] {
        for (version, file) in [("1", "old.py"), ("2", "new.py")] {
            let earlier = ours.join(format!("{name}-1.dist-info"));
            let aside = ours.join("aside");
            let is_upgrade = earlier.exists();
            if is_upgrade {
                fs::rename(&earlier, &aside).unwrap();
            }
            put(&ours, name, version, file);
            if is_upgrade {
                fs::rename(&aside, &earlier).unwrap();
            }
            let listed = ours.join(format!("{name}-{version}.dist-info/RECORD"));
            if digests {
                let digest = Command::new("python3").args(["-c", DIGEST]).arg(ours.join(name)).output().unwrap();
                let hashed =
                    format!("{name}/__init__.py,sha256={},1", String::from_utf8(digest.stdout).unwrap().trim());
                let text = fs::read_to_string(&listed).unwrap();
                let text = text.replace(&format!("{name}/__init__.py,,"), &hashed);
                let command = format!("../bin/{name},sha256=abc,1");
                fs::write(&listed, text.replace(&format!("../bin/{name},,"), &command)).unwrap();
            }
        }
    }
    let refused = SaltAdopter.extras_back(&host.trees(), &record, false).unwrap_err().to_string();
    assert!(refused.contains("lists unknown as 1 and 2"), "{refused}");
    forget(&ours, "unknown");
    let back = host.give(&record);
    assert_eq!(back.given, ["upgraded 2"]);
    assert!(version(&theirs, "upgraded") == "2" && theirs.join("upgraded/new.py").exists());
    assert!(!theirs.join("upgraded-1.dist-info").exists());
}
