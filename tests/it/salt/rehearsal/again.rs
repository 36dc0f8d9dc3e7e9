//! A release of real Salt that is rehearsed again, on a host that has changed under it.

use super::{Host, OLD, REHEARSAL_MAX, one, script};
use crate::support::salt::tree;
use crate::support::trees::put;
use sidle::os::clock;
use sidle::os::environment::Passed;
use sidle::rehearsal::{Former, Part, Rehearsal, Scene};
use sidle::salt::rehearsal::SaltRehearser;
use sidle::switch::rehearsal::performance::{Question, Rehearsing};
use std::ffi::OsString;

fn rehearsed_again(host: &Host, environment: Vec<(OsString, OsString)>) -> Rehearsal {
    let run = tempfile::tempdir().unwrap();
    let rehearser = Box::leak(Box::new(SaltRehearser::with_script(&script())));
    let before = host.everything();
    let (part, now) = (Part { tree: tree(OLD), environment }, clock::since_boot());
    let scene = Scene {
        trial: part,
        former: Former::Nothing,
        config_directory: host.root.path().join("etc"),
        passed: Passed::default(),
        states: None,
    };
    let mut again = Rehearsing::start(rehearser, scene, Question::Still, run.path(), REHEARSAL_MAX, now).unwrap();
    let found = loop {
        if let Some(found) = again.poll(clock::since_boot()) {
            break found.unwrap();
        }
        clock::sleep(std::time::Duration::from_millis(20));
    };
    println!("{}", found.told(false).join("\n"));
    host.is_untouched(&before);
    found
}

#[test]
fn a_rehearsal_on_a_changed_host_counts_what_the_host_has_lost_and_nothing_else() {
    let host = Host::new("");
    host.module("modules", "site_broken", "import gone_for_ever\n");
    host.module("modules", "site_linked", "import ctypes\n\nctypes.CDLL('libgone.so.1')\n");
    let found = rehearsed_again(&host, Vec::new());
    assert!(!found.refuses(), "{found:?}");
    let linked = one(&found.notes, "site_linked");
    assert!(linked.contains("cannot be imported: OSError: libgone.so.1: cannot open shared object file"), "{linked}");
    assert!(!found.notes.iter().any(|note| note.contains("site_broken")), "{found:?}");
    // A library of the host that comes before the release's own, and is none.
    put(host.root.path(), "lib/libz.so.1", b"", 0o755);
    let libraries = host.root.path().join("lib").into_os_string();
    let found = rehearsed_again(&host, vec![("LD_LIBRARY_PATH".into(), libraries)]);
    assert!(one(&found.blocking, "libz.so.1").contains("file too short"), "{found:?}");
}
