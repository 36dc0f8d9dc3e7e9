//! Hosts that let only known files run: fapolicyd's list of trusted files.

use crate::support::stage::{Author, DEMO, Host, two_releases};
use sidle::digest::Digest;
use std::fs;
use std::path::Path;

fn list(host: &Host, release: &str) -> Option<String> {
    fs::read_to_string(host.path("etc/fapolicyd/trust.d").join(format!("sidle-{DEMO}@{release}"))).ok()
}

#[test]
fn fapolicyd_trusts_each_file_of_each_installed_release_and_no_other() {
    let author = Author::new();
    let host = Host::new(&author);
    fs::create_dir_all(host.path("etc/fapolicyd/trust.d")).unwrap();
    fs::write(host.path("etc/fapolicyd/trust.d/sidle-demo-agent@mine"), "/bin/true 1 00\n").unwrap();
    for version in ["1.0", "1.1", "1.2"] {
        host.install(&author.release(version, "good")).ok();
    }
    let trusted = list(&host, "1.1-1").expect("the list is there");
    assert!(trusted.contains("/opt/sidle/demo-agent/versions/1.1-1/bin/demo-agent "), "{trusted}");
    for line in trusted.lines() {
        let [path, size, digest] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let content = fs::read(host.path(path.trim_start_matches('/'))).unwrap();
        assert_eq!((size.parse::<usize>().unwrap(), digest), (content.len(), &*Digest::of(&content).to_string()));
    }
    host.sidle(&["test-flip", DEMO, "1.2-1"]).ok();
    host.sidle(&["collect", DEMO, "--keep", "1"]).ok();
    assert_eq!((list(&host, "1.0-1"), list(&host, "1.1-1")), (None, Some(trusted)));
    // fapolicyd may come after the release: the next command that changes anything writes what lacks.
    fs::remove_file(host.path("etc/fapolicyd/trust.d/sidle-demo-agent@1.2-1")).unwrap();
    host.sidle(&["remove", DEMO, "1.1-1"]).ok();
    assert_eq!(list(&host, "1.1-1"), None);
    assert!(list(&host, "1.2-1").is_some() && list(&host, "mine").is_some(), "what is in use, and another's, stays");
}

#[test]
fn a_host_without_fapolicyd_and_selinux_gets_nothing() {
    let (host, _author) = two_releases();
    assert!(!host.path("etc/fapolicyd").exists() && !host.path("etc/selinux").exists());
    let mut value = [0_u8; 256];
    let tree = host.path("opt/sidle/demo-agent/versions/1.0-1");
    let own = rustix::fs::lgetxattr(tree.join("bin/demo-agent"), "security.selinux", &mut value[..]);
    let beside = rustix::fs::lgetxattr(Path::new(&host.path("etc/sidle")), "security.selinux", &mut value[..]);
    assert_eq!(own.is_ok(), beside.is_ok(), "only the kernel labels it");
}
