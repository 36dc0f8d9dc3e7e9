//! salt-ssh believes a stamp in /var/tmp to this day: its tree, cleaned by age, fails for as long as the stamp stays; with our script before it
//! the next call deploys it anew. Real salt-ssh, real sshd, real systemd-tmpfiles.

mod relenv;

use crate::support::minions;
use crate::support::ssh::{Preflight, SaltSsh, Target, done, script};
use crate::support::stage::{Host, SALT, SIDLE, text};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The thin tree below its own root, named as salt-ssh names it.
const THIN: &str = "var/tmp/.root_1a2b3c_salt";

/// A master that works over ssh, and a host behind it whose root is a directory.
struct Scene {
    ssh: SaltSsh,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { ssh: SaltSsh::new("3007.17", Target::Here(THIN)) };
        fs::create_dir_all(scene.ssh.path("etc/tmpfiles.d")).unwrap();
        fs::create_dir_all(scene.ssh.path("var/tmp")).unwrap();
        // By the time of the last change alone, which a test can set.
        fs::write(scene.ssh.path("etc/tmpfiles.d/tmp.conf"), "d /var/tmp 1777 - - mM:30d\n").unwrap();
        scene
    }

    fn thin(&self, path: &str) -> PathBuf {
        self.ssh.path(THIN).join(path)
    }

    /// A month goes by in which calls read the stamp, the configuration and Python's bytecode, then the real cleaner comes.
    fn cleaned(&self) {
        let find = |what: &[&str]| {
            done(Command::new("find").arg(self.ssh.path(THIN)).args(what), "findutils");
        };
        find(&["-exec", "touch", "-h", "-d", "90 days ago", "{}", "+"]);
        find(&["-name", "*.pyc", "-exec", "touch", "{}", "+"]);
        find(&["-maxdepth", "1", "-type", "f", "-exec", "touch", "{}", "+"]);
        let root = format!("--root={}", text(&self.ssh.path("")));
        done(Command::new("systemd-tmpfiles").args([&root, "--clean"]), "systemd");
        let (stamp, source) = (self.thin("code-checksum"), self.thin("pyall/salt/exceptions.py"));
        assert!(stamp.exists() && !source.exists(), "the cleaner took the stamp, or left the sources");
    }

    /// Which file the stamp is, and when it was written; the same of our list.
    fn marks(&self) -> [Option<(u64, i64, i64)>; 2] {
        ["code-checksum", ".sidle-files"].map(|name| {
            let stat = fs::metadata(self.thin(name)).ok()?;
            Some((stat.ino(), stat.mtime(), stat.mtime_nsec()))
        })
    }
}

#[test]
fn a_thin_tree_that_was_cleaned_by_age_is_deployed_anew_and_a_whole_one_is_left_alone() {
    let scene = Scene::new();
    scene.ssh.answers(Preflight::None);
    scene.cleaned();
    // The control, as often as one likes: the stamp says that all is well.
    for _ in 0..2 {
        let said = scene.ssh.fails();
        assert!(said.contains("No module named 'salt."), "{said}");
        assert!(scene.thin("code-checksum").exists());
    }
    scene.ssh.answers(Preflight::Ours);
    assert!(scene.thin("pyall/salt/exceptions.py").exists());

    scene.ssh.answers(Preflight::Ours);
    let whole = scene.marks();
    assert!(whole[1].is_some(), "no list was made");
    scene.ssh.answers(Preflight::Ours);
    assert_eq!(scene.marks(), whole, "a whole tree was touched");

    scene.cleaned();
    scene.ssh.answers(Preflight::Ours);
    assert_ne!(scene.marks()[0], whole[0], "it was not deployed anew");

    // One file is enough, and what its loss looks like is what operators know.
    scene.ssh.answers(Preflight::Ours);
    fs::remove_file(scene.thin("pyall/salt/exceptions.py")).unwrap();
    let said = scene.ssh.fails();
    assert!(said.contains("No module named 'salt.exceptions'"), "{said}");
    scene.ssh.answers(Preflight::Ours);

    // A tree from before our time: nobody knows what was in it.
    fs::remove_file(scene.thin("pyall/salt/modules/cron.py")).unwrap();
    done(Command::new("touch").args(["-d", "2 days ago"]).arg(scene.thin("code-checksum")), "coreutils");
    scene.ssh.answers(Preflight::Ours);
    assert!(scene.thin("pyall/salt/modules/cron.py").exists(), "an old tree without a list was believed");
}

#[test]
fn where_a_release_is_installed_salt_ssh_needs_no_tree() {
    let scene = Scene::new();
    let author = minions::author();
    let host = Host::new(&author);
    host.install(&author.salt("3007.17")).ok();
    let root = host.root();
    fs::create_dir_all(host.path("etc/salt")).unwrap();
    fs::write(host.path("etc/salt/minion"), format!("root_dir: {}\nuser: root\n", text(&root))).unwrap();
    let run = format!("{SIDLE} --root {root} run {SALT} --release 3007.17-1 salt-call", root = text(&root));
    let words = format!("{run} -- -c {}/etc/salt --local --out=json test.version", text(&root));
    let answer = scene.ssh.call(Preflight::None, &["-r", "target", &words]);
    // It takes salt-call's own answer out of what a shell printed.
    assert_eq!(answer, "3007.17");
    assert!(!scene.ssh.path(THIN).exists(), "a tree was deployed");
}

/// A small system in one program; which ones it has differs.
const BUSYBOX: &str = "/usr/bin/busybox";

