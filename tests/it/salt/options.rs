//! A minion's options as sidle sees them are those that Salt loads: no rule of Salt's is written down a second time.

use crate::plain::doctor::findings;
use crate::support::minions::{LONG_TERM, author_of};
use crate::support::salt::tree;
use crate::support::scene::Scene;
use crate::support::stage::{Host, SALT, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/configurations.py");

/// Configurations for each Salt: with files that come and go, other types, directories that follow from others, and damaged text.
const COUNT: u32 = 300;

#[test]
fn three_hundred_configurations_are_seen_as_salt_sees_them() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compare = |version: &str| {
        let mut command = Command::new(tree(version).join("bin/python3"));
        command.arg("-I").arg("-B").arg(here.join("tests/it/support/configurations.py"));
        command.arg(here.join("bundles/salt-minion/guard/sidle_guard/options.py"));
        command.arg(here.join("src/salt/options/asking.py")).arg(COUNT.to_string()).arg(version);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    // The oldest and the newest, at once.
    let comparing = ["3006.30", "3008.5"].map(|version| (version, compare(version)));
    for (version, child) in comparing {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}");
        assert!(told.contains(&format!("{version}: {COUNT} configurations")), "{told}");
    }
}

/// A Salt that writes a configuration, and tells what it makes of it.
struct Judge {
    child: Child,
    asked: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Judge {
    fn new(version: &str) -> Self {
        let mut command = Command::new(tree(version).join("bin/python3"));
        command.args(["-I", "-B", SCRIPT, "--serve", "verbs"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (asked, told) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, asked, told }
    }

    /// `number`: of the configuration to write; `-`: the one that is there.
    fn says(&mut self, number: &str, place: &Path) -> Value {
        writeln!(self.asked, "{number} {}", place.display()).unwrap();
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts a generated configuration in place of the one that is there; keys stay.
fn put(generated: &Path, place: &Path) {
    let script = "find \"$2\" -mindepth 1 -maxdepth 1 ! -name pki -exec rm -rf {} + && cp -a \"$1/.\" \"$2\"";
    let status = Command::new("sh").args(["-c", script, "sh", text(generated), text(place)]).status().unwrap();
    assert!(status.success());
}

/// A running minion, and an image with the same releases, whose configurations change.
struct Differential {
    scene: Scene,
    image: Host,
    judges: [Judge; 2],
    generated: tempfile::TempDir,
    refused: u32,
    differences: Vec<String>,
}

impl Differential {
    fn new() -> Self {
        let scene = Scene::new(&LONG_TERM);
        let author = author_of(&LONG_TERM);
        let image = Host::new(&author);
        image.install(&author.salt(LONG_TERM[0])).ok();
        fs::create_dir_all(image.path("etc/salt")).unwrap();
        let generated = tempfile::tempdir().unwrap();
        Self { scene, image, judges: LONG_TERM.map(Judge::new), generated, refused: 0, differences: Vec::new() }
    }

    fn note(&mut self, number: u32, what: &str, told: impl std::fmt::Display) {
        let place = self.generated.path().join(number.to_string());
        let output = Command::new("grep").args(["-r", ""]).arg(place.join("etc")).output().unwrap();
        self.differences.push(format!("{number}: {what}: {told}\n{}", String::from_utf8_lossy(&output.stdout)));
    }

    fn compare(&mut self, number: u32) {
        let place = self.generated.path().join(number.to_string());
        fs::create_dir(&place).unwrap();
        let old = self.judges[0].says(&number.to_string(), &place);
        let new = self.judges[1].says("-", &place);
        self.refused += u32::from(!old["failure"].is_null());
        put(&place.join("etc"), &self.scene.configuration());
        self.the_running_minion_is_well(number, &old);
        self.doctor_agrees(number, &old);
        self.dry_run_agrees(number, &new);
        self.generalize_agrees(number, &old, &place);
    }

    /// A configuration that Salt refuses does not concern a process that runs. One that names other masters does: a switch will have to reach them. What
    /// was true of the one before is told for some seconds.
    fn the_running_minion_is_well(&mut self, number: u32, salt: &Value) {
        let end = Instant::now() + Duration::from_secs(30);
        while !salt["failure"].is_null() {
            let agent = self.scene.status()["supervisor"]["agent"].clone();
            if agent["lacks"].is_null() {
                return;
            }
            if Instant::now() > end {
                return self.note(number, "status", format!("{salt} {agent}"));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// The finding about the configuration is there if Salt refuses it, and only then. Masters that Salt takes apart differently than as names are
    /// another finding of the same id: where they are plain, there is none.
    fn doctor_agrees(&mut self, number: u32, salt: &Value) {
        let ran = self.scene.host.sidle(&["--json", "doctor", SALT]);
        let found = findings(&ran).contains_key("minion-configuration");
        let refuses = !salt["failure"].is_null();
        if refuses && !found || found && !refuses && salt["options"]["masters"].is_array() {
            self.note(number, "doctor", format!("{salt} {ran:?}"));
        }
    }

    /// A switch is refused for the configuration if the release to which it goes would not load it, in Salt's words.
    fn dry_run_agrees(&mut self, number: u32, salt: &Value) {
        let ran = self.scene.switch(&[&format!("{}-1", LONG_TERM[1]), "--dry-run"]);
        let words = "cannot load the configuration";
        let found = ran.code != Some(0) && format!("{}{}", ran.stdout, ran.stderr).contains(words);
        if found == salt["failure"].is_null() {
            self.note(number, "dry run", format!("{salt} {ran:?}"));
        }
    }

    /// The key of an image is found where Salt would have it; what Salt refuses is refused, since nobody knows where the key is then.
    fn generalize_agrees(&mut self, number: u32, salt: &Value, place: &Path) {
        put(&place.join("etc"), &self.image.path("etc/salt"));
        let key = salt["options"]["pki_dir"].as_str().map(|keys| self.image.path(&keys[1..]).join("minion.pem"));
        // What the configuration names by its own place, as it is found in the image.
        let own = self.image.path(&text(place)[1..]);
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        assert!(Command::new("cp").arg("-a").args([place, &own]).status().unwrap().success());
        if let Some(key) = &key {
            fs::create_dir_all(key.parent().unwrap()).unwrap();
            fs::write(key, "key").unwrap();
        }
        let ran = self.image.sidle(&["--json", "generalize", "--dry-run"]);
        let agrees = match &key {
            None => ran.code == Some(1),
            Some(key) => {
                let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
                value["removed"].as_array().is_some_and(|all| all.iter().any(|path| path == text(key)))
            }
        };
        if !agrees {
            self.note(number, "generalize", format!("{salt} {ran:?}"));
        }
        if let Some(key) = key {
            fs::remove_file(key).unwrap();
        }
        fs::remove_dir_all(own).unwrap();
    }

    /// What Salt refuses, a switch and a restart refuse, too; the process that runs is not touched.
    fn is_refused(&mut self, number: u32) {
        let place = self.generated.path().join(number.to_string());
        put(&place.join("etc"), &self.scene.configuration());
        let before = self.scene.status()["supervisor"]["agent"]["leader"].clone();
        for order in [&["switch", SALT, "3008.5-1"][..], &["restart", SALT]] {
            let ran = self.scene.host.sidle(order);
            let after = self.scene.status()["supervisor"]["agent"]["leader"].clone();
            let told = format!("{}{}", ran.stdout, ran.stderr);
            if ran.code == Some(0) || !told.contains("cannot load the configuration") || after != before {
                self.note(number, order[0], format!("{ran:?} {before} {after}"));
            }
        }
    }
}

/// Starts this test once more where nothing but loopback can be reached: the masters of these configurations are names of others.
fn in_a_network_of_its_own(name: &str) -> bool {
    const INSIDE: &str = "SIDLE_TEST_NETWORK";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let program: PathBuf = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]).arg(program);
    let status = command.args(["--exact", name, "--ignored", "--nocapture"]).env(INSIDE, "1").status().unwrap();
    assert!(status.success(), "see above");
    false
}

/// A healthy minion was once "unknown", and a private key stayed in an image, wherever sidle's own reading of Salt's files differed from Salt's.
#[test]
#[ignore = "`scripts/test --long`: five commands on each of three hundred configurations; the suite compares what they rest on"]
fn the_verbs_agree_with_salt_on_three_hundred_configurations() {
    if !in_a_network_of_its_own("salt::options::the_verbs_agree_with_salt_on_three_hundred_configurations") {
        return;
    }
    let mut differential = Differential::new();
    let own = differential.generated.path().join("own");
    put(&differential.scene.configuration(), {
        fs::create_dir(&own).unwrap();
        &own
    });
    let mut refused = Vec::new();
    for number in 0..COUNT {
        let before = differential.refused;
        differential.compare(number);
        refused.extend((differential.refused > before).then_some(number));
    }
    for number in refused.iter().take(5) {
        differential.is_refused(*number);
    }
    put(&own, &differential.scene.configuration());
    let switched = differential.scene.switch(&["3008.5-1"]);
    assert_eq!(switched.code, Some(0), "with its own configuration: {switched:?}");
    println!("{COUNT} configurations, {} of them refused by Salt", refused.len());
    let differences = &differential.differences;
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}
