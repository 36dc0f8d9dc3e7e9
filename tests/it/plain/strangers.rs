//! What strangers, accidents and other people's settings leave on a host: refused by name, mended, or without effect.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, sidle, text, two_releases};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Somebody else.
const STRANGER: u32 = 65534;

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn ran(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `sidle`, which has to end within 10 s.
fn in_time(host: &Host, arguments: &[&str]) -> Ran {
    ran(Command::new("timeout").args(["10", SIDLE, "--root", text(&host.root())]).args(arguments))
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_by_name_and_nothing_waits_for_it() {
    let host = Host::new(&Author::new());
    let settings = host.path("etc/sidle/sidle.toml");
    for path in [settings.clone(), host.path("etc/sidle/conf.d/more.toml"), host.path("var/lib/sidle/trust/floor.json")]
    {
        let was = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        fifo(&path);
        let reader = if text(&path).contains("/trust/") { &["trust", "show"][..] } else { &["install", "demo-agent"] };
        for arguments in [reader, &["doctor"]] {
            let found = in_time(&host, arguments);
            assert!(matches!(found.code, Some(1 | 2 | 6 | 7)), "{}: {found:?}", path.display());
            let said = format!("{}{}", found.stdout, found.stderr);
            assert!(said.contains(text(&path)) && said.contains("it is a pipe, not a file"), "{said}");
        }
        fs::remove_file(&path).unwrap();
        if let Some(bytes) = was {
            fs::write(&path, bytes).unwrap();
        }
    }
    fs::remove_file(&settings).unwrap();
    fs::create_dir(&settings).unwrap();
    let found = in_time(&host, &["install", "demo-agent"]);
    assert!(found.stderr.contains("it is a directory, not a file"), "{found:?}");
}

#[test]
fn a_bundle_may_come_through_a_pipe() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    for place in ["/dev/stdin", "pipe", "pipe.sidle"] {
        let host = Host::new(&author);
        let pipe = if place == "/dev/stdin" { place.to_owned() } else { text(&host.path(place)).to_owned() };
        let line = if place == "/dev/stdin" {
            "cat \"$1\" | \"$2\" --root \"$3\" install \"$4\""
        } else {
            fifo(Path::new(&pipe));
            "cat \"$1\" >\"$4\" & \"$2\" --root \"$3\" install \"$4\""
        };
        let root = host.root();
        ran(Command::new("timeout").args(["30", "sh", "-c", line, "sh", text(&bundle), SIDLE, text(&root), &pipe]))
            .ok();
    }
}

#[test]
fn missing_parents_are_open_to_all_and_what_is_private_is_private_whatever_the_umask() {
    let author = Author::new();
    let repository = format!("file://{}", text(&author.repository()));
    author.release("1.0", "good");
    for umask in ["0", "0077", "0777"] {
        let host = Host::bare();
        let root = host.path("new/root");
        let run = |arguments: &[&str]| {
            let line = format!("umask {umask}; exec \"$0\" --root \"$@\"");
            ran(Command::new("sh").args(["-c", &line, SIDLE, text(&root)]).args(arguments))
        };
        let pinned = author.repository().join("metadata/1.root.json");
        run(&["trust", "pin", text(&pinned), "--fingerprint", &author.fingerprint()]).ok();
        run(&["install", DEMO, "--repository", &repository]).ok();
        for (path, wanted) in [
            ("../../new", 0o755),
            ("", 0o755),
            ("var", 0o755),
            ("var/cache", 0o755),
            ("var/cache/sidle", 0o700),
            ("var/lib/sidle/trust", 0o755),
            ("opt", 0o755),
            ("opt/sidle/demo-agent/versions", 0o755),
            ("opt/sidle/demo-agent/staging", 0o700),
        ] {
            assert_eq!(mode(&root.join(path)), wanted, "umask {umask}: {path}");
        }
    }
}

#[test]
fn what_an_agent_tells_is_written_by_the_agent_alone_whatever_the_umask() {
    let (host, _author) = two_releases();
    let program = host.path("careless");
    fs::write(&program, format!("#!/bin/sh\numask 0\nexec {SIDLE} \"$@\"\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let _supervisor = host.supervise_by(&program);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let slots = host.path(&format!("run/sidle/{DEMO}/gate/slots"));
    let reports = || -> Vec<PathBuf> {
        let found = fs::read_dir(&slots).into_iter().flatten().map(|entry| entry.unwrap().path());
        found.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    };
    eventually(20, "a report of the agent", || if reports().is_empty() { Err(String::new()) } else { Ok(()) });
    for path in reports() {
        assert_eq!(mode(&path) & 0o022, 0, "{}", path.display());
    }
}

fn findings(host: &Host) -> Vec<(String, String)> {
    let found = host.sidle(&["--json", "doctor"]).json();
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let groups: Vec<Value> = list(&found, "examined").iter().flat_map(|one| list(one, "groups")).collect();
    let all = groups.iter().flat_map(|group| group["findings"].as_array().cloned().unwrap_or_default());
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    all.map(|finding| (text(&finding, "id"), finding.to_string())).collect()
}

#[test]
fn what_others_may_write_is_mended_where_it_is_ours_alone_and_told_where_it_is_not() {
    let author = Author::new();
    let (first, second) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let host = Host::new(&author);
    host.install(&first).ok();
    assert!(findings(&host).iter().all(|(id, _)| id != "foreign-directory"), "{:?}", findings(&host));
    let staging = host.path(&format!("opt/sidle/{DEMO}/staging"));
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o777)).unwrap();
    host.install(&second).ok();
    assert_eq!(mode(&staging), 0o700);
    let open = |path: &Path, bits| fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    for place in [format!("opt/sidle/{DEMO}"), "var/lib/sidle/trust".to_owned(), "etc/sidle/sidle.toml".to_owned()] {
        let path = host.path(&place);
        let was = mode(&path);
        open(&path, was | 0o002);
        let found = findings(&host);
        let told = found.iter().find(|(id, _)| id == "foreign-directory");
        assert!(
            told.is_some_and(|(_, what)| what.contains(text(&path)) && what.contains("chmod")),
            "{place}: {found:?}"
        );
        let refused = host.sidle(&["remove", DEMO, "1.0-1"]);
        assert_eq!(refused.code, Some(7), "{place}: {refused:?}");
        assert!(refused.stderr.contains("chmod"), "{refused:?}");
        // Who only looks is not kept from it.
        assert_eq!(host.sidle(&["list"]).code, Some(0), "{place}");
        open(&path, was);
    }
    host.sidle(&["remove", DEMO, "1.0-1"]).ok();
}

#[test]
fn what_belongs_to_somebody_else_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    for place in ["opt/sidle", &format!("opt/sidle/{DEMO}"), "var/lib/sidle/trust", "etc/sidle/sidle.toml"] {
        let path = host.path(place);
        if !path.exists() {
            fs::create_dir_all(&path).unwrap();
        }
        std::os::unix::fs::chown(&path, Some(STRANGER), None).unwrap();
        let refused = host.install(&bundle);
        assert_eq!(refused.code, Some(7), "{place}: {refused:?}");
        assert!(refused.stderr.contains(text(&path)) && refused.stderr.contains("chown"), "{refused:?}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    host.install(&bundle).ok();
    let run = host.path(&format!("run/sidle/{DEMO}"));
    fs::create_dir_all(&run).unwrap();
    std::os::unix::fs::chown(&run, Some(STRANGER), None).unwrap();
    let refused = ran(Command::new("timeout").args(["10", SIDLE, "--root", text(&host.root()), "supervise", DEMO]));
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert!(refused.stderr.contains(text(&run)) && refused.stderr.contains("chown"), "{refused:?}");
}

#[test]
fn a_clock_before_the_pinned_root_is_told_and_the_roots_time_counts() {
    use crate::support::repositories::RepoBuilder;
    use jiff::{SignedDuration, Timestamp};
    let later = Timestamp::now().checked_add(SignedDuration::from_hours(24 * 60)).unwrap();
    let builder = RepoBuilder::new(later);
    let host = Host::bare();
    let root = builder.path().join("metadata/1.root.json");
    let pinned = host.sidle(&["trust", "pin", text(&root), "--fingerprint", &builder.fingerprint.to_string()]);
    assert_eq!(pinned.code, Some(0), "{pinned:?}");
    let dates = [&later.to_string()[..10], &Timestamp::now().to_string()[..10]];
    assert!(dates.iter().all(|date| pinned.stderr.contains(date)), "{pinned:?}");
    let shown = host.sidle(&["--json", "trust", "show"]).json();
    assert_eq!(shown["last_seen"].as_str().map(|seen| &seen[..10]), Some(dates[0]), "{shown}");
    // What had expired when the root was signed is not fresh because this host's clock says so.
    let found = findings(&host);
    assert!(found.iter().any(|(id, _)| id == "clock-behind"), "{found:?}");
}

#[test]
fn a_mirror_removes_nothing_that_was_never_a_copy() {
    let author = Author::new();
    author.release("1.0", "good");
    let host = Host::new(&author);
    let (copy, url) = (host.path("copy"), format!("file://{}", text(&author.repository())));
    let mirror = || host.sidle(&["--json", "mirror", text(&copy), "--repository", &url, "--delete"]);
    let own = ["metadata/thesis.txt", "metadata/9.targets.json", "targets/photos/a.jpg", "targets/demo-agent/notes"];
    for path in own {
        fs::create_dir_all(copy.join(path).parent().unwrap()).unwrap();
        fs::write(copy.join(path), "mine").unwrap();
    }
    fs::create_dir_all(copy.join("targets/empty")).unwrap();
    let first = mirror();
    assert_eq!((first.code, first.json()["removed"].as_array().unwrap().len()), (Some(0), 0), "{first:?}");
    author.release("1.1", "good");
    sidle(&["repo", "withdraw", text(&author.repository()), "demo-agent@1.0-1", "--reason", "bad"], &[]).ok();
    sidle(&["repo", "publish", text(&author.repository()), "--key", text(&author.key())], &[]).ok();
    let second = mirror().json();
    let removed = second["removed"].to_string();
    assert!(removed.contains("targets/demo-agent/1.0-1/") && removed.contains("targets.json"), "{removed}");
    assert!(!copy.join("targets/demo-agent/1.0-1").exists(), "emptied directories of ours go, too");
    for path in own {
        assert!(copy.join(path).exists() && !removed.contains(path), "{path}: {removed}");
    }
    assert!(copy.join("targets/empty").exists());
    fs::write(copy.join(".sidle-mirror"), "{").unwrap();
    let spoiled = mirror();
    assert_eq!(spoiled.code, Some(6), "{spoiled:?}");
    assert!(spoiled.stdout.contains(".sidle-mirror") && spoiled.stdout.contains("\"hint\":\"remove"), "{spoiled:?}");
}

#[test]
fn a_pack_with_a_wrong_key_leaves_nothing_in_the_repository() {
    let author = Author::new();
    author.release("1.0", "good");
    let (directory, repository) = (author.directory().to_owned(), author.repository());
    let wrong = directory.join("wrong.pem");
    sidle(&["key", "new", text(&wrong)], &[]).ok();
    let before = crate::support::repositories::snapshot_of(&repository);
    let (tree, recipe) = (directory.join("tree-1.0"), directory.join("1.0.toml"));
    let pack = |key: &Path| {
        let to = [text(&repository).to_owned(), text(&directory.join("x.sidle")).to_owned()];
        let words = [
            "pack",
            text(&recipe),
            "--version",
            "5.0",
            "--tree",
            text(&tree),
            "--repo",
            &to[0],
            "--key",
            text(key),
            "-o",
            &to[1],
        ];
        sidle(&words, &[])
    };
    let refused = pack(&wrong);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(crate::support::repositories::snapshot_of(&repository) == before, "something stays of 5.0: {refused:?}");
    pack(&author.key()).ok();
}
