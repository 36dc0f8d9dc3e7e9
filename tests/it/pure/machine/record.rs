//! What a switch, its journal and its history remember and say.

use jiff::{Timestamp, ToSpan as _};
use sidle::failure::Class;
use sidle::saved::{Saved as _, SavedError};
use sidle::switch::journal::JOURNAL_LENGTH_MAXIMUM;
use sidle::switch::journal::history::{HISTORY_ENTRIES_MAXIMUM, HISTORY_LENGTH_MAXIMUM, STORIES_MAXIMUM};
use sidle::switch::journal::kind::ProcessKind;
use sidle::switch::journal::story::STEPS_KEPT_MAXIMUM;
use sidle::switch::journal::verdicts::Verdicts;
use sidle::switch::machine::{self, Course, Former, SETBACKS_MAXIMUM, STEPS_MAXIMUM, Survivors};
use sidle::switch::{
    Cause, Ending, Entry, History, Journal, JournalError, Limits, Mode, NewSwitch, Outcome, Phase, Purpose, Request,
    RequestError, Side,
};
use sidle::version::Release;
use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

const LIMITS: Limits = Limits {
    stop: Duration::from_secs(30),
    start: Duration::from_secs(120),
    rehearsal: Duration::from_secs(120),
    rebuild: Duration::ZERO,
    drain: Duration::from_secs(1_800),
    retire: Duration::from_secs(1_800),
    probation: Duration::from_secs(60),
    pause_minimum: Duration::from_secs(5),
    pause_maximum: Duration::from_secs(300),
};

const ALIVE: Survivors = Survivors::Alive { former: true, trial: true };
const GONE: Survivors = Survivors::Alive { former: false, trial: false };

/// `seconds` into the test.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// The release that is meant to serve.
fn meant(journal: &Journal) -> Option<&Release> {
    journal.serving_process().and_then(ProcessKind::release)
}

fn request(purpose: Purpose, to: &str) -> NewSwitch {
    let (to, reason, by) = (to.parse().unwrap(), "a test".to_owned(), "root".to_owned());
    NewSwitch {
        request: Request { purpose, to, reason, by, origin: None },
        mode: Mode::Idle,
        deadline: at(0) + 30.minutes(),
        schedule: None,
        notes: Vec::new(),
        adopted: None,
    }
}

fn blank(proven: Option<&str>) -> Journal {
    let proven = proven.map(|release| release.parse().unwrap());
    Journal::new("demo-2".parse().unwrap(), "demo".parse().unwrap(), proven, 0)
}

/// A switch that was checked and is being rehearsed.
fn begun(purpose: Purpose, proven: Option<&str>, to: &str) -> Journal {
    let mut journal = blank(proven).requested(request(purpose, to), "boot 1", at(0)).unwrap();
    journal.live.as_mut().unwrap().phase = Phase::Rehearsing;
    journal
}

/// The journal after these outcomes, one each second.
fn after(journal: Journal, outcomes: &[Outcome]) -> Journal {
    (1..).zip(outcomes).fold(journal, |journal, (seconds, outcome)| journal.advanced(outcome, at(seconds)))
}

fn done(times: usize) -> Vec<Outcome> {
    vec![Outcome::Done; times]
}

fn failed() -> Outcome {
    Outcome::Failed("no peer answers".to_owned())
}

fn in_phase(phase: Phase) -> Journal {
    let mut journal = begun(Purpose::Switch, Some("1.0-1"), "2.0-1");
    journal.live.as_mut().unwrap().phase = phase;
    if phase.is_committed() {
        journal.previous = journal.proven.replace("2.0-1".parse().unwrap());
    }
    journal
}

