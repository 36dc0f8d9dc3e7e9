//! The mirrors of one repository: the next to ask, the pauses after failures, and the mirrors that are given up in this run.

use super::directory;
use super::error::{Blame, FetchError, MirrorFailure};
use super::fault::Fault;
use super::inflate;
use super::location::{FilePath, Location};
use super::notice::{Instead, Notice};
use super::pace;
use super::reply::{Ask, Coding, Presence, Reply};
use super::settings::{DownloadSettings, Patience};
use super::stdio::Stdio;
use super::stream::{Meter, Stream};
use super::transport::{Http, Reactor};
use crate::os::{clock, random};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tracing::debug;

/// All mirrors, in the order of the settings.
pub(super) struct Mirrors<'a> {
    all: Vec<Mirror>,
    /// True if the only mirror is `stdio:by-hand`: a person brings the repository.
    pub(super) by_hand: bool,
    patience: Patience,
    tell: &'a dyn Fn(&Notice),
    pub(super) meter: Meter,
}

struct Mirror {
    name: String,
    place: Place,
    /// Failures in a row.
    failures: u32,
    /// Not asked before this time since boot.
    not_before: Duration,
    /// Why it is given up.
    out: Option<MirrorFailure>,
    way: Way,
    validators: Validators,
}

enum Place {
    Http(Box<Http>),
    Directory(PathBuf),
    Stdio(Stdio),
}

/// How a mirror gives parts of a payload. Cheaper ways come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// By ranges of the payload.
    Ranges,
    /// By the frames' own files.
    FrameFiles,
    /// By the whole payload; the rest is skipped.
    Whole,
}

/// Whether a mirror's validators are used. Every frame is hashed: without validators only time is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validators {
    /// They are sent back with further ranges.
    Used,
    /// They differ between answers (several servers behind one name).
    Ignored,
}

/// The search for one file among the mirrors.
#[derive(Debug)]
pub(super) struct Quest {
    wanted: String,
    without: BTreeSet<usize>,
    failures: Vec<(usize, MirrorFailure, bool)>,
}

impl Quest {
    pub(super) fn new(wanted: impl Into<String>) -> Self {
        Self { wanted: wanted.into(), without: BTreeSet::new(), failures: Vec::new() }
    }

    /// The mirrors that sent unsigned bytes.
    pub(super) fn wrong(&self) -> Vec<usize> {
        let is_wrong =
            |(index, failure, _): &(usize, MirrorFailure, bool)| (failure.blame == Blame::WrongBytes).then_some(*index);
        self.failures.iter().filter_map(is_wrong).collect()
    }

    /// How many mirrors are left out.
    pub(super) fn left_out(&self) -> usize {
        self.without.len()
    }
}

impl<'a> Mirrors<'a> {
    pub(super) fn new(settings: &DownloadSettings, tell: &'a dyn Fn(&Notice)) -> Result<Self, FetchError> {
        if settings.mirrors.is_empty() {
            return Err(FetchError::NoMirror);
        }
        let reactor = Reactor::new()?;
        let all = settings.mirrors.iter().map(|mirror| {
            let place = match &mirror.location {
                Location::Directory(path) => Place::Directory(path.clone()),
                Location::Stdio | Location::StdioByHand => Place::Stdio(Stdio::default()),
                Location::Http(url) => {
                    let client = Http::new(url, &mirror.access, &settings.proxy, &settings.patience, reactor.clone())?;
                    Place::Http(Box::new(client))
                }
            };
            Ok(Mirror {
                name: mirror.location.name(),
                place,
                failures: 0,
                not_before: Duration::ZERO,
                out: None,
                way: Way::Ranges,
                validators: Validators::Used,
            })
        });
        let all = all.collect::<Result<_, FetchError>>()?;
        let meter = Meter::new(settings.rate_limit, &settings.patience);
        let by_hand = settings.mirrors.iter().all(|mirror| mirror.location == Location::StdioByHand);
        Ok(Self { all, by_hand, patience: settings.patience, tell, meter })
    }

    pub(super) fn tell(&self, notice: &Notice) {
        (self.tell)(notice);
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.all[index].name
    }

    pub(super) fn are_directories(&self) -> bool {
        self.all.iter().all(|mirror| matches!(mirror.place, Place::Directory(_)))
    }

