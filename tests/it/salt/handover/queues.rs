//! Jobs that wait in Salt's queues on disk. Its releases keep them in different places, and none takes over what another one has queued.

use super::{NEW, OLD, ended_within, phase, reaches, version};
use crate::support::eventually;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::text;
use std::fs;
use std::path::{Path, PathBuf};

/// Its queues are directly in `cachedir`; those of `OLD` are in `cachedir/queues`, a directory for each master.
const OTHER_LAYOUT: &str = "3006.25";

/// The slow state waits for a file, but not for ever.
const SLOW_SECONDS: u64 = 400;

/// Both queues of states.
fn queues(scene: &Scene) -> [PathBuf; 2] {
    let cache = scene.host.path("var/cache/salt/minion");
    let master = cache.join("queues").join(scene.master().address);
    [cache.join("state_queue"), master.join("state_queue")]
}

/// How many jobs wait in a queue.
fn waiting(queue: &Path) -> usize {
    let names = fs::read_dir(queue).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("queued_")).count()
}

/// The slow state ends once this file is there.
fn go(file: &Path) -> PathBuf {
    file.with_extension("go")
}

/// Publishes a state that waits, and then writes its name, and the release that it runs in, into the file; behind other states it waits its turn.
fn publish(scene: &Scene, file: &Path, name: &str, wait: &str) {
    // The parent of the shell is the process of the job.
    let command = format!("{wait}; echo {name} $(readlink /proc/$PPID/exe) >> {}", text(file));
    scene.master().publish(ID, &["state.single", "cmd.run", &format!("name={command}"), "queue=True"]);
}

/// A slow state, and two that wait behind it in this queue.
fn publish_three(scene: &Scene, file: &Path, queue: &Path) {
    let slow = format!("for _ in $(seq {SLOW_SECONDS}); do test -e {} && break; sleep 1; done", text(&go(file)));
    publish(scene, file, "first", &slow);
    eventually(30, "the first state runs", || {
        let running = scene.master().call(ID, &["saltutil.running"]);
        if running.contains("state.single") { Ok(()) } else { Err(running) }
    });
    for (number, name) in ["second", "third"].into_iter().enumerate() {
        publish(scene, file, name, "sleep 1");
        eventually(30, &format!("the {name} state waits"), || match waiting(queue) {
            count if count == number + 1 => Ok(()),
            count => Err(format!("{count} wait")),
        });
    }
}

/// A switch in overlap, whose old process has the slow state still when it has nothing else to do.
fn overlap_while_slow(scene: &Scene, file: &Path, verb: &str, arguments: &[&str]) {
    let asked = scene.verb(verb, &[arguments, &["--mode", "overlap", "--no-wait"]].concat());
    assert_eq!(asked.code, Some(4), "{verb}: {asked:?}");
    reaches(scene, "finishing-old");
    fs::write(go(file), "").unwrap();
    let last = ended_within(120, scene);
    let (result, downtime) = (last["result"].as_str(), last["downtime_milliseconds"].as_u64());
    assert_eq!((result, downtime), (Some("committed"), Some(0)), "{last}\n{}", scene.logs());
}

/// Each of the three has run once, in this release, and nothing waits anywhere.
fn assert_each_once(scene: &Scene, file: &Path, release: &str) {
    let found = fs::read_to_string(file).unwrap_or_default();
    let names: Vec<&str> = found.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(names, ["first", "second", "third"], "{found}\n{}", scene.logs());
    assert!(found.lines().all(|line| line.contains(&format!("/{release}-1/"))), "{found}");
    assert_eq!(queues(scene).map(|queue| waiting(&queue)), [0, 0]);
}

