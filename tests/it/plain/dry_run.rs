//! A dry run changes nothing on the host, and ends with the exit code of the real run where that is known before.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Supervisor, text, two_releases};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All that a change of a file would change: kind, mode, owner, time of change, content or target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    changed: (i64, i64),
    content: String,
}

/// Everything below these directories; the agent's own state and what it reports at its gate go on meanwhile.
fn everything(roots: &[&Path]) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut open: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
    while let Some(path) = open.pop() {
        let Ok(stat) = fs::symlink_metadata(&path) else { continue };
        let content = if stat.is_dir() {
            if path.ends_with("etc/demo-agent/state") || path.ends_with("gate") {
                continue;
            }
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if stat.is_symlink() {
            text(&fs::read_link(&path).unwrap()).to_owned()
        } else if stat.is_file() {
            sidle::digest::Digest::of(&fs::read(&path).unwrap_or_default()).to_string()
        } else {
            String::new()
        };
        let (owner, changed) = ((stat.uid(), stat.gid()), (stat.mtime(), stat.mtime_nsec()));
        seen.insert(path, Seen { mode: stat.mode(), owner, changed, content });
    }
    seen
}

fn assert_same(before: &BTreeMap<PathBuf, Seen>, after: &BTreeMap<PathBuf, Seen>, what: &str) {
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let differ: Vec<_> = paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(differ.is_empty(), "{what} changed {differ:?}");
}

fn files(host: &Host) -> BTreeMap<PathBuf, Seen> {
    everything(&[&host.root()])
}

/// A host, an author, and what runs on the host.
struct Scene {
    host: Host,
    author: Author,
    away: tempfile::TempDir,
    supervisor: Option<Supervisor>,
    tried: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        let (host, author) = two_releases();
        Self { host, author, away: tempfile::tempdir().unwrap(), supervisor: None, tried: BTreeSet::new() }
    }

    fn away(&self, name: &str) -> String {
        text(&self.away.path().join(name)).to_owned()
    }

    fn now(&self) -> BTreeMap<PathBuf, Seen> {
        everything(&[&self.host.root(), self.author.directory(), self.away.path()])
    }

    /// The files, once nothing changes them any more.
    fn at_rest(&self) -> BTreeMap<PathBuf, Seen> {
        eventually(20, "nothing changes", || {
            let before = self.now();
            std::thread::sleep(Duration::from_millis(300));
            if self.now() == before { Ok(before) } else { Err("something changes".to_owned()) }
        })
    }

    /// Runs a verb dry and then for real. The dry run changes nothing; both end with this code; these facts are the same.
    fn both(&mut self, words: &[&str], code: i32, facts: &[&str]) -> (Value, Value) {
        let dry = self.dry(words, code);
        let real = self.host.sidle(&[&["--json"], words].concat());
        assert_eq!(real.code, Some(code), "{words:?}: {real:?}");
        let real = real.json();
        assert_ne!(real["dry_run"], true, "{words:?}: {real}");
        for fact in facts {
            let (said, is) = (dry.pointer(fact), real.pointer(fact));
            assert!(said.is_some() && said == is, "{words:?}: {fact} is {said:?} in the dry run, and {is:?}");
        }
        (dry, real)
    }

    fn dry(&mut self, words: &[&str], code: i32) -> Value {
        let name = if ["repo", "key", "rollout", "trust"].contains(&words[0]) {
            words[..2].join(" ")
        } else {
            words[0].to_owned()
        };
        let before = if self.supervisor.is_some() { self.at_rest() } else { self.now() };
        let told = self.host.sidle(&[words, &["--dry-run"]].concat());
        assert_eq!(told.code, Some(code), "{words:?}: {told:?}");
        let ran = self.host.sidle(&[&["--json"], words, &["--dry-run"]].concat());
        assert_eq!(ran.code, Some(code), "{words:?}: {ran:?}");
        assert_same(&before, &self.now(), &format!("{words:?}"));
        if ran.json()["error"].is_null() {
            assert_eq!(ran.json()["dry_run"], true, "{words:?}: {ran:?}");
            self.tried.insert(name);
        }
        ran.json()
    }

    /// A dry run is refused as the real run is: the same code and the same message.
    fn refused(&mut self, words: &[&str]) {
        let real = self.host.sidle(&[&["--json"], words].concat());
        let code = real.code.filter(|code| *code != 0).unwrap_or_else(|| panic!("{words:?} is no refusal: {real:?}"));
        assert_eq!(real.json(), self.dry(words, code), "{words:?}");
    }
}

