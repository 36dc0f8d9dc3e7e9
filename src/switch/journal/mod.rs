//! The journal of an instance: its live switch, its proven and its previous release, as JSON. Pure: [`files`] reads and writes the file.

pub mod claim;
pub mod downtimes;
pub mod files;
pub mod head;
pub mod history;
pub mod hold;
pub mod host_fingerprints;
pub mod kind;
pub mod record;
pub mod repeated;
pub mod request;
pub mod story;
pub mod verdicts;

use crate::failure::Class;
use crate::name::{InstanceName, PackageName};
use crate::saved::{self, SavedError};
use crate::switch::journal::head::Head;
use crate::switch::journal::kind::ProcessKind;
use crate::switch::journal::record::Switch;
use crate::switch::journal::request::{Adopted, Purpose, Request, shortened};
use crate::switch::journal::story::Story;
use crate::switch::machine::phase::Phase;
use crate::switch::machine::{Mode, Outcome};
use crate::switch::schedule::Schedule;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The journal's file name in the instance's state directory.
pub const JOURNAL_NAME: &str = "journal";

/// Longest journal read. Sidle writes one switch with bounded texts and a bounded story, so never more.
pub const JOURNAL_LENGTH_MAXIMUM: u64 = 512 * 1024;

/// The form written and read here.
pub const JOURNAL_SCHEMA: u32 = 1;

/// The journal: the truth about an instance's switches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Journal {
    schema: u32,
    /// The instance.
    pub instance: InstanceName,
    /// The instance's package.
    pub package: PackageName,
    /// The switch under way. An ended switch stays here until it is in the history.
    pub live: Option<Switch>,
    /// The release that passed probation last: `current` names it, and a boot starts it. None: `current` is absent.
    pub proven: Option<Release>,
    /// The proven release before it: a rollback goes there.
    pub previous: Option<Release>,
    /// The number of the last switch; 0: there was no switch yet.
    pub last_id: u64,
}

/// A switch to be written into the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSwitch {
    /// The request.
    pub request: Request,
    /// The mode.
    pub mode: Mode,
    /// The latest time at which the stop of the old process may begin.
    pub deadline: Timestamp,
    /// When it begins; None: at once.
    pub schedule: Option<Schedule>,
    /// Notes for the person who asks, for example why another mode is used.
    pub notes: Vec<String>,
    /// The process to take over from, if sidle did not start it.
    pub adopted: Option<Adopted>,
}

impl Journal {
    /// Makes the first journal of an instance. `proven`: the release that `current` names, if the link exists: it only ever names a proven
    /// release, so that a lost journal is made again from it. `last_id`: the history's, so that no number is used twice.
    pub fn new(instance: InstanceName, package: PackageName, proven: Option<Release>, last_id: u64) -> Self {
        Self { schema: JOURNAL_SCHEMA, instance, package, live: None, proven, previous: None, last_id }
    }

    /// The same journal with this live switch, for dry runs.
    #[must_use]
    pub(in crate::switch) fn with_live(&self, live: Option<Switch>) -> Self {
        Self { live, ..self.clone() }
    }

    /// Adds a new live switch; write the result before any act. `boot`: the id of the present boot.
    pub fn requested(&self, new: NewSwitch, boot: &str, now: Timestamp) -> Result<Self, RequestError> {
        if let Some(live) = &self.live {
            return Err(RequestError::Live { id: live.id, to: live.request.to.clone(), phase: live.phase });
        }
        if let (Some(_), Some(proven)) = (&new.adopted, &self.proven) {
            return Err(RequestError::NotFirst(proven.clone()));
        }
        let there = self.proven.as_ref() == Some(&new.request.to);
        match new.request.purpose {
            Purpose::Restart if !there => return Err(RequestError::NotCurrent(new.request.to)),
            Purpose::Switch | Purpose::Rollback if there => return Err(RequestError::AlreadyCurrent(new.request.to)),
            Purpose::Switch | Purpose::Rollback | Purpose::Restart => {}
        }
        let mut journal = self.clone();
        journal.last_id = self.last_id.saturating_add(1);
        let head = Head {
            id: journal.last_id,
            instance: self.instance.clone(),
            package: self.package.clone(),
            request: new.request.bounded(),
            mode: new.mode,
            from: self.proven.clone(),
            requested_at: now,
            failure: None,
            downtime_milliseconds: 0,
            notes: new.notes.iter().map(|note| shortened(note)).collect(),
            story: Story::default(),
        };
        journal.live = Some(Switch {
            head,
            adopted: new.adopted,
            phase: if new.schedule.is_some() { Phase::Scheduled } else { Phase::Checking },
            phase_since: now,
            deadline: new.deadline,
            schedule: new.schedule,
            boot: boot.to_owned(),
            parted: false,
            peers_down: false,
            baseline: Vec::new(),
            steps: 0,
            setbacks: 0,
            strandings: 0,
            waiting_for: None,
            downtime_since: None,
        });
        Ok(journal)
    }