#[test]
fn a_commit_is_one_write_and_makes_the_old_release_the_previous_one() {
    let journal = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(6));
    assert_eq!(journal.live.as_ref().unwrap().phase, Phase::Probation);
    assert_eq!((&journal.proven, &journal.previous), (&Some("1.0-1".parse().unwrap()), &None));
    let journal = journal.advanced(&Outcome::Done, at(70));
    assert_eq!(journal.live.as_ref().unwrap().phase, Phase::Flipping);
    assert_eq!(journal.proven, Some("2.0-1".parse().unwrap()));
    assert_eq!(journal.previous, Some("1.0-1".parse().unwrap()));
    assert_eq!(meant(&journal), journal.proven.as_ref());
    let journal = after(journal, &done(2));
    assert_eq!((journal.live.as_ref(), journal.last_id), (None, 1));
    assert_eq!(meant(&journal), journal.proven.as_ref());
    assert_eq!(journal.in_use().count(), 2);
    let again = journal.requested(request(Purpose::Rollback, "1.0-1"), "boot 1", at(0)).unwrap();
    assert_eq!(again.live.unwrap().id, 2);
}

#[test]
fn a_restart_does_not_forget_the_previous_release() {
    let switched = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(9));
    let restarted = switched.requested(request(Purpose::Restart, "2.0-1"), "boot 1", at(0)).unwrap();
    let restarted = after(restarted, &done(10));
    assert_eq!(restarted.live, None);
    assert_eq!((&restarted.proven, &restarted.previous), (&switched.proven, &switched.previous));
}

#[test]
fn the_downtime_is_from_the_stop_to_the_proof() {
    let journal = begun(Purpose::Switch, Some("1.0-1"), "2.0-1");
    // Checked at 1 s, idle at 2 s, stopping from 3 s on, proven at 6 s.
    let stopped = after(journal.clone(), &done(5));
    assert_eq!(stopped.live.as_ref().unwrap().downtime(at(5)), Duration::from_secs(2));
    let proven = after(journal, &done(6));
    assert_eq!(proven.live.as_ref().unwrap().downtime(at(50)), Duration::from_secs(3));
    // A flap from 10 s to 14 s is a downtime, too.
    let flapped = proven.advanced(&failed(), at(10)).advanced(&Outcome::Done, at(14));
    assert_eq!(flapped.live.as_ref().unwrap().downtime(at(50)), Duration::from_secs(7));
    let first = after(begun(Purpose::Switch, None, "2.0-1"), &done(3));
    assert_eq!(first.live.as_ref().unwrap().downtime(at(50)), Duration::ZERO);
    let mut clock_set_back = stopped;
    clock_set_back.live.as_mut().unwrap().downtime_since = Some(at(900));
    assert_eq!(clock_set_back.live.unwrap().downtime(at(5)), Duration::ZERO);
}

#[test]
fn probation_ends_only_with_a_healthy_look_after_its_time() {
    let seconds = Duration::from_secs;
    let live = in_phase(Phase::Probation).live.unwrap();
    let early = live.in_time(Outcome::Done, seconds(59), at(0), &LIMITS);
    assert_eq!(early, Outcome::NotYet("its probation has not ended yet".to_owned()));
    assert_eq!(live.in_time(Outcome::Done, seconds(60), at(0), &LIMITS), Outcome::Done);
    assert_eq!(live.in_time(Outcome::NotYet(String::new()), seconds(60), at(0), &LIMITS), Outcome::Expired);
    assert_eq!(live.in_time(failed(), seconds(99), at(0), &LIMITS), failed());
}

#[test]
fn the_deadline_counts_before_the_stop_and_the_limits_after_it() {
    let not_yet = Outcome::NotYet("a job runs".to_owned());
    let deadline = at(0) + 30.minutes();
    for phase in Phase::ALL {
        let live = in_phase(phase).live.unwrap();
        let late = live.in_time(not_yet.clone(), Duration::ZERO, deadline, &LIMITS);
        assert_eq!(late == Outcome::Expired, phase.is_before_stop(), "{phase}");
        assert_eq!(live.in_time(not_yet.clone(), Duration::ZERO, deadline - 1.second(), &LIMITS), not_yet, "{phase}");
        let limit = LIMITS.of(phase, 0);
        let bounded = limit.map(|limit| live.in_time(not_yet.clone(), limit, at(0), &LIMITS));
        assert!(bounded.is_none_or(|outcome| outcome == Outcome::Expired), "{phase}");
        let expected = match phase {
            Phase::Freezing | Phase::Stopping | Phase::StoppingNew => Some(30),
            Phase::Rehearsing
            | Phase::Starting
            | Phase::Proving
            | Phase::Handing
            | Phase::StartingOld
            | Phase::ProvingOld => Some(120),
            Phase::DrainingNew => Some(1_800),
            Phase::Probation => Some(60),
            Phase::Stranded => Some(5),
            _ => None,
        };
        assert_eq!(limit, expected.map(Duration::from_secs), "{phase}");
    }
}

