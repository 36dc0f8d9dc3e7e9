//! Salt's own packages, scriptlets included, with packages that salt-pip laid over them: adopted, and given back.

use crate::support::boot::archive;
use crate::support::eventually;
use crate::support::packages::{Kind, PackagedHost, UNIT, script};
use crate::support::salt::{START_SECONDS, packaged_tree, tree};
use crate::support::scene::ID;
use crate::support::stage::{SALT, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What the package brings, and what sidle runs: Salt for the same minor version of Python.
pub(super) const OLD: &str = "3007.17";
const NEW: &str = "3008.5";
/// What the package is downgraded to.
const OLDER: &str = "3006.30";

/// What Salt's packages are built in, and run in.
const SUITE: &str = "bookworm+bash-completion+dctrl-tools+debhelper+dh-exec+rpm";

/// A pure package, one with a module in C, one that shadows a package of the tree: what a job sees of each.
const EXTRAS: [(&str, &str); 3] = [("site_pure", "1.0"), ("site_compiled", "1.0&lt;"), ("idna", "99.0")];
const FOURTH: (&str, &str) = ("site_fourth", "1.0");

/// Imports each in a job, and says what came.
const MODULE: &str = "import importlib

def versions():
    found = []
    for name in ('site_pure', 'site_compiled', 'idna', 'site_fourth'):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found.append(name + '=' + getattr(module, 'answer', 'of the tree') + ';')
    return ' '.join(found) or 'none'
";

/// Where the package's minion keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// In the package's own tree.
    Legacy,
    /// In a directory that this file names, for the scriptlets and for the unit.
    Hardened(&'static str),
}

/// Where the scriptlets of a deb look, and those of each kind.
pub(super) const DEFAULT: &str = "etc/default/salt-setup";
const SYSCONFIG: &str = "etc/sysconfig/salt-minion-setup";

/// What the unit of a hardened package says for `SALT_HOME`: the recipe of the release says something else.
const HOME: &str = "/srv/home";

impl Layout {
    /// Where salt-pip installs for the package's minion.
    fn extras(self) -> &'static str {
        match self {
            Self::Legacy => "opt/saltstack/salt/extras-3.11",
            Self::Hardened(_) => "srv/extras",
        }
    }

    /// What salt-pip has to be told for that.
    pub(super) fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Legacy => &[],
            Self::Hardened(_) => &["SALT_EXTRAS_DIR=/srv/extras"],
        }
    }
}

/// The packages of a minion: one for all daemons, one for the minion.
pub(super) fn packages(kind: Kind, version: &str) -> Vec<std::path::PathBuf> {
    let tree = packaged_tree(version);
    let sdist = tree.ancestors().nth(2).unwrap().join(format!("build/salt-{version}-sdist/salt-{version}.tar.gz"));
    let root = archive(SUITE);
    let arguments = [kind.name(), text(&tree), text(&sdist), text(&root)];
    let directory = script("tests/it/support/packaged/upstream", &arguments);
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A host on which the minion of Salt's own package answers, with wheels in /srv/packages.
pub(super) fn host(kind: Kind, layout: Layout) -> PackagedHost {
    let host = PackagedHost::without_package(kind, SUITE, NEW, "");
    host.master.file("_modules/site_extras.py", MODULE);
    let python = tree(NEW).join("bin/python3");
    let maker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/packaged/wheels.py");
    let made = Command::new(python).arg("-B").arg(maker).args([tree(NEW), host.outside()]).status().unwrap();
    assert!(made.success());
    if let Layout::Hardened(file) = layout {
        let setup = format!("SALT_ONEDIR_HARDEN=1\nSALT_EXTRAS_DIR=/{}\n", layout.extras());
        let path = host.machine.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, setup).unwrap();
        let drop_ins = host.machine.path("etc/systemd/system").join(format!("{UNIT}.d"));
        fs::create_dir_all(&drop_ins).unwrap();
        fs::write(
            drop_ins.join("setup.conf"),
            format!("[Service]\nEnvironmentFile=/{file}\nEnvironment=SALT_HOME={HOME}\n"),
        )
        .unwrap();
    }
    install(&host);
    host.machine.inside(&["systemctl", "enable", "--now", UNIT]);
    host.answers(OLD);
    host.master.call(ID, &["saltutil.sync_modules"]);
    host
}

