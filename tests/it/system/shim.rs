//! A package in place of the minion's package, by every package manager: an upgrade that nothing replaces, that disturbs nothing, and that
//! brings what others look for.

use crate::support::boot::{ALL_PACKAGE_MANAGERS, Machine};
use crate::support::packages::{Kind, script};
use crate::support::shims::{BUILT_AT, CACHE, PLACE, SUPERFLUOUS, ShimHost, UNIT, VERSION, shim};
use crate::support::stage::{VENV_SALT, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where this DNF has its plugins.
const DNF_PLUGINS: &str = "/usr/lib/python3/dist-packages/dnf-plugins";
/// The agent has a command of another name than a minion has.
const PROGRAM: [&str; 2] = ["--program", "venv-salt-call=demo-agent"];
const REFUSAL: &str = "venv-salt-minion runs, and not by sidle: run `sidle adopt venv-salt-minion` first";

/// What is there of the shim: its unit, its program, and that nothing of it was changed.
fn is_whole(host: &ShimHost) {
    assert_eq!(host.state(), ["active", "enabled"]);
    let (_, said) = host.try_inside("venv-salt-call");
    assert!(said.contains("usage: demo-agent -c CONFIG_DIR"), "{said}");
    let verify = if host.kind == Kind::Deb { "dpkg -V venv-salt-minion; debsums -s" } else { "rpm -V" };
    assert_eq!(host.try_inside(&format!("{verify} {VENV_SALT}")), (true, String::new()));
    let own = fs::read_to_string(host.machine.path("etc/venv-salt-minion/minion")).unwrap();
    assert_eq!(own, "# The package's own configuration.\n", "the minion's configuration");
    host.undisturbed(&format!("systemctl restart {UNIT}"));
}

fn version(host: &ShimHost) -> String {
    let ask = match host.kind {
        Kind::Deb => "dpkg-query -W -f '${Version}'",
        Kind::Rpm => "rpm -q --qf '%{version}-%{release}'",
    };
    host.inside(&format!("{ask} {VENV_SALT}"))
}

fn is_removed_by_dpkg(host: &ShimHost) {
    host.undisturbed(&format!("dpkg --remove dependent {VENV_SALT}"));
    // What is left of the hook hinders nobody.
    assert!(host.machine.path("etc/apt/apt.conf.d/99venv-dpkgnotify").exists());
    let said = host.undisturbed("apt-get -y remove other 2>&1");
    assert!(!said.contains("notify"), "{said}");
    host.undisturbed(&format!("dpkg --purge {VENV_SALT}"));
    for gone in
        ["etc/apt/apt.conf.d/99venv-dpkgnotify", "etc/venv-salt-minion/minion", "usr/lib/sidle/venv-salt-minion"]
    {
        assert!(!host.machine.path(gone).exists(), "{gone}");
    }
}

/// The package's minion may still have jobs then, and its files went away under it.
fn an_adoption_that_is_under_way_keeps_the_package(host: &ShimHost, built: &str) {
    let record = host.machine.path(&format!("var/lib/sidle/adopt/{VENV_SALT}/record"));
    fs::create_dir_all(record.parent().unwrap()).unwrap();
    fs::write(&record, "{\"schema\":1,\"stage\":\"begun\"}\n").unwrap();
    let (well, said) = host.try_inside(&format!("apt-get -y install {built}"));
    assert!(!well && said.contains("venv-salt-minion is not adopted yet"), "{said}");
    assert_eq!(version(host), format!("{VERSION}-1"), "{said}");
    fs::remove_file(&record).unwrap();
}

#[test]
fn apt_takes_a_shim_as_an_upgrade_and_keeps_it() {
    let mut host = ShimHost::new(Kind::Deb);
    host.machine.boot();
    host.package(VERSION);
    host.small(SUPERFLUOUS, VERSION, "Section: admin");
    host.small("dependent", "1", &format!("Depends: {SUPERFLUOUS} (>= {VERSION})"));
    host.small("other", "1", "Section: misc");
    host.index();
    host.start_packaged("apt-get -y install venv-salt-minion dependent");

    let built = host.shim("100", &[&PROGRAM[..], &["--replaces", SUPERFLUOUS]].concat());
    let (well, said) = host.try_inside(&format!("apt-get -y install {built}"));
    assert!(!well && said.contains(REFUSAL), "{said}");
    // The package's own scripts restart it after that, as after every upgrade.
    assert_eq!(
        (host.state(), version(&host)),
        (["active", "enabled"].map(str::to_owned), format!("{VERSION}-1")),
        "{said}"
    );
    host.inside(&format!("apt-get check && dpkg -V {VENV_SALT} {SUPERFLUOUS} dependent"));

    host.adopted();
    an_adoption_that_is_under_way_keeps_the_package(&host, &built);
    host.inside(&format!("apt-mark hold {VENV_SALT}"));
    let (well, said) = host.try_inside(&format!("apt-get -y install {built}"));
    assert!(!well && said.contains("Held packages were changed"), "{said}");
    host.undisturbed(&format!("apt-get -y --allow-change-held-packages install {built}"));
    assert_eq!(version(&host), format!("{VERSION}-100"));
    is_whole(&host);
    assert!(!host.machine.path("opt/saltstack").exists(), "the package's Python is gone");
    host.inside("apt-get check");
    host.is_told("apt-get -y install other", "apt-get -y remove other");
    host.undisturbed("apt-get -y install other");
    let told = host.inside("sha256sum /var/lib/dpkg/status; stat -c %Y /var/lib/dpkg/status");
    let words: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(host.cookie(), Some(format!("{} {}\n", words[0], words[2])), "{told}");

    // A newer package of the distribution: it stays away as long as the shim is held.
    host.package("3006.31");
    host.index();
    // To install it has ended the hold that there was.
    assert_eq!(host.inside(&format!("apt-mark showhold; apt-mark hold {VENV_SALT} >/dev/null")), "");
    let said = host.undisturbed("apt-get -y dist-upgrade");
    assert!(said.contains("kept back") && version(&host) == format!("{VERSION}-100"), "{said}");
    let both = ["--replaces", SUPERFLUOUS, "--conflicts", SUPERFLUOUS];
    let next = host.shim("101", &[&PROGRAM[..], &both].concat());
    let listed = || host.inside("dpkg-query -W -f '${Package} ${Status}\n' 'venv-*' dependent");
    assert!(listed().contains(&format!("{SUPERFLUOUS} install ok installed")), "{}", listed());
    host.undisturbed(&format!("apt-get -y --allow-change-held-packages install {next}"));
    assert!(!listed().contains(&format!("{SUPERFLUOUS} install ok installed")), "{}", listed());
    assert!(listed().contains("dependent install ok installed"), "{}", listed());
    host.inside("apt-get check");
    is_whole(&host);
    is_removed_by_dpkg(&host);
}

fn is_removed_by_zypper(host: &ShimHost) {
    let own = host.machine.path("etc/venv-salt-minion/minion");
    fs::write(&own, "# Changed by its owner.\n").unwrap();
    let said = host.undisturbed(&format!("zypper -n remove {VENV_SALT}; ls -la /etc/venv-salt-minion"));
    assert_eq!(fs::read_to_string(&own).unwrap_or_default(), "# Changed by its owner.\n", "{said}");
    for gone in
        ["usr/lib/sidle/venv-salt-minion", "usr/bin/venv-salt-call", "usr/lib/zypp/plugins/commit/venv-zyppnotify"]
    {
        assert!(!host.machine.path(gone).exists(), "{gone}");
    }
    assert!(!host.machine.path(&DNF_PLUGINS[1..]).join("venv-dnfnotify.py").exists());
}

#[test]
fn zypper_and_dnf_take_a_shim_as_an_upgrade_and_keep_it() {
    let mut host = ShimHost::new(Kind::Rpm);
    host.machine.boot();
    host.package(VERSION);
    host.small("host", "1", "Provides: /bin/sh");
    host.small(SUPERFLUOUS, VERSION, "");
    host.small("dependent", "1", &format!("Requires: {SUPERFLUOUS} >= {VERSION}"));
    host.small("other", "1", "");
    host.index();
    let minion = host.start_packaged("zypper -n install host venv-salt-minion dependent");

    let dnf = format!("dnf={DNF_PLUGINS}");
    let more = [&PROGRAM[..], &["--replaces", SUPERFLUOUS, "--notify", "zypp", "--notify", &dnf]].concat();
    host.shim("100", &more);
    host.index();
    let asked = host.inside("zypper -n list-updates");
    assert!(asked.contains(&format!("{VERSION}-100")), "{asked}");
    for refused in ["zypper -n install", "dnf -y upgrade"] {
        let (well, said) = host.try_inside(&format!("{refused} {VENV_SALT}"));
        assert!(!well && said.contains(REFUSAL), "{refused}: {said}");
        assert_eq!((host.main_process(), version(&host)), (minion.clone(), format!("{VERSION}-1")), "{said}");
    }

    host.adopted();
    host.undisturbed(&format!("zypper -n install {VENV_SALT}"));
    is_kept(&host, "100");
    host.is_told("zypper -n install other", "zypper -n remove other");
    host.is_told("dnf -y install other", "dnf -y remove other");
    host.shim("101", &more);
    host.index();
    host.undisturbed("dnf -y upgrade");
    is_kept(&host, "101");

    // Where the repository of shims is missing, an update keeps it; what synchronizes with repositories goes back, unless it is locked.
    fs::remove_file(host.machine.path(&PLACE[1..]).join(format!("{VENV_SALT}-{VERSION}-100.noarch.rpm"))).unwrap();
    fs::remove_file(host.machine.path(&PLACE[1..]).join(format!("{VENV_SALT}-{VERSION}-101.noarch.rpm"))).unwrap();
    host.index();
    let excluded = format!("dnf -y --setopt=excludepkgs={VENV_SALT} distro-sync");
    for keeps in ["zypper -n update", "dnf -y upgrade", &excluded] {
        host.undisturbed(keeps);
        assert_eq!(version(&host), format!("{VERSION}-101"), "{keeps}");
    }
    host.inside(&format!("zypper -n addlock {VENV_SALT}"));
    host.undisturbed("zypper -n dist-upgrade");
    assert_eq!(version(&host), format!("{VERSION}-101"));
    host.inside(&format!("zypper -n removelock {VENV_SALT}"));
    host.undisturbed("zypper -n dist-upgrade");
    assert_eq!(version(&host), format!("{VERSION}-1"), "the package again, beside what runs");

    host.shim("102", &more);
    host.index();
    host.undisturbed(&format!("dnf -y upgrade {VENV_SALT}"));
    is_kept(&host, "102");
    is_removed_by_zypper(&host);
}

/// The shim is there, whole, in place of what it replaces, and no package manager has something better.
fn is_kept(host: &ShimHost, release: &str) {
    assert_eq!(version(host), format!("{VERSION}-{release}"));
    is_whole(host);
    let listed = host.inside("rpm -qa --qf '%{name}\\n'");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(!lines.contains(&SUPERFLUOUS), "{listed}");
    assert!(lines.contains(&"dependent"), "{listed}");
    for nothing in
        ["zypper -n dist-upgrade --dry-run", "zypper -n update --dry-run", "dnf -y upgrade", "dnf -y distro-sync"]
    {
        let said = host.undisturbed(nothing);
        assert!(said.to_lowercase().contains("nothing to do"), "{nothing}: {said}");
    }
    let said = host.inside("zypper -n patch-check && dnf -q check-update");
    assert!(said.contains("0 patches needed") && !said.contains(VENV_SALT), "{said}");
}

/// Without systemd, without the program, and with the program elsewhere.
fn bare(kind: Kind, install: &str, verify: &str) {
    let host = ShimHost::new(kind);
    let root = host.machine.path("");
    fs::remove_file(root.join("usr/bin/sidle")).unwrap();
    let inside = |line: &str| {
        let mut command = Command::new("chroot");
        command.arg(&root).args(["sh", "-c", line]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = command.env("HOME", "/root").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let elsewhere = "/opt/tools/sidle";
    let built = host.shim("100", &["--sidle", elsewhere]);
    let (code, said) = inside(&format!("{install} {built}"));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(inside(verify), (Some(0), String::new()));
    let (code, said) = inside("venv-salt-call --local test.ping");
    assert!(code == Some(127) && said.contains(elsewhere), "{said}");
    fs::create_dir_all(root.join("opt/tools")).unwrap();
    fs::write(root.join("opt/tools/sidle"), "#!/bin/sh\necho \"$@\"\n").unwrap();
    assert!(inside("chmod 755 /opt/tools/sidle").0 == Some(0));
    let asked = "run venv-salt-minion --instance venv-salt-minion salt-call -- --local a b\n";
    assert_eq!(inside("venv-salt-call --local 'a b'"), (Some(0), asked.to_owned()));
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system").join(UNIT)).unwrap();
    assert!(unit.contains(&format!("\nExecStart={elsewhere} restart venv-salt-minion")), "{unit}");

    // Nobody's cache, somebody's links in it, and a database that is gone: nothing that is any package manager's failure.
    let notify = format!("/usr/lib/sidle/{VENV_SALT}/notify");
    let cookie = root.join(CACHE).join(if kind == Kind::Deb { "dpkg.cookie" } else { "rpmdb.cookie" });
    fs::remove_file(&cookie).ok();
    fs::write(root.join("srv/precious"), "precious").unwrap();
    std::os::unix::fs::symlink("/srv/precious", &cookie).unwrap();
    assert_eq!(inside(&notify), (Some(0), String::new()));
    assert_eq!(fs::read_to_string(root.join("srv/precious")).unwrap(), "precious");
    assert!(fs::symlink_metadata(&cookie).unwrap().is_file(), "the link is replaced, not followed");
    fs::remove_dir_all(root.join(CACHE)).unwrap();
    assert_eq!(inside(&notify), (Some(0), String::new()));
    assert!(!root.join(CACHE).exists());
    inside("rm -rf /var/lib/dpkg/status /var/lib/rpm");
    assert_eq!(inside(&notify), (Some(0), String::new()));
}

#[test]
fn a_deb_shim_needs_neither_systemd_nor_the_program() {
    bare(Kind::Deb, "dpkg -i", "dpkg -V venv-salt-minion && debsums -s venv-salt-minion");
}

#[test]
fn an_rpm_shim_needs_neither_systemd_nor_the_program() {
    bare(Kind::Rpm, "rpm -U --nodeps", "rpm -V --nodeps venv-salt-minion");
}

#[test]
fn a_shim_is_the_same_bytes_wherever_it_is_built() {
    for kind in [Kind::Deb, Kind::Rpm] {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let dnf = format!("dnf={DNF_PLUGINS}");
        let all: &[&str] = &["--notify", "zypp", "--notify", &dnf, "--notify", "dnf5", "--replaces", SUPERFLUOUS];
        let more = if kind == Kind::Deb { &all[6..] } else { all };
        let built = places.each_ref().map(|place| shim(kind, "100", place.path(), more));
        let [one, other] = built.each_ref().map(|path| fs::read(path).unwrap());
        assert!(one == other, "{built:?}");
        if kind == Kind::Rpm {
            // Also of what is only named, and made anew for each.
            let said =
                Command::new("rpm").args(["-qp", "--qf", "[%{FILEMTIMES}\\n]%{BUILDTIME}\\n", &built[0]]).output();
            let times = String::from_utf8_lossy(&said.unwrap().stdout).into_owned();
            assert!(times.lines().count() > 5 && times.lines().all(|time| time == BUILT_AT), "{times}");
        }
    }
}

#[test]
fn a_message_of_any_length_is_confirmed_once() {
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/shim/notify/zypp");
    let told = directory.path().join("told");
    let notify = directory.path().join("notify");
    fs::write(&notify, format!("#!/bin/sh\necho told >>'{}'\n", text(&told))).unwrap();
    let plugin = directory.path().join("plugin");
    fs::write(&plugin, fs::read_to_string(source).unwrap().replace("@NOTIFY@", &format!("sh {}", text(&notify))))
        .unwrap();
    for shell in ["dash", "bash"] {
        fs::remove_file(&told).ok();
        talk(shell, &plugin, &told);
    }
}

/// As libzypp does it: the next message after the answer to this one.
fn talk(shell: &str, plugin: &Path, told: &Path) {
    use std::io::{Read as _, Write as _};
    let mut command = Command::new(shell);
    command.arg(plugin).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let steps = format!("{{\"TransactionStepList\":[{}0]}}\n\n", "{\"type\":\"+\"},\n".repeat(20_000));
    let mut say = |message: &str| {
        input.write_all(message.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [1];
        while byte[0] != 0 && output.read(&mut byte).unwrap() == 1 {
            answer.push(byte[0]);
        }
        String::from_utf8(answer).unwrap()
    };
    assert_eq!(say("PLUGINBEGIN\nuserdata:x\n\n\0"), "ACK\n\n\0");
    assert_eq!(say(&format!("COMMITBEGIN\n\n{steps}\0")), "ACK\n\n\0");
    assert_eq!(say("COMMITEND\n\nPLUGINEND\n\n\0"), "ACK\n\n\0");
    assert!(!told.exists(), "the transaction is not over");
    assert_eq!(say("PLUGINEND\n\n\0"), "ACK\n\n\0");
    assert_eq!(fs::read_to_string(told).unwrap(), "told\n");
    assert_eq!(say("_DISCONNECT\n\n\0"), "ACK\nexit:0\n\n\0");
    assert!(child.wait().unwrap().success());
}

/// The package with Salt's logrotate file goes with `--replaces`: the file stays, as the shim's.
#[test]
fn a_shim_rotates_the_log_where_it_takes_the_package_away_that_did() {
    let machine = Machine::bare(ALL_PACKAGE_MANAGERS);
    let (root, out) = (machine.path(""), machine.path("srv"));
    let common = out.join("common");
    fs::create_dir_all(common.join("DEBIAN")).unwrap();
    fs::create_dir_all(common.join("etc/logrotate.d")).unwrap();
    fs::write(common.join("etc/logrotate.d/salt-common"), "/var/log/salt/minion {\n    daily\n}\n").unwrap();
    fs::write(common.join("DEBIAN/conffiles"), "/etc/logrotate.d/salt-common\n").unwrap();
    let control = "Package: salt-common\nVersion: 3006.30\nArchitecture: all\nMaintainer: Nobody <nobody@localhost>\nDescription: a file\n";
    fs::write(common.join("DEBIAN/control"), control).unwrap();
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command:?}: {said}");
        said
    };
    said(
        Command::new("dpkg-deb")
            .args(["-Znone", "--root-owner-group", "--build"])
            .arg(&common)
            .arg(out.join("common.deb")),
    );
    let build = |kind: &str, more: &[&str]| {
        let what = [kind, "--name", "salt-minion", "--version", "3006.30", "--release", "100", "--output", text(&out)];
        script("packaging/shim/build", &[&what[..], more].concat())
    };
    let deb = build("deb", &["--replaces", "salt-common"]);
    let inside = |line: &str| {
        let environment =
            ["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"];
        said(Command::new("env").args(environment).args(["chroot", text(&root), "sh", "-ec", line]))
    };
    inside("dpkg -i /srv/common.deb");
    let name = Path::new(&deb).file_name().unwrap().to_str().unwrap();
    inside(&format!("dpkg -i /srv/{name}"));
    assert!(inside("dpkg -S /etc/logrotate.d/salt-common").starts_with("salt-minion: "));
    inside("dpkg --purge salt-common; test -e /etc/logrotate.d/salt-common");

    assert!(inside("cat /etc/logrotate.d/salt-common").contains("weekly"), "nobody had changed it");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/shim/logrotate");
    let log = out.join("minion");
    fs::write(&log, "a line\n").unwrap();
    let settings = fs::read_to_string(own).unwrap().replace("/var/log/salt/minion", text(&log));
    fs::write(out.join("rotate"), settings).unwrap();
    said(Command::new("logrotate").args(["--force", "--state", text(&out.join("state")), text(&out.join("rotate"))]));
    assert!(out.join("minion.1.gz").exists() && !log.exists());

    let files = |rpm: &str| said(Command::new("rpm").args(["-qpl", rpm]));
    assert!(files(&build("rpm", &["--replaces", "salt"])).contains("/etc/logrotate.d/salt\n"));
    assert!(!files(&build("rpm", &[])).contains("logrotate"), "no package is taken away");
}
