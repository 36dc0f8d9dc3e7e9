//! A copy of a repository: verified, only what is missing, and good for hosts.

use crate::support::mirrors::{Certificates, Nginx};
use crate::support::repositories::snapshot_of;
use crate::support::stage::{Author, DEMO, Host, sidle, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A repository behind a web server, and a host that copies it.
struct Site {
    author: Author,
    _nginx: Nginx,
    host: Host,
}

impl Site {
    fn new(versions: &[&str]) -> Self {
        let (author, certificates) = (Author::new(), Certificates::new());
        for version in versions {
            author.release(version, "good");
        }
        let nginx = Nginx::start(&author.repository(), &certificates, "");
        let host = Host::new(&author);
        let (url, ca) = (nginx.url(), certificates.file("ca.pem"));
        fs::copy(ca, host.path("etc/ca.pem")).unwrap();
        let settings = format!("[repository]\nurl = \"{url}\"\nca_file = \"{}\"\n", text(&host.path("etc/ca.pem")));
        fs::write(host.path("etc/sidle/conf.d/repository.toml"), settings).unwrap();
        Self { author, _nginx: nginx, host }
    }

    fn copy(&self) -> PathBuf {
        self.host.path("srv/copy")
    }

    fn mirror(&self, more: &[&str]) -> crate::support::stage::Ran {
        self.host.sidle(&[&["--json", "mirror", text(&self.copy())], more].concat())
    }
}

/// The served files: what the author keeps for itself is not served.
fn served(repository: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = snapshot_of(repository).into_iter();
    all.filter(|(path, _)| path.starts_with("metadata") || path.starts_with("targets")).collect()
}

fn fetched(ran: &crate::support::stage::Ran) -> usize {
    ran.json()["fetched"].as_array().unwrap().len()
}

#[test]
fn a_mirror_is_the_repository_and_the_next_run_brings_what_is_new() {
    let site = Site::new(&["1.0"]);
    let first = site.mirror(&[]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(served(&site.copy()), served(&site.author.repository()));
    let again = site.mirror(&[]);
    assert!(again.code == Some(3) && fetched(&again) == 0, "{again:?}");
    site.author.release("1.1", "good");
    let next = site.mirror(&["--delete"]);
    // Manifest, payload, and perhaps a patch; targets, snapshot and timestamp.
    assert!((5..=6).contains(&fetched(&next)), "{next:?}");
    let copy = served(&site.copy());
    let origin = served(&site.author.repository());
    assert!(copy.iter().all(|(path, bytes)| origin.get(path) == Some(bytes)));
    assert!(!copy.contains_key(Path::new("metadata/1.targets.json")), "the older set is gone");
    // It serves hosts, another copy, and whoever checks with other tools.
    let reader = Host::new(&site.author);
    let url = format!("file://{}", text(&site.copy()));
    reader.sidle(&["install", DEMO, "--repository", &url]).ok();
    reader.sidle(&["verify", DEMO, "--full"]).ok();
    reader.sidle(&["mirror", text(&reader.path("copy")), "--repository", &url]).ok();
    assert_eq!(served(&reader.path("copy")), copy);
}

#[test]
fn a_mirror_mends_what_is_damaged_and_brings_no_more_than_is_wanted() {
    let site = Site::new(&["1.0", "1.1"]);
    let only = site.mirror(&["--include", &format!("{DEMO}/1.*/*"), "--exclude", "*/1.1-*/*"]);
    assert_eq!(only.code, Some(0), "{only:?}");
    let payloads = |copy: &Path| -> Vec<PathBuf> {
        served(copy).into_keys().filter(|path| text(path).ends_with(".payload.tar.zst")).collect()
    };
    assert_eq!(payloads(&site.copy()).len(), 1);
    let path = site.copy().join(&payloads(&site.copy())[0]);
    let whole = fs::read(&path).unwrap();
    let mut spoiled = whole.clone();
    spoiled[whole.len() / 2] ^= 1;
    fs::write(&path, spoiled).unwrap();
    let all = site.mirror(&["--frame-files"]);
    assert_eq!((all.code, fs::read(&path).unwrap() == whole), (Some(0), true), "{all:?}");
    assert_eq!(payloads(&site.copy()).len(), 2);
    assert!(served(&site.copy()).keys().any(|path| text(path).contains("/frames/")));
    let bad = site.mirror(&["--include", "demo-agent"]);
    assert!(bad.code == Some(2) && bad.stdout.contains("PACKAGE/RELEASE/PLATFORM"), "{bad:?}");
}

#[test]
fn what_is_withdrawn_goes_from_the_mirror_and_is_refused_by_hosts() {
    let site = Site::new(&["1.0", "1.1"]);
    site.mirror(&[]).ok();
    let repository = site.author.repository();
    sidle(&["repo", "withdraw", text(&repository), &format!("{DEMO}@1.1-1"), "--reason", "it is bad"], &[]).ok();
    sidle(&["repo", "publish", text(&repository), "--key", text(&site.author.key())], &[]).ok();
    let removed = site.mirror(&["--delete"]).json()["removed"].as_array().unwrap().len();
    assert!(removed >= 3, "{removed}");
    let reader = Host::new(&site.author);
    let url = format!("file://{}", text(&site.copy()));
    reader.sidle(&["install", DEMO, "--repository", &url]).ok();
    let list = reader.sidle(&["--json", "list"]).json();
    assert_eq!(list["releases"][0]["release"], "1.0-1");
    let gone = reader.sidle(&["install", &format!("{DEMO}@1.1-1"), "--repository", &url]);
    assert_eq!(gone.code, Some(7), "{gone:?}");
}

#[test]
fn a_mirror_of_another_repository_or_of_an_older_state_is_refused() {
    let site = Site::new(&["1.0"]);
    site.mirror(&[]).ok();
    let before = served(&site.copy());
    let stranger = Author::new();
    stranger.release("9.0", "good");
    let url = format!("file://{}", text(&stranger.repository()));
    let refused = site.host.sidle(&["mirror", text(&site.copy()), "--repository", &url]);
    assert!(refused.code == Some(6) && refused.stderr.contains(&url), "{refused:?}");
    // An older state of the own one: the host has seen a newer one.
    let old = site.host.path("old");
    for (path, bytes) in served(&site.author.repository()) {
        fs::create_dir_all(old.join(&path).parent().unwrap()).unwrap();
        fs::write(old.join(&path), bytes).unwrap();
    }
    site.author.release("1.1", "good");
    site.mirror(&[]).ok();
    let url = format!("file://{}", text(&old));
    let refused = site.host.sidle(&["mirror", text(&site.host.path("other")), "--repository", &url]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert!(served(&site.copy()).len() > before.len());
    // Another upstream is up to date, and is taken.
    let both = ["--repository", &url, "--repository", &format!("file://{}", text(&site.author.repository()))];
    let other = site.host.path("other");
    let mirrored = site.host.sidle(&[&["mirror", text(&other)][..], &both].concat());
    assert!(mirrored.code == Some(0) && mirrored.stderr.contains(&url), "{mirrored:?}");
    let newest = |copy: &Path| fs::read_to_string(copy.join("metadata/timestamp.json")).unwrap();
    assert_eq!(newest(&other), newest(&site.author.repository()));
    assert_eq!(served(&other).keys().filter(|path| text(path).ends_with(".payload.tar.zst")).count(), 2);
}
