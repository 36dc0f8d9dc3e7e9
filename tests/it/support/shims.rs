//! A host with the package managers, on which sidle runs an agent under the name of a packaged minion: what a shim is installed on.

use super::boot::{ALL_PACKAGE_MANAGERS, Machine, Made};
use super::packages::{Kind, script};
use super::stage::{Author, VENV_SALT, text};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Inside: where the packages lie.
pub const PLACE: &str = "/srv/packages";
/// Inside: where the minion of that name keeps what it remembers.
pub const CACHE: &str = "var/cache/venv-salt-minion";
/// What the minion's package and its shim have in common.
pub const VERSION: &str = "3006.30";
/// The package that the shim makes superfluous.
pub const SUPERFLUOUS: &str = "venv-salt-common";
/// The shim is the same, whenever it is built.
pub const BUILT_AT: &str = "1700000000";
/// The package's unit, which the shim has, too.
pub const UNIT: &str = "venv-salt-minion.service";

const SETTINGS: &str =
    "probation = \"1s\"\nstart_timeout = \"10s\"\nstop_timeout = \"5s\"\nrestart_pause = \"100ms\"\n";
/// What of it the package's minion is: something that runs.
const MINION: &str = "#!/bin/sh\nsystemd-notify --ready\nexec sleep infinity\n";

/// The host.
pub struct ShimHost {
    pub kind: Kind,
    pub machine: Machine,
    author: Author,
}

