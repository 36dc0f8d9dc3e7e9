//! Releases and receipts may lie on file systems of their own. One that is not mounted looks empty, and is not: what belongs to it stays.

use crate::support::stage::{Author, DEMO, Host, text};
use std::fs;

/// The first command removed all receipts, and the next one, with the disk back, all releases but `current`.
#[test]
fn without_its_file_system_the_store_is_left_alone() {
    let author = Author::new();
    let host = Host::new(&author);
    let bundles = ["1.0", "1.1"].map(|version| author.release(version, "good"));
    for bundle in &bundles {
        host.install(bundle).ok();
    }
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    let newest = author.release("1.2", "good");
    for unmounted in ["opt/sidle/demo-agent", "var/lib/sidle/demo-agent"] {
        let (there, aside) = (host.path(unmounted), host.path("aside"));
        fs::rename(&there, &aside).unwrap();
        let ran = host.install(&newest);
        assert!(ran.code == Some(1) && ran.stderr.contains("mount its file system"), "{unmounted}: {ran:?}");
        let ran = host.sidle(&["collect", DEMO, "--keep", "0"]);
        assert!(ran.code == Some(1), "{unmounted}: {ran:?}");
        // What an older version of sidle, or a person, has made below the mount's place.
        fs::create_dir_all(there.join("versions")).unwrap();
        host.sidle(&["collect", DEMO, "--keep", "0"]);
        fs::remove_dir_all(&there).unwrap();
        fs::rename(&aside, &there).unwrap();
        host.sidle(&["verify", DEMO, "--full"]).ok();
        let listed = host.sidle(&["--json", "list", DEMO]).json();
        assert_eq!(listed["releases"].as_array().map(Vec::len), Some(2), "{unmounted}: {listed}");
    }
}

/// Nothing could give back the receipt of a release that runs: an install failed at its own last step, and advised to remove the tree.
#[test]
fn a_lost_receipt_of_the_current_release_is_written_anew_by_an_install() {
    let author = Author::new();
    let host = Host::new(&author);
    let bundle = author.release("1.0", "good");
    host.install(&bundle).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let receipt = host.path("var/lib/sidle/demo-agent/1.0-1");
    fs::remove_dir_all(&receipt).unwrap();
    host.install(&bundle).ok();
    host.sidle(&["verify", DEMO, "--full"]).ok();
    assert_eq!(host.answering("there"), "1.0");
    // A tree that is not what was signed gets its receipt, too: now it can be mended.
    fs::remove_dir_all(&receipt).unwrap();
    fs::write(host.path("opt/sidle/demo-agent/versions/1.0-1/bin/demo-agent"), "exit 1\n").unwrap();
    let ran = host.install(&bundle);
    assert!(ran.code == Some(6) && ran.stderr.contains("`sidle repair demo-agent 1.0-1`"), "{ran:?}");
    host.sidle(&["repair", DEMO, "1.0-1", "--from", text(&bundle)]).ok();
    host.sidle(&["verify", DEMO, "--full"]).ok();
    assert_eq!(supervisor.end(), Some(0));
}
