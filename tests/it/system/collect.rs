//! What of `plain::collect` needs root or a package: see there.

use crate::plain::collect::*;
use crate::plain::crash::at_every_instant;
use crate::support::mounts::Mounted;
use crate::support::stage::{DEMO, Host, text};
use crate::support::trees::contents;
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn collect_sees_a_bind_mount_and_the_processes_behind_it() {
    let (host, _author) = host();
    let mount_ = Mounted::bind(&tree(&host, "1.0-1"));
    let reason = kept(&collect(&host), "1.0-1").expect("a mounted release was taken away");
    assert!(reason.contains("mounted at") && reason.contains(text(&mount_.path())), "{reason}");
    let process = Process(Command::new("sleep").arg("1000").current_dir(mount_.path()).spawn().unwrap());
    let reason = kept(&collect(&host), "1.0-1").unwrap();
    assert!(reason.contains(&format!("process {}", process.0.id())), "{reason}");
    drop(process);
    drop(mount_);
    // What was mounted in a release was deleted with it.
    let inside = tree(&host, "1.0-1").join("share/mounted");
    fs::create_dir(&inside).unwrap();
    let mount_ = Mounted::tmpfs_at(&inside, "size=1m");
    fs::write(inside.join("file"), "somebody's").unwrap();
    let reason = kept(&collect(&host), "1.0-1").expect("a release with a mount in it was taken away");
    assert!(reason.contains(text(&inside)), "{reason}");
    assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "somebody's");
    drop(mount_);
    assert!(removed(&collect(&host)).contains(&Value::from("1.0-1")));
}

/// What lies in a lower layer of an overlay, as in the image of a container, the kernel does not rename: a release that came with an image stayed for good.
#[test]
fn releases_of_a_containers_image_are_removed_where_they_are_also_after_a_kill_at_any_instant() {
    let (image, author) = host();
    let count = at_every_instant(
        &|| Host::over(&image.root()),
        &|host, variables| host.sidle_with(&["collect", DEMO, "--keep", "0"], variables),
        &|host| {
            for release in ["1.0-1", "1.1-1"] {
                assert!(!tree(host, release).exists(), "{release}");
                assert!(!host.path("var/lib/sidle/demo-agent").join(release).exists(), "{release}");
            }
            assert!(tree(host, "1.2-1").exists());
        },
    );
    assert!(count > 5, "only {count} instants");
    // Killed in the middle of a receipt, which is no step of its own.
    let host = Host::over(&image.root());
    let receipts = host.path("var/lib/sidle/demo-agent");
    fs::create_dir(receipts.join(".1.1-1.gone")).unwrap();
    fs::remove_file(receipts.join("1.1-1/manifest.json.zst")).unwrap();
    host.sidle(&["collect", DEMO, "--keep", "5"]);
    assert!(!tree(&host, "1.1-1").exists() && !receipts.join("1.1-1").exists());

    let host = Host::over(&image.root());
    host.sidle(&["remove", DEMO, "1.0-1"]).ok();
    host.install(&author.directory().join("demo-agent-1.0.sidle")).ok();
    host.sidle(&["verify", DEMO, "1.0-1"]).ok();
}

/// The receipt of a tree of which only a part was left was put back: the release counted as installed.
#[test]
fn a_release_that_can_be_removed_only_in_part_is_not_installed_and_goes_with_the_next_command() {
    let (image, _author) = host();
    let (host, changes) = (image.copy(), tempfile::tempdir().unwrap());
    fs::remove_dir_all(host.path("opt/sidle")).unwrap();
    fs::create_dir(host.path("opt/sidle")).unwrap();
    let _releases = Mounted::overlay_at(&host.path("opt/sidle"), &image.path("opt/sidle"), changes.path());
    let whole = contents(&tree(&host, "1.1-1")).len();
    let ran = failing(&host, "unlinkat", "EIO", "3+");
    assert!(ran.code == Some(1) && ran.stdout.contains("Input/output error"), "{ran:?}");
    let left = contents(&tree(&host, "1.1-1")).len();
    assert!(0 < left && left < whole, "{left} of {whole}");
    assert!(!host.path("var/lib/sidle/demo-agent/1.1-1").exists(), "it counts as installed");
    host.sidle(&["collect", DEMO, "--keep", "5"]);
    assert!(!tree(&host, "1.1-1").exists() && tree(&host, "1.0-1").exists());
}

#[test]
fn collect_takes_nothing_where_locks_are_refused() {
    let (host, _author) = host();
    // The package's own lock is refused: nothing may be changed at all.
    let ran = without_locks(&host, "1+");
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("cannot lock") && ran.stdout.contains("No locks available"), "{ran:?}");
    assert!(tree(&host, "1.0-1").exists() && tree(&host, "1.1-1").exists());
    // The package's lock is had, and those of the trees are refused.
    let ran = without_locks(&host, "2+");
    for release in ["1.0-1", "1.1-1"] {
        let reason = kept(&ran, release).expect("a release was taken away without a lock");
        assert!(reason.contains("cannot tell whether") && reason.contains("No locks available"), "{reason}");
        assert!(tree(&host, release).exists());
    }
    assert_eq!(ran.code, Some(3));
}