    /// Moves the live switch on after its act ended with `outcome`. An equal journal need not be written.
    #[must_use]
    pub fn advanced(&self, outcome: &Outcome, now: Timestamp) -> Self {
        let mut journal = self.clone();
        let Some(live) = &self.live else { return journal };
        if live.phase.is_ended() {
            if *outcome == Outcome::Done {
                journal.live = None;
            }
            return journal;
        }
        let switch = live.advanced(outcome, now);
        if live.phase == Phase::Probation && switch.phase == Phase::Flipping {
            journal.commit(&switch.request.to);
        }
        journal.live = Some(switch);
        journal
    }

    /// Moves the live switch on after an absence of its supervisor; write the result before any act. `boot`: the id of the present boot;
    /// `former` and `trial`: the process of that side is alive.
    #[must_use]
    pub fn resumed(&self, boot: &str, former: bool, trial: bool, now: Timestamp) -> Self {
        Self { live: self.live.as_ref().map(|live| live.resumed(boot, former, trial, now)), ..self.clone() }
    }

    /// Sets the baseline: the peers that the running process has reached. After the stop of the old process the baseline stays as it is.
    #[must_use]
    pub fn measured(&self, baseline: Vec<String>) -> Self {
        let mut journal = self.clone();
        if let Some(live) = journal.live.as_mut().filter(|live| live.phase.is_before_stop()) {
            live.baseline = baseline;
        }
        journal
    }

    /// Sets the baseline to the peers that the new process reaches, if no earlier process has shown which peers can be reached.
    #[must_use]
    pub fn needing(&self, baseline: Vec<String>) -> Self {
        let mut journal = self.clone();
        if let Some(live) = journal.live.as_mut() {
            live.baseline = baseline;
        }
        journal
    }

    /// Records whether both processes have lost the peers that the new process lacks.
    #[must_use]
    pub fn with_peers_down(&self, down: bool) -> Self {
        let mut journal = self.clone();
        if let Some(live) = journal.live.as_mut() {
            live.peers_down = down;
        }
        journal
    }

    /// Adds notes to the live switch.
    #[must_use]
    pub fn noted(&self, notes: &[String]) -> Self {
        let mut journal = self.clone();
        if let Some(live) = journal.live.as_mut() {
            for text in notes {
                live.note(text);
            }
        }
        journal
    }

