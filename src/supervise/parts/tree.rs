//! The trees of running releases: watched, verified and repaired after each change, and scrubbed at intervals. Worker processes do that; the
//! supervisor itself hashes nothing. A repair has normal priority, since jobs wait for it; a scrub has low priority.

use crate::supervise::intent::Intent;
use crate::supervise::pace::HEALTH_INTERVAL;
use crate::version::Release;
use std::time::Duration;

/// The pause between a change and the repair: a deleted file is mostly followed by others.
const GATHER: Duration = Duration::from_millis(200);
/// How long jobs wait for a tree if the wait is not renewed.
const HOLD: Duration = Duration::from_secs(8);
/// How often a tree without a watch is checked.
const POLL: Duration = Duration::from_secs(60);
/// So many failed repairs in a row count as final: files may still be deleted during the first ones.
const TRIES: u32 = 4;
/// The first pause before a final failure is tried again; each further pause is twice as long.
const RETRY_MINIMUM: Duration = Duration::from_secs(60);
const RETRY_MAXIMUM: Duration = Duration::from_secs(60 * 60);
/// How often the supervisor checks whether a scrub is due.
const SCRUB_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repaired {
    /// The tree was whole.
    NothingToDo,
    /// The tree is whole again.
    Mended,
    /// It is not whole.
    Broken,
}

/// The watch over the running trees. It touches nothing: the supervisor acts on its intents and reports the results to it.
#[derive(Debug, Clone, Default)]
pub struct TreeWatch {
    /// The watched releases; None: before the first poll.
    releases: Option<Vec<Release>>,
    /// Why the trees are polled; None: they are watched.
    unwatched: Option<String>,
    /// The time of the next check; None: after the next change.
    due: Option<Duration>,
    /// The releases that are left in this round of repairs.
    round: Vec<Release>,
    /// The release under repair.
    repairing: Option<Release>,
    /// A scrub is under way; repairs do not wait for it.
    scrubbing: bool,
    /// Failed repairs in a row.
    failures: u32,
    /// Until when jobs wait for the tree.
    held: Option<Duration>,
    /// The releases whose repair has finally failed.
    broken: Vec<Release>,
    scrub_asked: Option<Duration>,
}

impl TreeWatch {
    /// The problem of the trees, for the status.
    pub fn trouble(&self) -> Option<String> {
        let names: Vec<String> = self.broken.iter().map(Release::to_string).collect();
        (!names.is_empty())
            .then(|| format!("{} is damaged and could not be repaired: see `sidle verify`", names.join(", ")))
    }

    /// Why the trees are polled; None: they are watched.
    pub fn unwatched(&self) -> Option<&str> {
        self.unwatched.as_deref()
    }

    /// Reports a change in a running tree: new jobs wait until the tree is verified.
    pub fn changed(&mut self, now: Duration) -> Option<Intent> {
        // After a final failure the next try comes at its time, not with every further change.
        if !self.broken.is_empty() {
            return None;
        }
        let soon = now.saturating_add(GATHER);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        self.hold(now)
    }

    /// Returns the intents that are due. `running`: the running releases, sorted; `scrub`: the release to scrub and how often, without a live switch.
    pub fn poll(&mut self, running: &[Release], scrub: Option<(&Release, Duration)>, now: Duration) -> Vec<Intent> {
        let mut intents = Vec::new();
        if self.releases.as_deref() != Some(running) {
            // A release that ran before this supervisor started was not watched meanwhile, so it is checked now.
            let unseen = self.releases.is_none() && !running.is_empty();
            self.releases = Some(running.to_vec());
            self.broken.clear();
            self.due = None;
            intents.push(Intent::Watch(running.to_vec()));
            if unseen {
                self.due = Some(now.saturating_add(GATHER));
            }
        }
        intents.extend(self.next_repair(now));
        intents.extend(self.next_scrub(scrub, now));
        // Not for what is due in a minute, where trees are polled: jobs would wait for ever.
        let is_due_soon = self.due.is_some_and(|due| due.saturating_sub(now) <= GATHER);
        let is_mending = self.repairing.is_some() || is_due_soon;
        if self.held.is_some() && is_mending && self.broken.is_empty() {
            intents.extend(self.hold(now));
        } else if self.held.take().is_some() {
            intents.push(Intent::HoldJobs(None));
        }
        intents
    }

