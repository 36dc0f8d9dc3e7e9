//! Minions of other kinds than the usual one: another transport, jobs in threads, another user than root.

use super::{AROUND_SECONDS, overlap};
use crate::support::minions::LONG_TERM;
use crate::support::scene::{Scene, Wanted};
use crate::support::stream::{Plan, TICKS};

/// Up, and down again.
fn is_lossless(what: &str, wanted: &Wanted<'_>) {
    let scene = Scene::with(&Wanted { releases: &LONG_TERM, schedule: TICKS, ..*wanted });
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    let [old, new] = LONG_TERM;
    for version in [new, old] {
        overlap(&scene, "switch", &[&format!("{version}-1")]);
        stream.run(AROUND_SECONDS);
    }
    let report = stream.end();
    report.assert_lossless(what);
    report.assert_watched();
    report.assert_steady_schedule(what);
    let answered: Vec<&str> = report.releases.keys().map(String::as_str).collect();
    assert_eq!(answered, LONG_TERM, "{what}: {:?}", report.releases);
    assert_eq!(report.starts.len(), 2, "{what}: one start event per switch: {:?}", report.starts);
}

#[test]
fn a_minion_on_the_tcp_transport_and_of_another_user_than_root_is_switched_without_losing_a_job() {
    let wanted = Wanted { transport: "transport: tcp\n", user: "daemon", ..Wanted::of(&[]) };
    is_lossless("transport: tcp, user: daemon", &wanted);
}

#[test]
fn a_minion_with_jobs_in_threads_is_switched_without_losing_a_job() {
    is_lossless("multiprocessing: False", &Wanted { options: "multiprocessing: False\n", ..Wanted::of(&[]) });
}
