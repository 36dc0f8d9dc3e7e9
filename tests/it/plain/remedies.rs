//! Slips of the pen and accidents, typed as a person would: each is told with what is so, and a remedy that leads on.

use super::messages::{on, pin, refused};
use crate::support::repositories::RepoBuilder;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, sidle, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program on a host, run in a directory.
fn within(directory: &Path, host: &Host, arguments: &[&str]) -> Ran {
    let output = Command::new(SIDLE).current_dir(directory).arg("--root").arg(host.root()).args(arguments).output();
    let output = output.unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn repository_of(author: &Author) -> String {
    format!("file://{}", text(&author.repository()))
}

#[test]
fn a_file_that_is_no_root_is_told_to_be_none() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::bare();
    let page = host.path("404.html");
    fs::write(&page, "<html>not found</html>").unwrap();
    let ran = host.sidle(&["trust", "pin", text(&page), "--fingerprint", &author.fingerprint()]);
    refused(&ran, 2, &["404.html", "neither"], &["root.json", "metadata/1.root.json"]);
    fs::write(&page, "{\"error\": 404}").unwrap();
    let ran = host.sidle(&["trust", "pin", text(&page), "--fingerprint", &author.fingerprint()]);
    refused(&ran, 7, &["404.html"], &["metadata/1.root.json"]);
    host.sidle(&["trust", "pin", text(&bundle), "--fingerprint", &author.fingerprint()]).ok();
}

#[test]
fn a_directory_is_no_bundle_and_a_package_is_no_path() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::new(&author);
    let ran = within(author.directory(), &host, &["install", "repository"]);
    refused(&ran, 2, &["repository", "it is a directory"], &["name a bundle file", "--repository"]);
    // A directory of the package's name keeps nobody from the repository.
    fs::create_dir(author.directory().join(DEMO)).unwrap();
    within(author.directory(), &host, &["install", DEMO, "--repository", &repository_of(&author)]).ok();
}

#[test]
fn a_misspelt_package_is_told_with_those_that_there_are() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::new(&author);
    let repository = repository_of(&author);
    let ran = host.sidle(&["install", "demo-agnt", "--repository", &repository]);
    refused(&ran, 1, &["demo-agnt", "it lists demo-agent"], &["name a listed package"]);
    let ran = host.sidle(&["install", "demo-agent@9.9-1", "--repository", &repository]);
    refused(&ran, 7, &["9.9-1", "1.0-1"], &["withdrawn"]);
    let ran = host.sidle(&["install", "demo-agent@1.0", "--repository", &repository]);
    refused(&ran, 2, &["\"1.0\"", "revision"], &["demo-agent@1.0-1"]);
    host.sidle(&["install", "demo-agent@1.0-1", "--repository", &repository]).ok();
}

#[test]
fn a_repository_that_is_not_there_is_told_by_its_path() {
    let author = Author::new();
    let host = Host::new(&author);
    let nowhere = format!("file://{}/nothere", text(author.directory()));
    let ran = host.sidle(&["--json", "install", DEMO, "--repository", &nowhere]);
    let error = ran.json()["error"].clone();
    assert_eq!((ran.code, error["code"].as_i64()), (Some(1), Some(1)), "{ran:?}");
    assert!(error["message"].as_str().unwrap().contains("nothere"), "{error}");
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("check the path") && hint.contains("metadata/timestamp.json"), "{hint}");
    assert!(!hint.contains("proxy"), "{hint}");
}

#[test]
fn wrong_settings_lead_to_where_they_are_documented() {
    let author = Author::new();
    let host = Host::new(&author);
    let settings = host.path("etc/sidle/conf.d/own.toml");
    fs::write(&settings, "probatoin = \"1s\"\n").unwrap();
    let ran = host.sidle(&["switch", DEMO, "1.0-1"]);
    refused(&ran, 2, &["own.toml", "line 1", "probatoin"], &["man sidle.toml"]);
    assert!(!ran.stderr.contains("manual"), "{ran:?}");
    assert!(include_str!("../../../docs/settings.md").starts_with("# Settings\n"));
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    fs::write(&settings, "#".repeat(10 << 20)).unwrap();
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), 2, &["own.toml", "262144 bytes"], &["settings"]);
    fs::write(&settings, "[instances.demo-agent]\nconfig = \"etc/x\"\n").unwrap();
    refused(
        &host.sidle(&["switch", DEMO, "1.0-1"]),
        2,
        &["own.toml", "demo-agent", "etc/x", "absolute"],
        &["docs/settings.md"],
    );
    fs::write(&settings, "extras_wheels = \"wheels\"\n").unwrap();
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), 2, &["own.toml", "wheels", "absolute"], &["docs/settings.md"]);
}