#[test]
fn a_stranded_switch_pauses_longer_each_time_up_to_the_maximum() {
    let pause = |strandings| LIMITS.of(Phase::Stranded, strandings).unwrap().as_secs();
    assert_eq!([1, 2, 3, 4].map(pause), [5, 10, 20, 40]);
    assert_eq!([7, 8, 33, 34, u32::MAX].map(pause), [300; 5]);
}

#[test]
fn a_failure_tells_where_whose_and_what_and_the_first_one_stands() {
    let failure = |journal: &Journal| journal.live.as_ref().unwrap().failure.clone().unwrap();
    let proving = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(5));
    let not_yet = proving.advanced(&Outcome::NotYet("master1: no route".to_owned()), at(20));
    assert_eq!(not_yet.live.as_ref().unwrap().waiting_for.as_deref(), Some("master1: no route"));
    let expired = not_yet.advanced(&Outcome::Expired, at(130));
    let found = failure(&expired);
    assert_eq!((found.phase, found.cause), (Phase::Proving, Cause::Host));
    assert_eq!(found.text, "not in time: master1: no route");
    assert_eq!(expired.live.as_ref().unwrap().waiting_for, not_yet.live.as_ref().unwrap().waiting_for);
    let mut probation = in_phase(Phase::Probation);
    probation.live.as_mut().unwrap().waiting_for = Some("its probation has not ended yet".to_owned());
    let begun_again = probation.advanced(&Outcome::Expired, at(70)).live.unwrap();
    assert_eq!((begun_again.phase, begun_again.waiting_for), (Phase::Proving, None));
    let stranded = expired.advanced(&failed(), at(140));
    assert_eq!(failure(&stranded), found);
    assert_eq!(stranded.live.as_ref().unwrap().waiting_for.as_deref(), Some("no peer answers"));
    assert_eq!(failure(&proving.advanced(&Outcome::Cancelled, at(9))).cause, Cause::Person);
    assert_eq!(failure(&proving.resumed("boot 2", false, false, at(9))).cause, Cause::Interruption);
    assert_eq!(failure(&proving.resumed("boot 2", false, false, at(9))).text, "the host went down during the switch");
    let gone = failure(&proving.resumed("boot 1", false, false, at(9)));
    assert_eq!(gone.text, "the new process was gone when the supervisor restarted");
    let stopping = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(3));
    assert_eq!(failure(&stopping.advanced(&failed(), at(9))).cause, Cause::Host);
    assert_eq!(failure(&stopping.advanced(&Outcome::Expired, at(9))).text, "not in time");
    let long = "x".repeat(5_000);
    let refused = begun(Purpose::Switch, None, "2.0-1").advanced(&Outcome::Failed(long), at(1));
    assert_eq!(failure(&refused).text.len(), 1_000);
}

#[test]
fn a_late_cancellation_changes_nothing() {
    for phase in [
        Phase::Flipping,
        Phase::Committed,
        Phase::StoppingNew,
        Phase::StartingOld,
        Phase::ProvingOld,
        Phase::RolledBack,
    ] {
        let mut journal = in_phase(phase);
        journal.live.as_mut().unwrap().waiting_for = Some("the disk".to_owned());
        assert_eq!(journal.advanced(&Outcome::Cancelled, at(1)), journal, "{phase}");
    }
}

