//! The parts of the supervisor under every order of events: what they want done is acted on by a model of the host, and everything that may come of
//! it is tried next.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use sidle::os::process::Identity;
use sidle::supervise::adopting::Unadoption;
use sidle::supervise::configuration::ConfigurationCheck;
use sidle::supervise::control::SwitchCommand;
use sidle::supervise::host_change::{HostChangeWatch, HostFacts};
use sidle::supervise::intent::Intent;
use sidle::supervise::keeper::{Due, Keeper, NotStarted, Past, Restart, Started};
use sidle::supervise::tree::{Repaired, TreeWatch};
use sidle::switch::schedule::When;
use sidle::switch::{History, Journal, Mode, Purpose, Request};
use sidle::version::Release;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Events in a row. Beyond this nothing new was seen: a fourth failure in a row, a retry and a change fit in.
const DEPTH: u32 = 7;

fn release(text: &str) -> Release {
    text.parse().unwrap()
}

/// A host with trees.
#[derive(Clone)]
struct Trees {
    watch: TreeWatch,
    now: Duration,
    running: Vec<Release>,
    repairing: bool,
    held: Option<Duration>,
    /// The watch can't be had.
    blind: bool,
    /// Repairs in a row that left something broken.
    failures: u32,
}

impl Trees {
    fn act(&mut self, intents: impl IntoIterator<Item = Intent>) {
        for intent in intents {
            match intent {
                Intent::Repair(release) => {
                    assert!(!self.repairing, "two repairs at a time");
                    assert!(self.running.contains(&release), "{release} does not run");
                    self.repairing = true;
                }
                Intent::HoldJobs(until) => {
                    assert!(until.is_none_or(|until| until > self.now), "jobs are to wait until a time that is over");
                    self.held = until;
                }
                Intent::Watch(releases) => {
                    assert_eq!(releases, self.running, "it watches what does not run");
                    let result = if self.blind { Err("no watch is left".to_owned()) } else { Ok(()) };
                    self.watch.watched(result, self.now);
                }
                Intent::ScrubIfDue(_) => self.watch.scrub_is_over(),
                other => panic!("{other:?} is not the business of trees"),
            }
        }
    }

    fn poll(&mut self) {
        let intents =
            self.watch.poll(&self.running.clone(), self.running.first().map(|first| (first, 60 * SECOND)), self.now);
        self.act(intents);
        assert!(self.held.is_none() || self.watch.rest(self.now) <= 3 * SECOND, "the word to wait would run out");
        assert!(!self.watch.rest(self.now).is_zero(), "the supervisor would turn and turn: {:?}", self.watch);
    }

    fn end_repair(&mut self, result: Repaired) {
        if std::mem::take(&mut self.repairing) {
            self.failures = if result == Repaired::Broken { self.failures + 1 } else { 0 };
            let (_, is_lasting, intent) = self.watch.repaired(result, self.now).unwrap();
            assert_eq!(is_lasting, self.failures >= 4);
            self.act(intent);
        }
    }

    fn after(&self, event: u32) -> Self {
        let mut next = self.clone();
        match event {
            0 => next.now += SECOND / 4,
            1 => next.now += 61 * SECOND,
            2 => {
                let intent = next.watch.changed(next.now);
                next.act(intent);
                let gives_up = next.watch.trouble().is_some();
                assert!(gives_up || next.held.is_some_and(|until| until > next.now), "jobs run on a changed tree");
            }
            3 => next.end_repair(Repaired::NothingToDo),
            4 => next.end_repair(Repaired::Mended),
            5 => next.end_repair(Repaired::Broken),
            _ => next.blind = !next.blind,
        }
        next.poll();
        next
    }

    fn walk(&self, left: u32) -> u32 {
        self.clone().comes_to_rest();
        if left == 0 {
            return 1;
        }
        (0..7).map(|event| self.after(event).walk(left - 1)).sum()
    }

