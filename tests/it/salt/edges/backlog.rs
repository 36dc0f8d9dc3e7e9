//! A minion that is behind: its main process loads its modules anew, again and again, and reads a publication in between. What it has not read when the
//! new process begins to listen is its to do.

use super::{NEW, OLD};
use crate::support::eventually;
use crate::support::evidence::{Fate, Finding};
use crate::support::scene::{Scene, Wanted};
use crate::support::stream::Plan;

/// Publications a second, each second one of which keeps main for a third of a second or more; and for how long: it is behind by about
/// as much then as the test takes to find out.
const RATE: f64 = 6.0;
const SECONDS: u64 = 6;

/// So many jobs it is behind at least.
const BEHIND_MINIMUM: u32 = 10;

/// How long the switch may take: all of the backlog is read first.
const PATIENCE_SECONDS: u64 = 900;

/// For a longer one, by hand: seconds of publications, and of probation.
const SECONDS_VARIABLE: &str = "SIDLE_BACKLOG_SECONDS";
const PROBATION_VARIABLE: &str = "SIDLE_BACKLOG_PROBATION";

/// An old process minutes behind was closed with jobs in its socket, which the new process had never heard of.
#[test]
fn what_the_old_process_has_not_read_when_the_new_one_listens_is_run_all_the_same() {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number(SECONDS_VARIABLE).unwrap_or(SECONDS);
    let probation = number(PROBATION_VARIABLE).unwrap_or(1);
    let settings = format!("probation = \"{probation}s\"\nstart_timeout = \"120s\"\nrehearsal = \"off\"\n");
    let scene = Scene::with(&Wanted { settings: &settings, ..Wanted::of(&[OLD, NEW]) });
    let mut stream = scene.stream(&Plan { refresh_every: 1, compound_every: 0, ..Plan::short(RATE) });
    stream.run(seconds);
    let behind = stream.run_until("it does not keep up", |seen| seen.published > seen.returned + BEHIND_MINIMUM);
    println!("after {:.0} s: {} jobs published, {} answered", stream.age(), behind.published, behind.returned);
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    // Silence from here on: the new process hears nothing, and that proves nothing.
    eventually(120, "the new process is started", || match scene.phase().as_deref() {
        Some("proving" | "handing" | "probation") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    stream.stop();
    let begun = stream.age();
    eventually(PATIENCE_SECONDS, "the switch ends", || match scene.phase().as_deref() {
        None => Ok(()),
        Some(phase) => Err(phase.to_owned()),
    });
    let last = scene.history()[0].clone();
    println!("{:.1} s after the silence began: {} {}", stream.age() - begun, last["result"], last["notes"]);
    let report = stream.end();
    println!("{}", report.row("a minion that is behind"));
    // A minion so busy waits long for the master's word that it has a return, and sends that again: the job has run once all the same.
    let sent_again = |finding: &Finding<'_>| finding.fate == Fate::Doubled && finding.job.executed == 1;
    let wrong: Vec<Finding<'_>> = report.findings().into_iter().filter(|finding| !sent_again(finding)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", scene.logs());
    assert_eq!(last["result"], "committed", "{last}\n{}", scene.logs());
}
