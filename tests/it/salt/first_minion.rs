//! A host that never had a minion gets one by one command: the least configuration, a key that a person accepts at the master by its fingerprint, and
//! the first switch.

use crate::support::eventually;
use crate::support::leftovers;
use crate::support::minions;
use crate::support::salt::{Master, START_SECONDS, tree};
use crate::support::stage::{Host, SALT, SIDLE};
use sidle::digest::Digest;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

const RELEASE: &str = "3006.30";
const ID: &str = "first-minion";

/// The fingerprint of a public key as minions print it: of the lines between the first and the last.
pub fn fingerprint(key: &Path) -> String {
    let text = fs::read_to_string(key).unwrap();
    let lines: Vec<&str> = text.trim_end().split_inclusive('\n').collect();
    let digest = Digest::of(lines[1..lines.len() - 1].concat().as_bytes()).to_string();
    let bytes: Vec<&str> = (0..digest.len()).step_by(2).map(|at| &digest[at..at + 2]).collect();
    bytes.join(":")
}

/// The words after `sidle` of the example for cloud-init, for this repository and this master.
fn of_cloud_init(url: &str, print: &str, master: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cloud-init.yaml")).unwrap();
    let line = page.lines().find_map(|line| line.trim().strip_prefix("- [sidle, ")?.strip_suffix(']')).unwrap();
    let instead = [("https://repo.example/sidle", url), ("SHA256", print), ("salt.example", master)];
    let typed =
        |word: &str| instead.iter().find(|(written, _)| *written == word).map_or(word, |(_, typed)| *typed).to_owned();
    line.split(", ").map(|word| typed(word.trim_matches('"'))).collect()
}

/// Nothing that is asked for is ignored on a host whose minion was started before.
fn differences_are_told(host: &Host, line: &[&str]) {
    let with = |option: &str, value: &str| {
        let mut words: Vec<&str> = line.to_vec();
        match words.iter().position(|word| *word == option) {
            Some(at) => words[at + 1] = value,
            None => words.extend([option, value]),
        }
        host.sidle(&words)
    };
    let other = ["0f"; 32].join(":");
    for (option, value, told) in [
        ("--master", "m9.example", "cannot name m9.example: the configuration in"),
        ("--id", "web99", "cannot start the minion as web99: its configuration names it first-minion"),
        ("--pin-master", &*other, "pins none"),
    ] {
        let ran = with(option, value);
        assert!(ran.code == Some(12) && ran.stderr.contains(told), "{option}: {ran:?}");
    }
}

/// A copy of a host makes a key of its own, which somebody has to accept; the master has forgotten the other one.
fn a_clone_shows_its_own_key(host: &Host, master: &Master, line: &[&str]) {
    for name in ["minion.pem", "minion.pub"] {
        fs::remove_file(host.path("etc/salt/pki/minion").join(name)).unwrap();
    }
    fs::remove_file(master.keys().join("minions").join(ID)).unwrap();
    let waits = host.sidle(&[line, &["--wait", "0s"]].concat());
    let own = fingerprint(&host.path("etc/salt/pki/minion/minion.pub"));
    let told = format!("the key of {ID} ({own}) is not accepted yet");
    assert!(waits.code == Some(4) && format!("{waits:?}").contains(&told), "{waits:?}");
    master.accept(ID);
    assert_eq!(host.sidle(line).code, Some(3));
}

