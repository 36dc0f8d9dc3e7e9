//! `sidle push` to hosts that have nothing: eight roots behind real sshds, two of them broken, two whose connection breaks in mid-transfer.

use crate::support::mirrors::Handmade;
use crate::support::pty::sidle_at;
use crate::support::release::static_program;
use crate::support::repositories::snapshot_of;
use crate::support::roots::{Kind, Root, Roots};
use crate::support::stage::{Author, DEMO, Host, Ran, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

const MIB: u64 = 1 << 20;

/// A release with content that does not compress, of so many bytes.
fn heavy(author: &Author, version: &str, bytes: usize) {
    author.release_with(version, |tree| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let content: Vec<u8> = (0..bytes / 8).flat_map(|_| next()).collect();
        for (number, part) in content.chunks(4 << 20).enumerate() {
            fs::write(tree.join(format!("share/demo-agent/heavy{number}")), part).unwrap();
        }
    });
}

struct Pusher<'p> {
    host: Host,
    roots: &'p Roots,
    repository: String,
    fingerprint: String,
    program: String,
}

impl Pusher<'_> {
    fn push(&self, words: &[&str]) -> Ran {
        let config = self.roots.config();
        let own = ["--json", "push", "-F", text(&config), "--package", DEMO, "--program", &self.program];
        let from = ["--repository", &self.repository, "--fingerprint", &self.fingerprint];
        self.host.sidle(&[&own[..], &from[..], words].concat())
    }
}

fn of<'v>(all: &'v Value, root: &Root) -> &'v Value {
    let hosts = all["hosts"].as_array().unwrap();
    hosts.iter().find(|host| host["host"] == root.name.as_str()).unwrap_or_else(|| panic!("{}: {all}", root.name))
}

/// The files of a host that a push has made, and when.
fn seen(root: &Root) -> Vec<(String, u64, i64)> {
    let mut all = Vec::new();
    for below in ["usr/bin", "usr/lib", "etc", "opt", "var/lib"] {
        let there = root.path(below);
        if !there.exists() {
            continue;
        }
        for (path, _) in snapshot_of(&there) {
            let stat = fs::symlink_metadata(there.join(&path)).unwrap();
            all.push((format!("{below}/{}", path.display()), stat.ino(), stat.mtime_nsec()));
        }
    }
    all
}

