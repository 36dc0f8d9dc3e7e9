//! Packages that `salt-pip` has installed for one Python come along to the next one, out of a directory of wheels; no network is there.

use super::{Host, OLD, REHEARSAL_MAX, one, script};
use crate::support::salt::{tree, tree_of_python};
use crate::support::trees::contents;
use sidle::os::account::Rights;
use sidle::os::clock;
use sidle::os::environment::Passed;
use sidle::rehearsal::{ExtrasPolicy, Former, Part, Rehearsal, Scene};
use sidle::salt::rehearsal::SaltRehearser;
use sidle::switch::rehearsal::preparing::{Extras, Preparing};
use sidle::switch::rehearsal::rebuild::Workshop;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const NEXT: &str = "3007.17";

const WHEEL: &str = "import sys, zipfile\n\
    with zipfile.ZipFile(sys.argv[1] + '/site_extra-1.2-py3-none-any.whl', 'w') as wheel:\n\
    \x20   info = 'site_extra-1.2.dist-info/'\n\
    \x20   wheel.writestr('site_extra.py', 'answer = 42\\n')\n\
    \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: site-extra\\nVersion: 1.2\\n')\n\
    \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    \x20   wheel.writestr(info + 'RECORD', '')\n";

/// A release with its directory of extras.
fn part(host: &Host, version: &str, extras: &str) -> Part {
    let extras = host.root.path().join("minion").join(extras).into_os_string();
    Part { tree: tree(version), environment: vec![("SALT_EXTRAS_DIR".into(), extras)] }
}

/// What comes of preparing a switch to the next release, extras to be rebuilt out of the host's wheels.
fn prepared(host: &Host) -> Rehearsal {
    let former = Part { tree: tree_of_python(OLD, "3.10"), ..part(host, OLD, "extras-3.10") };
    let trial = part(host, NEXT, "extras-3.11");
    prepared_by(host, ExtrasPolicy::Rebuild, trial, Former::Release(former))
}