/// Salt has had three layouts of its queues: what waited at such a switch was told "queued", and not run until a switch back. One of three states
/// ran.
#[test]
fn states_that_wait_in_a_queue_which_the_other_release_does_not_read_are_run_once_before_the_switch_ends_up_and_down() {
    let scene = Scene::with(&Wanted::of(&[OTHER_LAYOUT, OLD]));
    let [own, others] = queues(&scene);
    let (up, down) = (scene.host.path("up"), scene.host.path("down"));

    publish_three(&scene, &up, &own);
    overlap_while_slow(&scene, &up, "switch", &[&format!("{OLD}-1")]);
    assert_each_once(&scene, &up, OTHER_LAYOUT);

    publish_three(&scene, &down, &others);
    overlap_while_slow(&scene, &down, "rollback", &[]);
    assert_each_once(&scene, &down, OLD);
    assert!(version(&scene).contains(OTHER_LAYOUT));
}

/// What the ended minion had queued lay where its successor never looks.
#[test]
fn states_that_wait_when_a_minion_is_ended_at_once_are_run_once_by_a_release_that_has_its_queue_elsewhere() {
    let scene = Scene::with(&Wanted { settings: "probation = \"20s\"\n", ..Wanted::of(&[OTHER_LAYOUT, OLD]) });
    let [own, others] = queues(&scene);

    let file = scene.host.path("now");
    publish_three(&scene, &file, &own);
    let asked = scene.switch(&[&format!("{OLD}-1"), "--mode", "now", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    reaches(&scene, "probation");
    // Its shell outlives the minion that was ended.
    fs::write(go(&file), "").unwrap();
    eventually(60, "the states that waited are run by the new release", || {
        let found = fs::read_to_string(&file).unwrap_or_default();
        let done =
            |name: &str| found.lines().any(|line| line.starts_with(name) && line.contains(&format!("/{OLD}-1/")));
        if done("second") && done("third") { Ok(()) } else { Err(found) }
    });
    assert_eq!(ended_within(120, &scene)["result"], "committed", "{}", scene.logs());
    assert_eq!([waiting(&own), waiting(&others)], [0, 0]);
    let found = fs::read_to_string(&file).unwrap();
    assert_eq!(found.lines().filter(|line| !line.starts_with("first")).count(), 2, "{found}");
}

/// A lock that every start of a switch shields keeps the queue shut for ever.
#[test]
fn a_lock_that_a_minion_was_ended_with_keeps_no_state_waiting() {
    let scene = Scene::with(&Wanted::of(&[OLD, NEW]));
    let lock = queues(&scene)[1].with_file_name("queue.lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "now", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    eventually(120, "the old process has ended", || match phase(&scene).as_deref() {
        Some("starting" | "proving" | "probation") => Ok(()),
        seen => {
            // As if it were taken just now: one that stays is removed after a minute.
            fs::write(&lock, "").unwrap();
            Err(format!("{seen:?}"))
        }
    });
    assert_eq!(ended_within(120, &scene)["result"], "committed", "{}", scene.logs());
    assert!(!lock.exists(), "no start after a kill may take it for another one's");
    let answer = scene.master().call(ID, &["state.single", "test.nop", "name=x", "queue=True"]);
    assert!(answer.contains("'result': True"), "{answer}");
}

/// Two processes that pop one queue run what waits in it twice.
#[test]
fn states_that_wait_in_a_queue_which_both_releases_read_are_run_once_by_the_new_one() {
    let scene = Scene::with(&Wanted::of(&[OLD, NEW]));
    let file = scene.host.path("both");
    publish_three(&scene, &file, &queues(&scene)[1]);
    overlap_while_slow(&scene, &file, "switch", &[&format!("{NEW}-1")]);
    let found = eventually(60, "all have run", || match fs::read_to_string(&file).unwrap_or_default() {
        found if found.lines().count() >= 3 => Ok(found),
        found => Err(found),
    });
    let releases = [("first", OLD), ("second", NEW), ("third", NEW)];
    let is_so = |(line, (name, release)): (&str, &(&str, &str))| {
        line.starts_with(name) && line.contains(&format!("/{release}-1/"))
    };
    assert_eq!(found.lines().count(), releases.len(), "{found}");
    assert!(found.lines().zip(&releases).all(is_so), "{found}");
    assert_eq!(queues(&scene).map(|queue| waiting(&queue)), [0, 0]);
}
