//! Health checks of the agent, and the status file.

use super::hearing::{Check, Hearing, News};
use super::pace::{FINISHED_INTERVAL, HEALTH_INTERVAL, HEALTH_INTERVAL_SHORT};
use super::status::{AgentStatus, Ended, SupervisorStatus};
use super::{Supervisor, notify_manager};
use crate::os::clock::Moment;
use crate::os::{OsError, memory};
use crate::switch::Entry;
use crate::switch::journal::downtimes::Heard;
use std::time::Duration;

impl Supervisor {
    /// Checks the agent's health, if a check is due; returns the time until the next check.
    pub(super) fn check(&mut self, now: Moment) -> Duration {
        let journal = self.driver.journal().clone();
        let Some(which) = journal.serving_process() else {
            self.health = None;
            if journal.live.is_none() {
                self.hearing = Hearing::default();
            }
            return HEALTH_INTERVAL;
        };
        let pause = |status: &AgentStatus| if status.lacks.is_some() { HEALTH_INTERVAL_SHORT } else { HEALTH_INTERVAL };
        if let Some((seen, status)) = &self.health {
            let due = seen.saturating_add(pause(status));
            if now.since_boot < due {
                return due.saturating_sub(now.since_boot);
            }
        }
        let Some(health) = self.processes.health(which, None) else {
            self.health = None;
            return HEALTH_INTERVAL_SHORT;
        };
        let doubles = self.processes.doubles(which);
        let Some(record) = self.processes.of(which) else { return HEALTH_INTERVAL_SHORT };
        let status = AgentStatus {
            release: which.release().cloned(),
            leader: record.leader.clone(),
            started_at: record.started_at,
            reaches: health.proven(),
            lacks: health.lacks(&[]),
            doubles,
        };
        if status.lacks.is_none() && self.driver.journal().live.is_none() && !self.keeper.restart.is_loop() {
            self.trouble = None;
            self.recovered();
        }
        if status.lacks.is_none() {
            self.note_credentials(which);
        }
        self.log_health(&status);
        self.listen(&status, now);
        let pause = pause(&status);
        self.health = Some((now.since_boot, status));
        pause
    }

    /// Keeps when the agent could not hear.
    fn listen(&mut self, status: &AgentStatus, now: Moment) {
        let check = Check { leader: &status.leader, lacks: status.lacks.as_deref(), ended: self.ended.as_ref() };
        let (files, is_live) =
            (self.driver.files(), self.driver.journal().live.as_ref().is_some_and(|live| !live.phase.is_before_stop()));
        let is_switched = |last: &Heard| {
            let ended_since = |entry: &Entry| entry.ended_at >= last.at;
            // The history is short of nothing but what is not readable, of which status tells.
            last.leader.boot_id == self.own.boot_id
                && (is_live || files.history().is_ok_and(|history| history.entries().iter().any(ended_since)))
        };
        let (next, news) = self.hearing.after(check, now, is_switched);
        self.keep_hearing(next, news);
    }

    /// Keeps that the agent has heard until now, when the service is stopped.
    pub(super) fn hears_until(&mut self, now: Moment) {
        let (next, news) = self.hearing.stops(now);
        self.keep_hearing(next, news);
    }

    /// Goes on with what is so now, once the news is written: before that, it stays as it was, and the next check tells the same.
    fn keep_hearing(&mut self, next: Hearing, news: Option<News>) {
        let Some(news) = news else {
            self.hearing = next;
            return;
        };
        match self.driver.files().change_downtimes(|kept| news.onto(kept)) {
            Ok(true) => {
                self.hearing = next;
                self.hearing.failure = None;
            }
            Ok(false) => {}
            Err(error) => {
                let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                self.hearing.failure = Some(format!("{error}{hint}"));
            }
        }
    }

    /// Remembers how agents ended by themselves, and their unfinished jobs.
    pub(super) fn note_ends(&mut self, now: Moment) {
        for end in self.processes.take_ends() {
            if end.record.being_ended || self.ending.is_some() {
                continue;
            }
            let (release, pid) = (end.record.release, end.record.leader.pid);
            let ended = Ended { at: now.wall, release, pid, how: end.how, unfinished: end.unfinished };
            if !ended.unfinished.is_empty() {
                // The next step of the switch reports a full disk.
                let _ = self.driver.note(&ended.to_string(), now);
            }
            self.ended = Some(ended);
        }
    }

    /// Ends old processes that have finished their last jobs; returns the time until the next check.
    pub(super) fn end_finished(&mut self, now: Moment) -> Result<Duration, OsError> {
        self.processes.end_finished(now.since_boot)?;
        Ok(if self.processes.finishing().is_empty() { HEALTH_INTERVAL } else { FINISHED_INTERVAL })
    }

    /// Writes the status file if the status has changed.
    pub(super) fn report(&mut self, _now: Moment) -> Result<(), OsError> {
        let agent = self.health.as_ref().map(|(_, status)| status.clone());
        let tree = self.tree.trouble();
        let unreadable =
            self.driver.unreadable().map(|report| format!("{report}; sidle runs `current` and begins no switch"));
        let troubles: Vec<&str> = unreadable
            .iter()
            .chain(&self.trouble)
            .map(String::as_str)
            .chain(self.renewal.failure())
            .chain(self.host_change.trouble())
            .chain(tree.as_deref())
            .chain(self.hearing.failure.as_deref())
            .collect();
        let trouble = Some(troubles.join("; ")).filter(|text| !text.is_empty());
        let status = SupervisorStatus {
            schema: 1,
            supervisor: self.own.clone(),
            agent,
            trouble,
            ended: self.ended.clone(),
            finishing: self.processes.finishing(),
            unwatched: self.tree.unwatched().map(str::to_owned),
            settings_sha256: self.settings.digest.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if self.written.as_ref() != Some(&status) {
            status.write(&self.directory)?;
            let words = match (&status.agent, &status.trouble) {
                (Some(agent), _) => match &agent.lacks {
                    None => format!("running {}", agent.name()),
                    Some(lacks) => format!("running {}, waiting for {lacks}", agent.name()),
                },
                (None, Some(trouble)) => trouble.clone(),
                (None, None) => "nothing runs".to_owned(),
            };
            notify_manager(&format!("STATUS={words}"));
            self.written = Some(status);
            // A change of state has read manifests, whose memory is free now.
            memory::give_back();
        }
        Ok(())
    }
}
