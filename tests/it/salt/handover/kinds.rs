//! Minions of other kinds than the usual one: another transport, jobs in threads, another user than root.

use super::{AROUND_SECONDS, NEW, NEWEST, OLD, overlap};
use crate::support::scene::{Scene, Wanted};
use crate::support::stream::Plan;

/// Up, up, and down again.
fn is_lossless(what: &str, wanted: &Wanted<'_>) {
    let releases = [OLD, NEW, NEWEST];
    let scene = Scene::with(&Wanted { releases: &releases, ..*wanted });
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    for version in [NEW, NEWEST, OLD] {
        overlap(&scene, "switch", &[&format!("{version}-1")]);
        stream.run(AROUND_SECONDS);
    }
    let report = stream.end();
    report.assert_lossless(what);
    report.assert_watched();
    report.assert_steady_schedule(what);
    let answered: Vec<&str> = report.releases.keys().map(String::as_str).collect();
    assert_eq!(answered, releases, "{what}: {:?}", report.releases);
    assert_eq!(report.starts.len(), 3, "{what}: one start event per switch: {:?}", report.starts);
}

#[test]
fn a_minion_on_the_tcp_transport_is_switched_without_losing_a_job() {
    is_lossless("transport: tcp", &Wanted { transport: "transport: tcp\n", ..Wanted::of(&[]) });
}

#[test]
fn a_minion_with_jobs_in_threads_is_switched_without_losing_a_job() {
    is_lossless("multiprocessing: False", &Wanted { options: "multiprocessing: False\n", ..Wanted::of(&[]) });
}

#[test]
fn a_minion_of_another_user_than_root_is_switched_without_losing_a_job() {
    is_lossless("user: daemon", &Wanted { user: "daemon", ..Wanted::of(&[]) });
}
