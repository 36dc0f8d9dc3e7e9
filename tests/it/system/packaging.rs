//! sidle's own packages as the tools of distributions judge them, its units as systemd does, and the apk in a root that has `BusyBox` alone.

use crate::support::install_busybox;
use crate::support::release::{release_file, selinux_package};
use crate::support::stage::{Author, DEMO, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a command that must succeed prints.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

#[test]
fn lintian_and_rpmlint_find_no_error_in_the_packages() {
    said(Command::new("lintian").args(["--fail-on", "error,warning", text(&release_file("deb"))]));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/package/rpmlint.toml");
    let found = said(Command::new("rpmlint").args(["--config", text(&config), text(&release_file("rpm"))]));
    assert!(found.contains("packages: 1") && found.contains(" 0 errors"), "{found}");
    let found = said(Command::new("rpmlint").args(["--config", text(&config), text(&selinux_package())]));
    assert!(found.contains("packages: 1") && found.contains(" 0 errors"), "{found}");
}

#[test]
fn the_salt_extension_is_given_away_with_its_sums_and_built_the_same_each_time() {
    let sums = fs::read_to_string(release_file("zip").with_file_name("SHA256SUMS")).unwrap();
    let again = tempfile::tempdir().unwrap();
    said(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/saltext")).arg(again.path()));
    let found: Vec<_> = fs::read_dir(again.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    for path in found {
        let (name, sum) =
            (text(Path::new(path.file_name().unwrap())).to_owned(), said(Command::new("sha256sum").arg(&path)));
        let listed = format!("{}  {name}", sum.split_whitespace().next().unwrap());
        assert!(sums.lines().any(|line| line == listed), "{listed} is not in {sums}");
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let program = directory.path().join("sidle");
    fs::copy("/bin/true", &program).unwrap();
    let mut units = Vec::new();
    for entry in fs::read_dir(home).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("sidle") && path.extension().is_some_and(|end| end != "conf") {
            // The program need not be on this machine, nor the man pages.
            let unit = fs::read_to_string(&path).unwrap().replace("/usr/bin/sidle", text(&program));
            let unit: String = unit.split_inclusive('\n').filter(|line| !line.starts_with("Documentation=")).collect();
            fs::write(directory.path().join(&name), unit).unwrap();
            units.push(name.replace('@', "@demo-agent"));
        }
    }
    assert_eq!(units.len(), 7, "{units:?}");
    let verified = said(Command::new("systemd-analyze").arg("verify").args(&units).current_dir(directory.path()));
    assert!(!verified.contains("sidle"), "{verified}");
}

/// A root with `BusyBox` and nothing else.
fn busybox(root: &Path) {
    for place in ["bin", "proc", "tmp", "opt", "var/lib", "run", "srv"] {
        fs::create_dir_all(root.join(place)).unwrap();
    }
    install_busybox(root);
}

/// apk itself is not in Debian: what it does with a package is done here by its format, step by step. Its archive is unpacked, and its scripts run.
#[test]
fn the_apk_unpacked_by_busybox_with_its_scripts_run_by_hand_installs_runs_upgrades_and_removes() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    busybox(root);
    fs::copy(release_file("apk"), root.join("srv/sidle.apk")).unwrap();
    fs::copy(author.repository().join("metadata/1.root.json"), root.join("srv/root.json")).unwrap();
    fs::copy(&bundle, root.join("srv/bundle.sidle")).unwrap();
    let within = |line: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /bin/sh -ec \"$1\"",
        ]);
        said(command.args([text(root), line]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
    };
    // An apk is three gzip streams, one after another: signature, control, files.
    let install = "mkdir -p /srv/control\ncd /srv/control\ntar -xzf /srv/sidle.apk\nrm -rf usr etc\n\
                   cd /\ntar -xzf /srv/sidle.apk\nrm .PKGINFO .post-install .post-upgrade .pre-deinstall .post-deinstall";
    within(install);
    let control = fs::read_to_string(root.join("srv/control/.PKGINFO")).unwrap();
    assert!(control.contains("pkgname = sidle") && control.contains("arch = x86_64"), "{control}");
    within("sh /srv/control/.post-install");
    within(&format!("sidle trust pin /srv/root.json --fingerprint {}", author.fingerprint()));
    within("sidle install /srv/bundle.sidle");
    // The same again, over it: an upgrade.
    within(install);
    within("sh /srv/control/.post-upgrade");
    within(&format!("sidle --version && sidle verify {DEMO} --full"));
    let told = within("sh /srv/control/.pre-deinstall");
    assert!(told.contains("/opt/sidle"), "{told}");
    let files = within("tar -tzf /srv/sidle.apk");
    for file in files.lines().filter(|file| !file.starts_with('.') && !file.ends_with('/')) {
        fs::remove_file(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    within("sh /srv/control/.post-deinstall");
    assert!(root.join("opt/sidle").join(DEMO).join("versions/1.0-1").is_dir());
    let left = said(
        Command::new("find")
            .arg(root)
            .args(["-path", "*/srv", "-prune", "-o", "-type", "f", "-name", "*sidle*", "-print"]),
    );
    assert!(left.lines().all(|line| line.contains("/opt/sidle") || line.contains("/var/lib/sidle")), "{left}");
}
