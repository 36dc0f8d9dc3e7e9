//! What a commit asks of a healthy new process: that it misses no job that the old process has, and answers once more.

use crate::agent::gate::{GuardReport, Unheard};
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::acts::FreshReport as _;
use crate::switch::gate::proofs::Proof;
use crate::switch::process::Processes;
use crate::switch::{Former, Outcome, Side, Switch};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the new process may take to receive a job that the old process had to take: longer than a refresh of its modules blocks it.
const HEARING_WAIT: Duration = Duration::from_secs(15);

/// How long the new process may receive jobs later than the old process takes them, one after the other.
const LATENESS_MAXIMUM: Duration = Duration::from_secs(60);

/// How long a job may be on its way to the new process before it counts: as long as the old process waits before it takes the job.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// How long a commit waits for an old process with minutes of unread publications. A process that never catches up must not delay it for ever.
const CATCH_UP_MAXIMUM: Duration = Duration::from_secs(10 * 60);

/// How a new process hears the jobs of one peer that misses some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// They may be on their way.
    OnTheirWay,
    /// It has not received them.
    Missing,
    /// It does not receive them.
    Deaf,
}

impl Hearing {
    /// `first_seen`: since when a guard that does not report the time says so. `end`: when the time of the trial was over; None: it is not.
    fn of(since: Unheard, first_seen: Option<Duration>, end: Option<Duration>, now: Moment) -> Self {
        let (since, always_counts) = match since {
            Unheard::Since(seconds) => (Duration::try_from_secs_f64(seconds).unwrap_or_default(), false),
            Unheard::NotReported => (first_seen.unwrap_or(now.since_boot), true),
        };
        let age = now.since_boot.saturating_sub(since);
        if age >= HEARING_WAIT {
            Self::Deaf
        } else if always_counts || age >= ON_ITS_WAY || end.is_some_and(|end| since <= end) {
            Self::Missing
        } else {
            Self::OnTheirWay
        }
    }
}

