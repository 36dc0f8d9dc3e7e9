//! Engines: the active process has them, and each that dies is started again there.

use super::{NEW, OLD, overlap};
use crate::support::eventually;
use crate::support::scene::{Scene, Wanted};
use crate::support::stage::command_of;
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};

/// An engine that does nothing but listen.
const OPTIONS: &str = "engines:\n  - test: {}\n";

/// Salt's loop for that ended before a standby had its first engine; the engine that it starts has no name of its own, and looked like a job.
#[test]
fn an_engine_that_dies_after_an_overlap_is_started_again_and_no_switch_waits_for_it() {
    let scene = Scene::with(&Wanted { options: OPTIONS, ..Wanted::of(&[OLD, NEW]) });
    engine(&scene, |title| title.contains(" Engine("));
    overlap(&scene, "switch", &[&format!("{NEW}-1")]);
    engine(&scene, |title| title.contains(" Engine(")).signal(SignalNumber::KILL).unwrap();
    engine(&scene, |title| title.ends_with(" Engine"));
    let ran = scene.verb("switch", &[&format!("{OLD}-1"), "--mode", "idle", "--deadline", "60s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    scene.answers();
}

/// Waits until there is one engine, with such a title.
fn engine(scene: &Scene, wanted: impl Fn(&str) -> bool) -> Identity {
    eventually(30, "there is one engine", || {
        let below = scene.host.agents().into_iter().flat_map(|leader| proc_fs::descendants(leader).unwrap());
        let named = below.filter(proc_fs::Process::is_alive).map(|process| (process.pid, command_of(process.pid)));
        let engines: Vec<(u32, String)> = named.filter(|(_, title)| title.contains(" Engine")).collect();
        match &engines[..] {
            [(pid, title)] if wanted(title) => Identity::of(*pid).unwrap().ok_or_else(|| "it has ended".to_owned()),
            _ => Err(format!("{engines:?}\n{}", scene.logs())),
        }
    })
}