    /// The process that has to serve now; None: no process has to.
    pub fn serving_process(&self) -> Option<ProcessKind<'_>> {
        match &self.live {
            Some(live) => live.serves().and_then(|side| live.which(side)),
            None => self.proven.as_ref().map(|release| ProcessKind::Incumbent { release, switch: None }),
        }
    }

    /// The processes that may run now.
    pub fn allowed(&self) -> Vec<ProcessKind<'_>> {
        match &self.live {
            Some(live) => live.allowed(),
            None => self.serving_process().into_iter().collect(),
        }
    }

    /// The releases that must not be collected (promise 8), in addition to those that a live process leases.
    pub fn in_use(&self) -> impl Iterator<Item = &Release> {
        let live = self.live.iter().flat_map(|live| live.from.iter().chain(std::iter::once(&live.request.to)));
        self.proven.iter().chain(&self.previous).chain(live)
    }

    /// The journal after the end of an adoption: nothing has to run. None: a switch is live.
    pub fn released(&self) -> Option<Self> {
        self.live.is_none().then(|| Self { proven: None, previous: None, ..self.clone() })
    }

    fn commit(&mut self, to: &Release) {
        if self.proven.as_ref() != Some(to) {
            self.previous = self.proven.replace(to.clone());
        }
    }

    /// The file's content: one line of JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        saved::line(self)
    }

    /// Reads the file's content. Refuses a journal that contradicts itself: acting on it could end the wrong process.
    pub fn parse(bytes: &[u8]) -> Result<Self, JournalError> {
        let journal: Self = saved::parse(bytes, JOURNAL_SCHEMA).map_err(JournalError::Saved)?;
        journal.contradiction().map_or(Ok(journal), |text| Err(JournalError::Contradiction(text)))
    }

    /// Returns a contradiction in this journal, if there is any.
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.previous.is_some() && (self.proven.is_none() || self.previous == self.proven) {
            return Some("it has a previous release, but no other proven release");
        }
        let live = self.live.as_ref()?;
        let proven = if live.phase.is_committed() { Some(&live.request.to) } else { live.from.as_ref() };
        let same = live.from.as_ref() == Some(&live.request.to);
        let checks = [
            (live.instance != self.instance || live.package != self.package, "its live switch is another instance's"),
            (live.id != self.last_id, "its live switch does not have the last number"),
            (proven != self.proven.as_ref(), "its proven release does not fit the live switch's phase"),
            (
                (live.request.purpose == Purpose::Restart) != same,
                "its live switch has the wrong purpose for its releases",
            ),
        ];
        checks.into_iter().find_map(|(wrong, text)| wrong.then_some(text))
    }
}

/// Why a switch can't be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Another switch is live.
    #[error("cannot begin a switch: switch {id} to {to} is {phase}")]
    Live {
        /// Its number.
        id: u64,
        /// Its release.
        to: Release,
        /// Its phase.
        phase: Phase,
    },
    /// The release is the current one already.
    #[error("cannot switch to {0}: it is the current release")]
    AlreadyCurrent(Release),
    /// Only the current release can be restarted.
    #[error("cannot restart {0}: it is not the current release")]
    NotCurrent(Release),
    /// An agent can only be adopted by the first switch of an instance.
    #[error("cannot adopt: {0} is the current release already")]
    NotFirst(Release),
}

impl RequestError {
    /// The class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Live { .. } => Class::Conflict,
            Self::AlreadyCurrent(_) | Self::NotFirst(_) => Class::NothingToDo,
            Self::NotCurrent(_) => Class::Usage,
        }
    }

    /// The hint for people.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Live { phase: Phase::Stranded, .. } => {
                Some("the previous release does not come up; `sidle status` says why; cancel that switch to make room for another".to_owned())
            }
            Self::Live { phase, .. } if phase.is_committed() => {
                Some("that switch ends by itself: try again after its end".to_owned())
            }
            Self::Live { .. } => {
                Some("wait for that switch (`sidle status` shows it), or end it with `sidle cancel`".to_owned())
            }
            Self::AlreadyCurrent(_) => Some("to start the current release again, use `sidle restart`".to_owned()),
            Self::NotCurrent(_) => Some("to change to that release, use `sidle switch`".to_owned()),
            Self::NotFirst(_) => Some("`sidle unadopt` gives an adopted agent back".to_owned()),
        }
    }
}

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is damaged, or a newer sidle wrote it.
    #[error("cannot read the journal of switches: {0}")]
    Saved(#[source] SavedError),
    /// It contradicts itself.
    #[error("cannot use the journal of switches: {0}")]
    Contradiction(&'static str),
}

impl JournalError {
    /// The class of the failure.
    pub fn class(&self) -> Class {
        Class::Failed
    }

    /// The hint for people.
    pub fn hint(&self) -> Option<String> {
        let broken =
            "move the file away: sidle then begins a new journal from `current`, which names a release that has worked";
        match self {
            Self::Saved(error) => error.hint(broken),
            Self::Contradiction(_) => Some(broken.to_owned()),
        }
    }
}
