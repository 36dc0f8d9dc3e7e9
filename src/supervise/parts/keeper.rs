//! The keeper decides which process the supervisor keeps running, when to start it again after its end, and when to leave its release for the
//! previous one.

use crate::supervise::intent::{Intent, OwnSwitch};
use crate::switch::journal::kind::ProcessKind;
use crate::switch::{History, Journal, Phase, Purpose};
use crate::version::Release;
use jiff::Timestamp;
use std::time::Duration;

/// An agent that lived this long has come up: the pause is reset to the minimum.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// So many early ends in a row are a crash loop: one or two may come from the host, for example a full disk.
const LOOP_ENDS: u32 = 5;

/// The processes that the supervisor keeps running.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// The processes that may run; all others are ended.
    pub allowed: Vec<ProcessKind<'a>>,
    /// The process that is started if it does not run, if any.
    pub serving: Option<ProcessKind<'a>>,
}

/// Returns the processes to keep with this journal; None: the acts of the live switch handle the processes.
pub fn kept(journal: &Journal) -> Option<Kept<'_>> {
    let serving = match &journal.live {
        Some(live) => live.which(live.phase.keeps()?),
        None => journal.serving_process(),
    };
    Some(Kept { allowed: journal.allowed(), serving })
}

/// What is due for the serving process.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing for this time.
    Rest(Duration),
    /// Its start.
    Start,
}

/// The result of a start.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its release.
    pub release: Option<Release>,
    /// How the previous process ended.
    pub ended: Option<String>,
    /// A note on a repair before the start; or why it was not started.
    pub result: Result<Option<String>, NotStarted>,
}

/// Why a process was not started.
#[derive(Debug, Clone)]
pub struct NotStarted {
    /// The reason, for people.
    pub why: String,
    /// The files of the release are damaged.
    pub is_damaged: bool,
}

/// The facts for the decision to leave a release.
#[derive(Debug)]
pub struct Past<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// The switches that ended.
    pub history: &'a History,
    /// How long a release counts as new.
    pub fall_back_within: Duration,
    /// The previous release and the reason, if the current release is known not to come up on the changed host.
    pub off_this_host: Option<(Release, String)>,
}

/// The keeper.
#[derive(Debug, Clone)]
pub struct Keeper {
    /// When an agent that ended may be started again.
    pub restart: Restart,
    /// Since when a process does not end that has to.
    lingering: Option<Duration>,
    /// The commit whose release was left last.
    left: Option<Tenure>,
}

/// What a release can be left for once: its present time as the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tenure {
    release: Option<Release>,
    since: Option<Timestamp>,
}

impl Tenure {
    fn of(journal: &Journal, history: &History) -> Self {
        let committed = history.entries().iter().rev().find(|entry| entry.result == Phase::Committed);
        Self { release: journal.proven.clone(), since: committed.map(|entry| entry.ended_at) }
    }
}

impl Keeper {
    /// Makes a keeper.
    pub fn new(restart: Restart) -> Self {
        Self { restart, lingering: None, left: None }
    }

    /// True if the supervisor has to wait for the end of other processes. A process that never ends (in an uninterruptible wait) must not prevent
    /// the start of its successor: the wait ends after `limit`.
    pub fn others(&mut self, are_gone: bool, limit: Duration, now: Duration) -> bool {
        if are_gone {
            self.lingering = None;
            return false;
        }
        let since = *self.lingering.get_or_insert(now);
        now.saturating_sub(since) < limit
    }

    /// What is due for the serving process. `runs`: it runs; `rest`: how long to rest if nothing is due.
    pub fn due(&mut self, runs: bool, now: Duration, rest: Duration) -> Due {
        if runs {
            self.restart.runs(now);
            return Due::Rest(rest);
        }
        match self.restart.rests(now) {
            Duration::ZERO => Due::Start,
            pause => Due::Rest(pause),
        }
    }

    /// Reports a start.
    pub fn started(&mut self, started: Started, now: Duration) -> Vec<Intent> {
        let how = started.ended.as_deref();
        let loops = started.release.as_ref().and_then(|release| self.restart.trouble(release, how));
        match started.result {
            Ok(_) => self.restart.begins(now),
            // No end of the release: the host may have no process or no room left.
            Err(_) => self.restart.fails(now),
        }
        let mut intents = Vec::new();
        let damaged = match started.result {
            Err(NotStarted { why, is_damaged }) => {
                intents.push(Intent::NeedPerson(why.clone()));
                is_damaged.then_some(why)
            }
            Ok(repaired) => {
                intents.push(match &loops {
                    Some(loops) => Intent::NeedPerson(loops.clone()),
                    // The log has the end and the start, or the repair, already.
                    None => Intent::ShowTrouble(
                        how.map(|how| format!("the agent {how} and was started again")).or(repaired),
                    ),
                });
                None
            }
        };
        intents.extend(loops.map(Intent::LeaveLooping));
        intents.extend(damaged.map(Intent::LeaveDamaged));
        intents
    }

