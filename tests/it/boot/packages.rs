//! sidle's own packages and its tarball, installed and removed by the tools of each distribution; the program alone, where there is nothing else.

use crate::support::boot::{ALL_PACKAGE_MANAGERS, Machine};
use crate::support::packages::script;
use crate::support::release::release_file;
use crate::support::stage::{Author, DEMO, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a line of shell in a root that is not booted; gives what it prints.
fn within(root: &Path, line: &str) -> String {
    let mut command = Command::new("chroot");
    command.args([text(root), "sh", "-c", line]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.env("HOME", "/root").env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {said}");
    said
}

/// What lies in a root under the name of sidle, without what the tests put there.
fn traces(root: &Path) -> String {
    within(root, "find /usr /etc /lib /opt -name '*sidle*' | sort")
}

#[test]
fn rpm_dnf_and_zypper_install_replace_and_remove_the_package_and_sidle_keeps_two_releases_beside_each_other() {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    let machine = Machine::new(ALL_PACKAGE_MANAGERS, &author, &bundles);
    let root = machine.path("");
    within(&root, "dpkg --purge sidle 2>&1");
    let bare = traces(&root);
    fs::copy(release_file("rpm"), root.join("srv/sidle.rpm")).unwrap();
    // Debian's rpm keeps its database elsewhere, as it is no package manager there.
    fs::create_dir_all(root.join("etc/rpm")).unwrap();
    fs::write(root.join("etc/rpm/macros"), "%_dbpath /var/lib/rpm\n").unwrap();
    fs::create_dir_all(root.join("var/lib/rpm")).unwrap();
    // zypper wants a database with a package in it.
    let other = script("tests/it/support/packaged/small", &["rpm", "other", "1", text(&root.join("srv"))]);
    within(&root, &format!("rpm -i --nosignature /srv/{}", Path::new(&other).file_name().unwrap().to_str().unwrap()));
    for [install, again, remove] in [
        ["rpm -i --nosignature", "rpm -U --nosignature --replacepkgs", "rpm -e"],
        [
            "dnf -q -y --disablerepo='*' install",
            "dnf -q -y --disablerepo='*' reinstall",
            "dnf -q -y --disablerepo='*' remove",
        ],
        [
            "zypper --non-interactive --no-refresh --no-gpg-checks install --allow-unsigned-rpm",
            "zypper --non-interactive --no-refresh --no-gpg-checks install --allow-unsigned-rpm --force",
            "zypper --non-interactive remove",
        ],
    ] {
        within(&root, &format!("{install} /srv/sidle.rpm"));
        let verified = within(&root, "rpm -V sidle && rpm -q --requires sidle && sidle --version");
        assert!(verified.contains("sidle 0."), "{verified}");
        // The package manager replaces its package; sidle keeps its releases.
        within(&root, &format!("{again} /srv/sidle.rpm"));
        assert_eq!(within(&root, "rpm -q sidle").lines().count(), 1);
        let listed = within(&root, &format!("sidle list {DEMO}"));
        assert!(listed.contains("1.0-1") && listed.contains("1.1-1"), "{listed}");
        within(&root, &format!("{remove} sidle"));
        assert_eq!(traces(&root), bare, "{remove}");
    }
}

/// A package manager has one version of an agent's package at a time, and puts its files over those of the one before. sidle has both releases.
#[test]
fn dpkg_rpm_dnf_and_zypper_replace_the_version_before_and_sidle_keeps_both() {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    let machine = Machine::new(ALL_PACKAGE_MANAGERS, &author, &bundles);
    let root = machine.path("");
    fs::create_dir_all(root.join("etc/rpm")).unwrap();
    fs::write(root.join("etc/rpm/macros"), "%_dbpath /var/lib/rpm\n").unwrap();
    fs::create_dir_all(root.join("var/lib/rpm")).unwrap();
    let package = |kind: &str, name: &str, version: &str| {
        let built = script("tests/it/support/packaged/small", &[kind, name, version, text(&root.join("srv"))]);
        format!("/srv/{}", Path::new(&built).file_name().unwrap().to_str().unwrap())
    };
    // zypper wants a database with a package in it.
    within(&root, &format!("rpm -i --nosignature {}", package("rpm", "other", "1")));
    let rpms = "rpm -q agent";
    for (kind, install, versions, remove) in [
        ("deb", "dpkg -i", "dpkg-query -W -f '${Version}\n' agent", "dpkg -P"),
        ("rpm", "rpm -U --nosignature", rpms, "rpm -e"),
        ("rpm", "dnf -q -y --disablerepo='*' install", rpms, "dnf -q -y --disablerepo='*' remove"),
        (
            "rpm",
            "zypper --non-interactive --no-refresh --no-gpg-checks install --allow-unsigned-rpm",
            rpms,
            "zypper --non-interactive remove",
        ),
    ] {
        for version in ["1.0", "1.1"] {
            within(&root, &format!("{install} {}", package(kind, "agent", version)));
            let had = within(&root, versions);
            assert!(had.lines().count() == 1 && had.contains(version), "{install}: {had}");
            assert_eq!(fs::read_to_string(root.join("usr/share/agent/file")).unwrap().trim(), version, "{install}");
        }
        within(&root, &format!("{remove} agent"));
    }
    let listed = within(&root, &format!("sidle list {DEMO} && sidle verify {DEMO} --full"));
    assert!(listed.contains("1.0-1") && listed.contains("1.1-1"), "{listed}");
}

#[test]
fn the_tarball_installs_itself_over_an_older_one_and_removes_itself() {
    let directory = tempfile::tempdir().unwrap();
    let unpacked =
        Command::new("tar").args(["-xzf", text(&release_file("tar.gz")), "-C", text(directory.path())]).status();
    assert!(unpacked.unwrap().success());
    let name = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let dest = directory.path().join("dest");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(name.join("install.sh"));
        let output = command.args(arguments).env("DESTDIR", &dest).env("PREFIX", "/usr/local").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let installed = || {
        let output = Command::new("find").arg(&dest).args(["-type", "f"]).output().unwrap();
        let mut files: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        files.sort();
        files
    };
    let trusted = dest.join("etc/fapolicyd/trust.d");
    fs::create_dir_all(&trusted).unwrap();
    run(&[]);
    let first = installed();
    let program = fs::read(dest.join("usr/local/bin/sidle")).unwrap();
    let line = format!("/usr/local/bin/sidle {} {}\n", program.len(), sidle::digest::Digest::of(&program));
    assert_eq!(fs::read_to_string(trusted.join("sidle")).unwrap(), line);
    let program = Command::new(dest.join("usr/local/bin/sidle")).arg("--version").output().unwrap();
    assert!(program.status.success());
    let unit = fs::read_to_string(dest.join("usr/local/lib/systemd/system/sidle@.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/sidle supervise %i"), "{unit}");
    run(&[]);
    assert_eq!(installed(), first);
    run(&["--uninstall"]);
    assert_eq!(installed(), [""; 0]);
}

#[test]
fn in_an_empty_root_the_program_installs_and_verifies_a_release_and_without_proc_it_says_what_it_needs() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut unpack = Command::new("tar");
    unpack.args([
        "-xzf",
        text(&release_file("tar.gz")),
        "-C",
        text(root),
        "--strip-components=3",
        "--wildcards",
        "*/usr/bin/sidle",
    ]);
    assert!(unpack.status().unwrap().success());
    fs::copy(author.repository().join("metadata/1.root.json"), root.join("root.json")).unwrap();
    fs::copy(&bundle, root.join("bundle.sidle")).unwrap();
    fs::create_dir(root.join("proc")).unwrap();
    let fingerprint = author.fingerprint();
    let run = |before: &str, arguments: &[&str]| {
        let line = format!("{before} exec chroot \"$0\" /sidle \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &line, text(root)]).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    };
    let pinned = run("", &["trust", "pin", "/root.json", "--fingerprint", &fingerprint]);
    assert!(pinned.status.success(), "{pinned:?}");
    let without = run("", &["install", "/bundle.sidle"]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && said.contains("mount -t proc proc /proc"), "{without:?}");
    for arguments in [&["install", "/bundle.sidle"][..], &["verify", DEMO, "--full"], &["list"]] {
        let output = run("mount -t proc proc \"$0/proc\" &&", arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}