    /// The time until an intent is due.
    pub fn rest(&self, now: Duration) -> Duration {
        let until_due = self.due.filter(|_| self.repairing.is_none()).map(|due| due.saturating_sub(now));
        let rest = if self.held.is_some() { HOLD / 4 } else { HEALTH_INTERVAL };
        until_due.map_or(rest, |left| left.min(rest))
    }

    /// Reports that the directories are watched, or why they can't be.
    pub fn watched(&mut self, result: Result<(), String>, now: Duration) {
        let polled = |why| format!("checked every {} s, since they can't be watched: {why}", POLL.as_secs());
        self.unwatched = result.err().map(polled);
        if self.unwatched.is_some() {
            let next = now.saturating_add(POLL);
            // After a final failure the pause before the next try stays.
            let sooner = |due: Duration| if self.broken.is_empty() { due.min(next) } else { due };
            self.due = Some(self.due.map_or(next, sooner));
        }
    }

    /// Reports that jobs could not be made to wait.
    pub fn not_held(&mut self) {
        self.held = None;
    }

    /// Reports a repair that could not be started or waited for: it is tried again.
    pub fn repair_failed(&mut self, now: Duration) {
        self.repairing = None;
        self.due = Some(now.saturating_add(POLL));
    }

    /// Reports that the scrub was not due, or is over.
    pub fn scrub_is_over(&mut self) {
        self.scrubbing = false;
    }

    /// Reports the end of a repair. Returns the release, whether the failure is final, and the intent that is due.
    pub fn repaired(&mut self, result: Repaired, now: Duration) -> Option<(Release, bool, Option<Intent>)> {
        let release = self.repairing.take()?;
        self.broken.retain(|broken| *broken != release);
        self.failures = if result == Repaired::Broken { self.failures.saturating_add(1) } else { 0 };
        let is_lasting = self.failures >= TRIES;
        if is_lasting {
            self.broken.push(release.clone());
        }
        if !self.round.is_empty() {
            return Some((release, is_lasting, None));
        }
        // A change during the repair.
        let due = self.due.take();
        self.due = if let Some(further) = self.failures.checked_sub(TRIES) {
            let doubled = 1_u32.checked_shl(further).unwrap_or(u32::MAX);
            Some(now.saturating_add(RETRY_MINIMUM.saturating_mul(doubled).min(RETRY_MAXIMUM)))
        } else if result == Repaired::NothingToDo {
            due
        } else {
            // Directories had no watch for a moment, and files may have been damaged during the repair.
            Some(now.saturating_add(GATHER))
        };
        // New directories have no watch yet.
        let watch = Intent::Watch(self.releases.clone().unwrap_or_default());
        Some((release, is_lasting, Some(watch)))
    }

    /// Makes jobs wait. The wait is short and renewed during the repair, so that no job waits for a supervisor that has died.
    fn hold(&mut self, now: Duration) -> Option<Intent> {
        let is_fresh = |until: Duration| until.saturating_sub(now) > HOLD / 2;
        if self.held.is_some_and(is_fresh) {
            return None;
        }
        self.held = Some(now.saturating_add(HOLD));
        Some(Intent::HoldJobs(self.held))
    }

    fn next_repair(&mut self, now: Duration) -> Option<Intent> {
        if self.repairing.is_some() {
            return None;
        }
        if self.due.is_some_and(|due| due <= now) && self.round.is_empty() {
            self.due = None;
            self.round = self.releases.clone().unwrap_or_default();
        }
        self.repairing = self.round.pop();
        self.repairing.clone().map(Intent::Repair)
    }

    fn next_scrub(&mut self, scrub: Option<(&Release, Duration)>, now: Duration) -> Option<Intent> {
        let is_time = !self.scrubbing && self.scrub_asked.is_none_or(|next| now >= next);
        let (release, every) = scrub.filter(|(_, every)| is_time && !every.is_zero())?;
        self.scrub_asked = Some(now.saturating_add(SCRUB_INTERVAL.min(every)));
        self.scrubbing = true;
        Some(Intent::ScrubIfDue(release.clone()))
    }
}