    /// Once nothing changes any more, jobs wait for nothing.
    fn comes_to_rest(mut self) {
        for _ in 0..8 {
            self.end_repair(Repaired::NothingToDo);
            self.poll();
            self.now += SECOND;
        }
        assert!(self.held.is_none(), "jobs wait for ever: {:?}", self.watch);
    }
}

#[test]
fn jobs_wait_for_a_changed_tree_and_never_for_ever() {
    let mut walked = 0;
    for running in [vec![release("1.0-1")], vec![release("1.0-1"), release("1.1-1")]] {
        let watch = TreeWatch::default();
        let mut trees =
            Trees { watch, now: 100 * SECOND, running, repairing: false, held: None, blind: false, failures: 0 };
        trees.poll();
        walked += trees.walk(if cfg!(debug_assertions) { DEPTH - 2 } else { DEPTH });
    }
    assert!(walked > 10_000, "{walked}");
}

#[test]
fn a_tree_that_cannot_be_mended_is_tried_ever_more_rarely_and_holds_nobody() {
    let watch = TreeWatch::default();
    let running = vec![release("1.0-1")];
    let mut trees = Trees { watch, now: SECOND, running, repairing: false, held: None, blind: false, failures: 0 };
    trees.poll();
    let mut began = Vec::new();
    for _ in 0..200_000 {
        if trees.repairing {
            began.push(trees.now);
            trees.end_repair(Repaired::Broken);
        }
        trees.now += SECOND / 4;
        let intent = trees.watch.changed(trees.now);
        trees.act(intent);
        trees.poll();
    }
    let pauses: Vec<u64> = began.windows(2).map(|pair| pair[1].as_secs() - pair[0].as_secs()).collect();
    assert!(pauses.is_sorted() && pauses.last() == Some(&3_600), "{pauses:?}");
    assert!(trees.held.is_none() && trees.watch.trouble().is_some());
}

fn journal() -> Journal {
    let mut journal = Journal::new("demo".parse().unwrap(), "demo".parse().unwrap(), Some(release("1.1-1")), 1);
    journal.previous = Some(release("1.0-1"));
    journal
}

/// An agent that may end, and what its keeper has done.
#[derive(Clone)]
struct Agent {
    keeper: Keeper,
    now: Duration,
    runs: bool,
    last_start: Option<Duration>,
    began: u32,
}

impl Agent {
    fn after(&self, event: u32) -> Self {
        let mut next = self.clone();
        match event {
            0 => next.now += SECOND / 2,
            1 => next.now += 61 * SECOND,
            2 => next.runs = false,
            _ => {}
        }
        if next.keeper.due(next.runs, next.now, SECOND) != Due::Start {
            return next;
        }
        assert!(!next.runs, "what runs is started");
        let pause = next.last_start.map_or(SECOND, |last| next.now.saturating_sub(last));
        assert!(pause >= SECOND, "it is started again after {pause:?}");
        let damaged = || NotStarted { why: "bin/agent has other content".to_owned(), is_damaged: true };
        let result = if event == 3 { Err(damaged()) } else { Ok(None) };
        next.runs = result.is_ok();
        next.last_start = Some(next.now);
        let ended = Some("exited with code 1".to_owned());
        let intents = next.keeper.started(Started { release: Some(release("1.1-1")), ended, result }, next.now);
        for intent in intents {
            next.act(intent);
        }
        next
    }

    fn act(&mut self, intent: Intent) {
        let (journal, history) = (journal(), History::default());
        let off_this_host = Some((release("1.0-1"), "its library is gone".to_owned()));
        let past = Past { journal: &journal, history: &history, fall_back_within: SECOND, off_this_host };
        let begun = match intent {
            Intent::LeaveLooping(loops) => self.keeper.leave_looping(&loops, &past, jiff::Timestamp::UNIX_EPOCH),
            Intent::LeaveDamaged(why) => self.keeper.leave_damaged(&why, &past, |_| true),
            Intent::NeedPerson(_) | Intent::ShowTrouble(_) => None,
            other => panic!("{other:?} is not the business of a keeper"),
        };
        if let Some(Intent::Begin(own)) = begun {
            assert_eq!((own.purpose, own.to, own.mode), (Purpose::Rollback, release("1.0-1"), Some(Mode::Now)));
            self.keeper.leaves(&past);
            self.began += 1;
        }
    }

