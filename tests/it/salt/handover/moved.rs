//! Masters that move, in the configuration, by their name's address, or to other keys: a restart takes each up, also of a minion that reaches nobody.

use super::{AROUND_SECONDS, NEW, OLD};
use crate::support::salt::Master;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const NAME: &str = "salt-master.test";
const SECOND: &str = "127.0.0.2";
const THIRD: &str = "127.0.0.3";

/// Time that nothing here may wait for.
const SETTINGS: &str = "start_timeout = \"300s\"\nprobation = \"1s\"\n";
/// What a restart may take on a busy machine, its probation and the end of the old process with it: two starts of Salt, and not a timeout.
const SECONDS: Duration = Duration::from_secs(150);
/// The same where the old process has returns for a master that is gone: they are waited for, while the new one serves.
const SECONDS_WITH_RETURNS: Duration = Duration::from_secs(240);

/// Has the configuration name this master instead of the first one.
fn name_in_configuration(scene: &Scene, before: &Master, now: &Master) {
    let place = scene.configuration().join("minion");
    let lines = |master: &Master| format!("master: {}\nmaster_port: {}\n", master.address, master.request_port());
    let text = fs::read_to_string(&place).unwrap();
    let changed = text.replace(&lines(before), &lines(now));
    assert_ne!(text, changed);
    fs::write(place, changed).unwrap();
}

/// `sidle restart …`, which must succeed in overlap and in seconds; gives its history line.
fn restarted(scene: &Scene, what: &str, arguments: &[&str], longest: Duration) -> Value {
    let asked = Instant::now();
    let ran = scene.verb("restart", arguments);
    let took = asked.elapsed();
    assert_eq!(ran.code, Some(0), "{what}: {ran:?}\n{}", scene.logs());
    println!("{what}: {:.1} s", took.as_secs_f32());
    assert!(took < longest, "{what}: {took:?} {}", scene.history()[0]);
    let last = scene.history()[0].clone();
    assert_eq!((last["mode"].as_str(), last["downtime_milliseconds"].as_u64()), (Some("overlap"), Some(0)), "{last}");
    last
}

fn by_configuration(release: &str) {
    let mut scene = Scene::with(&Wanted { settings: SETTINGS, ..Wanted::of(&[release]) });
    let second = scene.masters[0].start_twin_at(SECOND);
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    name_in_configuration(&scene, &scene.masters[0], &second);
    // What this master has published before the restart is answered.
    let report = stream.end();
    report.assert_lossless("before the move");
    let last = restarted(&scene, "another master in the configuration", &["--if-changed"], SECONDS);
    assert!(last["notes"].to_string().contains("no longer names"), "{last}");
    second.hears(&[ID]);

    // Another master with other keys, the old one gone, and its key removed: the minion is deaf by then.
    let third = Master::start_at(&scene.masters[0], THIRD);
    drop(second);
    scene.masters[0].kill();
    let key = scene.configuration().join("pki/minion/minion_master.pub");
    fs::remove_file(&key).unwrap();
    let place = scene.configuration().join("minion");
    let text = fs::read_to_string(&place).unwrap();
    let rest: Vec<&str> = text.lines().filter(|line| !line.starts_with("master")).collect();
    fs::write(
        &place,
        format!("master: {}\nmaster_port: {}\n{}\n", third.address, third.request_port(), rest.join("\n")),
    )
    .unwrap();
    restarted(&scene, "another master with other keys, and a deaf minion", &[], SECONDS_WITH_RETURNS);
    third.hears(&[ID]);
    assert!(key.exists());
}

fn by_name(release: &str) {
    let mut scene = Scene::with(&Wanted { named: Some(NAME), settings: SETTINGS, ..Wanted::of(&[release]) });
    let heir = scene.masters[0].start_heir_at(SECOND);
    let points_to = |address: &str| fs::write(scene.host.path("hosts"), format!("{address} {NAME}\n")).unwrap();
    points_to(SECOND);
    let status = scene.status();
    assert!(status["supervisor"]["agent"]["lacks"].is_null(), "what runs is well: {status}");
    restarted(&scene, "the name has another address", &[], SECONDS);
    heir.hears(&[ID]);
    points_to(scene.masters[0].address);
    drop(heir);
    let last = restarted(&scene, "the name has another address, and the old one is gone", &[], SECONDS_WITH_RETURNS);
    println!("{}", last["notes"]);
    scene.masters[0].hears(&[ID]);
    scene.masters[0].kill();
}

/// A restart of a minion that reached nobody was refused after `start_timeout`: a changed master was never taken up.
#[test]
#[ignore = "`scripts/test --long`: 3008 shows the same"]
fn another_master_in_the_configuration_serves_after_a_restart_of_3006() {
    by_configuration(OLD);
}

#[test]
fn another_master_in_the_configuration_serves_after_a_restart_of_3008() {
    by_configuration(NEW);
}

/// The old process keeps the address that the name had: it reached nobody, and a restart was refused for that.
#[test]
fn a_master_whose_name_moves_serves_after_a_restart_of_3006() {
    by_name(OLD);
}

#[test]
#[ignore = "`scripts/test --long`: 3006 shows the same"]
fn a_master_whose_name_moves_serves_after_a_restart_of_3008() {
    by_name(NEW);
}

/// A new host comes up while one of its masters is down. Plain Salt serves the other one.
#[test]
fn a_first_switch_serves_the_masters_that_are_there_and_condemns_nothing() {
    let scene = Scene::idle(&Wanted { settings: SETTINGS, ..Wanted::of(&[OLD]) });
    let place = scene.configuration().join("minion");
    let (master, text) = (&scene.masters[0], fs::read_to_string(&place).unwrap());
    let one = format!("master: {}\nmaster_port: {}\n", master.address, master.request_port());
    let nobody = format!("{SECOND}:1");
    let both = format!("master: ['{}:{}', '{nobody}']\n", master.address, master.request_port());
    assert!(text.contains(&one), "{text}");
    fs::write(&place, text.replace(&one, &both)).unwrap();
    scene.run(OLD);
    let last = scene.history()[0].clone();
    let notes = last["notes"].to_string();
    assert!(notes.contains("alone") && notes.contains(&format!("{nobody}: not connected")), "{last}");
}