#[test]
fn a_host_without_a_minion_gets_one_whose_key_a_person_accepts() {
    let (author, master) = (minions::author_of(&minions::LONG_TERM), Master::start(&tree("3008.5"), false));
    let host = Host::new(&author);
    let etc = host.path("etc/salt");
    fs::create_dir_all(&etc).unwrap();
    // What a site has already stays as it is.
    let own = format!("root_dir: {}\nmaster_port: {}\nuser: root\n", host.root().display(), master.request_port());
    fs::write(etc.join("minion"), &own).unwrap();
    fs::write(
        host.path("etc/sidle/conf.d/salt.toml"),
        "start_timeout = \"180s\"\nprobation = \"2s\"\nrehearsal = \"off\"\n",
    )
    .unwrap();
    host.install(&author.salt(RELEASE)).ok();
    let _supervisor = host.supervise_instance(SALT);
    let url = format!("file://{}", author.repository().display());
    let print = author.fingerprint();
    let release = format!("{RELEASE}-1");
    let line = ["setup", "--repository", &url, "--fingerprint", &print, "--release", &release, "--start"];
    let without = host.sidle(&line);
    assert!(without.code == Some(2) && without.stderr.contains("--master NAME"), "{without:?}");
    let line = [&line[..], &["--master", master.address, "--id", ID]].concat();
    let planned = host.sidle(&[&line[..], &["--dry-run"]].concat()).ok();
    assert!(planned.contains("would write") && !etc.join("minion.d").exists(), "{planned}");

    let mut waiting = Command::new(SIDLE);
    waiting.arg("--root").arg(host.root()).args(of_cloud_init(&url, &print, master.address));
    waiting.args(["--release", &release, "--id", ID]);
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let pending = master.keys().join("minions_pre").join(ID);
    eventually(START_SECONDS, "the key waits at the master", || {
        pending.exists().then_some(()).ok_or_else(|| master.log())
    });
    let (mine, theirs) = (fingerprint(&etc.join("pki/minion/minion.pub")), fingerprint(&pending));
    assert_eq!(mine, theirs);
    master.accept(ID);
    let mut said = String::new();
    waiting.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let ended = waiting.wait().unwrap();
    assert!(ended.success(), "{ended}: {said}");
    assert!(said.contains(&format!("the key of {ID} is {mine}")), "{said}");
    assert!(
        said.contains(&format!("salt-key -a {ID}")) && said.contains(&format!("started {SALT} {release}")),
        "{said}"
    );
    let answer = master.call_within("20", ID, &["test.version"]);
    assert!(answer.contains(RELEASE), "{answer}");
    assert_eq!(fs::read_to_string(etc.join("minion")).unwrap(), own);
    let first = fs::read_to_string(etc.join("minion.d/10-sidle-setup.conf")).unwrap();
    assert_eq!(first.lines().count(), 3, "{first}");

    let again = host.sidle(&line);
    assert_eq!(again.code, Some(3), "{again:?}");
    differences_are_told(&host, &line);
    a_clone_shows_its_own_key(&host, &master, &line);
    leftovers::kill(&host.root());
}

#[test]
fn a_master_with_another_key_than_the_pinned_one_gets_no_minion() {
    let (author, master) = (minions::author_of(&minions::LONG_TERM), Master::start(&tree("3008.5"), true));
    let host = Host::new(&author);
    let etc = host.path("etc/salt");
    fs::create_dir_all(&etc).unwrap();
    // The site's own configuration names the master, and pins nothing.
    let (root, port) = (host.root(), master.request_port());
    let own = format!("root_dir: {}\nmaster: {}\nmaster_port: {port}\nuser: root\n", root.display(), master.address);
    fs::write(etc.join("minion"), own).unwrap();
    host.install(&author.salt(RELEASE)).ok();
    let url = format!("file://{}", author.repository().display());
    let (print, release, other) = (author.fingerprint(), format!("{RELEASE}-1"), ["00"; 32].join(":"));
    let line = ["setup", "--repository", &url, "--fingerprint", &print, "--release", &release, "--start"];
    let refused = host.sidle(&[&line[..], &["--master", master.address, "--id", ID, "--pin-master", &other]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("shows another key") && refused.stderr.contains("salt-key -F master"),
        "{refused:?}"
    );
    // A configuration that somebody else wrote is left alone.
    fs::write(etc.join("minion.d/20-site.conf"), "master: elsewhere.example\n").unwrap();
    let elsewhere = host.sidle(&[&line[..], &["--master", "127.0.0.9"]].concat());
    assert_eq!(elsewhere.code, Some(12), "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("names elsewhere.example"), "{elsewhere:?}");
}