#[test]
fn only_a_release_that_failed_by_itself_is_condemned() {
    let end = |purpose, proven, to, outcome: Outcome| {
        let mut steps = done(5);
        steps.push(outcome);
        steps.extend(done(3));
        after(begun(purpose, Some(proven), to), &steps).live.unwrap()
    };
    let bad = end(Purpose::Switch, "1.0-1", "2.0-1", failed());
    assert_eq!(bad.phase, Phase::RolledBack);
    assert_eq!(bad.condemned(), Some(&bad.request.to));
    assert_eq!(bad.declined(), None);
    assert_eq!(end(Purpose::Switch, "1.0-1", "2.0-1", Outcome::Cancelled).condemned(), None);
    assert_eq!(end(Purpose::Restart, "1.0-1", "1.0-1", failed()).condemned(), None);
    let committed = after(begun(Purpose::Rollback, Some("2.0-1"), "1.0-1"), &done(8)).live.unwrap();
    assert_eq!(committed.phase, Phase::Committed);
    assert_eq!(committed.declined(), committed.from.as_ref());
    assert_eq!(committed.condemned(), None);
    for (reason, written) in [("", "left by a rollback"), ("jobs hang", "left by a rollback: jobs hang")] {
        let mut committed = committed.clone();
        committed.head.request.reason = reason.to_owned();
        assert_eq!(Verdicts::default().after(&committed).declined.values().next().unwrap().reason, written);
    }
    let upgraded = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(8)).live.unwrap();
    assert_eq!(upgraded.declined(), None);
    let not_back_yet = in_phase(Phase::StartingOld).live.unwrap();
    assert_eq!((not_back_yet.condemned(), not_back_yet.declined()), (None, None));
}

#[test]
fn to_be_slow_condemns_no_release_but_to_be_there_no_more_does() {
    let cause = |phase, setbacks| {
        let mut journal = in_phase(phase);
        journal.live.as_mut().unwrap().setbacks = setbacks;
        journal.advanced(&Outcome::Expired, at(1)).live.unwrap().head.failure.unwrap().cause
    };
    assert_eq!((cause(Phase::Starting, 0), cause(Phase::Proving, 0)), (Cause::Host, Cause::Host));
    assert_eq!(cause(Phase::Proving, 1), Cause::Release, "it had come up before");
    let mut slow = in_phase(Phase::Proving).advanced(&Outcome::Expired, at(1)).live.unwrap();
    slow.phase = Phase::RolledBack;
    assert_eq!((slow.condemned(), slow.late()), (None, Some(&slow.request.to)));
    let once = Verdicts::default().after(&slow);
    assert!(!once.bad.contains_key(&slow.request.to));
    let read = Verdicts::parse(&once.to_bytes()).unwrap();
    assert!(read.after(&slow).bad[&slow.request.to].reason.contains("not in time"), "a host is hardly slow twice");
    slow.peers_down = true;
    assert_eq!(slow.late(), None, "nobody would have come up");
}

#[test]
fn a_new_process_that_does_not_take_over_condemns_its_release_and_an_old_one_that_does_not_let_go_condemns_nothing() {
    let cause = |outcome| in_phase(Phase::Handing).advanced(&outcome, at(1)).live.unwrap().head.failure.unwrap().cause;
    assert_eq!(cause(failed()), Cause::Release);
    assert_eq!(cause(Outcome::Expired), Cause::Host);
}

#[test]
fn the_baseline_is_taken_while_the_old_process_answers() {
    let masters = vec!["master1".to_owned()];
    for phase in Phase::ALL {
        let measured = in_phase(phase).measured(masters.clone()).live.unwrap().baseline;
        assert_eq!(measured == masters, phase.is_before_stop(), "{phase}");
    }
}