fn leaves_nothing_in_tmp(root: &Root) {
    for place in ["tmp", "var/tmp"] {
        let left: Vec<_> = fs::read_dir(root.path(place)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{}: {place}: {left:?}", root.name);
    }
    let parts = fs::read_dir(root.path("usr/bin")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!parts.map(|name| name.into_string().unwrap()).any(|name| name.contains(".part")), "{}", root.name);
}

#[test]
fn broken_hosts_are_named_the_others_are_set_up_and_the_same_command_goes_on() {
    let program = static_program();
    let program_bytes = fs::metadata(&program).unwrap().len();
    let author = Author::new();
    heavy(&author, "1.0", 32 << 20);
    let roots = Roots::new(&[
        Kind::Good,
        Kind::Greets,
        Kind::OtherKey,
        Kind::ReadOnly,
        Kind::Breaks(5 * MIB),
        Kind::Breaks(program_bytes + 20 * MIB),
        Kind::Good,
        Kind::Good,
    ]);
    let hosts = &roots.hosts;
    let pusher = Pusher {
        host: Host::bare(),
        roots: &roots,
        repository: format!("file://{}", text(&author.repository())),
        fingerprint: author.fingerprint(),
        program: text(&program).to_owned(),
    };
    let roster = author.directory().join("roster");
    fs::write(&roster, "r6: {host: r6, user: root}\nr7:\n").unwrap();

    let bare = seen(&hosts[0]);
    let dry = pusher.push(&["r0", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(dry.stdout.contains("would bring the program") && dry.stdout.contains("would install"), "{dry:?}");
    assert_eq!(seen(&hosts[0]), bare);
    let loose = pusher.push(&["r2", "-o", "StrictHostKeyChecking no"]);
    assert_eq!(loose.code, Some(2), "{loose:?}");

    let words = ["r0", "r1", "r2", "r3", "r4", "r5", "--roster", text(&roster), "--parallel", "4"];
    let first = pusher.push(&words);
    let all = first.json();
    assert_eq!(first.code, Some(7), "the worst of all: {all}");
    for root in [&hosts[0], &hosts[1], &hosts[6], &hosts[7]] {
        assert_eq!((&of(&all, root)["state"], &of(&all, root)["release"]), (&"done".into(), &"1.0-1".into()), "{all}");
        assert!(root.path("opt/sidle/demo-agent/versions/1.0-1").is_dir(), "{}", root.name);
        for file in ["usr/bin/sidle", "usr/lib/systemd/system/sidle@.service", "usr/lib/sidle/installed"] {
            assert!(root.path(file).is_file(), "{}: {file}", root.name);
        }
        leaves_nothing_in_tmp(root);
    }
    let changed = &of(&all, &hosts[2])["error"];
    assert_eq!(changed["class"], "not-trusted", "{all}");
    assert!(changed["message"].as_str().unwrap().contains("the host key has changed"), "{changed}");
    assert!(!hosts[2].was_entered(), "nobody signed in to a host whose key has changed");
    let message = of(&all, &hosts[3])["error"]["message"].as_str().unwrap();
    assert!(message.contains("Read-only file system"), "{message}");
    for (root, step) in [(&hosts[4], "program"), (&hosts[5], "setup")] {
        let host = of(&all, root);
        assert_eq!((&host["state"], &host["step"]), (&"failed".into(), &step.into()), "{all}");
        assert!(host["error"]["hint"].as_str().unwrap().contains("goes on where it stopped"), "{host}");
    }
    assert!(!hosts[4].path("usr/bin/sidle").exists(), "no half program");
    assert!(!pusher.host.path("run/sidle").read_dir().unwrap().any(|_| true), "the sockets are gone");

    let before = seen(&hosts[0]);
    let again = pusher.push(&words).json();
    let total = |root| of(&all, root)["bytes_sent"].as_u64().unwrap();
    let sent = |root| of(&again, root)["bytes_sent"].as_u64().unwrap();
    for root in [&hosts[4], &hosts[5]] {
        assert_eq!(of(&again, root)["state"], "done", "{again}");
        leaves_nothing_in_tmp(root);
    }
    let whole = total(&hosts[1]);
    assert!(whole > program_bytes + 32 * MIB, "{whole}");
    // What ssh had sent ahead (its window, 2 MiB) is lost.
    assert!(sent(&hosts[4]) < whole - 2 * MIB, "the beginning of the program was kept: {again}");
    assert!(sent(&hosts[5]) < 24 * MIB, "the program and the verified frames were kept: {again}");
    assert_eq!(of(&again, &hosts[0])["state"], "unchanged", "{again}");
    assert!(sent(&hosts[0]) < MIB, "only metadata: {again}");
    assert_eq!(seen(&hosts[0]), before, "a host that is done is not touched again");

    // From a bundle file that has less than a directory: the same protocol.
    let bundle = author.directory().join("demo-agent-1.0.sidle");
    let from_file = Pusher { repository: text(&bundle).to_owned(), ..pusher };
    let nothing = from_file.push(&["r0"]);
    assert_eq!(nothing.code, Some(3), "{nothing:?}");
    let wrong = Pusher { fingerprint: "0".repeat(64), ..from_file };
    let refused = wrong.push(&["r0"]);
    assert_eq!(refused.code, Some(7), "{refused:?}");

    // From a web server, through another host: this one keeps a copy, and says which release it found.
    author.release("1.1", "good");
    let files = author.repository();
    let server = Handmade::new(move |asked, line| {
        line.serve(asked, fs::read(files.join(asked.path.trim_start_matches('/'))).ok().as_deref());
    });
    let over_http = Pusher { repository: server.url(), fingerprint: author.fingerprint(), ..wrong };
    let through = over_http.push(&["r1", "-J", "r6"]);
    assert_eq!((through.code, &of(&through.json(), &hosts[1])["release"]), (Some(0), &"1.1-1".into()), "{through:?}");
    let asked = server.heads().len();
    let other = over_http.push(&["r7"]);
    assert_eq!((other.code, &of(&other.json(), &hosts[7])["release"]), (Some(0), &"1.1-1".into()), "{other:?}");
    let frames = server.heads()[asked..].iter().filter(|head| !head.contains("/metadata/")).count();
    assert_eq!(frames, 0, "the copy is used again: {:?}", &server.heads()[asked..]);
}

/// For people each host has a line, and each failure its remedy; a terminal shows where each host is.
#[test]
fn a_person_reads_what_each_host_came_to() {
    let author = Author::new();
    author.release("1.0", "good");
    let roots = Roots::new(&[Kind::OtherKey, Kind::Good]);
    let host = Host::bare();
    let (config, url, program) = (roots.config(), format!("file://{}", text(&author.repository())), static_program());
    let fingerprint = author.fingerprint();
    let options = ["--package", DEMO, "--repository", &url, "--fingerprint", &fingerprint, "--program", text(&program)];
    let push = |names: &[&'static str]| [&["push", "-F", text(&config)], names, &options[..]].concat();
    let ran = host.sidle(&push(&["r0"]));
    assert_eq!(ran.code, Some(7), "{ran:?}");
    for expected in ["r0: connect", "r0  failed", "the host key has changed", "ssh-keygen -R", "1 host, 1 failed"] {
        assert!(ran.stdout.contains(expected), "{expected:?} is not in {ran:?}");
    }
    let root = host.root();
    let shown = sidle_at(80, &[&["--root", text(&root)], &push(&["r0", "r1"])[..]].concat(), &[]);
    for expected in ["r1  setup  ", "1 of 2 hosts ended", "2 hosts, 1 "] {
        assert!(shown.contains(expected), "{expected:?} is not in {shown}");
    }
}

/// The shell of a host tells its C library: nothing is sent to a host that can take no release.
#[test]
fn a_host_with_an_older_c_library_gets_nothing() {
    let author = Author::new();
    author.needing_glibc("1.0", "9.99");
    let roots = Roots::new(&[Kind::WithLibraries]);
    let pusher = Pusher {
        host: Host::bare(),
        roots: &roots,
        repository: format!("file://{}", text(&author.repository())),
        fingerprint: author.fingerprint(),
        program: text(&static_program()).to_owned(),
    };
    for words in [&["r0", "--dry-run"][..], &["r0"]] {
        let all = pusher.push(words).json();
        let host = of(&all, &roots.hosts[0]);
        assert_eq!((&host["state"], &host["bytes_sent"]), (&"failed".into(), &0.into()), "{all}");
        let message = host["error"]["message"].as_str().unwrap();
        assert!(message.contains("needs glibc 9.99 or newer, this host has 2."), "{message}");
    }
}
