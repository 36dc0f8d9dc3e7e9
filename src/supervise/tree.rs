//! The trees of the releases that run: watched, compared with what was signed and repaired as soon as something changes in them, and scrubbed now
//! and then. Other processes of this program do the work: the supervisor itself hashes nothing. A repair is in a hurry, since jobs wait for it; a
//! scrub gives way to everybody.

use super::intent::Intent;
use super::pace::HEALTH_INTERVAL;
use crate::version::Release;
use std::time::Duration;

/// How long changes may go on before the first look at them: whoever deletes a file mostly deletes more.
const GATHER: Duration = Duration::from_millis(200);
/// How long jobs wait for a tree if the word is not renewed.
const HOLD: Duration = Duration::from_secs(8);
/// How often a tree is looked at that can't be watched.
const POLL: Duration = Duration::from_secs(60);
/// So many looks in a row that leave something broken mean that it can't be mended: whoever deletes goes on while the first one mends.
const TRIES: u32 = 4;
/// How soon what could not be mended is tried again; then ever later.
const RETRY_MINIMUM: Duration = Duration::from_secs(60);
const RETRY_MAXIMUM: Duration = Duration::from_secs(60 * 60);
/// How often it is looked whether a scrub is due.
const SCRUB_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// What a repair came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repaired {
    /// The tree is whole, and was.
    NothingToDo,
    /// The tree is whole again.
    Mended,
    /// It is not whole.
    Broken,
}

/// The watch over the running trees. It touches nothing: its intents are acted on, and it is told what came of them.
#[derive(Debug, Clone, Default)]
pub struct TreeWatch {
    /// The releases that are looked after; None: this supervisor has not looked for any yet.
    releases: Option<Vec<Release>>,
    /// Why there is no watch, and the trees are polled.
    unwatched: Option<String>,
    /// When to look next; None: when something changes.
    due: Option<Duration>,
    /// The releases that are still to be looked at in this round.
    round: Vec<Release>,
    /// The release under repair.
    repairing: Option<Release>,
    /// A scrub is under way. It takes its time; a repair does not wait for it.
    scrubbing: bool,
    /// Repairs in a row that left something broken.
    failures: u32,
    /// Until when jobs wait for the tree.
    held: Option<Duration>,
    /// The releases that stay broken.
    broken: Vec<Release>,
    scrub_asked: Option<Duration>,
}

impl TreeWatch {
    /// What stands against the trees.
    pub fn trouble(&self) -> Option<String> {
        let names: Vec<String> = self.broken.iter().map(Release::to_string).collect();
        (!names.is_empty())
            .then(|| format!("{} is damaged and could not be mended: `sidle verify` tells more", names.join(", ")))
    }

    /// Why the trees are polled; None: a watch tells of changes.
    pub fn unwatched(&self) -> Option<&str> {
        self.unwatched.as_deref()
    }

    /// Something has changed in a running tree: jobs that begin now wait until the tree is known to be whole.
    pub fn changed(&mut self, now: Duration) -> Option<Intent> {
        // A retry that is due later stands: what can't be repaired is not tried with every further change.
        self.broken.is_empty().then(|| {
            let soon = now.saturating_add(GATHER);
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
            self.hold(now)
        })?
    }

    /// What is due. `running`: the releases that run, sorted; `scrub`: the release to scrub and how often, where no switch is live.
    pub fn poll(&mut self, running: &[Release], scrub: Option<(&Release, Duration)>, now: Duration) -> Vec<Intent> {
        let mut intents = Vec::new();
        if self.releases.as_deref() != Some(running) {
            // What runs already was left by a supervisor that is gone: nobody saw what has become of its tree since.
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

    /// How long until something is due.
    pub fn rest(&self, now: Duration) -> Duration {
        let until_due = self.due.filter(|_| self.repairing.is_none()).map(|due| due.saturating_sub(now));
        let rest = if self.held.is_some() { HOLD / 4 } else { HEALTH_INTERVAL };
        until_due.map_or(rest, |left| left.min(rest))
    }

    /// The directories are watched, or can't be, because of this.
    pub fn watched(&mut self, result: Result<(), String>, now: Duration) {
        let polled = |why| format!("looked at every {} s, since they can't be watched: {why}", POLL.as_secs());
        self.unwatched = result.err().map(polled);
        if self.unwatched.is_some() {
            let next = now.saturating_add(POLL);
            // The pause before the next try of what can't be repaired stands.
            let sooner = |due: Duration| if self.broken.is_empty() { due.min(next) } else { due };
            self.due = Some(self.due.map_or(next, sooner));
        }
    }

    /// Jobs could not be told to wait: they take what comes.
    pub fn not_held(&mut self) {
        self.held = None;
    }

    /// The repair could not be started, or not be waited for: it is tried again.
    pub fn repair_failed(&mut self, now: Duration) {
        self.repairing = None;
        self.due = Some(now.saturating_add(POLL));
    }

    /// The scrub was not due, or is over.
    pub fn scrub_is_over(&mut self) {
        self.scrubbing = false;
    }

    /// The repair is over. Gives the release, whether it stays broken, and what is due.
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
        // What changed while it was at work.
        let due = self.due.take();
        self.due = if let Some(further) = self.failures.checked_sub(TRIES) {
            let doubled = 1_u32.checked_shl(further).unwrap_or(u32::MAX);
            Some(now.saturating_add(RETRY_MINIMUM.saturating_mul(doubled).min(RETRY_MAXIMUM)))
        } else if result == Repaired::NothingToDo {
            due
        } else {
            // Directories were without a watch for a moment; and what is left may have been broken during the repair.
            Some(now.saturating_add(GATHER))
        };
        // Directories that were made anew have no watch yet.
        let watch = Intent::Watch(self.releases.clone().unwrap_or_default());
        Some((release, is_lasting, Some(watch)))
    }

    /// Renewed while there is work, so that nobody waits for a supervisor that is gone.
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