#[test]
fn interruptions_are_bounded() {
    let course = |setbacks, steps| Course { mode: Mode::Idle, former: Former::Apart, steps, setbacks };
    let survivors = [ALIVE, GONE, Survivors::Rebooted];
    for phase in [Phase::Stopping, Phase::Starting, Phase::Proving, Phase::Probation] {
        for survivor in survivors {
            let often = machine::resumed(phase, survivor, course(SETBACKS_MAXIMUM, 0));
            let long = machine::resumed(phase, survivor, course(0, STEPS_MAXIMUM));
            assert_eq!((often, long), (Phase::StoppingNew, Phase::StoppingNew), "{phase}");
        }
        let again = machine::resumed(phase, ALIVE, course(SETBACKS_MAXIMUM - 1, STEPS_MAXIMUM - 1));
        assert!(again.is_trial(), "{phase}");
        let mut journal = in_phase(phase);
        for _ in 0..=SETBACKS_MAXIMUM {
            journal = journal.resumed("boot 1", true, true, at(1));
        }
        assert_eq!(journal.live.unwrap().phase, Phase::StoppingNew);
    }
    let next = |phase, steps| machine::next(phase, &Outcome::Done, course(0, steps));
    assert_eq!(next(Phase::Freezing, STEPS_MAXIMUM - 1), Phase::Stopping);
    assert_eq!(next(Phase::Freezing, STEPS_MAXIMUM), Phase::Expired);
    assert_eq!(next(Phase::Starting, STEPS_MAXIMUM), Phase::StoppingNew);
    // What has passed its probation has passed it, and the way back is never given up.
    assert_eq!(next(Phase::Probation, STEPS_MAXIMUM), Phase::Flipping);
    assert_eq!(next(Phase::Flipping, STEPS_MAXIMUM), Phase::Committed);
    assert_eq!(next(Phase::StartingOld, u32::MAX), Phase::ProvingOld);
    let waits = machine::next(Phase::Waiting, &Outcome::NotYet(String::new()), course(0, STEPS_MAXIMUM));
    assert_eq!(waits, Phase::Waiting);
}

#[test]
fn the_old_process_is_left_alone_until_the_target_is_checked_and_after_a_reboot_it_comes_first() {
    for mode in [Mode::Idle, Mode::Now] {
        let course = Course { mode, former: Former::Apart, steps: 0, setbacks: 0 };
        for phase in [Phase::Checking, Phase::Waiting, Phase::Freezing, Phase::Stopping] {
            assert_eq!(machine::resumed(phase, Survivors::Rebooted, course), Phase::Checking);
            assert_eq!(machine::resumed(phase, GONE, course), phase);
        }
        for phase in [Phase::Starting, Phase::Proving, Phase::Probation] {
            assert_eq!(machine::resumed(phase, Survivors::Rebooted, course), Phase::StoppingNew);
        }
        assert_eq!(machine::resumed(Phase::Starting, GONE, course), Phase::Starting);
        assert_eq!(machine::resumed(Phase::Probation, ALIVE, course), Phase::Proving);
        assert_eq!(machine::resumed(Phase::ProvingOld, ALIVE, course), Phase::ProvingOld);
        assert_eq!(machine::resumed(Phase::ProvingOld, GONE, course), Phase::StartingOld);
        // A stranded host keeps the release that worked, if it is up and only its peers are down.
        assert_eq!(machine::resumed(Phase::Stranded, ALIVE, course), Phase::StartingOld);
        let first = Course { former: Former::None, ..course };
        assert_eq!(machine::resumed(Phase::Stranded, ALIVE, first), Phase::StoppingNew);
    }
}

#[test]
fn phases_are_journalled_by_their_word_and_belong_to_one_part_of_the_way() {
    let words: HashSet<&str> = Phase::ALL.iter().map(|phase| phase.word()).collect();
    assert_eq!(words.len(), Phase::ALL.len());
    for phase in Phase::ALL {
        assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{phase}\""));
        let parts = [phase.is_before_stop(), phase.is_trial(), phase.is_committed(), phase.is_back(), phase.is_ended()];
        let parts = if phase == Phase::Committed { &parts[..4] } else { &parts[..] };
        assert_eq!(parts.iter().filter(|part| **part).count(), 1, "{phase}");
        assert_eq!(phase.is_forth(), phase.is_before_stop() || phase.is_trial());
        // What is kept is what may run: where nothing is asked of a process, but that it be there.
        let at_rest = phase.is_ended()
            || phase.is_committed()
            || matches!(phase, Phase::Scheduled | Phase::Checking | Phase::Rehearsing | Phase::Waiting);
        for former in [Former::None, Former::Apart, Former::Beside] {
            assert_eq!(phase.keeps(), phase.serves(former).filter(|_| at_rest), "{phase}");
            let serves = phase.serves(former).is_none_or(|side| phase.allows(side, former));
            assert!(serves, "{phase}: who serves may be there");
            // Two processes that take jobs at once double them: both may be there only while the gate stands between them.
            let both = phase.allows(Side::Former, former) && phase.allows(Side::Trial, former);
            let gated = former == Former::Beside
                && !(phase.is_before_stop() || phase.is_ended())
                && !matches!(phase, Phase::Stopping | Phase::StartingOld | Phase::ProvingOld | Phase::Stranded);
            assert_eq!(both, gated, "{phase} {former:?}");
        }
    }
    assert_eq!((Mode::Idle.to_string(), Mode::Now.to_string()), ("idle".to_owned(), "now".to_owned()));
    for purpose in [Purpose::Switch, Purpose::Rollback, Purpose::Restart] {
        assert_eq!(serde_json::to_string(&purpose).unwrap(), format!("\"{purpose}\""));
    }
}