/// The verbs of docs/commands.md that have `--dry-run`.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md")).unwrap();
    let sections = page.split("\n## sidle ").skip(1);
    let dry = sections.filter(|section| section.contains("--dry-run"));
    dry.map(|section| section.lines().next().unwrap().to_owned()).collect()
}

#[test]
fn what_a_dry_run_announces_comes_true_and_nothing_was_changed_before() {
    let mut scene = Scene::new();
    author_verbs(&mut scene);
    host_verbs(&mut scene);
    // No agent of a distribution runs here: `salt::adopt` and the boot tests adopt and unadopt. `system::push` has sshd.
    scene.refused(&["adopt", DEMO]);
    scene.refused(&["unadopt", DEMO]);
    let missing: BTreeSet<String> = documented()
        .into_iter()
        .filter(|verb| !scene.tried.contains(verb) && verb != "push" && !verb.ends_with("adopt"))
        .collect();
    assert!(missing.is_empty() && scene.tried.len() > 25, "no dry run of {missing:?} was tried; {:?}", scene.tried);
}

fn author_verbs(scene: &mut Scene) {
    let (repository, key) = (scene.author.repository(), scene.author.key());
    let (repository, key) = (text(&repository), text(&key));
    let [packed, other, made, mirror, bundle, list] =
        ["packed", "other.pem", "made", "mirror", "out.sidle", "SHA256SUMS"].map(|name| scene.away(name));
    scene.both(&["key", "new", &other], 0, &["/file"]);
    scene.refused(&["key", "new", &other]);
    fs::write(&list, "some sums\n").unwrap();
    scene.both(&["key", "sign", key, &list], 0, &["/signature", "/minisign"]);
    scene.both(&["repo", "init", &made, "--key", &other], 0, &["/repository", "/root", "/minisign"]);
    scene.refused(&["repo", "init", &made, "--key", &other]);

    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent/demo-agent.toml");
    let pack = ["pack", text(&recipe), "--version", "1.2", "--output", &packed];
    scene.both(&pack, 0, &["/package", "/output", "/content_bytes", "/platform"]);
    scene.both(&["repo", "add", repository, &packed], 0, &["/release", "/added"]);
    scene.both(&["repo", "add", repository, &packed], 3, &["/release", "/added"]);
    scene.both(&["repo", "stage", repository], 0, &["/waiting/0/file", "/waiting/0/changes"]);
    scene.refused(&["repo", "sign", repository, "--key", &other]);
    scene.both(&["repo", "sign", repository, "--key", key], 0, &["/signed", "/waiting/0/signed"]);
    scene.refused(&["repo", "publish", repository, "--key", &other]);
    let published =
        scene.both(&["repo", "publish", repository, "--key", key], 0, &["/published", "/signed", "/waiting"]);
    assert_eq!(published.0["published"].as_array().unwrap().len(), 1);
    scene.both(&["repo", "refresh", repository, "--online-key", key, "--force"], 0, &["/signed"]);
    scene.both(&["export", repository, DEMO, "-o", &bundle], 0, &["/file", "/bytes", "/releases"]);
    scene.refused(&["export", repository, DEMO, "-o", &bundle]);
    let url = format!("file://{repository}");
    let (copy, _) = scene.both(&["mirror", &mirror, "--repository", &url], 0, &["/fetched", "/kept", "/removed"]);
    assert!(copy["fetched"].as_array().unwrap().len() > 6 && copy["lacking_bytes"].as_u64() > Some(0), "{copy}");
    scene.both(&["mirror", &mirror, "--repository", &url], 3, &["/fetched", "/kept", "/removed"]);
    let withdrawn = format!("{DEMO}@1.2-1");
    scene.both(&["repo", "withdraw", repository, &withdrawn], 0, &["/withdrawn", "/deleted"]);
    scene.both(&["repo", "publish", repository, "--key", key], 0, &["/withdrawn", "/signed"]);
    scene.both(&["repo", "withdraw", repository, &withdrawn, "--delete"], 0, &["/withdrawn", "/deleted"]);
    let facts = ["/fetched", "/kept", "/removed"];
    let (cleaned, _) = scene.both(&["mirror", &mirror, "--repository", &url, "--delete"], 0, &facts);
    assert!(cleaned["removed"].as_array().unwrap().len() > 3, "{cleaned}");
    let delegate = ["repo", "delegate", &made, "team", "--path", "demo-agent/*/*/*", "--key", &other];
    scene.both(&delegate, 0, &["/waiting/0/changes", "/discarded"]);
    scene.both(&["repo", "undelegate", &made, "team"], 0, &["/waiting/0/changes", "/discarded"]);
    scene.both(&["repo", "rotate", &made, "root", "--add", key, "--key", &other], 0, &["/waiting/0/changes"]);
}