    fn walk(&self, left: u32) {
        assert!(self.began <= 1, "a crash loop or a damage leads back once, not {} times", self.began);
        for event in (0..4).filter(|_| left > 0) {
            self.after(event).walk(left - 1);
        }
    }
}

#[test]
fn an_agent_that_ends_is_started_after_a_pause_and_left_once() {
    let keeper = Keeper::new(Restart::new(SECOND, 8 * SECOND));
    Agent { keeper, now: 100 * SECOND, runs: false, last_start: None, began: 0 }.walk(DEPTH + 1);
    // As long as it takes: six ends are a loop.
    let keeper = Keeper::new(Restart::new(SECOND, SECOND));
    let mut agent = Agent { keeper, now: 100 * SECOND, runs: false, last_start: None, began: 0 };
    for _ in 0..100 {
        agent = agent.after(2).after(0);
    }
    assert_eq!(agent.began, 1);
}

/// A release that was left once was left for good by its supervisor: the next one that looped stayed. And a switch that could not begin was not tried again.
#[test]
fn each_commit_is_left_once_and_only_a_switch_that_began_counts() {
    let mut keeper = Keeper::new(Restart::new(SECOND, SECOND));
    let (journal, history) = (journal(), History::default());
    let off_this_host = Some((release("1.0-1"), "its library is gone".to_owned()));
    let past = Past { journal: &journal, history: &history, fall_back_within: SECOND, off_this_host };
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert!(keeper.leave_looping("it loops", &past, now).is_some());
    assert!(keeper.leave_looping("it loops", &past, now).is_some(), "the first one did not begin");
    keeper.leaves(&past);
    assert!(keeper.leave_looping("it loops", &past, now).is_none());
    assert!(keeper.leave_damaged("it is damaged", &past, |_| true).is_none());
    let mut next = journal.clone();
    next.proven = Some(release("1.2-1"));
    let past = Past { journal: &next, ..past };
    assert!(keeper.leave_looping("it loops", &past, now).is_some(), "another release");
}

/// Five starts that the host refused were a crash loop, which led to a rollback.
#[test]
fn a_start_that_the_host_refuses_is_no_end_of_the_release() {
    let mut keeper = Keeper::new(Restart::new(SECOND, SECOND));
    let mut now = 100 * SECOND;
    for _ in 0..20 {
        while keeper.due(false, now, SECOND) != Due::Start {
            now += SECOND / 2;
        }
        let result = Err(NotStarted { why: "no process is left".to_owned(), is_damaged: false });
        let started = Started { release: Some(release("1.1-1")), ended: None, result };
        let intents = keeper.started(started, now);
        assert!(!intents.iter().any(|intent| matches!(intent, Intent::LeaveLooping(_))), "{intents:?}");
    }
}

#[test]
fn others_are_waited_for_as_long_as_the_limit() {
    let mut keeper = Keeper::new(Restart::new(SECOND, SECOND));
    assert!(keeper.others(false, 30 * SECOND, 100 * SECOND) && keeper.others(false, 30 * SECOND, 129 * SECOND));
    assert!(!keeper.others(false, 30 * SECOND, 130 * SECOND), "who never ends must not keep a successor from running");
    assert!(!keeper.others(true, 30 * SECOND, 131 * SECOND) && keeper.others(false, 30 * SECOND, 140 * SECOND));
}