impl ShimHost {
    /// The host, not booted yet: its package managers know no repository but the one in [`PLACE`].
    pub fn new(kind: Kind) -> Self {
        let author = Author::new();
        let made = Made { suite: ALL_PACKAGE_MANAGERS, package: VENV_SALT, shares_network: false };
        let machine = Machine::of(made, &author, &[author.posing(VENV_SALT, "1.0")]);
        fs::write(machine.path("etc/sidle/sidle.toml"), SETTINGS).unwrap();
        let write = |file: &str, text: &str| {
            let file = machine.path(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let sources = machine.path("etc/apt/sources.list.d");
        fs::remove_dir_all(&sources).ok();
        fs::create_dir(&sources).unwrap();
        write("etc/apt/sources.list", &format!("deb [trusted=yes] file:{PLACE} ./\n"));
        let repository = format!("[local]\nname=local\nbaseurl=file://{PLACE}\ngpgcheck=0\nenabled=1\n");
        write("etc/yum.repos.d/local.repo", &repository);
        write("etc/zypp/repos.d/local.repo", &format!("{repository}autorefresh=1\n"));
        // Debian's rpm keeps it elsewhere, as it is no package manager there.
        write("etc/rpm/macros", "%_dbpath /var/lib/rpm\n");
        for directory in [CACHE, &PLACE[1..], "var/lib/rpm"] {
            fs::create_dir_all(machine.path(directory)).unwrap();
        }
        Self { kind, machine, author }
    }

    fn outside(&self) -> std::path::PathBuf {
        self.machine.path(&PLACE[1..])
    }

    /// Builds the minion's package.
    pub fn package(&self, version: &str) -> String {
        let tree = self.author.repository().join("../minion");
        fs::create_dir_all(tree.join("bin")).unwrap();
        for program in ["salt-minion", "salt-call"] {
            let program = tree.join("bin").join(program);
            fs::write(&program, MINION).unwrap();
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let outside = self.outside();
        let arguments = [self.kind.name(), text(&tree), version, "1", text(&outside), VENV_SALT];
        script("tests/it/support/packaged/build", &arguments)
    }

    /// Builds a package of one file.
    pub fn small(&self, name: &str, version: &str, field: &str) {
        script("tests/it/support/packaged/small", &[self.kind.name(), name, version, text(&self.outside()), field]);
    }

    /// Builds the shim; gives its path inside.
    pub fn shim(&self, release: &str, more: &[&str]) -> String {
        let built = shim(self.kind, release, &self.outside(), more);
        format!("{PLACE}/{}", Path::new(&built).file_name().unwrap().to_str().unwrap())
    }

    /// Makes a repository of what was built.
    pub fn index(&self) {
        match self.kind {
            Kind::Deb => {
                let listed = format!(
                    "cd '{}' && dpkg-scanpackages --multiversion . >Packages 2>/dev/null",
                    text(&self.outside())
                );
                assert!(std::process::Command::new("sh").args(["-c", &listed]).status().unwrap().success());
                self.inside("apt-get -q update");
            }
            Kind::Rpm => {
                self.inside(&format!("createrepo_c -q {PLACE} && zypper -q refresh -f && dnf -q clean expire-cache"));
            }
        }
    }

    /// Runs a line of shell inside; gives whether it succeeded, and what it prints.
    pub fn try_inside(&self, line: &str) -> (bool, String) {
        let line = format!("export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HOME=/root; {line}");
        self.machine.try_inside(&["sh", "-c", &line])
    }

    /// Runs a line of shell inside, which must succeed; gives what it prints.
    pub fn inside(&self, line: &str) -> String {
        let (well, said) = self.try_inside(line);
        assert!(well, "{line}: {said}");
        said
    }

    /// Installs the package, which starts its minion; gives the minion's process.
    pub fn start_packaged(&self, line: &str) -> String {
        self.inside(line);
        let process = self.main_process();
        assert_ne!(process, "0", "the package's minion runs");
        process
    }

    /// The first process of the package's unit.
    pub fn main_process(&self) -> String {
        self.inside(&format!("systemctl show --value --property MainPID {UNIT}")).trim().to_owned()
    }

    /// Whether the package's unit counts as running, and as started by a boot.
    pub fn state(&self) -> [String; 2] {
        ["is-active", "is-enabled"].map(|verb| self.try_inside(&format!("systemctl {verb} {UNIT}")).1.trim().to_owned())
    }

    /// A host as an adoption leaves it: sidle runs the agent, and a replacement unit has the name of the package's unit.
    pub fn adopted(&self) {
        self.inside(&format!("systemctl stop {UNIT}"));
        let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/replacement.service");
        let mut unit = fs::read_to_string(template).unwrap();
        for (name, value) in
            [("@UNIT@", UNIT), ("@SIDLE@", "/usr/bin/sidle"), ("@PACKAGE@", VENV_SALT), ("@INSTANCE@", VENV_SALT)]
        {
            unit = unit.replace(name, value);
        }
        fs::write(self.machine.path("etc/systemd/system").join(UNIT), unit).unwrap();
        self.inside(&format!("sidle switch {VENV_SALT} && systemctl daemon-reload && systemctl enable --now {UNIT}"));
        assert_eq!(self.state(), ["active", "enabled"]);
    }

    /// Does something to packages; the same process serves on.
    pub fn undisturbed(&self, line: &str) -> String {
        let before = self.machine.agent().expect("it runs");
        let said = self.inside(line);
        let status = self.machine.status();
        assert_eq!(self.machine.agent(), Some(before), "{line}: {said}\n{status}");
        assert!(status["switch"].is_null(), "{line}: {status}");
        said
    }

    /// What a package manager has told the minion.
    pub fn cookie(&self) -> Option<String> {
        let name = if self.kind == Kind::Deb { "dpkg.cookie" } else { "rpmdb.cookie" };
        let cookie = fs::read_to_string(self.machine.path(CACHE).join(name)).ok()?;
        let (digest, time) = cookie.trim_end().split_once(' ').expect("a digest and a time");
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{cookie}");
        assert!(time.bytes().all(|byte| byte.is_ascii_digit()) && cookie.ends_with('\n'), "{cookie}");
        let left = fs::read_dir(self.machine.path(CACHE)).unwrap().count();
        assert_eq!(left, 1, "nothing but the cookie is there");
        Some(cookie)
    }

    /// The minion is told of a transaction, unless it made it itself.
    pub fn is_told(&self, line: &str, back: &str) {
        let before = self.cookie();
        self.undisturbed(line);
        let told = self.cookie();
        assert!(told.is_some() && told != before, "{line}: {before:?} {told:?}");
        self.undisturbed(&format!("export SALT_RUNNING=1; {back}"));
        assert_eq!(self.cookie(), told, "{back}: by the minion itself");
    }
}

/// Builds a shim into a directory; gives its path.
pub fn shim(kind: Kind, release: &str, output: &Path, more: &[&str]) -> String {
    let what = [kind.name(), "--name", VENV_SALT, "--version", VERSION, "--release", release, "--output", text(output)];
    script("packaging/shim/build", &[&what[..], more].concat())
}