    /// Leaves a release in a crash loop for the previous release, once: if it has become current recently, or if it is known not to come up on
    /// the changed host.
    pub fn leave_looping(&self, loops: &str, past: &Past<'_>, now: Timestamp) -> Option<Intent> {
        let new = way_back(past.journal, past.history, past.fall_back_within, now).map(|to| (to, loops.to_owned()));
        let host = || past.off_this_host.clone().map(|(to, why)| (to, format!("{loops}; {why}")));
        let (to, reason) = new.or_else(host).filter(|_| !self.is_left(past))?;
        let unless = format!("{reason}; ");
        Some(Intent::Begin(OwnSwitch { unless: Some(unless), ..OwnSwitch::back(to, reason) }))
    }

    /// Leaves a damaged release that this host can't repair for the previous release, if that is whole: a running agent can be told to fetch the
    /// missing files.
    pub fn leave_damaged(
        &self,
        damaged: &str,
        past: &Past<'_>,
        is_whole: impl FnOnce(&Release) -> bool,
    ) -> Option<Intent> {
        let to = past.journal.previous.clone().filter(|_| past.journal.live.is_none() && !self.is_left(past))?;
        let reason = format!("it could not be started: {damaged}");
        let unless = Some(format!("{damaged}; "));
        is_whole(&to).then(|| Intent::Begin(OwnSwitch { unless, ..OwnSwitch::back(to, reason) }))
    }

    fn is_left(&self, past: &Past<'_>) -> bool {
        self.left.as_ref() == Some(&Tenure::of(past.journal, past.history))
    }

    /// Reports that the switch that leaves the release has begun. It may fail: then the release is not left again.
    pub fn leaves(&mut self, past: &Past<'_>) {
        self.left = Some(Tenure::of(past.journal, past.history));
    }
}

/// When an agent that ended may be started again.
#[derive(Debug, Clone)]
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

    /// Reports that the agent runs at `now`, since boot. An agent that was found running counts as steady.
    pub fn runs(&mut self, now: Duration) {
        let since = *self.since.get_or_insert(Duration::ZERO);
        if now.saturating_sub(since) >= STEADY_AFTER {
            self.pause = self.minimum;
            self.early_ends = 0;
        }
    }

    /// Reports that the agent does not run at `now`; returns the time until its next start.
    pub fn rests(&mut self, now: Duration) -> Duration {
        if let Some(since) = self.since.take() {
            let early = now.saturating_sub(since) < STEADY_AFTER;
            self.early_ends = if early { self.early_ends.saturating_add(1) } else { 0 };
        }
        self.not_before.saturating_sub(now)
    }

    /// Reports a start at `now`.
    pub fn begins(&mut self, now: Duration) {
        self.since = Some(now);
        self.fails(now);
    }

    /// Reports that it could not be started at `now`.
    pub fn fails(&mut self, now: Duration) {
        self.not_before = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.maximum);
    }

    /// True in a crash loop.
    pub fn is_loop(&self) -> bool {
        self.early_ends >= LOOP_ENDS
    }

    /// Describes the crash loop; None: no crash loop. `how`: the last end.
    pub fn trouble(&self, release: &Release, how: Option<&str>) -> Option<String> {
        self.is_loop().then(|| {
            let (ends, pause) = (self.early_ends, self.pause.as_secs_f64());
            let last = how.map_or_else(String::new, |how| format!("; the last process {how}"));
            let steady = STEADY_AFTER.as_secs();
            format!("crash loop: {release} ended {ends} times, each within {steady} s; it is started again every {pause} s{last}")
        })
    }
}

/// Returns the release to go back to from a crash loop, if the current release became current by a switch no longer than `within` ago. None: it
/// has worked here for long, or a rollback led to it; then another release is no remedy.
pub fn way_back(journal: &Journal, history: &History, within: Duration, now: Timestamp) -> Option<Release> {
    let committed = history.entries().iter().rev().find(|entry| entry.result == Phase::Committed)?;
    let is_it = committed.request.purpose == Purpose::Switch && Some(&committed.request.to) == journal.proven.as_ref();
    let age = Duration::try_from(now.duration_since(committed.ended_at)).unwrap_or_default();
    if is_it && age <= within && journal.live.is_none() { journal.previous.clone() } else { None }
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
        let text = restart.trouble(&release, Some("exited with code 1")).unwrap();
        assert!(text.contains("ended 6 times") && text.contains("every 8 s; the last process exited"), "{text}");
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
