//! A local user without rights on a host with a real minion, under a stream of jobs: see `system::stranger` for what he is kept from.

use super::{NEW, OLD};
use crate::support::scene::{Scene, Wanted};
use crate::support::stage::SALT;
use crate::support::strangers::Stranger;
use crate::support::stream::Plan;
use std::fs;

#[test]
fn a_local_user_keeps_no_minion_from_anything() {
    let mut scene = Scene::with(&Wanted { own_releases: true, ..Wanted::of(&[OLD, NEW]) });
    let (running, next) = (format!("{OLD}-1"), format!("{NEW}-1"));
    let whole = scene.author.salt(NEW);
    // To be installed under his eyes.
    scene.host.sidle(&["remove", SALT, &next]).ok();
    let supervisor = scene.supervisor().pid();
    let stranger = Stranger::at(&scene.host, SALT, supervisor, [&running, &next], "salt-minion");
    println!("{} acts", stranger.told.len());

    let stream = scene.stream(&Plan::short(1.0));
    stream.run(3);
    scene.host.install(&whole).ok();
    for (verb, arguments) in [("switch", vec![next.as_str()]), ("restart", vec![]), ("rollback", vec![])] {
        let ran = scene.verb(verb, &[&arguments[..], &["--mode", "overlap"]].concat());
        assert_eq!(ran.code, Some(0), "{verb}: {ran:?}\n{}", scene.logs());
    }
    let lost = scene.host.path(&format!("opt/sidle/{SALT}/versions/{next}/bin/salt-minion"));
    let content = fs::read(&lost).unwrap();
    fs::remove_file(&lost).unwrap();
    scene.host.sidle(&["repair", SALT, &next, "--from", whole.to_str().unwrap()]).ok();
    assert_eq!(fs::read(&lost).unwrap(), content);
    stream.run(3);
    stream.end().assert_lossless("beside a hostile local user");
    // All of it is locked already when the minion is started.
    scene.boot();
    let results: Vec<String> =
        scene.history().iter().map(|entry| entry["result"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(results, ["committed"; 4]);
    drop(stranger);
}
