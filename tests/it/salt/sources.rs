//! A release out of what a site has already: the file of Salt's own deb or rpm, or of Uyuni's. Nothing of the package is installed.

use super::upstream::{DEFAULT, Layout, OLD, host as installed, packages, salt_pip};
use crate::support::leftovers;
use crate::support::packages::{Kind, script};
use crate::support::salt::{Master, copy_renamed, packaged_tree, tree, tree_of_python};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{Author, Host, Ran, SALT, VENV_SALT, sidle, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs a release from a source, with the project's own recipe.
fn pack(author: &Author, package: &str, source: &Path) -> Ran {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("bundles/salt-minion/{package}.toml"));
    let (key, repository, bundle) = (author.key(), author.repository(), bundle(author, package));
    let kept = tree(OLD).ancestors().nth(2).unwrap().join("build");
    let what = ["pack", text(&recipe), "--version", OLD, "--source", text(source), "--level", "1"];
    let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
    sidle(&[&what[..], &to[..]].concat(), &[("SIDLE_CACHE", text(&kept))])
}

fn bundle(author: &Author, package: &str) -> PathBuf {
    author.directory().join(format!("{package}.sidle"))
}

/// Packages to install, in a directory of their own.
fn wheels_below(directory: &Path) -> PathBuf {
    let wheels = directory.join("wheels");
    fs::create_dir(&wheels).unwrap();
    let maker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/packaged/wheels.py");
    let made = Command::new(tree(OLD).join("bin/python3")).arg("-B").arg(maker).arg(tree(OLD)).arg(&wheels).status();
    assert!(made.unwrap().success());
    wheels
}

