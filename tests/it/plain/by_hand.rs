//! Carried by hand, late: old metadata warns, then refuses new releases; what is installed starts, is mended and switched to as ever.

use crate::support::repositories::RepoBuilder;
use crate::support::stage::{DEMO, Host, sidle, text};
use jiff::{SignedDuration, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};

/// A repository whose last signature is this many days old.
struct Old {
    repo: RepoBuilder,
}

impl Old {
    fn new(days: i64) -> Self {
        let now = Timestamp::now().checked_sub(SignedDuration::from_hours(days * 24)).unwrap();
        Self { repo: RepoBuilder::new(now) }
    }

    /// A release of the demonstration agent in a bundle file.
    fn release(&self, version: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent");
        let packed = self.repo.directory.path().join(version);
        let tree = self.repo.directory.path().join(format!("tree-{version}"));
        let copied = std::process::Command::new("cp").arg("-r").arg(source.join("tree")).arg(&tree).status();
        assert!(copied.unwrap().success());
        fs::write(tree.join("share/demo-agent/release"), format!("{version}\n")).unwrap();
        let recipe = source.join("demo-agent.toml");
        let what = ["pack", text(&recipe), "--version", version, "--tree", text(&tree), "--output", text(&packed)];
        sidle(&what, &[]).ok();
        sidle(&["repo", "add", text(&self.repo.path()), text(&packed)], &[]).ok();
        let id = self.repo.publish().added.remove(0);
        self.repo.export(&[id], &format!("{version}.sidle"))
    }

    fn host(&self) -> Host {
        Host::trusting(&self.repo.path().join("metadata/1.root.json"), &self.repo.fingerprint.to_string())
    }
}

#[test]
fn old_metadata_warns_and_then_refuses_new_releases_and_nothing_else() {
    let old = Old::new(40);
    let (first, second, third) = (old.release("1.0"), old.release("1.1"), old.release("1.2"));
    let host = old.host();
    for bundle in [&first, &second] {
        let installed = host.install(bundle);
        assert_eq!(installed.code, Some(0), "{installed:?}");
        assert!(installed.stderr.contains("expired at"), "{installed:?}");
    }
    // From here on it is too late for anything new.
    let settings = host.path("etc/sidle/conf.d/late.toml");
    fs::write(settings, "by_hand_grace = \"1d\"\n").unwrap();
    let refused = host.install(&third);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert!(refused.stderr.contains("expired at"), "{refused:?}");
    let online = format!("file://{}", text(&old.repo.path()));
    let refused = host.sidle(&["install", DEMO, "--repository", &online]);
    assert_eq!(refused.code, Some(7), "a fetch has no grace at all: {refused:?}");

    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(host.answering("late"), "1.0");
    let broken = host.path(&format!("opt/sidle/{DEMO}/versions/1.1-1/share/demo-agent/release"));
    fs::write(&broken, "9.9\n").unwrap();
    host.sidle(&["repair", DEMO, "1.1-1", "--from", text(&second)]).ok();
    fs::write(&broken, "9.9\n").unwrap();
    host.sidle(&["repair", DEMO, "1.1-1", "--repository", &online]).ok();
    host.sidle(&["verify", DEMO, "--full"]).ok();
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_signature_of_next_year_is_told_as_such_and_forgotten_on_request() {
    let mut old = Old::new(0);
    let first = old.release("1.0");
    let host = old.host();
    host.install(&first).ok();
    let now = old.repo.now;
    old.repo.now = now.checked_add(SignedDuration::from_hours(200 * 24)).unwrap();
    let second = old.release("1.1");
    host.install(&second).ok();
    old.repo.now = now;
    let third = old.release("1.2");
    let refused = host.install(&third);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    for words in ["this host's clock shows", "by a signature", "sidle trust reset-clock"] {
        assert!(refused.stderr.contains(words), "{words:?} is not in {refused:?}");
    }
    host.sidle(&["trust", "reset-clock"]).ok();
    host.install(&third).ok();
}