#[test]
fn a_second_request_and_a_pointless_one_are_refused() {
    let live = begun(Purpose::Switch, Some("1.0-1"), "2.0-1");
    let second = live.requested(request(Purpose::Switch, "3.0-1"), "boot 1", at(1)).unwrap_err();
    assert_eq!(second.to_string(), "cannot begin a switch: switch 1 to 2.0-1 is rehearsing");
    assert_eq!(second.class(), Class::Conflict);
    assert_eq!(second.hint().unwrap(), "wait for that switch (`sidle status` shows it), or end it with `sidle cancel`");
    let refuse = |purpose, to| blank(Some("1.0-1")).requested(request(purpose, to), "boot 1", at(1)).unwrap_err();
    let release = "1.0-1".parse().unwrap();
    assert_eq!(refuse(Purpose::Switch, "1.0-1"), RequestError::AlreadyCurrent(release));
    assert_eq!(refuse(Purpose::Rollback, "1.0-1").class(), Class::NothingToDo);
    assert_eq!(refuse(Purpose::Restart, "2.0-1").class(), Class::Usage);
}

#[test]
fn a_journal_that_contradicts_itself_is_not_acted_on() {
    let sound = begun(Purpose::Switch, Some("1.0-1"), "2.0-1");
    let release = |text: &str| Some(text.parse().unwrap());
    assert_eq!(Journal::parse(&sound.to_bytes()).unwrap(), sound);
    let contradictions: [fn(&mut Journal); 8] = [
        |journal| journal.proven = None,
        |journal| journal.previous.clone_from(&journal.proven),
        |journal| journal.last_id = 7,
        |journal| journal.instance = "other".parse().unwrap(),
        |journal| journal.package = "other".parse().unwrap(),
        |journal| journal.live.as_mut().unwrap().head.request.purpose = Purpose::Restart,
        |journal| journal.live.as_mut().unwrap().phase = Phase::Flipping,
        |journal| journal.live.as_mut().unwrap().phase = Phase::Committed,
    ];
    for (index, contradict) in contradictions.iter().enumerate() {
        let mut journal = sound.clone();
        contradict(&mut journal);
        assert!(matches!(Journal::parse(&journal.to_bytes()), Err(JournalError::Contradiction(_))), "{index}");
    }
    let mut lonely = blank(None);
    lonely.previous = release("1.0-1");
    assert!(Journal::parse(&lonely.to_bytes()).is_err());
    let text = String::from_utf8(sound.to_bytes()).unwrap();
    assert!(matches!(
        Journal::parse(text.replace("\"schema\":1", "\"schema\":2").as_bytes()),
        Err(JournalError::Saved(SavedError::Newer(_)))
    ));
    assert!(matches!(Journal::parse(&text.as_bytes()[..40]), Err(JournalError::Saved(SavedError::Form(_)))));
    assert!(matches!(
        Journal::parse(text.replace("\"setbacks\"", "\"soaked\":true,\"setbacks\"").as_bytes()),
        Err(JournalError::Saved(SavedError::Newer(_)))
    ));
    assert!(Journal::parse(b"").is_err());
}

