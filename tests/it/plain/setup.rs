//! `sidle setup`: a host in one go, again after it was cut off, and never over what somebody else decided.

use crate::support::repositories::{RepoBuilder, snapshot_of};
use crate::support::stage::{Author, DEMO, Host, Ran, text};
use std::fs;
use std::path::Path;

const OWN: &str = "etc/sidle/conf.d/10-repository.toml";

fn url(repository: &Path) -> String {
    format!("file://{}", text(repository))
}

fn setup(host: &Host, repository: &Path, fingerprint: &str, more: &[&str]) -> Ran {
    let url = url(repository);
    let arguments = ["setup", "--repository", &url, "--fingerprint", fingerprint, "--package", DEMO];
    host.sidle(&[&arguments[..], more].concat())
}

/// What an administrator sees of a host: the trust, the settings, the releases.
fn seen(host: &Host) -> Vec<String> {
    let all = snapshot_of(&host.root()).into_iter().map(|(path, _)| path.display().to_string());
    all.filter(|path| !path.starts_with("var/cache")).collect()
}

#[test]
fn one_command_sets_a_host_up_and_the_same_command_again_changes_nothing() {
    let author = Author::new();
    author.release("1.0", "good");
    author.release("1.1", "good");
    let (repository, fingerprint) = (author.repository(), author.fingerprint());
    let host = Host::bare();

    let dry = setup(&host, &repository, &fingerprint, &["--dry-run"]).ok();
    for words in ["trust: would pin", "settings: would write", "install: would install demo-agent 1.1-1"] {
        assert!(dry.contains(words), "{words:?} is not in {dry}");
    }
    assert_eq!(seen(&host), Vec::<String>::new());

    let did = setup(&host, &repository, &fingerprint, &[]).ok();
    for words in ["trust: pinned the root", "settings: wrote", "install: installed demo-agent 1.1-1"] {
        assert!(did.contains(words), "{words:?} is not in {did}");
    }
    assert!(did.contains("systemctl enable --now sidle@demo-agent"), "{did}");
    assert!(fs::read_to_string(host.path(OWN)).unwrap().contains(&url(&repository)));

    let before = seen(&host);
    for more in [&[][..], &["--dry-run"]] {
        let again = setup(&host, &repository, &fingerprint, more);
        assert_eq!(again.code, Some(3), "{again:?}");
        assert!(again.stdout.contains("nothing to do"), "{again:?}");
    }
    assert_eq!(seen(&host), before);

    let named = host.sidle(&["install", DEMO]);
    assert_eq!(named.code, Some(3), "the settings name the repository: {named:?}");
    let older = setup(&host, &repository, &fingerprint, &["--release", "1.0-1", "--json"]);
    let value: serde_json::Value = older.json();
    assert_eq!((&value["changed"], &value["release"]), (&true.into(), &"1.0-1".into()), "{older:?}");
    assert_eq!(value["steps"].as_array().unwrap().len(), 3, "{older:?}");
}

#[test]
fn a_root_with_another_fingerprint_changes_nothing() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::bare();
    let refused = setup(&host, &author.repository(), &"0".repeat(64), &[]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    for words in ["step trust", &author.fingerprint(), "ask the repository's owner", "run the same `sidle setup` again"]
    {
        assert!(refused.stderr.contains(words), "{words:?} is not in {refused:?}");
    }
    assert_eq!(seen(&host), Vec::<String>::new());
}