/// Installs the packages, as their own tools do.
fn install(host: &PackagedHost) {
    let words: &[&str] = match host.kind {
        Kind::Deb => &["env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "-i"],
        Kind::Rpm => &["rpm", "-U", "--nodeps"],
    };
    println!("{}", install_with(host, words, OLD));
}

/// The same of a version, with these words before the files.
fn install_with(host: &PackagedHost, words: &[&str], version: &str) -> String {
    let inside: Vec<String> = packages(host.kind, version)
        .iter()
        .map(|package| {
            fs::copy(package, host.outside().join(package.file_name().unwrap())).unwrap();
            PackagedHost::inside(text(package))
        })
        .collect();
    let files = inside.iter().map(String::as_str);
    host.machine.inside(&words.iter().copied().chain(files).collect::<Vec<_>>())
}

/// Installs packages with the salt-pip that is first in the search path.
pub(super) fn salt_pip(host: &PackagedHost, variables: &[&str], names: &[&str]) {
    // As a login shell of root's has it.
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let pip = ["salt-pip", "install", "--no-index", "--find-links", "/srv/packages"];
    let said = host.machine.inside(&[&["env", "HOME=/root", path], variables, &pip, names].concat());
    assert!(said.contains("Successfully installed"), "{said}");
}

/// A job sees exactly these.
fn sees(host: &PackagedHost, when: &str, wanted: &[(&str, &str)]) {
    let mut wanted: Vec<String> = wanted.iter().map(|(name, answer)| format!("{name}={answer};")).collect();
    if wanted.is_empty() {
        wanted.push("none".to_owned());
    }
    host.master.hears(&[ID]);
    eventually(START_SECONDS, when, || {
        let said = host.master.call_within("10", ID, &["site_extras.versions"]);
        match said.split_once(": ").map(|(_, said)| said.trim()) {
            Some(said) if said == wanted.join(" ") => Ok(()),
            _ => Err(format!("{said}\n{}", host.logs())),
        }
    });
}

fn all() -> Vec<(&'static str, &'static str)> {
    EXTRAS.into_iter().chain([FOURTH]).collect()
}

/// Three extras come along to the release, and a fourth one, which salt-pip installs meanwhile, goes back with them.
fn extras_survive_both_ways(kind: Kind) {
    let host = host(kind, Layout::Legacy);
    let names = ["site_pure", "site_compiled", "idna==99.0"];
    salt_pip(&host, &[], &names);
    host.machine.inside(&["systemctl", "restart", UNIT]);
    sees(&host, "the package's minion has them", &EXTRAS);

    let told = host.machine.inside(&["sidle", "adopt", SALT, "--dry-run", "--rehearse"]);
    for extra in ["site-pure 1.0", "site-compiled 1.0", "idna 99.0", "/adopt/salt-minion/extras: "] {
        assert!(told.contains(extra), "{extra}: {told}");
    }
    host.adopt();
    host.answers(NEW);
    sees(&host, "the release has them", &EXTRAS);
    salt_pip(&host, &[], &["site_fourth"]);
    assert!(!host.machine.path(Layout::Legacy.extras()).join("site_fourth").exists());
    sees(&host, "the release has the fourth", &all());

    let told = host.machine.inside(&["sidle", "unadopt", SALT, "--dry-run"]);
    assert!(told.contains("site-fourth 1.0"), "{told}");
    let told = host.machine.inside(&["sidle", "unadopt", SALT]);
    host.answers(OLD);
    sees(&host, "the package's minion has all four", &all());
    assert!(told.contains("site-fourth 1.0"), "{told}");
    host.adopt();
    host.answers(NEW);
    sees(&host, "the release has all four again", &all());
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn a_deb_of_salts_own_is_adopted_with_its_extras_and_given_back_with_a_new_one() {
    extras_survive_both_ways(Kind::Deb);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn an_rpm_of_salts_own_is_adopted_with_its_extras_and_given_back_with_a_new_one() {
    extras_survive_both_ways(Kind::Rpm);
}

/// The hook in the Python of Salt's packages hides what lies outside of its tree, so that the packaged minion finds nothing in the directory that
/// its own scriptlets made. The release finds it there, and so does its salt-pip. The package's salt-pip takes the package that is shadowed away from its own
/// tree, so that the packaged minion has none.
fn hardened_packages_share_the_directory_that_the_unit_names(kind: Kind, file: &'static str) {
    let layout = Layout::Hardened(file);
    let host = host(kind, layout);
    let extras = host.machine.path(layout.extras());
    salt_pip(&host, layout.variables(), &["site_pure", "site_compiled", "idna==99.0"]);
    host.machine.inside(&["systemctl", "restart", UNIT]);
    sees(&host, "the hook hides them", &[]);
    let told = host.machine.inside(&["sidle", "adopt", SALT, "--dry-run", "--rehearse"]);
    let words = "in /srv/extras, which the running release does not use, would be used: ";
    for words in [words, "site-pure 1.0", "site-compiled 1.0", "idna 99.0 instead of the release's own "] {
        assert!(told.contains(words), "{words}: {told}");
    }
    host.adopt();
    host.answers(NEW);
    sees(&host, "the release has them", &EXTRAS);
    has_its_home(&host);
    salt_pip(&host, &[], &["site_fourth"]);
    assert!(extras.join("site_fourth").exists(), "where the minion looks");
    sees(&host, "the release has the fourth", &all());
    let told = host.machine.inside(&["sidle", "unadopt", SALT]);
    assert!(!told.contains("site-fourth"), "it is there already: {told}");
    host.answers(OLD);
    sees(&host, "the hook hides all four", &[]);
    for (extra, _) in all() {
        assert!(extras.join(extra).exists(), "{extra}");
    }
    host.adopt();
    host.answers(NEW);
    sees(&host, "the release has all four again", &all());
}

/// The minion, and a tool that `sidle run` starts, have the `SALT_HOME` of the unit.
fn has_its_home(host: &PackagedHost) {
    let home = format!("SALT_HOME={HOME}");
    let leader = host.machine.agent().expect("it runs").to_string();
    let of_the_minion = host.machine.inside(&["sh", "-c", "tr '\\0' '\\n' <\"/proc/$0/environ\"", &leader]);
    let of_a_tool =
        ["sidle", "run", SALT, "python3", "--", "-c", "import os; print('SALT_HOME=' + os.environ['SALT_HOME'])"];
    for environment in [of_the_minion, host.machine.inside(&of_a_tool)] {
        assert!(environment.lines().any(|line| line == home), "{environment}");
    }
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn a_hardened_deb_of_salts_own_shares_the_directory_that_its_unit_names() {
    hardened_packages_share_the_directory_that_the_unit_names(Kind::Deb, DEFAULT);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn a_hardened_deb_of_salts_own_with_the_setup_of_an_rpm_shares_it_too() {
    hardened_packages_share_the_directory_that_the_unit_names(Kind::Deb, SYSCONFIG);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn a_hardened_rpm_of_salts_own_shares_the_directory_that_its_unit_names() {
    hardened_packages_share_the_directory_that_the_unit_names(Kind::Rpm, SYSCONFIG);
}

/// What the package manager does to an adopted host with the scriptlets of Salt's own packages: each step leaves the minion of sidle as it is.
fn package_managers_change_nothing(kind: Kind) {
    let host = host(kind, Layout::Legacy);
    host.adopt();
    host.answers(NEW);
    let agent = host.machine.agent().expect("it runs");
    let goes_on = |what: &str, state: [&str; 2]| {
        let status = host.machine.status();
        assert_eq!(host.machine.agent(), Some(agent), "{what}: {status}\n{}", host.logs());
        assert!(status["switch"].is_null(), "{what}: {status}");
        assert!(host.version().contains(NEW), "{what}: {}", host.logs());
        assert_eq!((host.minions(), host.state()), (1, state.map(str::to_owned)), "{what}");
    };
    for (what, version) in [("downgrade", OLDER), ("upgrade", OLD), ("reinstall", OLD)] {
        let words: &[&str] = match kind {
            Kind::Deb => &["env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "-i"],
            Kind::Rpm => &["rpm", "-U", "--nodeps", "--force", "--oldpackage"],
        };
        println!("{what}: {}", install_with(&host, words, version));
        goes_on(what, ["active", "enabled"]);
    }
    let removal: &[&str] = match kind {
        Kind::Deb => &["dpkg", "-r", SALT, "salt-common"],
        Kind::Rpm => &["rpm", "-e", SALT, "salt"],
    };
    println!("removal: {}", host.machine.inside(removal));
    println!("left: {:?} {}", host.state(), host.machine.status());
    assert_eq!(host.machine.agent(), Some(agent), "removal: {}", host.logs());
    assert!(host.version().contains(NEW), "removal: {}", host.logs());
    assert_eq!(host.minions(), 1);
    for kept in ["etc/salt/minion.d/test.conf", "etc/salt/pki/minion/minion.pem"] {
        assert!(host.machine.path(kept).exists(), "{kept}");
    }
    assert!(host.machine.inside(&["getent", "passwd", "salt"]).contains("salt"));
    let refused = host.machine.try_inside(&["sidle", "unadopt", SALT]);
    assert!(!refused.0 && refused.1.contains("install the package again"), "{refused:?}");
    install(&host);
    // An rpm starts nothing that was not there before; a deb does.
    goes_on("installed again", [if kind == Kind::Deb { "active" } else { "inactive" }, "enabled"]);
    println!("{}", host.machine.inside(&["sidle", "unadopt", SALT]));
    host.answers(OLD);
    assert_eq!((host.minions(), host.state()), (1, ["active", "enabled"].map(str::to_owned)));
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn a_deb_of_salts_own_is_downgraded_upgraded_and_removed_under_an_adopted_minion() {
    package_managers_change_nothing(Kind::Deb);
}

#[test]
#[ignore = "`scripts/test --long`: builds Salt's own packages, of 170 MB each"]
fn an_rpm_of_salts_own_is_downgraded_upgraded_and_removed_under_an_adopted_minion() {
    package_managers_change_nothing(Kind::Rpm);
}