#[test]
fn a_spoilt_file_is_told_with_its_cause_and_a_remedy() {
    let text = String::from_utf8(begun(Purpose::Switch, Some("1.0-1"), "2.0-1").to_bytes()).unwrap();
    let told = |text: &str| {
        let error = Journal::parse(text.as_bytes()).unwrap_err();
        (error.to_string(), error.source().is_some(), error.hint().unwrap())
    };
    let move_away =
        "move the file away: sidle then begins a new journal from `current`, which names a release that has worked";
    let form = "cannot read the journal of switches";
    let cut_off = format!("{form}: EOF while parsing an object at line 1 column 1");
    assert_eq!(told("{"), (cut_off, true, move_away.to_owned()));
    let newer = "install the version of sidle that wrote it, or a newer one; the file is left as it is".to_owned();
    let schema = format!("{form}: written by a newer sidle: it has form 2, this program knows form 1");
    assert_eq!(told(&text.replace("\"schema\":1", "\"schema\":2")), (schema, true, newer.clone()));
    let field = format!("{form}: written by a newer sidle: unknown field `parted_at`");
    assert_eq!(told(&text.replace("\"last_id\":1", "\"last_id\":1,\"parted_at\":2")), (field, true, newer));
    let contradiction = "cannot use the journal of switches: its live switch does not have the last number".to_owned();
    assert_eq!(told(&text.replace("\"last_id\":1", "\"last_id\":2")), (contradiction, false, move_away.to_owned()));
    let history = History::parse(b"{").unwrap_err();
    assert!(history.source().is_some());
    assert_eq!(
        history.hint().unwrap(),
        "move the file away: switches work without it, and the next switch begins a new file"
    );
}

#[test]
fn the_longest_journal_and_history_can_be_read_again() {
    // The costliest character is one that JSON writes as six.
    let long = "\u{1}".repeat(5_000);
    let mut wordy = request(Purpose::Switch, "2.0-1");
    (wordy.request.reason, wordy.request.by) = (long.clone(), long.clone());
    let journal = blank(None).requested(wordy, "boot 1", at(0)).unwrap();
    let peers = (0..100).map(|number| format!("{number:0255}")).collect();
    // Each boot is told of once more.
    let journal = (0..200).fold(journal.measured(peers).noted(&vec![long.clone(); 100]), |journal, number| {
        journal
            .resumed(&format!("boot {number}"), false, false, at(1))
            .advanced(&Outcome::Lost(Side::Former, long.clone()), at(1))
    });
    let mut journal = journal;
    let filled = journal.live.as_ref().unwrap().story.steps().len();
    assert_eq!(filled, STEPS_KEPT_MAXIMUM);
    journal = journal.advanced(&Outcome::Failed(long), at(1));
    let bytes = journal.to_bytes();
    assert!((30_000..JOURNAL_LENGTH_MAXIMUM).contains(&(bytes.len() as u64)), "{}", bytes.len());
    assert_eq!(Journal::parse(&bytes).unwrap(), journal);
    let entry = Entry::of(&journal.live.unwrap()).unwrap();
    // More of them than may be read.
    let one = String::from_utf8(History::default().with(entry.clone()).to_bytes()).unwrap();
    let many: String = (1..=150).map(|id| one.replacen("\"id\":1,", &format!("\"id\":{id},"), 1)).collect();
    assert!(many.len() as u64 > HISTORY_LENGTH_MAXIMUM, "{}", many.len());
    let mut last = entry;
    last.head.id = 400;
    let history = History::parse(many.as_bytes()).unwrap().with(last);
    let bytes = history.to_bytes();
    assert!((HISTORY_LENGTH_MAXIMUM / 2..=HISTORY_LENGTH_MAXIMUM).contains(&(bytes.len() as u64)), "{}", bytes.len());
    assert!(history.find(1).is_none() && history.find(400).is_some());
    assert_eq!(History::parse(&bytes).unwrap(), history);
}

#[test]
fn a_return_that_the_limit_of_the_drain_has_cost_is_noted_for_the_history() {
    let job = Outcome::NotYet("test.sleep 2026 (process 9)".to_owned());
    let mut journal = in_phase(Phase::DrainingNew);
    journal.live.as_mut().unwrap().head.mode = Mode::Overlap;
    let late = after(journal.clone(), &[job.clone(), Outcome::Expired]).live.unwrap();
    assert_eq!(late.phase, Phase::StoppingNew);
    assert!(late.notes.len() == 1 && late.notes[0].contains("test.sleep 2026 (process 9)"), "{:?}", late.notes);
    assert!(late.notes[0].contains("drain_timeout"), "{:?}", late.notes);
    let in_time = after(journal, &[job, Outcome::Done]).live.unwrap();
    assert_eq!((in_time.phase, in_time.head.notes), (Phase::StoppingNew, Vec::new()));
}

