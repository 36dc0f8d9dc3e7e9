//! Packaged minions as hosts have them: of another user, of several masters, under Uyuni's names, with beacons and cron's own calls.

use super::{AROUND_SECONDS, GivenBack, NEW, OLD, Packaged, RATE};
use crate::support::salt::START_SECONDS;
use crate::support::scene::{ID, Wanted};
use crate::support::stage::{SALT, SIDLE, VENV_SALT};
use crate::support::stream::{Plan, Report, Stream, TICKS};
use crate::support::{come_first, eventually};
use sidle::os::proc_fs;
use sidle::os::process::user_number;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A user that every host has, and that is nobody else's.
const USER: &str = "daemon";

/// The period of the beacon.
const BEACON_SECONDS: f64 = 5.0;
/// Between two of cron's calls: each loads all of Salt.
const CRON_PAUSE: Duration = Duration::from_secs(10);

impl Packaged {
    /// Adopts it in the middle of a stream, and gives the stream.
    fn adopt_under_load(&self) -> Stream {
        // Of several masters each publishes.
        let masters = u32::try_from(self.scene.masters.len()).unwrap();
        let stream = self.scene.stream(&Plan::of(RATE / f64::from(masters)));
        stream.run(AROUND_SECONDS);
        let adopted = self.adopt(&[]);
        assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", self.logs());
        assert_eq!(self.scene.history()[0]["mode"], "overlap");
        stream.run(AROUND_SECONDS);
        assert!(self.version().contains(NEW) && !self.lives());
        stream
    }

    /// The package's minion works again, alone.
    fn give_back(&self) -> GivenBack<'_> {
        let released = self.scene.verb("unadopt", &[]);
        let given_back = GivenBack(&self.scene);
        assert_eq!(released.code, Some(0), "{released:?}\n{}", self.logs());
        eventually(START_SECONDS, "the package's minion answers", || match self.version() {
            version if version.contains(OLD) => Ok(()),
            other => Err(other),
        });
        assert_eq!(self.minions(), 1);
        assert!(fs::symlink_metadata(self.mask()).is_err());
        given_back
    }

    /// How many minions run on this host: their first processes.
    fn minions(&self) -> usize {
        let root = self.scene.host.path("");
        let is_minion = |pid: u32| {
            let command = proc_fs::command_line(pid).ok().flatten().unwrap_or_default().join(" ");
            command.contains(root.to_str().unwrap())
                && command.contains("python3")
                && command.contains("bin/salt-minion")
        };
        let all = proc_fs::all().unwrap().into_iter().filter(proc_fs::Process::is_alive);
        all.filter(|process| is_minion(process.pid) && !is_minion(process.parent)).count()
    }

    /// The user of the minion's main process.
    fn user(&self) -> u32 {
        let main = fs::read_to_string(self.scene.host.path("var/run/salt-minion.pid")).unwrap();
        fs::metadata(Path::new("/proc").join(main.trim())).unwrap().uid()
    }
}

fn assert_undisturbed(report: &Report, what: &str) {
    report.assert_lossless(what);
    report.assert_steady_schedule(what);
    assert_eq!((report.startup_states, report.ticks.on_start), (0, 0), "what belongs to a boot ran: {report:#?}");
}

#[test]
fn a_minion_that_gives_up_root_is_adopted_and_stays_its_user_s() {
    let packaged = Packaged::with(&Wanted { user: USER, schedule: TICKS, ..Wanted::of(&[NEW]) });
    let user = user_number(USER).unwrap();
    assert_eq!(packaged.user(), user, "{}", packaged.logs());
    assert!(packaged.adopt(&["--dry-run"]).ok().contains(&format!("runs as {USER}")));
    let report = packaged.adopt_under_load().end();
    assert_undisturbed(&report, "a minion of another user");
    assert_eq!((packaged.user(), packaged.minions()), (user, 1));
    packaged.is_clean();
    // What the adoption has made is no obstacle to the minion's own work.
    packaged.scene.master().file("_grains/site.py", "def site():\n    return {'site_grain': 'here'}\n");
    let synced = packaged.scene.master().call(ID, &["saltutil.sync_grains"]);
    assert!(synced.contains("grains.site"), "{synced}\n{}", packaged.logs());
    let _given_back = packaged.give_back();
    assert_eq!(packaged.user(), user);
}

#[test]
fn a_minion_of_two_hot_masters_is_adopted_with_both() {
    let packaged = Packaged::with(&Wanted { masters: 2, schedule: TICKS, ..Wanted::of(&[NEW]) });
    let report = packaged.adopt_under_load().end();
    assert_undisturbed(&report, "a minion of two masters");
    assert!(report.per_master.iter().all(|master| master.published > 0), "{report:#?}");
    assert_eq!(packaged.minions(), 1);
    let _given_back = packaged.give_back();
    packaged.scene.answers();
}

#[test]
fn uyuni_s_bundle_is_adopted_under_its_own_names() {
    let packaged = Packaged::with(&Wanted { package: VENV_SALT, schedule: TICKS, ..Wanted::of(&[NEW]) });
    let told = packaged.adopt(&["--dry-run"]).ok();
    assert!(told.contains("venv-salt-minion.service") && told.contains("venv-salt-call"), "{told}");
    let report = packaged.adopt_under_load().end();
    assert_undisturbed(&report, "Uyuni's bundle");
    assert_eq!(packaged.minions(), 1);
    assert!(fs::read_to_string(packaged.mask()).unwrap().contains("venv-salt-minion --instance venv-salt-minion"));
    let mut call = Command::new(packaged.scene.host.path("usr/local/sbin/venv-salt-call"));
    let called = call.arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&called.stdout).contains(NEW), "{called:?}");
    // By this Uyuni's states know that the host has its bundle already.
    let python = packaged.scene.master().call(ID, &["grains.get", "pythonexecutable"]);
    assert!(python.contains("/venv-salt-minion/"), "{python}");
    let _given_back = packaged.give_back();
    assert!(!packaged.scene.host.path("usr/local/sbin/venv-salt-call").exists());
}

