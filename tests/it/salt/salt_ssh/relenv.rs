//! `salt-ssh --relenv` of 3008 unpacks a whole Salt on a host: real salt-ssh, an archive that its cache has already, and a host on which sidle switches its minion.

use crate::support::minions::LONG_TERM;
use crate::support::salt::packaged_tree;
use crate::support::scene::Scene;
use crate::support::ssh::{Preflight, SaltSsh, Target, done};
use crate::support::stage::text;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::thread;

const TREE: &str = "var/tmp/.root_1a2b3c_salt_relenv";
const SOURCE: &str = "lib/python3.11/site-packages/salt/exceptions.py";

/// The archive where salt-ssh keeps what it has fetched: a whole tree, laid out as Salt's own, in a form that `tar -xf` reads.
fn archive(ssh: &SaltSsh) {
    let whole = ssh.path("packed/salt");
    fs::create_dir_all(&whole).unwrap();
    let tree = format!("{}/.", text(&packaged_tree(LONG_TERM[1])));
    done(Command::new("cp").args(["-a", "--reflink=auto", &tree]).arg(&whole), "coreutils");
    let enter = "#!/bin/sh\nexec \"$(dirname \"$(readlink -f \"$0\")\")/bin/salt-call\" \"$@\"\n";
    fs::write(whole.join("salt-call"), enter).unwrap();
    fs::set_permissions(whole.join("salt-call"), fs::Permissions::from_mode(0o755)).unwrap();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };
    let place = ssh.path("master/cache/relenv/linux").join(architecture);
    fs::create_dir_all(&place).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--use-compress-program", "zstd -1", "-cf"]).arg(place.join("salt-relenv.tar.xz")).arg("-C");
    done(tar.arg(ssh.path("packed")).arg("salt"), "tar");
    fs::remove_dir_all(ssh.path("packed")).unwrap();
}

fn version(ssh: &SaltSsh, preflight: Preflight) -> serde_json::Value {
    ssh.call(preflight, &["--relenv", "target", "test.version"])
}

/// Which file it is, and when it was unpacked.
fn mark(path: &Path) -> (u64, i64, i64) {
    let stat = fs::metadata(path).unwrap();
    (stat.ino(), stat.ctime(), stat.ctime_nsec())
}

#[test]
#[ignore = "`scripts/test --long`: packs, sends and unpacks a whole Salt twice, beside switches of a real minion"]
fn a_relenv_tree_of_salt_ssh_is_left_alone_by_switches_and_deployed_anew_where_it_lost_a_file() {
    let ssh = SaltSsh::new(LONG_TERM[1], Target::Here(TREE));
    fs::create_dir_all(ssh.path("var/tmp")).unwrap();
    archive(&ssh);
    assert_eq!(version(&ssh, Preflight::None), LONG_TERM[1]);
    let source = ssh.path(TREE).join(SOURCE);
    let whole = mark(&source);

    let scene = Scene::new(&LONG_TERM);
    let switched = thread::scope(|scope| {
        let switch = scope.spawn(|| scene.switch(&[&format!("{}-1", LONG_TERM[1]), "--mode", "overlap"]));
        // Each call is a salt-call of another Salt on this host, while two minions of sidle run.
        while !switch.is_finished() {
            assert_eq!(version(&ssh, Preflight::Ours), LONG_TERM[1]);
        }
        switch.join().unwrap()
    });
    assert_eq!(switched.code, Some(0), "{switched:?}\n{}", scene.logs());
    let back = scene.verb("rollback", &[]);
    assert_eq!(back.code, Some(0), "{back:?}\n{}", scene.logs());
    scene.answers();
    assert_eq!(version(&ssh, Preflight::Ours), LONG_TERM[1]);
    assert_eq!(mark(&source), whole, "a whole tree was touched");

    // The control: salt-ssh believes it by its salt-call.
    fs::remove_file(&source).unwrap();
    let said = version(&ssh, Preflight::None).to_string();
    assert!(said.contains("No module named 'salt.exceptions'"), "{said}");
    assert_eq!(version(&ssh, Preflight::Ours), LONG_TERM[1]);
    assert!(source.exists(), "it was not unpacked anew");
}
