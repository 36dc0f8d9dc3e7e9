//! The ways down: from what a newer release has left on the host, and to a release that the master no longer lets in.

use super::{AROUND_SECONDS, NEW, OLD, overlap, version};
use crate::support::salt::{copy_changed, tree};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use std::fs;

/// It signs in as releases did before masters asked for version 3 of the sign-in by default (`minimum_auth_version`).
const LOCKED_OUT: &str = "3006.98";

const CHANGE: (&str, &str) = ("\"version\": 3,", "\"version\": 2,");

/// So that a release that is locked out is given up soon. That it will be is known from the rehearsal.
const LOCKED_OUT_SETTINGS: &str = "start_timeout = \"25s\"\nrehearsal = \"refuse\"\n";

/// A real one instead, such as 3006.9: `scripts/test --long` names it, since its tree takes minutes to build.
const LOCKED_OUT_VARIABLE: &str = "SIDLE_LOCKED_OUT";

/// Installs that release; gives its version.
fn install_locked_out(scene: &Scene) -> String {
    if let Ok(version) = std::env::var(LOCKED_OUT_VARIABLE) {
        scene.host.install(&scene.author.salt(&version)).ok();
        return version;
    }
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tree");
    copy_changed(&tree(OLD), &copy, "channel/client.py", CHANGE);
    scene.host.install(&scene.author.salt_from(LOCKED_OUT, &copy)).ok();
    LOCKED_OUT.to_owned()
}

/// What a site has on its master: a custom module, a custom grain, and a highstate that uses them.
fn site(scene: &Scene) {
    let made = scene.host.path("made-by-highstate");
    scene.master().file("_modules/site.py", "def told():\n    return 'by the site: ' + __grains__['site']\n");
    scene.master().file("_grains/site.py", "def site():\n    return {'site': 'here'}\n");
    scene.master().file("top.sls", "base:\n  '*': [site]\n");
    let state = format!("{}:\n  file.managed:\n    - contents: '{{{{ salt['site.told']() }}}}'\n", made.display());
    scene.master().file("site.sls", &state);
}

fn call(scene: &Scene, arguments: &[&str]) -> String {
    scene.master().call(ID, arguments)
}

#[test]
fn the_way_down_is_open_after_a_highstate_and_costs_nothing_where_the_master_lets_the_older_release_not_in() {
    let mut scene = Scene::idle(&Wanted::of(&[OLD, NEW]));
    site(&scene);
    scene.run(OLD);
    overlap(&scene, "switch", &[&format!("{NEW}-1")]);
    assert!(version(&scene).contains(NEW));
    let synced = call(&scene, &["saltutil.sync_all"]);
    assert!(synced.contains("modules.site") && synced.contains("grains.site"), "{synced}");
    let made = scene.host.path("made-by-highstate");
    let applied = call(&scene, &["state.highstate"]);
    assert_eq!(fs::read_to_string(&made).unwrap_or_default().trim(), "by the site: here", "{applied}");

    // Down.
    let plan = Plan::short(1.0);
    let stream = scene.stream(&plan);
    stream.run(AROUND_SECONDS);
    overlap(&scene, "rollback", &[&format!("{OLD}-1")]);
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("down after a highstate");
    assert!(version(&scene).contains(OLD));
    assert!(call(&scene, &["site.told"]).contains("by the site: here"));
    fs::remove_file(&made).unwrap();
    let applied = call(&scene, &["state.highstate"]);
    assert_eq!(fs::read_to_string(&made).unwrap_or_default().trim(), "by the site: here", "{applied}");
    let synced = call(&scene, &["saltutil.sync_all"]);
    assert!(!synced.contains("Traceback"), "{synced}");

    // Further down: the master does not let it in.
    let target = format!("{}-1", install_locked_out(&scene));
    scene.set(LOCKED_OUT_SETTINGS);
    let stream = scene.stream(&plan);
    stream.run(AROUND_SECONDS);
    let asked = scene.switch(&[&target, "--mode", "overlap"]);
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("a release that the master does not let in");
    assert_eq!(asked.code, Some(5), "{asked:?}");
    let last = &scene.history()[0];
    // What came of it, and what it was known to need.
    let failure = last["failure"]["text"].as_str().unwrap_or_default();
    assert!(failure.contains("not connected"), "{last}");
    assert!(last["notes"].to_string().contains("minimum_auth_version"), "{last}");
    assert!(asked.stdout.contains("minimum_auth_version"), "{asked:?}");
    assert_eq!(last["downtime_milliseconds"], 0, "{last}");
    assert!(version(&scene).contains(OLD));
    // It may only have been slow: it has a second try.
    for expected in [5, 10] {
        let again = scene.switch(&[&target, "--mode", "overlap"]);
        assert_eq!(again.code, Some(expected), "{again:?}");
    }
}
