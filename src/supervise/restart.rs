//! An agent that ends is started again: soon at first, then ever later. One that never stays is in a crash loop: that is said, and a release
//! that became the current one just before is left for the one before it.

use super::Supervisor;
use super::status::Ended;
use crate::switch::driver::Moment;
use crate::switch::{History, Journal, Mode, Phase, Purpose};
use crate::version::Release;
use jiff::Timestamp;
use std::time::Duration;

/// An agent that lived this long has come up: the next pause is the first one again.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// So many ends in a row, each before it was steady, are a crash loop: one or two are a host in trouble, a full disk say.
const LOOP_ENDS: u32 = 5;

/// When an agent that ended may be started again.
#[derive(Debug)]
pub struct Restart {
    minimum: Duration,
    maximum: Duration,
    pause: Duration,
    not_before: Duration,
    since: Option<Duration>,
    early_ends: u32,
}

impl Restart {
    /// Pauses from `minimum`, each twice as long as the one before, up to `maximum`.
    pub fn new(minimum: Duration, maximum: Duration) -> Self {
        Self { minimum, maximum, pause: minimum, not_before: Duration::ZERO, since: None, early_ends: 0 }
    }

    /// The agent runs at `now`, time since boot. One that was found running has come up long ago.
    pub fn runs(&mut self, now: Duration) {
        let since = *self.since.get_or_insert(Duration::ZERO);
        if now.saturating_sub(since) >= STEADY_AFTER {
            self.pause = self.minimum;
            self.early_ends = 0;
        }
    }

    /// The agent doesn't run at `now`; gives how long to wait before it is started again.
    pub fn rests(&mut self, now: Duration) -> Duration {
        if let Some(since) = self.since.take() {
            let early = now.saturating_sub(since) < STEADY_AFTER;
            self.early_ends = if early { self.early_ends.saturating_add(1) } else { 0 };
        }
        self.not_before.saturating_sub(now)
    }

    /// The agent is started again at `now`.
    pub fn begins(&mut self, now: Duration) {
        self.since = Some(now);
        self.not_before = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.maximum);
    }

    /// Whether it never stays.
    pub fn is_loop(&self) -> bool {
        self.early_ends >= LOOP_ENDS
    }

    /// What there is to say once it never stays. `how`: how it ended last.
    pub fn trouble(&self, release: &Release, how: Option<&str>) -> Option<String> {
        self.is_loop().then(|| {
            let (ends, pause) = (self.early_ends, self.pause.as_secs_f64());
            let last = how.map_or_else(String::new, |how| format!("; it last {how}"));
            let steady = STEADY_AFTER.as_secs();
            format!("crash loop: {release} ended {ends} times, each within {steady} s; it is started again every {pause} s{last}")
        })
    }
}

/// The release to go back to from one that is in a crash loop: it became the current one by a switch no longer than `within` ago. None: it
/// has worked here for long, or it is what a way back led to; another release is no remedy then.
pub fn way_back(journal: &Journal, history: &History, within: Duration, now: Timestamp) -> Option<Release> {
    let committed = history.entries().iter().rev().find(|entry| entry.result == Phase::Committed)?;
    let is_it = committed.purpose == Purpose::Switch && Some(&committed.to) == journal.proven.as_ref();
    let age = Duration::try_from(now.duration_since(committed.ended_at)).unwrap_or_default();
    if is_it && age <= within && journal.live.is_none() { journal.previous.clone() } else { None }
}

impl Supervisor {
    /// A release that never stays is left for the one before it, once: when it has just become the current one, or when the host has changed
    /// under it and that is known to be why.
    pub(super) fn leave_for_the_one_before(&mut self, loops: &str, now: Moment) {
        // The switch that made it current may still wait for the old process's last jobs.
        if let Err(error) = self.driver.make_room(&mut self.processes, now) {
            self.troubled(error.to_string());
        }
        let history = self.driver.files().history().unwrap_or_default();
        let journal = self.driver.journal();
        let to = way_back(journal, &history, self.settings.fall_back_within, now.wall);
        let to = to.map(|to| (to, loops.to_owned()));
        let host_changed = || self.way_off_this_host().map(|(to, why)| (to, format!("{loops}; {why}")));
        let Some((to, loops)) = to.or_else(host_changed).filter(|_| !self.left) else { return };
        self.left = true;
        let (purpose, mode) = (Purpose::Rollback, Some(Mode::Now));
        if let Err(report) = self.begin(self.own_wish(purpose, mode, to, &loops), None, now) {
            self.needs_a_person(format!("{loops}; {report}"));
        }
    }

    /// A current release that is damaged, and can't be mended with what this host has, is left for the one before it, if that one is whole: an
    /// agent that answers can be told to fetch the rest.
    pub(super) fn leave_the_damaged_one(&mut self, damaged: &str, now: Moment) {
        let journal = self.driver.journal();
        let from = journal.proven.clone();
        let is_tried = self.left_damaged == from;
        let Some(to) = journal.previous.clone().filter(|_| journal.live.is_none() && !is_tried) else { return };
        self.left_damaged = from;
        if self.driver.store().verify_or_repair(&to).is_err() {
            return;
        }
        let reason = format!("it could not be started: {damaged}");
        if let Err(report) = self.begin(self.own_wish(Purpose::Rollback, Some(Mode::Now), to, &reason), None, now) {
            self.needs_a_person(format!("{damaged}; {report}"));
        }
    }

    /// Remembers how agents ended, and what they had not finished.
    pub(super) fn note_ends(&mut self, now: Moment) {
        for end in self.processes.take_ends() {
            if end.record.being_ended || self.ending.is_some() {
                continue;
            }
            let (release, pid) = (end.record.release, end.record.leader.pid);
            let ended = Ended { at: now.wall, release, pid, how: end.how, unfinished: end.unfinished };
            if !ended.unfinished.is_empty() {
                // A disk that is full now is told of by the switch's next step.
                let _ = self.driver.note(&ended.to_string(), now);
            }
            self.ended = Some(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn five_early_ends_are_a_crash_loop_and_a_steady_minute_ends_it() {
        let release: Release = "1.0-1".parse().unwrap();
        let mut restart = Restart::new(SECOND, 8 * SECOND);
        let mut now = 100 * SECOND;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            restart.begins(now);
            restart.runs(now);
            assert!(restart.trouble(&release, None).is_none() || pauses.len() >= 5);
            now += SECOND / 2;
            let pause = restart.rests(now);
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [500, 1500, 3500, 7500, 7500, 7500]);
        let told = restart.trouble(&release, Some("exited with code 1")).unwrap();
        assert!(told.contains("ended 6 times") && told.contains("every 8 s; it last exited with code 1"), "{told}");
        restart.begins(now);
        restart.runs(now + 60 * SECOND);
        assert!(restart.trouble(&release, None).is_none());
        assert_eq!(restart.rests(now + 61 * SECOND), Duration::ZERO);
    }

    #[test]
    fn an_agent_that_was_found_running_is_steady() {
        let mut restart = Restart::new(SECOND, SECOND);
        restart.runs(1000 * SECOND);
        assert_eq!((restart.rests(1001 * SECOND), restart.early_ends), (Duration::ZERO, 0));
    }
}
