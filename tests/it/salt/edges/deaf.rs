//! A new process that hears nothing, for two causes: a publish port behind which nobody is, where the minion is connected, signs in, and answers round
//! trips; and a release whose subscription does not work. Neither is ever committed. A second minion is refused meanwhile, as Salt alone refuses it.

use super::{NEW, OLD, last};
use crate::support::eventually;
use crate::support::relay::{Relay, Way};
use crate::support::salt::{copy_changed, tree};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use std::time::Duration;

const DEAF: &str = "3007.98";

/// In place of the subscription's end in main: nothing.
const CHANGE: (&str, &str) = ("self.pub_channel.on_recv(self._handle_payload)", "pass");

/// Shorter than it takes to find a process that hears nothing by its jobs.
const SETTINGS: &str = "probation = \"1s\"\nstart_timeout = \"45s\"\nrehearsal = \"off\"\n";

/// For Salt to start, to find the first minion, and to end.
const REFUSAL: Duration = Duration::from_secs(180);

/// Salt refuses a second minion with this.
const REFUSED: Option<i32> = Some(1);

/// A connection is no subscription: a process that heard nothing had all proofs of a connection, and was committed.
#[test]
fn a_new_process_that_hears_nothing_is_never_committed_and_the_old_one_does_the_jobs() {
    let relay = Relay::start();
    let options = format!("publish_port: {}\n", relay.port);
    let mut scene = Scene::idle(&Wanted { options: &options, ..Wanted::of(&[OLD, NEW]) });
    relay.lead_to(scene.master().publish_port());
    scene.run(OLD);
    scene.set(SETTINGS);
    assert_eq!(scene.second_minion(OLD, REFUSAL), REFUSED, "a minion alone");
    behind_a_silent_port(&scene, &relay);

    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tree");
    copy_changed(&tree(NEW), &copy, "minion.py", CHANGE);
    scene.host.install(&scene.author.salt_from(DEAF, &copy)).ok();

    hears_nothing_while_nothing_is_published(&scene);
    let stream = scene.stream(&Plan::short(1.0));
    eventually(90, "the switch ends", || match scene.phase().as_deref() {
        None => Ok(()),
        Some(phase) => Err(phase.to_owned()),
    });
    let (last, why) = last(&scene);
    assert!(last["result"] == "rolled-back" && why.contains("receives no jobs from"), "{last}");
    println!("{why}");
    let report = stream.end();
    println!("{}", report.row("a new process that hears nothing"));
    report.assert_lossless("a new process that hears nothing");
    assert!(scene.master().call(ID, &["test.version"]).contains(OLD));
}

/// The process misses jobs, and no other job is published in the next probation: nothing is missed in it, and nothing proven. Such a process was
/// committed once, after three setbacks.
fn hears_nothing_while_nothing_is_published(scene: &Scene) {
    let waiting = |scene: &Scene| scene.status()["switch"]["waiting_for"].as_str().unwrap_or_default().to_owned();
    let phase = |scene: &Scene| scene.phase().unwrap_or_else(|| panic!("the switch has ended: {}", scene.logs()));
    // From before the switch on: where nothing is published in a probation of a second, nothing shows that a process is deaf.
    let stream = scene.stream(&Plan::short(2.0));
    let tried = scene.switch(&[&format!("{DEAF}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(tried.code, Some(4), "{tried:?}");
    eventually(90, "it misses a job", || match waiting(scene) {
        why if why.contains("has not received jobs from") => Ok(()),
        why => Err(format!("{}: {why}", phase(scene))),
    });
    stream.end().assert_lossless("until the new process misses a job");
    eventually(90, "it is asked for a job that it has received", || match waiting(scene) {
        why if why.contains("has missed jobs from") && why.contains("received none since") => Ok(()),
        why => Err(format!("{}: {why}", phase(scene))),
    });
    // Several probations of a second.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(phase(scene), "probation", "{}", waiting(scene));
}

/// A switch while new connections to the publish port lead nowhere.
fn behind_a_silent_port(scene: &Scene, relay: &Relay) {
    relay.treat(Way::Swallow);
    let stream = scene.stream(&Plan::short(0.5));
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    let waiting = |scene: &Scene| scene.status()["switch"]["waiting_for"].as_str().unwrap_or_default().to_owned();
    eventually(60, "the new process is connected, and not subscribed", || match waiting(scene) {
        why if why.contains("its publisher does not answer") => Ok(()),
        why => Err(why),
    });
    assert_eq!(scene.second_minion(OLD, REFUSAL), REFUSED, "two processes of a switch");
    eventually(90, "the switch ends", || match scene.phase().as_deref() {
        None => Ok(()),
        Some(phase) => Err(phase.to_owned()),
    });
    let (last, why) = last(scene);
    println!("{why}");
    assert!(
        last["result"] == "rolled-back" && why.contains("its publisher does not answer"),
        "{last}\n{}",
        scene.logs()
    );
    let report = stream.end();
    println!("{}", report.row("a publish port that swallows"));
    report.assert_lossless("a publish port that swallows");
    relay.treat(Way::Pass);
}
