//! A minion that a distribution's package brought is taken over while it works, and given back.

mod environment;
mod older;
mod variety;

use super::handover::bad::{BAD, install_bad};
use crate::support::eventually;
use crate::support::extension::put_modules;
use crate::support::salt::{START_SECONDS, Tree, copy_renamed, packaged_tree};
use crate::support::scene::{ID, MASTER, Scene, Wanted};
use crate::support::shown::prints_what_is_shown;
use crate::support::stage::{Ran, SALT, text};
use crate::support::stream::{Plan, TICKS};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const OLD: &str = "3006.30";
const MIDDLE: &str = "3007.17";
const NEW: &str = "3008.5";

/// Jobs a second: few enough for the slowest release beside a second minion that starts, and other tests.
const RATE: f64 = 1.0;
const AROUND_SECONDS: u64 = 4;

/// A host with a minion as a package starts it, and a supervisor with nothing to run.
struct Packaged {
    minion: Tree,
    scene: Scene,
}

impl Packaged {
    fn new(releases: &[&str]) -> Self {
        Self::with(&Wanted::of(releases))
    }

    /// The same with more.
    fn with(wanted: &Wanted<'_>) -> Self {
        Self::on(Scene::idle(wanted), wanted, |scene| {
            let name = if wanted.package == SALT { "salt" } else { wanted.package };
            // Where every user may read it, and with its own names.
            let tree = scene.host.path("usr/lib").join(wanted.package);
            copy_renamed(&packaged_tree(OLD), &tree, Some(name).filter(|name| *name != "salt"));
            tree
        })
    }

    /// The same of a tree, or an environment of Python's, which stays where it is.
    fn of(wanted: &Wanted<'_>, tree: &Path) -> Self {
        Self::on(Scene::idle(wanted), wanted, |_| tree.to_owned())
    }

    fn on(scene: Scene, wanted: &Wanted<'_>, tree: impl FnOnce(&Scene) -> PathBuf) -> Self {
        let programs = scene.host.path("usr/bin");
        fs::create_dir_all(&programs).unwrap();
        let tree = tree(&scene);
        let prefix = wanted.package.strip_suffix(SALT).expect("it is a minion");
        for program in ["salt-minion", "salt-call"] {
            symlink(tree.join("bin").join(program), programs.join(format!("{prefix}{program}"))).unwrap();
        }
        if wanted.user != "root" {
            // As packages make them.
            for place in ["var/log/salt", "var/cache/salt/minion", "var/run/salt/minion", "etc/salt/pki/minion"] {
                let made = Command::new("install").args(["-d", "-o", wanted.user]).arg(scene.host.path(place)).status();
                assert!(made.unwrap().success());
            }
        }
        let mut command = Command::new(programs.join(wanted.package));
        command.arg("-c").arg(scene.configuration()).env("SALT_EXTRAS_DIR", scene.host.path("srv/extras"));
        let minion = Tree::start(&mut command, &scene.host.path("packaged.log"));
        scene.answers();
        scene.marks.started(1);
        Self { minion, scene }
    }

    fn lives(&self) -> bool {
        proc_fs::process(self.minion.child.id()).unwrap().is_some_and(|process| process.is_alive())
    }

    fn adopt(&self, more: &[&str]) -> Ran {
        self.scene.verb("adopt", more)
    }

    fn version(&self) -> String {
        self.scene.master().call(ID, &["test.version"])
    }

    fn mask(&self) -> PathBuf {
        self.scene.host.path("etc/systemd/system").join(format!("{}.service", self.scene.package))
    }

    fn logs(&self) -> String {
        self.scene.logs() + &fs::read_to_string(self.scene.host.path("packaged.log")).unwrap_or_default()
    }

    /// Nothing of the adoption is where the minion would load it.
    fn is_clean(&self) {
        let grains = self.scene.host.path("var/cache/salt/minion/extmods/grains");
        let left: Vec<_> =
            fs::read_dir(grains).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name == "__pycache__"), "{left:?}");
        assert!(!self.scene.master().call(ID, &["grains.ls"]).contains("sidle"));
    }
}

/// What `salt-pip` has laid over the packaged minion, and the release would not see: it was gone without a word, in the dry run as in the adoption.
/// Here it cannot be copied either: it does not say which files it has.
fn extras_are_told_and_refuse(packaged: &Packaged) {
    let scene = &packaged.scene;
    let package = scene.host.path("srv/extras/netaddr-1.2.dist-info");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("METADATA"), "Metadata-Version: 2.1\nName: netaddr\nVersion: 1.2\n").unwrap();
    for arguments in [&["--dry-run", "--rehearse"][..], &[]] {
        let ran = packaged.adopt(arguments);
        assert!(format!("{ran:?}").contains("netaddr 1.2"), "{ran:?}");
        assert!(ran.code != Some(0) || !arguments.is_empty(), "{ran:?}\n{}", packaged.logs());
        assert!(packaged.lives() && !scene.host.path("var/lib/sidle/adopt/salt-minion").exists());
    }
    fs::remove_dir_all(package).unwrap();
    let told = packaged.adopt(&["--dry-run", "--rehearse"]).ok();
    assert!(told.contains("the rehearsal found:") && told.contains("would vanish"), "3007 lacks functions: {told}");
    let (from, print) = (format!("file://{}", text(&scene.author.repository())), scene.author.fingerprint());
    let release = format!("{MIDDLE}-1");
    let setup = ["--json", "setup", "--repository", &from, "--fingerprint", &print, "--release", &release, "--adopt"];
    let told = scene.host.sidle(&[&setup[..], &["--dry-run"]].concat()).json();
    let adoption = &told["adoption"];
    assert!(adoption["notes"].to_string().contains("would vanish") && adoption["rehearsed"] == true, "{told}");
    assert!(adoption["changes"].to_string().contains("salt-minion.service"), "{told}");
}