fn host_verbs(scene: &mut Scene) {
    let bundle = scene.author.release("1.3", "good");
    let url = format!("file://{}", text(&scene.author.repository()));
    let (root, print) = (scene.author.repository().join("metadata/1.root.json"), scene.author.fingerprint());
    scene.both(&["trust", "pin", text(&root), "--fingerprint", &print], 3, &["/fingerprint", "/pinned"]);
    scene.both(&["trust", "reset-clock"], 0, &["/forgotten"]);
    let setup = ["setup", "--repository", &url, "--fingerprint", &print, "--package", DEMO, "--release", "1.0-1"];
    scene.both(&setup, 0, &["/changed", "/steps/0/changed", "/steps/1/changed", "/release"]);
    scene.both(&["hold", DEMO], 0, &["/instance"]);
    scene.refused(&["switch", DEMO, "1.0-1"]);
    scene.refused(&["upgrade", DEMO]);
    scene.both(&["unhold", DEMO], 0, &["/lifted"]);
    scene.both(&["rollout", "claim", DEMO, "r1", "--epoch", "1"], 0, &["/instance", "/rollout/id"]);
    scene.refused(&["switch", DEMO, "1.0-1", "--rollout", "r2", "--epoch", "1"]);
    scene.both(&["rollout", "unclaim", DEMO, "r1"], 0, &["/unclaimed"]);
    scene.host.sidle(&["remove", DEMO, "1.3-1"]).ok();

    // Nobody supervises: the request would wait.
    let (waits, _) = scene.both_codes(&["switch", DEMO, "1.0-1"], (0, 4), &["/switch", "/pending"]);
    assert_eq!((&waits["mode"], &waits["from"]), (&"idle".into(), &Value::Null), "{waits}");
    scene.refused(&["switch", DEMO, "1.1-1"]);
    scene.both(&["cancel", DEMO], 0, &["/switch"]);
    scene.refused(&["restart", DEMO]);
    scene.refused(&["rollback", DEMO]);
    scene.refused(&["switch", DEMO, "9.9-1"]);

    scene.supervisor = Some(scene.host.supervise());
    scene.host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    scene.came_true(&["switch", DEMO, "1.1-1"]);
    scene.refused(&["switch", DEMO, "1.1-1"]);
    scene.came_true(&["rollback", DEMO]);
    scene.came_true(&["restart", DEMO]);
    scene.came_true(&["upgrade", text(&bundle)]);
    assert_eq!(scene.host.current().as_deref(), Some("1.3-1"));
    scene.both(&["upgrade", text(&bundle)], 3, &["/package", "/release", "/switch"]);
    scene.refused(&["switch", DEMO, "9.9-1"]);
    let unchanged = ["restart", DEMO, "--if-changed"];
    scene.both(&unchanged, 3, &["/switch"]);

    let more = scene.author.release("1.4", "good");
    scene.both(&["install", text(&more)], 0, &["/package", "/release", "/fresh", "/content_bytes", "/current"]);
    let damaged = scene.host.path("opt/sidle/demo-agent/versions/1.4-1");
    let file = damaged.join("share/demo-agent/release");
    fs::write(&file, "1.5\n").unwrap();
    fs::write(damaged.join("foreign"), "?").unwrap();
    let facts = ["/releases/0/sound", "/releases/0/problems"];
    scene.both(&["verify", DEMO, "1.4-1"], 6, &facts);
    let facts = ["/releases/0/sound", "/releases/0/problems", "/releases/0/mended", "/releases/0/aside"];
    scene.both(&["repair", DEMO, "1.4-1", "--offline"], 6, &facts);
    scene.both(&["repair", DEMO, "1.4-1", "--from", text(&more)], 0, &facts);
    fs::remove_file(damaged.join("bin/demo-agent")).unwrap();
    let facts = ["/releases/0/sound", "/releases/0/release"];
    let (foreseen, _) = scene.both(&["scrub", DEMO], 0, &facts);
    assert!(foreseen.to_string().contains("bin/demo-agent"), "{foreseen}");
    scene.both(&["remove", DEMO, "1.4-1"], 0, &["/package", "/release", "/bytes"]);
    scene.both(&["collect", "--keep", "0"], 0, &["/packages"]);
    scene.supervisor = None;
    eventually(20, "the agent has ended", || match scene.host.agents() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    // A last child of the agent may still hold its lease.
    eventually(20, "nothing is in use", || match scene.host.sidle(&["generalize", "--dry-run"]) {
        ran if ran.code == Some(0) => Ok(()),
        ran => Err(format!("{ran:?}")),
    });
    scene.both(&["generalize"], 0, &["/removed"]);
}

impl Scene {
    /// Like `both`, for verbs that are pending after the real run.
    fn both_codes(&mut self, words: &[&str], (dry_code, code): (i32, i32), facts: &[&str]) -> (Value, Value) {
        let dry = self.dry(words, dry_code);
        let real = self.host.sidle(&[&["--json"], words].concat());
        assert_eq!(real.code, Some(code), "{words:?}: {real:?}");
        for fact in facts {
            assert_eq!(dry.pointer(fact), real.json().pointer(fact), "{words:?}: {fact}");
        }
        (dry, real.json())
    }

    /// The switch of a dry run, with a supervisor: the same number, release and mode in the history of the real run.
    fn came_true(&mut self, words: &[&str]) {
        let dry = self.dry(words, 0);
        self.host.sidle(words).ok();
        let last = eventually(20, "the switch is over", || match self.host.last() {
            last if last["id"] == dry["switch"] => Ok(last),
            last => Err(last.to_string()),
        });
        for fact in ["to", "from", "mode"] {
            assert_eq!(last[fact], dry[fact], "{words:?}: {fact} of {last}");
        }
    }
}

#[test]
fn a_dry_run_of_each_verb_changes_no_file_and_ends_as_the_real_run_would() {
    let (host, author) = two_releases();
    host.sidle(&["switch", DEMO, "1.0-1"]);
    assert_eq!(host.sidle(&["status", DEMO]).code, Some(4), "a switch waits for its supervisor");
    let bundle = author.release("1.2", "good");
    let root = author.repository().join("metadata/1.root.json");
    let (fingerprint, wrong) = (author.fingerprint(), "0".repeat(64));
    let table: &[(&[&str], i32, &str)] = &[
        (&["install", text(&bundle)], 0, "would install"),
        (&["collect", "--keep", "0"], 0, "would remove"),
        (&["remove", DEMO, "1.1-1"], 0, "would remove"),
        (&["hold", DEMO], 0, "would be held"),
        (&["hold", DEMO, "--until", "2001-01-01"], 2, ""),
        (&["hold", "demo-agnet"], 1, ""),
        (&["unhold", DEMO], 3, "is not held"),
        (&["rollout", "claim", DEMO, "r1", "--epoch", "1"], 0, "would belong to rollout r1 (epoch 1)"),
        (&["rollout", "claim", DEMO, "a/b", "--epoch", "1"], 2, ""),
        (&["rollout", "unclaim", DEMO, "r1"], 3, "does not belong to rollout r1"),
        (&["cancel", DEMO], 0, "would be cancelled"),
        (&["trust", "pin", text(&root), "--fingerprint", &fingerprint], 3, "trusted already"),
        (&["trust", "pin", text(&root), "--fingerprint", &wrong], 7, ""),
        (&["trust", "reset-clock"], 0, "would forget"),
    ];
    for (words, code, told) in table {
        let before = files(&host);
        let ran = host.sidle(&[words, &["--dry-run"][..]].concat());
        assert_eq!(ran.code, Some(*code), "{words:?}: {ran:?}");
        assert!(ran.stdout.contains(told), "{words:?}: {ran:?}");
        assert!(files(&host) == before, "{words:?} changed the host");
    }
    host.sidle(&["hold", DEMO]).ok();
    let before = files(&host);
    assert!(host.sidle(&["unhold", DEMO, "--dry-run"]).ok().contains("would no longer be held"));
    assert!(files(&host) == before);
    host.sidle(&["unhold", DEMO]).ok();
    host.sidle(&["cancel", DEMO]).ok();
    assert_eq!(host.sidle(&["cancel", DEMO, "--dry-run"]).code, Some(3));
}

#[test]
fn a_dry_run_of_a_pin_makes_no_trust_store() {
    let (author, host) = (Author::new(), Host::bare());
    let root = author.repository().join("metadata/1.root.json");
    let fingerprint = author.fingerprint();
    let ran = host.sidle(&["trust", "pin", text(&root), "--fingerprint", &fingerprint, "--dry-run"]);
    assert!(ran.ok().contains("would be trusted"));
    assert_eq!(files(&host).into_keys().collect::<Vec<_>>(), [host.root()]);
}