#[test]
fn a_story_tells_each_phase_why_it_ended_and_how_long_it_took() {
    let journal = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(4));
    let journal = journal.resumed("boot 1", false, true, at(7)).advanced(&failed(), at(9));
    let story = journal.live.unwrap().head.story;
    let told: Vec<_> =
        story.steps().iter().map(|step| (step.from, step.to, step.outcome, step.took().as_secs())).collect();
    assert_eq!(
        told,
        [
            (Phase::Rehearsing, Phase::Waiting, Ending::Done, 1),
            (Phase::Waiting, Phase::Freezing, Ending::Done, 1),
            (Phase::Freezing, Phase::Stopping, Ending::Done, 1),
            (Phase::Stopping, Phase::Starting, Ending::Done, 1),
            // The supervisor was away; how it went on from there.
            (Phase::Starting, Phase::Starting, Ending::Interrupted, 3),
            (Phase::Starting, Phase::StoppingNew, Ending::Failed, 5),
        ]
    );
    let whys: Vec<_> = story.steps()[4..].iter().map(|step| step.why.as_deref().unwrap()).collect();
    assert_eq!(whys, ["the supervisor restarted", "no peer answers"]);
    assert!(story.steps()[..4].iter().all(|step| step.why.is_none()));
}

#[test]
fn a_story_keeps_its_beginning_and_its_end() {
    let stranded = in_phase(Phase::ProvingOld);
    let outcomes = [failed(), Outcome::Done].into_iter().cycle().take(500).collect::<Vec<_>>();
    let story = after(stranded, &outcomes).live.unwrap().head.story;
    let numbers: Vec<u32> = story.steps().iter().map(|step| step.number).collect();
    let half = u32::try_from(STEPS_KEPT_MAXIMUM).unwrap() / 2;
    let last = story.last_number();
    assert!(last > 300, "{last}");
    assert_eq!(numbers, (1..=half).chain(last - half + 1..=last).collect::<Vec<_>>());
    assert_eq!((story.after(last - 2).count(), story.after(0).count()), (2, STEPS_KEPT_MAXIMUM));
}

#[test]
fn a_switch_is_in_the_history_once_and_the_oldest_go_first() {
    let ended = after(begun(Purpose::Switch, Some("1.0-1"), "2.0-1"), &done(8)).live.unwrap();
    assert_eq!(Entry::of(&in_phase(Phase::Probation).live.unwrap()), None);
    let entry = Entry::of(&ended).unwrap();
    assert_eq!((entry.result, entry.downtime_milliseconds), (Phase::Committed, 3_000));
    let history = History::default().with(entry.clone()).with(entry.clone());
    assert_eq!(history.entries(), std::slice::from_ref(&entry));
    assert_eq!(History::parse(&history.to_bytes()).unwrap(), history);
    let numbers = 2..=HISTORY_ENTRIES_MAXIMUM as u64 + 1;
    let long = numbers.fold(history, |history, id| {
        let mut entry = entry.clone();
        entry.head.id = id;
        history.with(entry)
    });
    assert_eq!(long.entries().len(), HISTORY_ENTRIES_MAXIMUM);
    assert_eq!((long.find(1), long.last_id()), (None, HISTORY_ENTRIES_MAXIMUM as u64 + 1));
    assert!(long.find(2).is_some());
    assert_eq!(History::default().last_id(), 0);
    let told = long.entries().iter().filter(|entry| !entry.story.steps().is_empty()).count();
    assert_eq!((told, long.entries().last().unwrap().story == entry.story), (STORIES_MAXIMUM, true));
    let mut torn = long.to_bytes();
    torn.truncate(torn.len() - 9);
    let error = History::parse(&torn).unwrap_err().to_string();
    let line = format!("cannot read line {HISTORY_ENTRIES_MAXIMUM} of the history of switches: EOF while parsing");
    assert!(error.starts_with(&line), "{error}");
}
