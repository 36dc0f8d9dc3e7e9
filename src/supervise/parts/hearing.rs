//! Keeps the times in which the agent could not hear its peers, outside of switches.

use crate::os::clock::Moment;
use crate::os::process::Identity;
use crate::supervise::status::Ended;
use crate::switch::journal::downtimes::{Downtime, DowntimeCause, Downtimes, Heard};
use std::time::Duration;

/// How often a healthy agent is written down: after a power cut, a downtime may seem longer by this much.
const WRITE_INTERVAL: Duration = Duration::from_secs(600);

/// What a health check found.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The agent's first process.
    pub leader: &'a Identity,
    /// What it lacks to be healthy; None: nothing.
    pub lacks: Option<&'a str>,
    /// The last agent that ended by itself.
    pub ended: Option<&'a Ended>,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    heard: Option<Heard>,
    lacks: Option<String>,
    downtime: Option<Downtime>,
}

impl News {
    /// Adds the news to what is kept.
    #[must_use]
    pub fn onto(self, kept: Downtimes) -> Downtimes {
        let Self { heard, lacks, downtime } = self;
        let kept = kept.heard(heard, lacks.as_deref());
        match downtime {
            Some(downtime) => kept.with(downtime),
            None => kept,
        }
    }
}

/// The agent's hearing.
#[derive(Debug, Clone, Default)]
pub struct Hearing {
    last: Option<Heard>,
    /// What the agent lacks since the last healthy check.
    lacks: Option<String>,
    /// When it was written last, since boot.
    written: Option<Duration>,
    /// Why it could not be written.
    pub failure: Option<String>,
}

impl Hearing {
    /// Goes on where an earlier supervisor ended.
    pub fn of(kept: &Downtimes) -> Self {
        Self { last: kept.heard.clone(), lacks: kept.lacks.clone(), ..Self::default() }
    }

    /// Takes a health check; returns what is so afterwards, and what has to be written. `is_switched`: true if the change since that time is the work of
    /// a switch, whose history has its own downtime.
    pub fn after(
        &self,
        check: Check<'_>,
        now: Moment,
        is_switched: impl FnOnce(&Heard) -> bool,
    ) -> (Self, Option<News>) {
        let mut next = self.clone();
        let Check { leader, lacks, .. } = check;
        if let Some(lacks) = lacks {
            // A process that comes up lacks its peers for a while: the loss of those that were there counts.
            let is_lost = self.lacks.is_none() && self.last.as_ref().is_some_and(|last| last.leader == *leader);
            if !is_lost {
                return (next, None);
            }
            next.lacks = Some(lacks.to_owned());
            return next.news(None, now);
        }
        next.last = Some(Heard { at: now.wall, leader: leader.clone() });
        next.lacks = None;
        let changed = self.last.as_ref().filter(|last| last.leader != *leader || self.lacks.is_some());
        // A switch does not know of a loss before it: the agent that it replaced may have been deaf.
        let was_lost = self.lacks.is_some();
        let downtime =
            changed.filter(|last| was_lost || !is_switched(last)).map(|last| self.downtime(last, check, now));
        let is_due = self.written.is_none_or(|at| now.since_boot.saturating_sub(at) >= WRITE_INTERVAL);
        if changed.is_none() && !is_due { (next, None) } else { next.news(downtime, now) }
    }

    /// The service is stopped: heard until now.
    pub fn stops(&self, now: Moment) -> (Self, Option<News>) {
        let mut next = self.clone();
        match next.last.as_mut().filter(|_| self.lacks.is_none()) {
            Some(last) => last.at = now.wall,
            None => return (next, None),
        }
        next.news(None, now)
    }

    fn news(mut self, downtime: Option<Downtime>, now: Moment) -> (Self, Option<News>) {
        self.written = Some(now.since_boot);
        let news = News { heard: self.last.clone(), lacks: self.lacks.clone(), downtime };
        (self, Some(news))
    }