/// Runs the script by this shell on a directory; gives what it said.
fn look(shell: &str, directory: &Path) -> String {
    let mut command = Command::new(shell);
    if shell == BUSYBOX {
        let programs = directory.with_file_name("programs");
        fs::create_dir_all(&programs).unwrap();
        let listed = done(Command::new(shell).arg("--list"), "busybox");
        for name in listed.lines() {
            let _ = symlink(BUSYBOX, programs.join(name));
        }
        command.arg("sh").env_clear().env("PATH", programs);
    }
    let output = command.arg(script()).arg("not-a-directory").arg(directory).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {shell} ({error}): apt-get install {shell}"));
    assert!(output.status.success(), "it must never keep salt-ssh from its work: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tree as the script of Uyuni unpacks it.
fn bundle(directory: &Path) -> PathBuf {
    let tree = directory.join("venv-salt-minion");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(tree.join("lib/python3.11/site-packages/salt")).unwrap();
    for name in ["lib/python3.11/site-packages/salt/exceptions.py", "lib/a name with blanks", "venv-hash.txt"] {
        fs::write(tree.join(name), name).unwrap();
    }
    symlink("lib", tree.join("lib64")).unwrap();
    tree
}

#[test]
fn the_script_takes_the_stamp_from_what_lost_a_file_or_a_link_and_from_nothing_else() {
    let directory = TempDir::new().unwrap();
    for shell in ["dash", "bash", BUSYBOX] {
        for lost in ["lib/a name with blanks", "lib64"] {
            let tree = bundle(directory.path());
            assert_eq!(look(shell, &tree), "");
            assert!(tree.join(".sidle-files").exists());
            assert_eq!(look(shell, &tree), "", "{shell}: a whole tree is whole");
            fs::remove_file(tree.join(lost)).unwrap();
            let said = look(shell, &tree);
            assert!(said.contains("1 of its files are gone"), "{shell}: {said}");
            assert!(!tree.join("venv-hash.txt").exists() && tree.join("lib").exists());
        }
        // Changed in place, as after a power cut: as long, and something else.
        let tree = bundle(directory.path());
        look(shell, &tree);
        fs::write(tree.join("lib/a name with blanks"), "lib/a name with blankS").unwrap();
        assert!(look(shell, &tree).contains("1 of its files"));
    }
}

/// What an administrator has to change, where the same happens every month.
#[test]
fn the_script_names_the_rule_that_removes_files_by_age() {
    let (directory, rules) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let tree = bundle(directory.path());
    assert_eq!(look("dash", &tree), "");
    fs::remove_file(tree.join("lib64")).unwrap();
    let rule = format!("q {} 1777 root root 30d", text(directory.path()));
    fs::write(rules.path().join("tmp.conf"), format!("# tmp\nd /elsewhere 1777 - - 10d\n{rule}\n")).unwrap();
    let inner = "mkdir -p /etc/tmpfiles.d && mount --bind \"$1\" /etc/tmpfiles.d && exec dash \"$2\" \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", inner, "sh"]);
    let output = command.arg(rules.path()).arg(script()).arg(&tree).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("is removed by /etc/tmpfiles.d/tmp.conf: {rule}")), "{said}");
    assert!(said.contains(&format!("`x {}`", text(&tree))), "{said}");
}

#[test]
fn the_script_has_a_relenv_tree_that_lost_a_file_unpacked_out_of_a_new_archive() {
    let directory = TempDir::new().unwrap();
    let tree = directory.path().join(".ab12cd_root_salt_relenv");
    for shell in ["dash", "bash", BUSYBOX] {
        let _ = fs::remove_dir_all(&tree);
        // As salt-ssh of 3008.5 leaves it: no stamp, the archive, and files as old as the release is.
        fs::create_dir_all(tree.join("lib/python3.11/site-packages/salt")).unwrap();
        fs::create_dir_all(tree.join("running_data/pki")).unwrap();
        let source = "lib/python3.11/site-packages/salt/exceptions.py";
        for name in [source, "salt-call", "salt-relenv.tar.xz", "minion", "ext_version", "running_data/pki/key"] {
            fs::write(tree.join(name), name).unwrap();
        }
        done(
            Command::new("touch").args(["-d", "300 days ago"]).arg(tree.join("salt-call")).arg(tree.join(source)),
            "coreutils",
        );
        assert_eq!(look(shell, &tree), "", "{shell}: one that was unpacked just now is believed");
        assert!(tree.join(".sidle-files").exists());
        // What each call writes anew, and what nobody needs any more.
        fs::write(tree.join("minion"), "another").unwrap();
        fs::remove_file(tree.join("salt-relenv.tar.xz")).unwrap();
        assert_eq!(look(shell, &tree), "", "{shell}: a whole tree is whole");
        fs::write(tree.join("salt-relenv.tar.xz"), "an old archive").unwrap();
        fs::remove_file(tree.join(source)).unwrap();
        let said = look(shell, &tree);
        assert!(said.contains("is to be deployed anew: 1 of its files are gone"), "{shell}: {said}");
        // Without either, salt-ssh brings an archive and unpacks it.
        assert!(
            !tree.join("salt-call").exists() && !tree.join("salt-relenv.tar.xz").exists() && tree.join("lib").exists()
        );
    }
}

#[test]
fn the_script_touches_no_tree_of_another_user_and_follows_no_link() {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tree = bundle(directory.path());
    fs::remove_dir_all(tree.join("lib")).unwrap();
    let link = directory.path().join("link");
    symlink(&tree, &link).unwrap();
    assert_eq!(look("sh", &link), "");
    std::os::unix::fs::chown(&tree, Some(12345), None).unwrap();
    assert_eq!(look("sh", &tree), "");
    assert!(tree.join("venv-hash.txt").exists());
    std::os::unix::fs::chown(&tree, Some(0), None).unwrap();
    assert!(
        look("sh", &tree).contains("no salt/exceptions.py"),
        "the control: it is not left alone for another reason"
    );
}