/// The master has told the packaged minion that it is older than the release: the adoption and the setup that adopts are refused, and nothing begins.
fn a_release_that_is_newer_than_its_master_is_refused(packaged: &Packaged, release: &str) {
    let scene = &packaged.scene;
    put_modules(scene);
    scene.master().call(ID, &["saltutil.refresh_modules", "async=False"]);
    // As a number it would have lost a zero.
    let refused = scene.master().call(ID, &["sidle.master_is", OLD]);
    assert!(refused.contains("give it as text"), "{refused}");
    let told = scene.master().call(ID, &["sidle.master_is", &format!("'{OLD}'")]);
    assert!(told.contains(OLD) && told.contains("a job"), "{told}");
    let (from, print) = (format!("file://{}", text(&scene.author.repository())), scene.author.fingerprint());
    let setup = ["setup", "--repository", &from, "--fingerprint", &print, "--release", release, "--adopt"];
    for words in [&["adopt", SALT, "--dry-run", "--rehearse"][..], &["adopt", SALT], &setup] {
        let said = format!("{:?}", scene.host.sidle(words));
        for part in [&format!("runs Salt {OLD} (by a job of "), "upgrade the master first", "rehearsal = "] {
            assert!(said.contains(part), "{words:?}: {part}: {said}");
        }
        assert!(packaged.lives() && !scene.host.path("var/lib/sidle/adopt/salt-minion").exists());
    }
    // The truth, which is newer than the release.
    scene.master().call(ID, &["sidle.master_is", &format!("'{MASTER}'")]);
}

/// Ends the minion that `sidle unadopt` has started: it is nobody's child.
struct GivenBack<'a>(&'a Scene);

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.0.host.path("var/run/salt-minion.pid")).unwrap_or_default();
        let main = pid.trim().parse().ok().and_then(|pid: u32| proc_fs::process(pid).ok().flatten());
        for pid in main.iter().flat_map(|main| [main.parent, main.pid]).filter(|pid| *pid > 1) {
            if let Ok(Some(identity)) = Identity::of(pid) {
                let _ = identity.signal(SignalNumber::KILL);
            }
        }
    }
}