#[test]
fn links_where_directories_belong_are_called_links() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    for place in ["versions", "staging"] {
        let host = Host::new(&author);
        fs::create_dir_all(host.path("elsewhere")).unwrap();
        fs::create_dir_all(host.path("opt/sidle/demo-agent")).unwrap();
        let link = format!("opt/sidle/demo-agent/{place}");
        symlink(host.path("elsewhere"), host.path(&link)).unwrap();
        let ran = host.install(&bundle);
        refused(&ran, 1, &[&link, "it is a link, not a directory"], &["replace the link"]);
        assert_eq!(fs::read_dir(host.path("elsewhere")).unwrap().count(), 0, "{place}");
    }
    let host = Host::new(&author);
    fs::create_dir_all(host.path("opt/sidle/demo-agent/versions")).unwrap();
    fs::create_dir_all(host.path("elsewhere")).unwrap();
    let link = "opt/sidle/demo-agent/versions/1.0-1";
    symlink(host.path("elsewhere"), host.path(link)).unwrap();
    refused(&host.install(&bundle), 1, &[link, "File exists"], &["remove it"]);
    assert_eq!(fs::read_dir(host.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn metadata_that_goes_back_or_runs_ahead_is_told_with_a_remedy() {
    use sidle::trust::TrustError;
    let back = TrustError::Rollback { file: "snapshot.json".to_owned(), trusted: 2, offered: 1 };
    assert!(back.hint().is_some_and(|hint| hint.contains("newer")), "{:?}", back.hint());
    let many = TrustError::TooManyRoots { limit: 256 };
    assert!(many.hint().is_some_and(|hint| hint.contains("run the command again")), "{:?}", many.hint());
    let gone = TrustError::Vanished { file: "targets.json".to_owned() };
    assert!(gone.hint().is_some_and(|hint| hint.contains("owner")), "{:?}", gone.hint());
}

#[test]
fn a_supervisor_of_nothing_is_refused_unless_it_is_to_wait() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    let typo = host.sidle(&["supervise", "demo-agnt", "--check"]);
    refused(&typo, 1, &["demo-agnt", "nothing is installed"], &["sidle install", "--wait"]);
    host.install(&bundle).ok();
    let mut child = Command::new(SIDLE)
        .args(["--root", text(&host.root()), "supervise", "demo-agnt"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = crate::support::eventually(20, "it is refused", || {
        child.try_wait().unwrap().ok_or_else(|| "it runs".to_owned())
    });
    assert_eq!(ended.code(), Some(1));
    let told = std::io::read_to_string(child.stderr.unwrap()).unwrap();
    assert!(told.contains("demo-agnt") && told.contains("installed: demo-agent"), "{told}");
    for made in ["var/lib/sidle/instances/demo-agnt", "run/sidle/demo-agnt"] {
        assert!(!host.path(made).exists(), "{made}");
    }
    assert_eq!(host.sidle(&["supervise", DEMO, "--check"]).code, Some(0));
    assert_eq!(host.sidle(&["supervise", "demo-agnt", "--check", "--wait"]).code, Some(0));
    let supervisor = host.supervise_instance_by(Path::new(SIDLE), DEMO, &[]);
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_root_that_is_not_there_is_told_to_be_none() {
    let author = Author::new();
    let directory = tempfile::tempdir().unwrap();
    let typo = directory.path().join("typo");
    for arguments in [&["list"][..], &["status"], &["doctor"], &["verify", DEMO], &["collect"], &["history", DEMO]] {
        let ran = on(&typo, arguments);
        refused(&ran, 1, &["typo", "no such directory"], &["--root"]);
    }
    assert!(!typo.exists());
    pin(&typo, &author).ok();
    on(&typo, &["list"]).ok();
}

#[test]
fn times_in_messages_are_told_to_the_second() {
    let now = jiff::Timestamp::now();
    let repo = RepoBuilder::new(now);
    repo.add("1.0", "x");
    repo.publish();
    let broken = sidle::fetch::FetchError::Broken { name: "x".to_owned(), until: now };
    let host = Host::trusting(&repo.path().join("metadata/1.root.json"), &repo.fingerprint.to_string());
    let late = sidle::trust::Warning::ClockBehind { now, last_seen: now };
    for told in [broken.to_string(), late.to_string(), host.sidle(&["trust", "show"]).ok()] {
        let fraction = |word: &str| word.split_once('.').is_some_and(|(_, rest)| rest.ends_with('Z') && rest.len() > 2);
        assert!(!told.split_whitespace().any(|word| fraction(word.trim_end_matches([',', ':', ';']))), "{told}");
    }
}

#[test]
fn an_export_overwrites_nothing_unasked() {
    let author = Author::new();
    author.release("1.0", "good");
    let file = author.directory().join("precious");
    fs::write(&file, "precious").unwrap();
    let repository = author.repository();
    let arguments = ["export", text(&repository), DEMO, "-o", text(&file)];
    refused(&sidle(&arguments, &[]), 12, &["precious", "exists already"], &["--force"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    sidle(&[&arguments[..], &["--force"]].concat(), &[]).ok();
    assert_ne!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_signing_key_that_others_may_read_signs_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let author = Author::new();
    author.release("1.0", "good");
    let repository = author.repository();
    for mode in [0o644, 0o640, 0o620, 0o604, 0o666] {
        fs::set_permissions(author.key(), fs::Permissions::from_mode(mode)).unwrap();
        let ran = sidle(&["repo", "refresh", text(&repository), "--online-key", text(&author.key())], &[]);
        refused(&ran, 1, &["key.pem", &format!("{mode:04o}")], &["chmod 600"]);
    }
    fs::set_permissions(author.key(), fs::Permissions::from_mode(0o400)).unwrap();
    let ran = sidle(&["repo", "refresh", text(&repository), "--online-key", text(&author.key())], &[]);
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
}
