//! Minions of releases that nobody supports any more, on the Pythons that they ran on: taken over, and brought to a release of today.

use super::{AROUND_SECONDS, GivenBack, Packaged, RATE};
use crate::support::eventually;
use crate::support::salt::START_SECONDS;
use crate::support::scene::{Scene, Wanted};
use crate::support::stage::text;
use crate::support::stream::{Plan, Report};
use jiff::{Timestamp, civil, tz::TimeZone};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What ran on the Pythons of its time beside this Salt. Its own requirements name no upper bounds.
const REQUIREMENTS: [&str; 12] = [
    "setuptools<66",
    // The package of 3003.5 requires nothing.
    "pyyaml",
    "requests",
    "pyzmq",
    "pycryptodomex",
    "jinja2<3.1",
    "markupsafe<2.1",
    "msgpack<1.1",
    "distro",
    "looseversion",
    "packaging",
    // Packages bring it: without it nobody can tell a job from the process that writes the log.
    "setproctitle",
];

/// A Python of this minor version: on the path, or pyenv's.
fn python(minor: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of_pyenv = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let of_pyenv = of_pyenv.filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{minor}.")));
    let named = [PathBuf::from(format!("python{minor}"))].into_iter();
    let runs = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import ensurepip, venv"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = named.chain(of_pyenv.map(|entry| entry.path().join("bin/python3"))).find(runs);
    found.unwrap_or_else(|| panic!("this test needs Python {minor}, with venv: install it, or `pyenv install {minor}`"))
}

/// Salt from `PyPI` in an environment of its own; made once.
fn salt(version: &str, minor: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("salt-{version}-python{minor}"));
    if !place.join("made").exists() {
        let made = Command::new(python(minor)).args(["-m", "venv", "--clear"]).arg(&place).status().unwrap();
        assert!(made.success(), "{version}");
        let mut pip = Command::new(place.join("bin/pip"));
        pip.args(["--quiet", "install", &format!("salt=={version}")]).args(REQUIREMENTS).stdin(Stdio::null());
        assert!(pip.status().unwrap().success(), "pip installs salt=={version}");
        std::fs::write(place.join("made"), "").unwrap();
    }
    place
}

/// The time in a job's id is that of its publication, by the same clock. A job that is published just before the stop may still be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// The version says that it cannot run beside another process: nothing is touched, and nobody waits for a guard.
fn is_refused_at_once_beside_another(packaged: &Packaged, version: &str) {
    for more in [&["--dry-run"][..], &[]] {
        let begun = Instant::now();
        let beside = packaged.adopt(more);
        let told = beside.stderr.contains(&format!("Salt {version} cannot load the guard"));
        assert!(beside.code == Some(1) && told && beside.stderr.contains("add `--mode idle`"), "{beside:?}");
        assert!(begun.elapsed() < Duration::from_secs(45), "it has waited for a guard: {:?}", begun.elapsed());
    }
    assert!(!packaged.scene.host.path("var/lib/sidle/adopt").exists());
    assert!(packaged.lives() && packaged.version().contains(version));
}

/// Whatever was missed was published in the downtime that the host has on record.
fn what_is_lost_fell_into_the_downtime(scene: &Scene, report: &Report) {
    let missed = scene.host.sidle(&["--json", "missed", scene.package]).json();
    let downtime = &missed["instances"][0]["downtimes"][0];
    let time = |key: &str| downtime[key].as_str().unwrap_or_else(|| panic!("{missed:#}")).parse::<Timestamp>().unwrap();
    let (from, until) = (time("from") - ON_ITS_WAY, time("until"));
    for job in &report.lost {
        let published = civil::DateTime::strptime("%Y%m%d%H%M%S", &job.jid[..14]).unwrap();
        let published = published.to_zoned(TimeZone::UTC).unwrap().timestamp();
        assert!(from <= published && published <= until, "{job:#?} was not published within {downtime:#}");
    }
}

/// Beside another process it is not taken over, and that costs it nothing; when idle it is, and comes back. No job runs twice; what was published while
/// no minion listened is missed, and nothing else.
fn is_adopted(version: &str, minor: &str, to: &str) {
    let releases = [to];
    let wanted = Wanted { transport: "minimum_auth_version: 0\n", ..Wanted::of(&releases) };
    let packaged = Packaged::of(&wanted, &salt(version, minor));
    let scene = &packaged.scene;
    assert!(packaged.version().contains(version));
    let stream = scene.stream(&Plan::short(RATE));
    stream.run(AROUND_SECONDS);
    is_refused_at_once_beside_another(&packaged, version);
    stream.end().assert_lossless(&format!("{version} is not adopted"));

    let told = packaged.adopt(&["--mode", "idle", "--dry-run"]).ok();
    assert!(told.contains("in place of salt-minion.service"), "{told}");
    let stream = scene.stream(&Plan::short(RATE));
    stream.run(AROUND_SECONDS);
    // As `sidle push --action adopt --mode idle` calls it.
    let (from, print) = (format!("file://{}", text(&scene.author.repository())), scene.author.fingerprint());
    let release = format!("{to}-1");
    let words = ["setup", "--repository", &from, "--fingerprint", &print, "--release", &release, "--adopt"];
    let adopted = scene.host.sidle(&[&words[..], &["--mode", "idle"]].concat());
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    let last = &scene.history()[0];
    assert_eq!(last["mode"], "idle", "{last}");
    eventually(START_SECONDS, "the release answers", || match packaged.version() {
        answer if answer.contains(to) => Ok(()),
        other => Err(other),
    });
    assert!(!packaged.lives());
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    println!("{}: {} ms without a minion", report.row(&format!("{version} to {to}")), last["downtime_milliseconds"]);
    assert_eq!(report.doubled(), 0, "{report:#?}");
    assert!(!report.lost.is_empty(), "a downtime under a stream costs a job: {report:#?}");
    what_is_lost_fell_into_the_downtime(scene, &report);
    packaged.is_clean();

    let given_back = scene.verb("unadopt", &[]);
    let _given_back = GivenBack(scene);
    assert_eq!(given_back.code, Some(0), "{given_back:?}\n{}", packaged.logs());
    eventually(START_SECONDS, "the package's minion answers", || match packaged.version() {
        answer if answer.contains(version) => Ok(()),
        other => Err(other),
    });
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.10"]
fn a_minion_of_3005_is_adopted_by_3006() {
    is_adopted("3005.5", "3.10", "3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.10"]
fn a_minion_of_3005_is_adopted_by_3008() {
    is_adopted("3005.5", "3.10", "3008.5");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.9"]
fn a_minion_of_3004_is_adopted_by_3008() {
    is_adopted("3004.2", "3.9", "3008.5");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.7"]
fn a_minion_of_3000_is_adopted_by_3006() {
    is_adopted("3000.9", "3.7", "3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.9"]
fn a_minion_of_3003_is_adopted_by_3008() {
    is_adopted("3003.5", "3.9", "3008.5");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.8"]
fn a_minion_of_3002_is_adopted_by_3006() {
    is_adopted("3002.9", "3.8", "3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.8"]
fn a_minion_of_3001_is_adopted_by_3006() {
    is_adopted("3001.8", "3.8", "3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: needs Python 3.7"]
fn a_minion_of_2019_2_is_adopted_by_3006() {
    is_adopted("2019.2.8", "3.7", "3006.30");
}