    pub(super) fn way(&self, index: usize) -> Way {
        self.all[index].way
    }

    pub(super) fn validators(&self, index: usize) -> Validators {
        self.all[index].validators
    }

    pub(super) fn ignore_validators(&mut self, index: usize) {
        self.all[index].validators = Validators::Ignored;
    }

    /// Takes the next way: ranges do not get through, or the mirror has no files of frames.
    pub(super) fn fall_back(&mut self, index: usize) {
        let (way, instead) = match self.all[index].way {
            Way::Ranges => (Way::FrameFiles, Instead::FrameFiles),
            Way::FrameFiles | Way::Whole => (Way::Whole, Instead::WholePayload),
        };
        self.all[index].way = way;
        self.tell(&Notice::NoRanges { mirror: self.all[index].name.clone(), instead });
    }

    /// The first mirror, in the order of the settings, that may be asked. Waits while all of them pause.
    pub(super) fn choose(&self, quest: &Quest) -> Result<usize, FetchError> {
        self.choose_by(quest, |_| ())
    }

    /// The same for parts of a payload: cheaper ways first.
    pub(super) fn choose_cheapest(&self, quest: &Quest) -> Result<usize, FetchError> {
        self.choose_by(quest, |mirror| mirror.way)
    }

    fn choose_by<K: Ord>(&self, quest: &Quest, rank: impl Fn(&Mirror) -> K) -> Result<usize, FetchError> {
        loop {
            let left = self
                .meter
                .time_left()
                .ok_or_else(|| FetchError::OutOfTime { wanted: quest.wanted.clone(), total: self.patience.total })?;
            let askable = |index: &usize| self.all[*index].out.is_none() && !quest.without.contains(index);
            let askable: Vec<usize> = (0..self.all.len()).filter(askable).collect();
            let now = clock::since_boot();
            let ready = askable.iter().copied().filter(|index| self.all[*index].not_before <= now);
            if let Some(index) = ready.min_by_key(|index| (rank(&self.all[*index]), *index)) {
                return Ok(index);
            }
            let next = askable.iter().map(|index| self.all[*index].not_before).min();
            let pause = next.ok_or_else(|| self.verdict(quest))?.saturating_sub(now).min(left);
            self.tell(&Notice::Waiting { pause });
            clock::sleep(pause);
        }
    }

    /// Whether every mirror has wrong bytes, so that trying again soon is useless. An unreachable mirror may have the right ones.
    pub(super) fn are_all_wrong(&self, quest: &Quest) -> bool {
        let is_wrong = |blame| blame == Blame::WrongBytes;
        let may_be_right = |(index, mirror): (usize, &Mirror)| match quest.failures.iter().find(|(at, ..)| *at == index)
        {
            Some((_, failure, is_absent)) => !*is_absent && failure.blame == Blame::Unavailable,
            None => mirror.out.as_ref().is_none_or(|out| out.blame == Blame::Unavailable),
        };
        quest.failures.iter().any(|(_, failure, _)| is_wrong(failure.blame))
            && !self.all.iter().enumerate().any(may_be_right)
    }

    /// The number of mirrors.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Leaves out a mirror that had wrong bytes in an earlier run.
    pub(super) fn leave_out(&self, index: usize, quest: &mut Quest, until: jiff::Timestamp) {
        let reason = format!("it sent other bytes than were signed; not asked again before {until}");
        let failure = MirrorFailure { mirror: self.all[index].name.clone(), reason, blame: Blame::WrongBytes };
        quest.without.insert(index);
        quest.failures.push((index, failure, false));
    }

    fn verdict(&self, quest: &Quest) -> FetchError {
        let unknown = |mirror: &Mirror| mirror.out.as_ref().is_some_and(|out| out.blame == Blame::Unavailable);
        let absent = !quest.failures.is_empty() && quest.failures.iter().all(|(_, _, is_absent)| *is_absent);
        if absent && !self.all.iter().any(unknown) {
            return FetchError::NotFound { name: quest.wanted.clone() };
        }
        let each = self.all.iter().enumerate().filter_map(|(index, mirror)| {
            let here = quest.failures.iter().find(|(at, ..)| *at == index).map(|(_, failure, _)| failure);
            here.or(mirror.out.as_ref()).cloned()
        });
        FetchError::of_mirrors(&quest.wanted, each.collect())
    }

