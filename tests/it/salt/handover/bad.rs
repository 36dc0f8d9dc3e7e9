//! Releases that do not come up, or do not stay: no job is left without an answer, and the host stays on what worked. Every other way to fail is
//! the demonstration agent's (`plain::switching`); here are the two that need Salt: one that never comes up, and one that dies with jobs in its hands.

use super::{AROUND_SECONDS, MIDDLE, NEW, OLD, ended, version};
use crate::support::come_first;
use crate::support::evidence::{Fate, Finding};
use crate::support::salt::{copy_renamed, tree};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::{Plan, Report};
use serde_json::Value;
use std::fs;

/// The version under which the bad release goes.
pub const BAD: &str = "3007.99";

/// Jobs a second, and for how long there is no switch first: what answers are like then.
const RATE: f64 = 1.0;
const CONTROL_SECONDS: u64 = 10;

/// How long a release may take to come up. One that hangs costs all of it.
const START_SECONDS: u32 = 25;

/// What dies with a process in the one second in which it had the jobs: those in its hands. None of them may run again.
const IN_HAND_MAXIMUM: usize = 4;

/// Makes and installs a release that behaves as the file `trouble` says, out of a good one's tree.
pub fn install_bad(scene: &Scene) {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tree");
    copy_renamed(&tree(MIDDLE), &copy, None);
    let program = copy.join("bin/salt-minion");
    let good = fs::read_to_string(&program).unwrap();
    let bad = good.replace("import sys\n", &format!("import sys\n{}", include_str!("trouble.py")));
    assert_ne!(good, bad, "bin/salt-minion has another form");
    fs::write(&program, bad).unwrap();
    scene.host.install(&scene.author.salt_from(BAD, &copy)).ok();
}

/// Why the switch failed, as history and status have it.
fn why(seen: &Value) -> String {
    seen["failure"]["text"].as_str().unwrap_or_default().to_owned()
}

/// A release that has lost what the site's own module imports is refused before anything is tried, each time.
fn cannot_import(scene: &Scene, rate: f64, longest: f64) {
    let synced = |about: &str| {
        let synced = scene.master().call(ID, &["saltutil.sync_modules"]);
        assert!(synced.contains("modules.site_vault") == (about == "there"), "{about}: {synced}");
    };
    let module = "_modules/site_vault.py";
    scene.master().file(module, "import salt.utils.vault\n\ndef told():\n    return 'by the site'\n");
    synced("there");
    let used = scene.master().call(ID, &["site_vault.told"]);
    assert!(used.contains("by the site"), "{used}");
    let stream = scene.stream(&Plan::short(rate));
    stream.run(AROUND_SECONDS);
    for attempt in 1..=2 {
        let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap"]);
        assert_eq!(asked.code, Some(1), "{attempt}: {asked:?}");
        let (last, status) = (scene.history()[0].clone(), scene.status());
        assert_eq!(last["result"], "refused", "{attempt}: {last}");
        assert!(why(&last).contains("site_vault") && why(&last) == why(&status["last"]), "{attempt}: {last}\n{status}");
    }
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    report.assert_lossless("cannot import");
    assert_gap(&report, "cannot import", longest);
    assert!(version(scene).contains(OLD));
    scene.master().remove_file(module);
    synced("gone");
}

fn assert_gap(report: &Report, what: &str, longest: f64) {
    let gap = report.longest_gap_seconds.unwrap();
    println!("{what}: the longest gap was {gap:.1} s, of {longest:.1} s at most");
    assert!(gap <= longest, "{what}: nobody answered for {gap:.1} s, {longest:.1} s at most were expected");
}

/// To be slow once condemned a release; and one that died was tried again at the next wish.
#[test]
fn a_release_that_fails_costs_no_answer_and_is_refused_the_second_time_if_it_died() {
    come_first();
    let settings = format!("start_timeout = \"{START_SECONDS}s\"\n");
    let mut scene = Scene::with(&Wanted { settings: "rehearsal = \"refuse\"\n", ..Wanted::of(&[OLD, NEW]) });
    install_bad(&scene);
    let stream = scene.stream(&Plan::short(RATE));
    stream.run(CONTROL_SECONDS);
    let control = stream.end();
    control.assert_lossless("no switch");
    let longest = 3.0 * control.longest_gap_seconds.unwrap();
    cannot_import(&scene, RATE, longest);
    // A rehearsal sees nothing of what follows.
    scene.set(&settings);
    let bad = format!("{BAD}-1");
    for kind in ["hang", "collapse"] {
        fs::write(scene.host.path("etc/salt/trouble"), kind).unwrap();
        let stream = scene.stream(&Plan::short(RATE));
        stream.run(AROUND_SECONDS);
        let begun = stream.age();
        // It failed before, in another way.
        let tried = scene.switch(&[&bad, "--mode", "overlap", "--force"]);
        println!("{kind}: exit code {:?} after {:.1} s", tried.code, stream.age() - begun);
        assert_eq!(tried.code, Some(5), "{kind}: {tried:?}\n{}", scene.logs());
        stream.run(AROUND_SECONDS);
        let report = stream.end();
        if kind == "collapse" {
            println!("{}", report.row(kind));
            let findings = report.findings();
            let in_hand = |finding: &Finding<'_>| matches!(finding.fate, Fate::Unrun | Fate::Unreturned);
            assert!(findings.len() <= IN_HAND_MAXIMUM && findings.iter().all(in_hand), "{findings:#?}");
        } else {
            report.assert_lossless(kind);
        }
        assert_gap(&report, kind, longest);
        assert_eq!(report.starts, Vec::<f64>::new(), "{kind}: a release that was not taken announced itself");
        assert!(version(&scene).contains(OLD), "{kind}");

        let (last, status) = (scene.history()[0].clone(), scene.status());
        assert_eq!(last["result"], "rolled-back", "{kind}: {last}");
        assert!(!why(&last).is_empty() && why(&last) == why(&status["last"]), "{kind}: {last}\n{status}");
        println!("{kind}: {}", why(&last));
        let again = scene.switch(&[&bad, "--mode", "overlap", "--no-wait"]);
        if kind == "hang" {
            // It may only have been slow.
            assert_eq!(again.code, Some(4), "{kind}: {again:?}");
            scene.verb("cancel", &[]);
            ended(&scene);
        } else {
            assert_eq!(again.code, Some(10), "{kind}: {again:?}");
        }
    }
}