#[test]
fn a_host_of_another_repository_stays_as_it_is() {
    let (author, other) = (Author::new(), Author::new());
    author.release("1.0", "good");
    let host = Host::new(&other);
    let before = seen(&host);
    let refused = setup(&host, &author.repository(), &author.fingerprint(), &[]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    assert!(refused.stderr.contains("unpin: `mv "), "{refused:?}");

    // The same repository, but the administrator has named another place.
    let host = Host::new(&author);
    let own = "[repository]\nurl = \"https://repo.example/sidle\"\n";
    fs::write(host.path("etc/sidle/conf.d/site.toml"), own).unwrap();
    let refused = setup(&host, &author.repository(), &author.fingerprint(), &[]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    for words in ["step settings", "the settings name https://repo.example/sidle", "yourself"] {
        assert!(refused.stderr.contains(words), "{words:?} is not in {refused:?}");
    }
    assert_eq!(seen(&host).len(), before.len() + 1);

    // Named by the administrator already: no second file.
    let own = format!("[repository]\nurl = \"{}\"\n", url(&author.repository()));
    fs::write(host.path("etc/sidle/conf.d/site.toml"), own).unwrap();
    setup(&host, &author.repository(), &author.fingerprint(), &[]).ok();
    assert!(!host.path(OWN).exists());
}

#[test]
fn only_the_file_that_setup_wrote_is_replaced() {
    let author = Author::new();
    author.release("1.0", "good");
    let (host, fingerprint) = (Host::bare(), author.fingerprint());
    setup(&host, &author.repository(), &fingerprint, &[]).ok();
    let moved = author.directory().join("moved");
    fs::rename(author.repository(), &moved).unwrap();
    let told = setup(&host, &moved, &fingerprint, &[]).ok();
    assert!(told.contains("settings: wrote") && told.contains("is installed already"), "{told}");

    let edited = format!("{}rate_limit = \"1MiB\"\n", fs::read_to_string(host.path(OWN)).unwrap());
    fs::write(host.path(OWN), &edited).unwrap();
    fs::rename(&moved, author.repository()).unwrap();
    let refused = setup(&host, &author.repository(), &fingerprint, &[]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    assert_eq!(fs::read_to_string(host.path(OWN)).unwrap(), edited);
}

#[test]
fn a_repository_without_the_release_changes_nothing() {
    let repo = RepoBuilder::new(jiff::Timestamp::now());
    let (url, fingerprint) = (url(&repo.path()), repo.fingerprint.to_string());
    let host = Host::bare();
    repo.publish();
    let line = ["setup", "--repository", &url, "--fingerprint", &fingerprint, "--package", "demo"];
    let empty = host.sidle(&line);
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.stderr.contains("step install"), "{empty:?}");
    assert_eq!(seen(&host), Vec::<String>::new());
    repo.add("1.0", "content");
    repo.publish();
    let told = host.sidle(&line).ok();
    for words in ["pinned the root", "with file://", "installed demo 1.0-1"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
}

/// The root was pinned and the settings were written before the host's C library was compared.
#[test]
fn a_host_that_cannot_take_the_release_stays_as_it_is() {
    let author = Author::new();
    author.needing_glibc("1.0", "9.99");
    let (repository, fingerprint, host) = (author.repository(), author.fingerprint(), Host::bare());
    for more in [&["--dry-run"][..], &[], &["--adopt"], &["--release", "1.0-1"]] {
        let refused = setup(&host, &repository, &fingerprint, more);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for words in ["step install", "needs glibc 9.99 or newer, this host has 2."] {
            assert!(refused.stderr.contains(words), "{words:?} is not in {refused:?}");
        }
        assert_eq!(snapshot_of(&host.root()), Vec::new(), "{more:?}");
    }
    // A host that trusts the repository, whose settings do not name it yet.
    let trusting = Host::new(&author);
    let before = seen(&trusting);
    let refused = setup(&trusting, &repository, &fingerprint, &[]);
    assert!(refused.code == Some(1) && refused.stderr.contains("needs glibc 9.99"), "{refused:?}");
    assert_eq!(seen(&trusting), before);
    author.needing_glibc("0.9", "2.2");
    let told = setup(&host, &repository, &fingerprint, &[]).ok();
    assert!(told.contains("installed demo-agent 0.9-1"), "{told}");
}

#[test]
fn a_crash_at_any_step_is_followed_by_the_same_command() {
    let author = Author::new();
    author.release("1.0", "good");
    let (url, fingerprint) = (url(&author.repository()), author.fingerprint());
    let line = ["setup", "--repository", &url, "--fingerprint", &fingerprint, "--package", DEMO];
    for point in ["trust_store.file_stored", "trust_store.floor_stored", "install.renamed"] {
        let host = Host::bare();
        let crashed = host.sidle_with(&line, &[("SIDLE_CRASH_AT", point)]);
        assert_ne!(crashed.code, Some(0), "{point}: {crashed:?}");
        host.sidle(&line).ok();
        assert_eq!(host.sidle(&line).code, Some(3), "{point}");
    }
}

#[test]
fn a_dry_run_without_the_release_says_what_it_did_not_compare() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::bare();
    let (repository, fingerprint) = (author.repository(), author.fingerprint());
    let shown = setup(&host, &repository, &fingerprint, &["--adopt", "--dry-run"]).ok();
    for words in ["note: not compared", "extra packages and masters", "`sidle setup` without --adopt"] {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    let value = setup(&host, &repository, &fingerprint, &["--adopt", "--dry-run", "--json"]).json();
    assert!(value["adoption"]["notes"][0].as_str().is_some_and(|note| note.starts_with("not compared")), "{value}");
    assert_eq!(value["adoption"]["rehearsed"], false, "{value}");
    let without = setup(&host, &repository, &fingerprint, &["--dry-run", "--json"]).json();
    assert!(without["adoption"].is_null(), "{without}");
}

#[test]
fn adopt_says_that_it_needs_a_supervisor_and_a_running_agent() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::bare();
    let refused = setup(&host, &author.repository(), &author.fingerprint(), &["--adopt"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("step adopt: cannot adopt demo-agent"), "{refused:?}");
    assert!(refused.stdout.contains("install: installed demo-agent 1.0-1"), "{refused:?}");
}