fn prepared_by(host: &Host, policy: ExtrasPolicy, trial: Part, former: Former) -> Rehearsal {
    let root = host.root.path();
    let run = tempfile::tempdir().unwrap();
    let scene = Scene { trial, former, config_directory: root.join("etc"), passed: Passed::default(), states: None };
    let rehearser = Box::leak(Box::new(SaltRehearser::with_script(&script())));
    let workshop = Workshop { state: root.join("state"), wheels: Some(root.join("wheels")), longest: REHEARSAL_MAX };
    let extras = Extras { policy, workshop };
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

/// A custom grain that writes the report itself, wherever reports go, and ends the process.
const FORGER: &str = r#"import json, os

def facts():
    report = {
        "schema": 1, "version": "3008.5", "python": "3.99.0", "sealed": [], "failure": None, "functions": {}, "own": {}, "grains": ["forged"], "errors": [],
        "missing": [], "problems": [], "unknown_options": [], "extras": [{"name": "evil", "version": "1", "directory": "/etc"}],
        "extras_place": "/etc/forged", "packages": ["evil"], "own_versions": {}, "sign_in": 3, "highstate": None, "masters": None, "needs": [],
        "seconds": 1, "memory_kilobytes": 1,
    }
    for number in range(3, 64):
        try:
            os.write(number, (json.dumps(report) + "\n").encode())
        except OSError:
            pass
    os._exit(0)
"#;

/// Custom modules may belong to the minion's user, and root copies or builds packages by the report.
#[test]
fn a_rehearsal_takes_no_word_of_custom_code_for_where_packages_are() {
    let host = Host::new("");
    host.module("grains", "forger", FORGER);
    let told = host.report(NEXT, &[]);
    assert!(told.grains.iter().eq(["forged"]), "it has written its report");
    assert!(told.extras.as_ref().is_some_and(Vec::is_empty) && !told.packages.contains("evil"), "{:?}", told.extras);
    assert!(told.python.starts_with("3.11.") && told.extras_place.is_none_or(|place| !place.starts_with("/etc")));
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

/// An adoption dropped them: the packaged minion's own directory is not where a release looks. For the same Python they need no index.
#[test]
fn a_rehearsal_copies_the_extras_of_the_same_python_and_nothing_that_others_could_write() {
    let host = Host::new("");
    let (packaged, own) = (host.root.path().join("minion/packaged"), host.root.path().join("minion/own"));
    put_extra(&host, "packaged", "site-extra", "1.2");
    fs::rename(host.root.path().join("minion/extras-packaged"), &packaged).unwrap();
    host.put("minion/packaged/site_extra/answer.py", "answer = 42\n");
    host.put("minion/packaged/unlisted.py", "");
    host.module(
        "modules",
        "site_asks",
        "import site_extra.answer\n\ndef answer():\n    return site_extra.answer.answer\n",
    );
    let rights = Rights::of(std::process::id()).unwrap().unwrap();
    let prepare = |policy| {
        let former = Former::Packaged(part(&host, NEXT, "packaged"), rights.clone());
        prepared_by(&host, policy, part(&host, NEXT, "own"), former)
    };
    let reason = "cannot copy site-extra 1.2: site-extra has no list of its files";
    one(&prepare(ExtrasPolicy::Refuse).blocking, reason);
    let list =
        "site_extra/answer.py,,\nsite_extra-1.2.dist-info/METADATA,,\nsite_extra-1.2.dist-info/RECORD,,\n../bin/x,,\n";
    host.put("minion/packaged/site_extra-1.2.dist-info/RECORD", list);
    let module = packaged.join("site_extra/answer.py");
    fs::set_permissions(&module, fs::Permissions::from_mode(0o666)).unwrap();
    one(&prepare(ExtrasPolicy::Refuse).blocking, "cannot copy site-extra 1.2: other users can change ");
    fs::set_permissions(&module, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!own.exists(), "what cannot be copied whole is not copied");
    let reported = prepare(ExtrasPolicy::Report);
    assert!(!own.exists() && reported.told(true)[0].contains("would vanish"), "{reported:?}");

    let before = contents(&packaged);
    let found = prepare(ExtrasPolicy::Refuse);
    assert!(!found.refuses(), "the custom module that needs it loads, too: {found:?}");
    assert_eq!(found.notes[0], format!("copied for the new release in {}: site-extra 1.2", own.display()));
    assert_eq!(fs::read_to_string(own.join("site_extra/answer.py")).unwrap(), "answer = 42\n");
    assert!(own.join("site_extra-1.2.dist-info/RECORD").exists() && !own.join("unlisted.py").exists());
    assert_eq!(contents(&packaged), before, "the packaged minion keeps its own");
}

/// What root's Python finds there: before it leaves root, and after.
const LOOKS: &str = "import os, sys, _sidle_extras\n\
    place = sys.argv[1]\n\
    sys.path = [path for path in sys.path if path != place]\n\
    _sidle_extras.default = lambda: sys.argv[2]\n\
    _sidle_extras.prefer()\n\
    print(place in sys.path, end=' ')\n\
    os.setuid(65534)\n\
    print(place in sys.path)";

/// A minion's user owns this directory where Salt's hardened package is installed: each start of a release's Python ran his code with root's rights.
#[test]
fn root_runs_nothing_that_another_user_could_have_put_there() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["own", "his", "his/below", "open"] {
        fs::create_dir(at(name)).unwrap();
    }
    std::os::unix::fs::chown(at("his"), Some(65534), None).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    for (name, to) in [("link", "own"), ("his-link", "his")] {
        std::os::unix::fs::symlink(at(to), at(name)).unwrap();
    }
    let looks = |place: &Path, default: &Path, named: Option<&Path>| {
        let mut python = Command::new(tree(NEXT).join("bin/python3"));
        python.args(["-I", "-B", "-c", LOOKS]).args([place, default]);
        if let Some(named) = named {
            python.env("SALT_EXTRAS_DIR", named);
        }
        let ran = python.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let of_root = ["own", "own/not-there", "link"];
    for name in of_root.into_iter().chain(["his", "his/below", "his/not-there", "open/not-there", "open", "his-link"]) {
        let expected = if of_root.contains(&name) { "True True\n" } else { "False True\n" };
        assert_eq!(looks(&at(name), &at(name), None), expected, "{name}");
    }
    // salt-pip names the default to the programs that it starts; an empty name is none; and another directory is the choice of whoever wrote the unit.
    for named in [at("his"), PathBuf::new()] {
        assert_eq!(looks(&at("his"), &at("his"), Some(&named)), "False True\n", "{}", named.display());
    }
    assert_eq!(looks(&at("his"), &at("own"), Some(&at("his"))), "True True\n");
}