/// Ends cron, also when a test fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One of cron's calls, by name, as the search path has it: what it printed.
fn call(packaged: &Packaged, arguments: &[&str]) -> String {
    let host = &packaged.scene.host;
    let programs = Path::new(SIDLE).parent().unwrap();
    let path =
        [&host.path("usr/local/sbin"), &host.path("usr/bin"), programs, Path::new("/usr/bin"), Path::new("/bin")];
    let path = std::env::join_paths(path).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec salt-call \"$@\"", "cron", "--out=txt", "-c"]).arg(packaged.scene.configuration());
    let output = command.args(arguments).env("PATH", path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    told
}

#[test]
#[ignore = "`scripts/test --long`: `adopt` shows jobs and the schedule, `phases` what `salt-call` does"]
fn beacons_and_what_cron_calls_go_on_across_an_adoption() {
    come_first();
    let options = format!("beacons:\n  status:\n    - interval: {BEACON_SECONDS}\n");
    let packaged = Packaged::with(&Wanted { options: &options, schedule: TICKS, ..Wanted::of(&[NEW]) });
    // The running minion answers this, over its own bus: at the default place once it has looked that no other holds that.
    let has_schedule = || {
        eventually(30, "the minion tells its schedule", || {
            match call(&packaged, &["schedule.list", "return_yaml=False"]) {
                schedule if schedule.contains("interval") => Ok(()),
                other => Err(other),
            }
        });
    };
    has_schedule();
    let done = AtomicBool::new(false);
    let (calls, stream) = std::thread::scope(|scope| {
        let until = Until(&done);
        let cron = scope.spawn(|| {
            let mut versions = Vec::new();
            while !done.load(Ordering::SeqCst) {
                versions.push(call(&packaged, &["test.version"]));
                std::thread::sleep(CRON_PAUSE);
            }
            versions
        });
        let stream = packaged.adopt_under_load();
        let adopted = stream.age();
        // As long as it takes to see the beacons of both: how many came before tells how fast the machine adopts.
        while stream.age() < adopted + 4.0 * BEACON_SECONDS {
            stream.run(AROUND_SECONDS);
        }
        drop(until);
        (cron.join().unwrap(), stream)
    });
    let mut beacons: Vec<f64> = stream.events().iter().filter_map(beacon).collect();
    beacons.sort_by(f64::total_cmp);
    let report = stream.end();
    assert_undisturbed(&report, "with beacons and cron");
    // First the package's program, then the release's, and never none.
    let changed = calls.iter().position(|version| version.contains(NEW)).unwrap_or(calls.len());
    assert!(changed > 0 && changed < calls.len(), "{calls:?}");
    assert!(calls[..changed].iter().all(|version| version.contains(OLD)), "{calls:?}");
    assert!(calls[changed..].iter().all(|version| version.contains(NEW)), "{calls:?}");
    has_schedule();
    let pauses: Vec<f64> = beacons.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 3, "{beacons:?}");
    let within = BEACON_SECONDS * 0.5..=BEACON_SECONDS * 2.0;
    assert!(pauses.iter().all(|pause| pause <= within.end()), "{pauses:?}");
    // Where main was busy, Salt makes the next one when it would have been due all the same: together the two pauses are two periods.
    let catches_up = |pair: &[f64]| pair[0] + pair[1] >= BEACON_SECONDS * 1.8;
    assert!(pauses[0] >= *within.start(), "{pauses:?}");
    assert!(pauses.windows(2).all(|pair| pair[1] >= *within.start() || catches_up(pair)), "{pauses:?}");
    assert_eq!(packaged.minions(), 1);
    drop(packaged.give_back());
}

/// When the minion made a beacon's event, in seconds, if it is one: the end of its tag. On a busy machine some are late at the master.
fn beacon(event: &serde_json::Value) -> Option<f64> {
    let made = event["tag"].as_str()?.strip_prefix(&format!("salt/beacon/{ID}/status/"))?;
    let made: jiff::civil::DateTime = made.parse().unwrap();
    Some(made.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_duration().as_secs_f64())
}

#[test]
fn a_first_switch_beside_a_packaged_minion_is_refused_before_anything_is_started() {
    let packaged = Packaged::new(&[NEW]);
    let scene = &packaged.scene;
    for more in [&[][..], &["--force"], &["--mode", "now"], &["--no-wait"]] {
        let refused = scene.switch(more);
        assert_eq!(refused.code, Some(12), "{more:?}: {refused:?}");
        let pid = packaged.minion.child.id();
        for part in [format!("process {pid} runs"), format!("sidle adopt salt-minion {NEW}-1")] {
            assert!(refused.stderr.contains(&part), "{part}: {refused:?}");
        }
    }
    assert!(scene.history().is_empty() && scene.status()["switch"].is_null());
    assert_eq!(packaged.minions(), 1);
    // Without a supervisor the wish is not even written down.
    let Packaged { minion, scene } = packaged;
    let scene = scene.stop();
    let sidle = |arguments: &[&str]| scene.host.sidle(arguments);
    assert_eq!(sidle(&["switch", SALT]).code, Some(12));
    // Where it has ended, nothing stands in the way.
    drop(minion);
    assert_eq!(sidle(&["switch", SALT]).code, Some(4));
}