#[test]
fn the_host_is_looked_at_beside_no_switch_and_one_rehearsal_runs_at_a_time() {
    fn walk(watch: &HostChangeWatch, rehearsing: bool, now: Duration, left: u32) {
        for event in (0..6).filter(|_| left > 0) {
            let (mut watch, mut rehearsing, mut now) = (watch.clone(), rehearsing, now);
            let is_switching = event == 0;
            now += if event <= 1 { 61 * SECOND } else { SECOND };
            match event {
                2 if rehearsing => {
                    watch.rehearsed(now);
                    rehearsing = false;
                }
                3 if rehearsing => {
                    watch.failed("no room".to_owned(), 60 * SECOND, now);
                    rehearsing = false;
                    assert_eq!(watch.trouble(), Some("no room"));
                }
                _ => {}
            }
            let facts = HostFacts { is_switching, is_settled: event == 4, start_limit: 120 * SECOND };
            match watch.poll(facts, now) {
                Some(Intent::CheckHost) => {
                    assert!(!is_switching && !rehearsing);
                    rehearsing = event != 5;
                    watch.checked(rehearsing, 60 * SECOND, now);
                }
                Some(Intent::PollRehearsal) => assert!(rehearsing && !is_switching),
                Some(Intent::StopRehearsal) => assert!(std::mem::take(&mut rehearsing) && is_switching),
                None => assert!(is_switching || !rehearsing),
                other => panic!("{other:?} is not the business of this watch"),
            }
            assert!(!(is_switching && rehearsing), "a switch and a rehearsal of the host's change at a time");
            let spins = watch.rest(facts, now).is_zero() && watch.clone().poll(facts, now).is_none();
            assert!(!spins, "the supervisor would turn and turn: {watch:?}");
            walk(&watch, rehearsing, now, left - 1);
        }
    }
    walk(&HostChangeWatch::default(), false, 100 * SECOND, DEPTH - 1);
}

#[test]
fn a_configuration_is_compared_once_and_after_the_switch() {
    let request = Request {
        purpose: Purpose::Restart,
        to: release("1.1-1"),
        reason: String::new(),
        by: "root".to_owned(),
        origin: None,
    };
    let command = SwitchCommand { request, mode: None, deadline_seconds: 1, force: false, when: When::default() };
    let asked = ConfigurationCheck::Asked { number: 1, since: SECOND, switch: Box::new(command.clone()) };
    for (mut part, answer, wanted) in [
        (ConfigurationCheck::NotWanted, Some(Ok(())), vec![]),
        (ConfigurationCheck::Later, None, vec![Intent::CompareConfiguration, Intent::ForgetConfiguration]),
        (asked.clone(), None, vec![]),
        (asked.clone(), Some(Ok(())), vec![Intent::ForgetConfiguration]),
        (
            asked,
            Some(Err("a master".to_owned())),
            vec![
                Intent::RestartUnhealthy(Box::new(command.clone()), "a master".to_owned()),
                Intent::ForgetConfiguration,
            ],
        ),
    ] {
        let before = part.clone();
        assert_eq!((part.poll(true, answer.clone()), &part), (vec![], &before), "a switch comes first");
        assert_eq!(part.poll(false, answer.clone()), wanted);
        assert!(wanted.is_empty() || part.poll(false, answer).is_empty(), "it is done once");
    }
}

#[test]
fn an_agent_is_given_back_until_the_deadline_and_not_beside_a_switch() {
    let mut part = Unadoption::default();
    assert!(!part.is_due(false, SECOND));
    part.begin(10 * SECOND, None);
    assert!(part.is_due(false, 9 * SECOND) && !part.is_due(false, 10 * SECOND) && !part.is_due(false, SECOND));
    part.begin(10 * SECOND, None);
    assert!(!part.is_due(true, SECOND) && !part.is_due(false, SECOND), "a switch ends it");
}

/// The agent was ended for a command that had gone, and nobody started the package's.
#[test]
fn an_agent_is_given_back_only_to_a_command_that_still_waits() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let asker = Identity::of(child.id()).unwrap();
    let mut part = Unadoption::default();
    part.begin(10 * SECOND, asker);
    assert!(part.is_due(false, SECOND));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!part.is_due(false, SECOND));
}