/// Salt 3006.9 looks at no `SALT_EXTRAS_DIR`: its salt-pip installed into the release, where the next repair moved the package aside.
#[test]
fn salt_pip_of_3006_9_installs_outside_of_the_release() {
    let directory = tempfile::tempdir().unwrap();
    let (copy, extras) = (directory.path().join("salt"), directory.path().join("extras"));
    // For a later Python its pyzmq would be compiled.
    copy_renamed(&tree_of_python("3006.9", "3.10"), &copy, None);
    let wheels = wheels_below(directory.path());
    let mut pip = Command::new(copy.join("bin/salt-pip"));
    pip.args(["install", "--no-index", "--find-links", text(&wheels), "site_pure"]);
    let ran = pip.env("SALT_EXTRAS_DIR", &extras).env("HOME", directory.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(extras.join("site_pure").exists(), "{}", String::from_utf8_lossy(&ran.stdout));
    let inside = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(inside.filter(|name| name.starts_with("extras")).count(), 0);
}

/// The release's own salt-pip, by each name that the package had for it, installs into the site's directory; the release stays as it is signed.
fn salt_pip_stays_outside(host: &Host, package: &str, programs: &[&str]) {
    let wheels = wheels_below(&host.path(""));
    let release = host.path("opt/sidle").join(package).join("versions").join(format!("{OLD}-1"));
    for (program, name) in programs.iter().zip(["site_pure", "site_fourth"]) {
        let extras = host.path("srv/extras");
        let salted = |program: &str| {
            let mut command = Command::new(release.join(program));
            command.env("SALT_EXTRAS_DIR", &extras).env("HOME", host.root());
            command
        };
        let pip = ["install", "--no-index", "--find-links", text(&wheels), name];
        let ran = salted(program).args(pip).output().unwrap();
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
        let import = format!("import {name}; print({name}.__file__)");
        let ran = salted("bin/python3").args(["-s", "-B", "-c", &import]).output().unwrap();
        let found = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(found.starts_with(text(&extras)), "{found} {}", String::from_utf8_lossy(&ran.stderr));
    }
    host.sidle(&["verify", package, "--full"]).ok();
    let inside = fs::read_dir(release).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(inside.filter(|name| name.starts_with("extras")).count(), 0);
}

/// A release is packed from a file.
fn a_package_becomes_a_release(kind: Kind) {
    let (author, files) = (Author::new(), packages(kind, OLD));
    let named = |start: &str| files.iter().find(|file| file.file_name().unwrap().to_str().unwrap().starts_with(start));
    let units = pack(&author, SALT, named("salt-minion").unwrap());
    assert_eq!(units.code, Some(1), "{units:?}");
    assert!(units.stderr.contains("it holds no Salt with a Python of its own"), "{units:?}");
    let whole = if kind == Kind::Deb { named("salt-common") } else { named("salt-3") };
    let told = pack(&author, SALT, whole.unwrap());
    assert!(format!("{}{}", told.stdout, told.stderr).contains("needs glibc"), "{told:?}");
    told.ok();
    serves(&author);
}

/// Its minion answers a master, is replaced side by side, and takes packages beside it.
fn serves(author: &Author) {
    let (host, master) = (Host::new(author), Master::start(&tree(MASTER), true));
    let etc = host.path("etc/salt");
    fs::create_dir_all(&etc).unwrap();
    let (root, port) = (host.root(), master.request_port());
    let own = format!(
        "root_dir: {}\nmaster: {}\nmaster_port: {port}\nid: {ID}\nuser: root\n",
        root.display(),
        master.address
    );
    fs::write(etc.join("minion"), own).unwrap();
    fs::write(host.path("etc/sidle/conf.d/salt.toml"), "start_timeout = \"180s\"\nprobation = \"2s\"\n").unwrap();
    host.install(&bundle(author, SALT)).ok();
    salt_pip_stays_outside(&host, SALT, &["bin/salt-pip", "salt-pip"]);
    let _supervisor = host.supervise_instance(SALT);
    host.sidle(&["switch", SALT]).ok();
    assert!(master.call(ID, &["test.ping"]).contains("True"));
    assert!(master.call(ID, &["test.version"]).contains(OLD));
    // The guard is armed: the way to the same release is an overlap.
    host.sidle(&["restart", SALT, "--mode", "overlap"]).ok();
    assert!(master.call(ID, &["test.ping"]).contains("True"));
    leftovers::kill(&host.root());
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn the_file_of_a_deb_of_salts_own_becomes_a_release() {
    a_package_becomes_a_release(Kind::Deb);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn the_file_of_an_rpm_of_salts_own_becomes_a_release() {
    a_package_becomes_a_release(Kind::Rpm);
}

/// A package's file, or the directory of another host that somebody copied: its wrappers and the first lines of its programs name /usr/lib/venv-salt-minion,
/// where nothing is on this host.
fn what_is_laid_out_as_uyunis_becomes_a_release(kind: &str) {
    let author = Author::new();
    let made =
        script("tests/it/support/packaged/venv", &[kind, text(&packaged_tree(OLD)), OLD, text(author.directory())]);
    pack(&author, VENV_SALT, Path::new(&made)).ok();
    let host = Host::new(&author);
    host.install(&bundle(&author, VENV_SALT)).ok();
    salt_pip_stays_outside(&host, VENV_SALT, &["bin/salt-pip"]);
    let etc = host.path("etc/venv-salt-minion");
    fs::create_dir_all(&etc).unwrap();
    fs::write(etc.join("minion"), format!("root_dir: {}\nid: {ID}\n", host.root().display())).unwrap();
    let call =
        ["run", VENV_SALT, "venv-salt-call", "--release", &format!("{OLD}-1"), "--", "-c", text(&etc), "--local"];
    assert!(host.sidle(&[&call[..], &["test.ping"]].concat()).ok().contains("True"), "{kind}");
}

#[test]
#[ignore = "`scripts/test --long`: packs three releases out of what a package has"]
fn debs_rpms_and_directories_that_are_laid_out_as_uyunis_become_releases() {
    for kind in ["deb", "rpm", "directory"] {
        what_is_laid_out_as_uyunis_becomes_a_release(kind);
    }
}

/// The directory of a host on which Salt's own packages were installed, with what their scriptlets and a running minion have left there. It lies elsewhere
/// than its programs think.
fn an_installed_directory_becomes_a_release(layout: Layout) {
    let author = Author::new();
    let installed = installed(Kind::Deb, layout);
    salt_pip(&installed, layout.variables(), &["site_pure"]);
    let source = installed.machine.path("opt/saltstack/salt");
    let told = pack(&author, SALT, &source);
    let said = format!("{}{}", told.stdout, told.stderr);
    println!("{said}");
    assert!(said.contains("needs glibc"), "{said}");
    let left_out = format!("left out {}/extras-3.11: salt-pip installed it on one host", source.display());
    assert_eq!(said.contains(&left_out), layout == Layout::Legacy, "{said}");
    told.ok();
    drop(installed);
    serves(&author);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn the_directory_that_a_deb_of_salts_own_has_installed_becomes_a_release() {
    an_installed_directory_becomes_a_release(Layout::Legacy);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn the_directory_that_a_hardened_deb_of_salts_own_has_installed_becomes_a_release() {
    an_installed_directory_becomes_a_release(Layout::Hardened(DEFAULT));
}
