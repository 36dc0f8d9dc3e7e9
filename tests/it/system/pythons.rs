//! Every Python that Salt has pins for: the guard's tests run on each that is here, and a tree is built with the one of a new Debian, which calls the
//! directory of its packages otherwise.

use crate::support::suite_python::{inside, said};
use serde_json::Value;
use sidle::os::environment::Passed;
use sidle::rehearsal::{Former, Part, Rehearser as _, Role, Scene};
use sidle::salt::rehearsal::SALT;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROJECT: &str = env!("CARGO_MANIFEST_DIR");

/// The guard's tests; a tree; the extension's tests with its Python and Salt; its own rehearsal of a host that has nothing; and a password's hash, as
/// `user.present` asks for it.
const STORY: &str = r#"
/project/scripts/guard-tests >&2
tree=$(/project/scripts/trees 3008.5)/salt-3008.5
(cd /project/packaging/saltext-sidle/tests/unit && PYTHONPATH=../../src "$tree/bin/python3" -s -B -m unittest discover >&2)
mkdir /tmp/salt
echo 'id: here' >/tmp/salt/minion
"$tree/bin/python3" -E -s -B "$tree"/lib/python3.*/site-packages/sidle_rehearsal.py -c /tmp/salt
"$tree/bin/salt-call" -c /tmp/salt --local --out=txt shadow.gen_password secret crypt_salt=abcdefgh
echo "${tree#/cache/}""#;

/// Of `openssl passwd -6 -salt abcdefgh secret`: as crypt of Python 3.12 and earlier has it, without a number of rounds.
const HASH: &str = "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.";

/// Builds with the Python of a suite, at least `minor`.
fn builds_a_tree(suite: &str, minor: u32) {
    let (output, cache) = inside(suite, STORY, None);
    assert!(output.status.success(), "{}", said(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let [report, hash, tree] = told.lines().collect::<Vec<_>>()[..] else { panic!("{}", said(&output)) };
    assert_eq!(hash, format!("local: {HASH}"));

    let report: Value = serde_json::from_str(report).unwrap();
    let python: Vec<u32> = report["python"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    assert!(python[0] == 3 && python[1] >= minor, "{report}");
    assert!(report["failure"].is_null() && report["version"] == "3008.5", "{report}");

    let tree = cache.join(tree);
    let packages = tree.join(format!("lib/python3.{}/site-packages", python[1]));
    assert!(
        packages.join("sidle_guard").is_dir() && packages.with_file_name("dist-packages").is_symlink(),
        "{}",
        tree.display()
    );
    let trial = Part { tree, environment: Vec::new() };
    let scene = Scene {
        trial,
        former: Former::Nothing,
        config_directory: PathBuf::from("/etc/salt"),
        passed: Passed::default(),
        states: None,
    };
    let program = SALT.program(&scene, Role::Trial, Path::new("/scratch")).expect("the release can be rehearsed");
    assert!(program.arguments.iter().any(|word| Path::new(word) == packages.join("sidle_rehearsal.py")), "{program:?}");
}

#[test]
fn a_tree_is_built_with_the_python_of_trixie_and_can_be_rehearsed() {
    builds_a_tree("trixie", 13);
}

#[test]
fn a_tree_is_built_with_the_python_of_sid_and_can_be_rehearsed() {
    builds_a_tree("sid", 14);
}

#[test]
fn the_guards_tests_pass_with_each_python_that_is_here() {
    let output = Command::new(Path::new(PROJECT).join("scripts/guard-tests")).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && said(&output).contains("Python 3."), "{}", said(&output));
}