impl Driver {
    /// What a healthy new process still lacks for the commit, however long it was on probation: jobs that only the old process receives, a round
    /// trip of this probation, and the unread jobs of the old process. None: nothing.
    pub(in crate::switch) fn not_proven_yet(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Option<Outcome> {
        let is_over = now.since_boot.saturating_sub(self.in_phase.entered) >= self.limits.probation;
        let unheard = self.misses_jobs(live, processes, is_over, now);
        let waits = |why: &str| Some(Outcome::NotYet(why.to_owned()));
        if unheard.is_some() {
            return unheard;
        }
        if self.awaits_round_trip(live, processes, is_over, now) {
            return waits("the new process to reach its peers once more");
        }
        if is_over { self.still_unread(live, processes, now) } else { None }
    }

    /// True while a round trip of this probation is missing: the first, another after a failure, and the last, asked for when its time is over:
    /// a process that hangs by then is not committed. After two failures in a row its health decides.
    fn awaits_round_trip(&mut self, live: &Switch, processes: &mut Processes, is_over: bool, now: Moment) -> bool {
        let Some(trial) = live.which(Side::Trial) else { return false };
        let Some(report) = processes.report(trial) else { return false };
        let is_pending = report.prove < self.in_phase.asked.number;
        if is_over
            && !is_pending
            && self.in_phase.asked.at < self.in_phase.entered.saturating_add(self.limits.probation)
        {
            self.in_phase.asked = self.in_phase.asked.again(now);
            return true;
        }
        let newest = if is_pending && !is_over { self.in_phase.asked.before } else { self.in_phase.asked.number };
        let counted = self.in_phase.asked.counts_from(Proof::OfLate, report.prove);
        Self::reaches(live, trial, processes, counted)
            && !Self::reaches(live, trial, processes, newest.max(self.in_phase.asked.first))
    }

    /// The new process misses jobs that the old process receives: only the old process has them, and reports that. A job that is just on its way
    /// delays nothing, unless it came before the time of the trial was over. None: it misses no job.
    fn misses_jobs(&mut self, live: &Switch, processes: &Processes, is_over: bool, now: Moment) -> Option<Outcome> {
        let report = live.which(Side::Trial).and_then(|trial| processes.report(trial));
        let report = report.filter(|_| live.former() == Former::Beside);
        let end = is_over.then(|| self.in_phase.entered.saturating_add(self.limits.probation));
        let peers = report.as_ref().map(GuardReport::deaf_to).unwrap_or_default();
        let hearings =
            peers.into_iter().map(|(name, since)| (name, Hearing::of(since, self.in_phase.deaf_since, end, now)));
        let hearings: Vec<(&str, Hearing)> = hearings.collect();
        self.in_phase.deaf_since = if hearings.iter().all(|(_, hearing)| *hearing == Hearing::OnTheirWay) {
            None
        } else {
            self.in_phase.deaf_since.or(Some(now.since_boot))
        };
        let is_late =
            self.in_phase.deaf_since.is_some_and(|since| now.since_boot.saturating_sub(since) >= LATENESS_MAXIMUM);
        let masters_with = |wanted: Hearing| {
            let names = hearings.iter().filter(|(_, hearing)| *hearing == wanted).map(|(name, _)| *name);
            let names: Vec<&str> = names.collect();
            Some(names.join(", ")).filter(|names| !names.is_empty())
        };
        if let Some(names) = masters_with(Hearing::Deaf) {
            let is_deaf =
                |name: &str| hearings.iter().any(|(each, hearing)| *each == name && *hearing == Hearing::Deaf);
            let heard = report.iter().flat_map(|report| &report.peers).filter(|peer| is_deaf(&peer.name));
            self.missed.extend(heard.map(|peer| (peer.name.clone(), peer.last.clone())));
            let why = format!("the new process receives no jobs from {names}: the old process had to take them");
            return Some(Outcome::Failed(why));
        }
        let why = match masters_with(Hearing::Missing) {
            Some(names) if is_late => {
                let why = format!("the new process receives jobs from {names} late: the old process had to take them");
                return Some(Outcome::Failed(why));
            }
            Some(names) => format!("the new process has not received jobs from {names} that the old process took"),
            None => {
                let report = report.as_ref().filter(|_| is_over)?;
                let doubtful = report.in_doubt_of().join(", ");
                let silent = not_heard_since(&self.missed, report).join(", ");
                match (doubtful.is_empty(), silent.is_empty()) {
                    (true, true) => return None,
                    (false, _) => format!("only the old process has received jobs from {doubtful} yet"),
                    // A pause of the jobs proves nothing: a process that hears nothing misses none in it.
                    (true, false) => format!("the new process has missed jobs from {silent}, and received none since"),
                }
            }
        };
        Some(if self.waited_for_the_old_process(now) { Outcome::Expired } else { Outcome::NotYet(why) })
    }

    /// True if the time is over in which the commit waits for what only the old process has.
    fn waited_for_the_old_process(&self, now: Moment) -> bool {
        let waited = now.since_boot.saturating_sub(self.in_phase.entered);
        waited >= self.limits.probation.saturating_add(CATCH_UP_MAXIMUM)
    }

    /// The unread jobs of the old process, which no other process receives; they delay the commit. None: no unread jobs, or the time is over.
    fn still_unread(&self, live: &Switch, processes: &Processes, now: Moment) -> Option<Outcome> {
        let report = |side| live.which(side).and_then(|which| processes.report(which)).fresh(now);
        let (old, new) = (report(Side::Former)?, report(Side::Trial)?);
        let reached: Vec<&str> =
            new.peers.iter().filter(|peer| peer.address.is_some()).map(|peer| peer.name.as_str()).collect();
        let behind: Vec<&str> =
            old.behind(&new, self.in_phase.asked.first).into_iter().filter(|name| reached.contains(name)).collect();
        if behind.is_empty() || live.former() != Former::Beside {
            return None;
        }
        let names = behind.join(", ");
        if self.waited_for_the_old_process(now) {
            return Some(Outcome::Expired);
        }
        Some(Outcome::NotYet(format!(
            "the old process still reads what {names} published before the new process listened"
        )))
    }
}

/// The peers of which a process has missed jobs, and from which it has received none since: by the last job that it had received by then.
fn not_heard_since<'a>(missed: &'a BTreeMap<String, Option<String>>, report: &GuardReport) -> Vec<&'a str> {
    let last = |name: &str| report.peers.iter().find(|peer| peer.name == name).and_then(|peer| peer.last.as_deref());
    let is_silent =
        |(name, then): &(&'a String, &'a Option<String>)| last(name).is_none_or(|now| Some(now) == then.as_deref());
    missed.iter().filter(is_silent).map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault of before: jobs paused in the last probation of a process that had missed all others, and it was committed.
    #[test]
    fn who_has_missed_jobs_is_believed_only_when_it_has_received_one() {
        let report = |last: Option<&str>| -> GuardReport {
            let peer = serde_json::json!({"name": "m", "address": "tcp://m", "proven": 3, "first": last, "last": last});
            let report = serde_json::json!({"schema": 1, "leader": 1, "pid": 2, "start_time": 3, "wrapped": ["w"], "overlap": null,
                "serial": 4, "role": "active", "singletons": true, "announced": true, "prove": 3, "jobs": [], "held": 0, "returning": 0,
                "peers": [peer], "updated": 100.5});
            GuardReport::parse(report.to_string().as_bytes()).unwrap()
        };
        let missed = |last: Option<&str>| BTreeMap::from([("m".to_owned(), last.map(str::to_owned))]);
        assert_eq!(not_heard_since(&missed(None), &report(None)), ["m"], "it has never received any");
        assert_eq!(not_heard_since(&missed(Some("1")), &report(Some("1"))), ["m"]);
        assert!(not_heard_since(&missed(None), &report(Some("1"))).is_empty());
        assert!(not_heard_since(&missed(Some("1")), &report(Some("2"))).is_empty());
        assert_eq!(
            not_heard_since(&missed(Some("1")), &report(None)),
            ["m"],
            "another process: it has to show that it hears"
        );
    }

    #[test]
    fn a_job_of_the_trial_counts_from_its_own_time_however_short_the_probation() {
        let now = Moment { wall: jiff::Timestamp::UNIX_EPOCH, since_boot: Duration::from_secs(100) };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let of = |since: f64, end| Hearing::of(Unheard::Since(since), None, end, now);
        assert_eq!(of(99.0, None), Hearing::OnTheirWay);
        assert_eq!(of(99.0, seconds(99)), Hearing::Missing, "it came before the time was over");
        assert_eq!(of(99.0, seconds(98)), Hearing::OnTheirWay, "jobs of a stream delay no commit");
        assert_eq!(of(97.0, seconds(90)), Hearing::Missing, "while the commit waits, the trial goes on");
        assert_eq!(of(85.0, None), Hearing::Deaf);
        assert_eq!(of(f64::NAN, None), Hearing::Deaf, "unknown means no");
        let old = |first_seen| Hearing::of(Unheard::NotReported, first_seen, None, now);
        assert_eq!(
            (old(None), old(seconds(86)), old(seconds(85))),
            (Hearing::Missing, Hearing::Missing, Hearing::Deaf)
        );
    }
}
