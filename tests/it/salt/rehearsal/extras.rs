//! Packages that `salt-pip` has installed for one Python come along to the next one, out of a directory of wheels; no network is there.

use super::{Host, OLD, one, script};
use crate::support::salt::tree;
use crate::support::trees::contents;
use sidle::os::clock;
use sidle::os::environment::Passed;
use sidle::rehearsal::{ExtrasPolicy, Part, Rehearsal, Scene};
use sidle::salt::rehearsal::SaltRehearser;
use sidle::switch::rehearsal::performance::REHEARSAL_MAX;
use sidle::switch::rehearsal::preparing::{Extras, Preparing};
use sidle::switch::rehearsal::rebuild::Workshop;
use std::fs;
use std::path::Path;
use std::process::Command;

const NEXT: &str = "3007.17";

const WHEEL: &str = "import sys, zipfile\n\
    with zipfile.ZipFile(sys.argv[1] + '/site_extra-1.2-py3-none-any.whl', 'w') as wheel:\n\
    \x20   info = 'site_extra-1.2.dist-info/'\n\
    \x20   wheel.writestr('site_extra.py', 'answer = 42\\n')\n\
    \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: site-extra\\nVersion: 1.2\\n')\n\
    \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    \x20   wheel.writestr(info + 'RECORD', '')\n";

/// What comes of preparing a switch to the next release, extras to be rebuilt out of the host's wheels.
fn prepared(host: &Host) -> Rehearsal {
    let root = host.root.path();
    let run = tempfile::tempdir().unwrap();
    let part = |version: &str, python: &str| {
        let extras = root.join(format!("minion/extras-{python}")).into_os_string();
        Part { tree: tree(version), environment: vec![("SALT_EXTRAS_DIR".into(), extras)] }
    };
    let (trial, former) = (part(NEXT, "3.11"), Some(part(OLD, "3.10")));
    let scene = Scene { trial, former, config_directory: root.join("etc"), passed: Passed::default() };
    let rehearser = Box::leak(Box::new(SaltRehearser::with_script(&script())));
    let workshop = Workshop { state: root.join("state"), wheels: Some(root.join("wheels")), longest: REHEARSAL_MAX };
    let extras = Extras { policy: ExtrasPolicy::Rebuild, workshop };
    let now = clock::since_boot();
    let mut preparing = Preparing::start(rehearser, scene, run.path(), extras, REHEARSAL_MAX, now).unwrap();
    let found = loop {
        if let Some(found) = preparing.poll(clock::since_boot()) {
            break found.unwrap();
        }
        clock::sleep(std::time::Duration::from_millis(20));
    };
    println!("{:.1} s:\n{}", clock::since_boot().saturating_sub(now).as_secs_f32(), found.told(false).join("\n"));
    drop(preparing);
    for left in [run.path(), &root.join("state")] {
        assert_eq!(fs::read_dir(left).unwrap().count(), 0, "{} is tidy", left.display());
    }
    found
}

fn put_extra(host: &Host, python: &str, name: &str, version: &str) {
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    host.put(&format!("minion/extras-{python}/{}-{version}.dist-info/METADATA", name.replace('-', "_")), &metadata);
}

#[test]
fn a_rehearsal_finds_the_extras_of_the_running_release_rebuilt_for_the_next_python() {
    let host = Host::new("");
    put_extra(&host, "3.10", "site-extra", "1.2");
    host.put("minion/extras-3.10/site_extra.py", "answer = 41\n");
    put_extra(&host, "3.10", "both", "1.0");
    put_extra(&host, "3.11", "both", "2.0");
    host.module("modules", "site_asks", "import site_extra\n\ndef answer():\n    return site_extra.answer\n");
    let wheels = host.root.path().join("wheels");
    fs::create_dir(&wheels).unwrap();
    let everything = |directory: &str| contents(&host.root.path().join(directory));
    let before = (everything("minion"), contents(&tree(NEXT).join("bin")));

    let found = prepared(&host);
    let refusal = one(&found.blocking, "cannot rebuild site-extra 1.2: salt-pip: No matching distribution found");
    assert!(refusal.contains(wheels.to_str().unwrap()) && refusal.contains("salt-pip --release"), "{refusal}");
    assert_eq!(found.refusal().unwrap().split(": ").next(), refusal.split(": ").next(), "it is told first");
    assert_eq!(before, (everything("minion"), contents(&tree(NEXT).join("bin"))));

    let python = tree(NEXT).join("bin/python3");
    let made = Command::new(python).args(["-I", "-B", "-c", WHEEL]).arg(&wheels).status().unwrap();
    assert!(made.success());
    let old = everything("minion/extras-3.10");
    let found = prepared(&host);
    assert!(!found.refuses(), "the custom module that needs it loads, too: {found:?}");
    let into = host.root.path().join("minion/extras-3.11");
    assert_eq!(found.notes[0], format!("rebuilt for the new release in {}: site-extra 1.2", into.display()));
    assert_eq!(fs::read_to_string(into.join("site_extra.py")).unwrap(), "answer = 42\n");
    assert!(into.join("site_extra-1.2.dist-info/METADATA").exists() && is_readable_by_all(&into));
    assert!(into.join("both-2.0.dist-info").exists() && !into.join("both-1.0.dist-info").exists());
    assert_eq!(everything("minion/extras-3.10"), old, "nothing is taken from the running release");
}

fn is_readable_by_all(directory: &Path) -> bool {
    contents(directory).values().all(|(_, mode, _)| mode & 0o044 == 0o044)
}