    fn downtime(&self, last: &Heard, check: Check<'_>, now: Moment) -> Downtime {
        let ended = check.ended.filter(|ended| ended.pid == last.leader.pid);
        let (cause, detail) = if last.leader.boot_id != check.leader.boot_id {
            (DowntimeCause::Boot, String::new())
        } else if self.lacks.is_some() {
            (DowntimeCause::Disconnected, self.lacks.clone().unwrap_or_default())
        } else {
            match ended {
                Some(ended) => (DowntimeCause::Ended, ended.to_string()),
                None => (DowntimeCause::Stopped, String::new()),
            }
        };
        // A clock that was set back makes no downtime that ends before it begins.
        Downtime { from: last.at.min(now.wall), until: now.wall, cause, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn process(boot: &str, pid: u32) -> Identity {
        Identity { boot_id: boot.to_owned(), pid, start_time: 1 }
    }

    fn at(second: i64) -> Moment {
        Moment {
            wall: Timestamp::from_second(1_000_000 + second).unwrap(),
            since_boot: Duration::from_secs(second.unsigned_abs()),
        }
    }

    /// What is kept after these checks: seconds, process, and what it lacks.
    fn kept(checks: &[(i64, &Identity, Option<&str>)], is_switched: bool) -> (Downtimes, usize) {
        let (mut hearing, mut kept, mut writes) = (Hearing::default(), Downtimes::default(), 0);
        for (second, leader, lacks) in checks {
            let check = Check { leader, lacks: *lacks, ended: None };
            let (next, news) = hearing.after(check, at(*second), |_| is_switched);
            hearing = next;
            if let Some(news) = news {
                kept = news.onto(kept);
                writes += 1;
            }
        }
        (kept, writes)
    }

    fn causes(kept: &Downtimes) -> Vec<(i64, i64, DowntimeCause)> {
        let second = |time: Timestamp| time.as_second() - 1_000_000;
        kept.entries().iter().map(|each| (second(each.from), second(each.until), each.cause)).collect()
    }

    #[test]
    fn each_time_without_hearing_has_its_cause_and_a_steady_agent_is_rarely_written() {
        let (one, two, other) = (process("a", 1), process("a", 2), process("b", 1));
        let (steady, writes) = kept(&[(0, &one, None), (15, &one, None), (30, &one, None)], false);
        assert_eq!((causes(&steady), writes), (Vec::new(), 1));
        let lost =
            [(0, &one, None), (15, &one, None), (30, &one, Some("m1")), (32, &one, Some("m1")), (60, &one, None)];
        let (lost, writes) = kept(&lost, false);
        assert_eq!((causes(&lost), writes), (vec![(15, 60, DowntimeCause::Disconnected)], 3));
        assert_eq!((lost.entries()[0].detail.as_str(), &lost.lacks), ("m1", &None));
        // The restart of a deaf agent is a switch without a downtime.
        let restarted = [(0, &one, None), (15, &one, Some("m1")), (60, &two, Some("m1")), (62, &two, None)];
        assert_eq!(causes(&kept(&restarted, true).0), [(0, 62, DowntimeCause::Disconnected)]);
        let again = [(0, &one, None), (9, &two, Some("m1")), (11, &two, None)];
        assert_eq!(causes(&kept(&again, false).0), [(0, 11, DowntimeCause::Stopped)]);
        assert_eq!(causes(&kept(&again, true).0), [], "a switch has its own downtime");
        assert_eq!(causes(&kept(&[(0, &one, None), (9, &other, None)], false).0), [(0, 9, DowntimeCause::Boot)]);
        assert_eq!(kept(&[(0, &one, None), (700, &one, None)], false).1, 2);
        let (open, _) = kept(&[(0, &one, None), (15, &one, Some("m1"))], false);
        assert_eq!((causes(&open), open.lacks.as_deref()), (Vec::new(), Some("m1")), "it is not over");
    }

    #[test]
    fn a_supervisor_that_is_stopped_leaves_the_time_and_the_next_one_goes_on() {
        let one = process("a", 1);
        let (hearing, news) =
            Hearing::default().after(Check { leader: &one, lacks: None, ended: None }, at(0), |_| false);
        let kept = news.unwrap().onto(Downtimes::default());
        let kept = hearing.stops(at(7)).1.unwrap().onto(kept);
        let two = process("a", 2);
        let ended = Ended { at: at(8).wall, release: None, pid: 1, how: "exited".to_owned(), unfinished: Vec::new() };
        let check = Check { leader: &two, lacks: None, ended: Some(&ended) };
        let kept = Hearing::of(&kept).after(check, at(20), |_| false).1.unwrap().onto(kept);
        assert_eq!(causes(&kept), [(7, 20, DowntimeCause::Ended)]);
        assert!(kept.entries()[0].detail.contains("exited"), "{kept:?}");
    }
}