    /// Forgets a mirror's failures: it made progress.
    pub(super) fn succeeded(&mut self, index: usize) {
        self.all[index].failures = 0;
    }

    /// Counts a mirror's failure: it pauses, is left out of this quest, or is given up.
    pub(super) fn failed(&mut self, index: usize, quest: &mut Quest, fault: &Fault) {
        let failure = MirrorFailure::new(&self.all[index].name, fault);
        let (mirror, reason) = (failure.mirror.clone(), failure.reason.clone());
        let state = &mut self.all[index];
        let notice = match fault {
            Fault::OutOfTime => return,
            Fault::NotFound | Fault::Forbidden => {
                quest.without.insert(index);
                None
            }
            Fault::Temporary { retry_after, .. } => {
                state.failures += 1;
                if state.failures < self.patience.attempts {
                    let pause = jittered(pace::pause(self.patience.pause, state.failures));
                    let pause = retry_after.unwrap_or_default().max(pause);
                    state.not_before = clock::since_boot().saturating_add(pause);
                    Some(Notice::Failed { mirror, reason, pause })
                } else {
                    state.out = Some(failure.clone());
                    Some(Notice::GivenUp { mirror, reason })
                }
            }
            Fault::Refused { .. } => {
                state.out = Some(failure.clone());
                Some(Notice::GivenUp { mirror, reason })
            }
            Fault::WrongAnswer { .. } | Fault::WrongBytes { .. } | Fault::Untrusted { .. } => {
                state.out = Some(failure.clone());
                Some(Notice::Evil { mirror, reason })
            }
        };
        quest.failures.retain(|(at, ..)| *at != index);
        quest.failures.push((index, failure, *fault == Fault::NotFound));
        if let Some(notice) = notice {
            self.tell(&notice);
        }
    }

    /// Asks a mirror for a file, or for a range of it.
    pub(super) fn ask(&self, index: usize, path: &FilePath, ask: Ask) -> Result<Reply, Fault> {
        let ask = Ask { patience: self.meter.patience()?, ..ask };
        debug!("mirror {} of the settings is asked for {path}", index + 1);
        match &self.all[index].place {
            Place::Http(http) => http.get(path, &ask),
            Place::Directory(root) => directory::get(root, path, &ask),
            Place::Stdio(stdio) => stdio.get(path, &ask),
        }
    }

    /// Whether a mirror has a file, where that question is cheaper than the file.
    pub(super) fn presence(&self, index: usize, path: &FilePath) -> Result<Presence, Fault> {
        match &self.all[index].place {
            Place::Http(http) => http.presence(path, self.meter.patience()?),
            Place::Directory(_) | Place::Stdio(_) => Ok(Presence::Possible),
        }
    }

    /// The body of an answer, to be read.
    pub(super) fn stream(&self, reply: Reply) -> Stream {
        Stream::new(reply.body, &self.patience)
    }

    /// A whole file of at most `maximum` bytes.
    pub(super) fn small_file(&mut self, index: usize, path: &FilePath, maximum: u64) -> Result<Vec<u8>, Fault> {
        let reply = self.ask(index, path, Ask { coding: path.coding(), ..Ask::whole(maximum) })?;
        if reply.coding == Coding::Gzip {
            let reply = reply.at_most(inflate::compressed_maximum(maximum))?;
            let (mut bytes, mut stream) = (Vec::new(), self.stream(reply));
            inflate::read_all(&mut stream, &mut self.meter, &mut bytes, maximum)?;
            return Ok(bytes);
        }
        let reply = reply.at_most(maximum)?;
        let announced = reply.length;
        let (mut bytes, mut stream) = (Vec::new(), self.stream(reply));
        stream.read_all(&mut self.meter, &mut bytes, maximum)?;
        match announced.filter(|announced| *announced != bytes.len() as u64) {
            Some(announced) => Err(Fault::temporary(format!("it sent {} bytes of {announced}", bytes.len()))),
            None => Ok(bytes),
        }
    }
}

/// A random time between half of the pause and all of it: hosts that failed together come back at different times.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let most = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half + Duration::from_nanos(random::up_to(most).unwrap_or(most))
}