#[test]
fn a_busy_packaged_minion_is_adopted_without_losing_a_job_and_given_back() {
    let packaged =
        Packaged::with(&Wanted { settings: "rehearsal = \"refuse\"\n", schedule: TICKS, ..Wanted::of(&[MIDDLE]) });
    let scene = &packaged.scene;
    let told = packaged.adopt(&["--dry-run"]).ok();
    assert!(told.contains("in place of salt-minion.service") && told.contains("salt-call"), "{told}");
    assert!(!scene.host.path("var/lib/sidle/adopt").exists() && !packaged.mask().exists());
    extras_are_told_and_refuse(&packaged);
    a_release_that_is_newer_than_its_master_is_refused(&packaged, &format!("{MIDDLE}-1"));
    let stream = scene.stream(&Plan::of(RATE));
    stream.run(AROUND_SECONDS);
    let adopted = packaged.adopt(&[]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    let last = &scene.history()[0];
    assert_eq!((last["mode"].as_str(), last["downtime_milliseconds"].as_u64()), (Some("overlap"), Some(0)), "{last}");
    assert!(packaged.version().contains(MIDDLE));
    assert!(!packaged.lives());
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    report.assert_lossless("an unguarded 3006.30 is adopted by 3007.17");
    report.assert_steady_schedule("an unguarded 3006.30 is adopted by 3007.17");
    assert_eq!(report.starts.len(), 1, "one start event: {:?}", report.starts);
    assert_eq!((report.startup_states, report.ticks.on_start), (0, 0), "what belongs to a boot ran: {report:#?}");
    packaged.is_clean();
    // The package's unit is out of the way, and its commands lead to what runs, also without sidle.
    assert!(fs::read_to_string(packaged.mask()).unwrap().contains("--if-changed"));
    let mut call = Command::new(scene.host.path("usr/local/sbin/salt-call"));
    let called = call.arg("--version").env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(String::from_utf8_lossy(&called.stdout).contains(MIDDLE), "{called:?}");
    assert_eq!(packaged.adopt(&[]).code, Some(3));

    let released = scene.verb("unadopt", &[]);
    let _given_back = GivenBack(scene);
    assert_eq!(released.code, Some(0), "{released:?}\n{}", packaged.logs());
    let (directory, page) = (text(&scene.host.root()).to_owned(), include_str!("../../../docs/adopting.md"));
    let printed = [&told, &adopted.stdout, &adopted.stderr, &released.stdout, &released.stderr].map(String::as_str);
    assert!(prints_what_is_shown(page, &printed.concat().replace(&directory, "")) > 15);
    eventually(START_SECONDS, "the package's minion answers", || match packaged.version() {
        version if version.contains(OLD) => Ok(()),
        other => Err(other),
    });
    assert!(!packaged.mask().exists() && fs::symlink_metadata(packaged.mask()).is_err());
    assert!(!scene.host.path("usr/local/sbin/salt-call").exists());
    let status = scene.status();
    assert!(status["current"].is_null() && status["supervisor"]["agent"].is_null(), "{status}");
}

#[test]
fn a_release_that_fails_leaves_the_packaged_minion_serving_as_if_nothing_had_been() {
    let packaged = Packaged::with(&Wanted { schedule: TICKS, ..Wanted::of(&[NEW]) });
    let scene = &packaged.scene;
    install_bad(scene);
    fs::write(scene.host.path("etc/salt/trouble"), "exit").unwrap();
    let stream = scene.stream(&Plan::of(RATE));
    stream.run(AROUND_SECONDS);
    let tried = packaged.adopt(&[&format!("{BAD}-1")]);
    assert_eq!(tried.code, Some(5), "{tried:?}\n{}", packaged.logs());
    stream.run(AROUND_SECONDS);
    assert!(packaged.lives() && packaged.version().contains(OLD));
    assert!(
        fs::symlink_metadata(packaged.mask()).is_err() && !scene.host.path("var/lib/sidle/adopt/salt-minion").exists()
    );
    // Nobody has to know: a better release is taken all the same.
    let adopted = packaged.adopt(&[&format!("{NEW}-1")]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    stream.run(AROUND_SECONDS);
    assert!(packaged.version().contains(NEW) && !packaged.lives());
    let report = stream.end();
    report.assert_lossless("a bad release and then a good one");
    report.assert_steady_schedule("a bad release and then a good one");
    packaged.is_clean();
}

#[test]
fn a_supervisor_that_dies_in_the_middle_of_an_adoption_loses_nothing() {
    let mut packaged = Packaged::new(&[NEW]);
    let stream = packaged.scene.stream(&Plan::short(RATE));
    stream.run(AROUND_SECONDS);
    let root = packaged.scene.host.path("");
    let asked = std::thread::spawn(move || crate::support::stage::sidle(&["--root", text(&root), "adopt", SALT], &[]));
    eventually(90, "both run", || match packaged.scene.phase().as_deref() {
        Some("probation") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    packaged.scene.crash();
    let adopted = asked.join().unwrap();
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    assert!(packaged.version().contains(NEW) && !packaged.lives());
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("a supervisor that was killed in mid-adoption");
}

#[test]
fn the_ways_out_that_status_prints_need_no_sidle() {
    let packaged = Packaged::new(&[NEW]);
    let Packaged { mut minion, scene } = packaged;
    scene.verb("adopt", &["--mode", "idle"]).ok();
    assert!(scene.history()[0]["mode"] == "idle" && minion.child.try_wait().unwrap().is_some());
    let ways = scene.status()["manual_commands"].as_array().unwrap().clone();
    let ways: Vec<&str> = ways.iter().map(|way| way.as_str().unwrap().split_once(":  ").unwrap().1.trim()).collect();
    assert_eq!(ways.len(), 2, "{ways:?}");
    let host = scene.stop();
    let log = host.host.path("var/log/salt/minion");
    let starts =
        || fs::read_to_string(&log).unwrap_or_default().matches("Minion is ready to receive requests!").count();
    for (way, version) in ways.iter().zip([NEW, OLD]) {
        let mut shell = Command::new("sh");
        shell.args(["-c", way]).env("PATH", "/usr/bin:/bin");
        let before = starts();
        let by_hand = Tree::start(&mut shell, &host.host.path("by-hand.log"));
        // Who asks before it listens waits a minute for an answer that never comes.
        eventually(START_SECONDS, &format!("{way} listens"), || {
            if starts() > before { Ok(()) } else { Err("not yet".to_owned()) }
        });
        eventually(START_SECONDS, &format!("{way} answers"), || {
            match host.master().call_within("10", ID, &["test.version"]) {
                answer if answer.contains(version) => Ok(()),
                answer => Err(answer),
            }
        });
        drop(by_hand);
        // The next one takes a zombie for an instance that is already running.
        let main = fs::read_to_string(host.host.path("var/run/salt-minion.pid")).unwrap();
        eventually(30, "it is gone", || match proc_fs::process(main.trim().parse().unwrap()).unwrap() {
            None => Ok(()),
            Some(process) => Err(format!("{process:?}")),
        });
    }
}
