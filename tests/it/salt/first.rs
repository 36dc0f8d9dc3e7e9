//! The main promise on real Salt, without root and within a minute: what `scripts/test` runs of this tier.

use crate::support::minions::LONG_TERM;
use crate::support::salt::{own_user, runs_here};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use std::time::Duration;

/// The release between the two with long-term support.
const BETWEEN: &str = "3007.17";

/// Jobs a second, few enough for a machine with other things to do.
const RATE: f64 = 2.0;

/// How many jobs one process has to have alone: so many that a guard is found out that loses each fiftieth. Beside another process its losses would be
/// made up for.
const ALONE_MINIMUM: u32 = 55;

/// How long the stream goes on after each switch.
const AROUND_SECONDS: u64 = 5;

/// For Salt to start, to find the first minion, and to end.
const REFUSAL: Duration = Duration::from_secs(180);

#[test]
fn a_switch_to_the_next_long_term_release_and_the_way_back_lose_no_job_and_double_none() {
    let user = own_user();
    // Where the only Python is newer than the older release can run on, it is the release between them.
    let [old, new] = if runs_here(LONG_TERM[0]) { LONG_TERM } else { [BETWEEN, LONG_TERM[1]] };
    let scene = Scene::with(&Wanted { user: &user, settings: "rehearsal = \"refuse\"\n", ..Wanted::of(&[old, new]) });
    let stream = scene.stream(&Plan::of(RATE));
    stream.run_until("one process has had jobs enough", |seen| seen.published >= ALONE_MINIMUM);
    for (verb, arguments, version) in [("switch", &[&*format!("{new}-1")][..], new), ("rollback", &[], old)] {
        let ran = scene.verb(verb, &[arguments, &["--mode", "overlap"]].concat());
        assert_eq!(ran.code, Some(0), "{verb}: {ran:?}\n{}", scene.logs());
        let last = &scene.history()[0];
        assert_eq!(
            (last["mode"].as_str(), last["downtime_milliseconds"].as_u64()),
            (Some("overlap"), Some(0)),
            "{last}"
        );
        assert!(scene.master().call(ID, &["test.version"]).contains(version), "{verb} to {version}");
        stream.run(AROUND_SECONDS);
        if verb == "switch" {
            let refused = scene.second_minion(old, REFUSAL);
            assert_eq!(refused, Some(1), "Salt refuses a second minion after a switch, as without sidle");
        }
    }
    let report = stream.end();
    report.assert_lossless("from one long-term release to the next, and back");
    report.assert_watched();
}
