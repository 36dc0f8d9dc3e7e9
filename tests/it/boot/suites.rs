//! A booted host of each distribution's package manager, by the README's line: install, first release, switch, upgrade of sidle, removal. What is
//! left is what the documentation says.

use crate::support::boot::{ALL_PACKAGE_MANAGERS, Machine, UNIT};
use crate::support::eventually;
use crate::support::packages::script;
use crate::support::release::{other_revision, release_file};
use crate::support::stage::{Author, text};
use std::fs;
use std::path::Path;

/// What a package manager is told.
struct Manager {
    end: &'static str,
    install: &'static str,
    remove: &'static str,
    version: &'static str,
}

/// The README's lines.
const APT: Manager = Manager {
    end: "deb",
    install: "apt-get install -y",
    remove: "apt-get purge -y sidle",
    version: "dpkg-query -W -f '${Version}' sidle",
};
const DNF: Manager = Manager {
    end: "rpm",
    install: "dnf -y --disablerepo='*' install",
    remove: "dnf -y --disablerepo='*' remove sidle",
    version: "rpm -q --qf '%{version}-%{release}' sidle",
};
const ZYPPER: Manager = Manager {
    end: "rpm",
    install: "zypper --non-interactive --no-refresh install --allow-unsigned-rpm",
    remove: "zypper --non-interactive remove sidle",
    version: "rpm -q --qf '%{version}-%{release}' sidle",
};

impl Manager {
    fn lives(&self, suite: &'static str) {
        let author = Author::new();
        let mut machine = Machine::bare(suite);
        for (file, place) in [
            (release_file(self.end), format!("srv/sidle.{}", self.end)),
            (other_revision(self.end), format!("srv/newer.{}", self.end)),
            (author.release("1.0", "good"), "srv/1.0.sidle".to_owned()),
            (author.release("1.1", "good"), "srv/1.1.sidle".to_owned()),
            (author.repository().join("metadata/1.root.json"), "srv/root.json".to_owned()),
        ] {
            fs::copy(file, machine.path(&place)).unwrap();
        }
        fs::create_dir_all(machine.path("etc/demo-agent")).unwrap();
        machine.start();
        let sh = |line: &str| machine.inside(&["sh", "-ec", line]);
        let traces = || {
            sh(
                "find / -xdev -path /proc -prune -o -name '*sidle*' -print | grep -v '^/srv/\\|^/var/log\\|/info/sidle' | sort",
            )
        };
        if self.end == "rpm" {
            sh("mkdir -p /etc/rpm /var/lib/rpm; echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros; rpm --initdb");
            // zypper wants a database with a package in it, also in the end.
            let other = script("tests/it/support/packaged/small", &["rpm", "other", "1", text(&machine.path("srv"))]);
            sh(&format!("rpm -i --nosignature /srv/{}", Path::new(&other).file_name().unwrap().to_str().unwrap()));
        }
        let bare = traces();

        sh(&format!("{} /srv/sidle.{}", self.install, self.end));
        assert!(sh(self.version).ends_with("0.1.0-1"));
        assert!(!sh("systemctl is-enabled sidle-scrub.timer || :").contains("enabled"));
        sh("mkdir -p /etc/sidle/conf.d; printf 'probation = \"1s\"\\nstop_timeout = \"2s\"\\n' >/etc/sidle/sidle.toml");
        sh(&format!("sidle trust pin /srv/root.json --fingerprint {}", author.fingerprint()));
        sh("sidle install /srv/1.0.sidle && systemctl enable --now sidle@demo-agent && sidle switch demo-agent 1.0-1");
        machine.serves("1.0-1");
        sh("sidle install /srv/1.1.sidle && sidle switch demo-agent 1.1-1");
        machine.serves("1.1-1");
        // Units that may write only sidle's own places do their work; what is damaged is mended.
        let tree = "/opt/sidle/demo-agent/versions/1.0-1";
        sh(&format!(
            "echo other >{tree}/lib/demo-agent/lazy/greeting; systemctl start sidle-scrub; sidle verify demo-agent 1.0-1 --full"
        ));
        sh(
            "mkdir -p /var/lib/prometheus/node-exporter; systemctl start sidle-metrics; grep -q sidle_ /var/lib/prometheus/node-exporter/sidle.prom",
        );

        let supervisor = machine.property("MainPID");
        let agent = machine.agent();
        sh(&format!("{} /srv/newer.{}", self.install, self.end));
        assert!(sh(self.version).ends_with("0.1.0-2"));
        eventually(20, "the supervisor executes the new program", || {
            let same = machine.try_inside(&["test", &format!("/proc/{supervisor}/exe"), "-ef", "/usr/bin/sidle"]);
            if same.0 { Ok(()) } else { Err(machine.inside(&["ls", "-l", &format!("/proc/{supervisor}/exe")])) }
        });
        machine.serves("1.1-1");
        assert_eq!((machine.property("MainPID"), machine.agent()), (supervisor, agent));

        let told = sh(&format!("{} 2>&1", self.remove));
        assert!(told.contains(&format!("{UNIT} still runs")) && told.contains("/opt/sidle"), "{told}");
        let pid = agent.expect("it ran").to_string();
        sh(&format!("kill -0 {pid}; systemctl stop {UNIT}"));
        eventually(10, "the agent has ended", || {
            if machine.try_inside(&["kill", "-0", &pid]).0 { Err(pid.clone()) } else { Ok(()) }
        });
        // The documentation names these.
        let documented = ["/opt/sidle", "/var/lib/sidle", "/var/cache/sidle", "/etc/sidle"];
        let other = [
            "/etc/systemd/system/multi-user.target.wants/sidle@demo-agent.service",
            "/var/lib/prometheus/node-exporter/sidle.prom",
        ];
        let left = traces();
        let left: Vec<&str> = left.lines().filter(|line| !bare.lines().any(|before| before == *line)).collect();
        for line in left {
            let link = self.end == "rpm" && line == other[0];
            assert!(link || line == other[1] || documented.iter().any(|place| line.starts_with(place)), "{line}");
        }
    }
}

#[test]
fn bullseye_installs_upgrades_and_purges_sidle_by_apt() {
    APT.lives("bullseye");
}

#[test]
fn bookworm_installs_upgrades_and_purges_sidle_by_apt() {
    APT.lives("bookworm");
}

#[test]
fn trixie_installs_upgrades_and_purges_sidle_by_apt() {
    APT.lives("trixie");
}

#[test]
fn sid_installs_upgrades_and_purges_sidle_by_apt() {
    APT.lives("sid");
}

#[test]
fn a_booted_host_installs_upgrades_and_removes_sidle_by_dnf() {
    DNF.lives(ALL_PACKAGE_MANAGERS);
}

#[test]
fn a_booted_host_installs_upgrades_and_removes_sidle_by_zypper() {
    ZYPPER.lives(ALL_PACKAGE_MANAGERS);
}
