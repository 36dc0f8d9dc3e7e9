//! What became of each job of a stream, told from what master, minion and guard have left on disk: whose fault a loss can be, and whether a
//! test may overlook it. Pure: `stream.py` collects, this judges.

use serde::Deserialize;
use std::fmt;

/// How many jobs of one stream may be lost where Salt itself can have lost them. None: `calibrate` takes no control that has lost one, so a switch
/// may lose none either. Measured with nothing done (`scripts/bench losses`): none of 704 jobs, also where 3007.17 was a minute behind. A job that
/// no guard heard is just what a switch that ends the old process too early would lose: a number other than 0 hides that.
pub const SALTS_OWN_MAXIMUM: usize = 0;

/// Salt's shortest patience with a master (`return_retry_timer`): a return that was on its way for longer may have been given up.
const ACKNOWLEDGED_SECONDS: f64 = 5.0;

/// A line of the job log of one process's guard (`joblog.py` has the steps).
#[derive(Clone, Deserialize)]
pub struct Step {
    pub what: String,
    pub pid: u32,
    /// Seconds after the stream began.
    pub at: f64,
}

impl fmt::Debug for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} in {} at {:.3} s", self.what, self.pid, self.at)
    }
}

/// One job, with all that is known of it.
#[derive(Debug, Clone, Deserialize)]
#[expect(dead_code, reason = "a failing test shows all of it")]
#[expect(clippy::struct_excessive_bools, reason = "each is a piece of evidence of its own")]
pub struct JobSeen {
    pub jid: String,
    pub name: String,
    pub kind: String,
    /// Seconds after the stream began.
    pub at: f64,
    /// The master has taken it.
    pub published: bool,
    /// Why it has not.
    #[serde(default)]
    pub error: String,
    /// Of the guards' job log, in its order.
    pub steps: Vec<Step>,
    /// Somebody has made its claim.
    pub claim_file: bool,
    /// Lines in the file of marks: how often its function began, and whether a long one came to its end.
    pub executed: u32,
    pub finished: bool,
    /// Release and main process of each execution.
    pub by: Vec<String>,
    /// Returns on the master's bus.
    pub answers: u32,
    /// The return is in the master's job cache, or in another master's.
    pub returned: bool,
    pub elsewhere: bool,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Run once, and answered once to whoever asked.
    Whole,
    /// The master was not there, or refused it: nobody was promised anything.
    Unpublished,
    Unheard,
    Unkept,
    Unclaimed,
    Unrun,
    Unreturned,
    Unfinished,
    Doubled,
    Elsewhere,
    Unexplained,
}

impl Fate {
    /// Whether the promise is kept.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Whole | Self::Unpublished)
    }

    /// Whether no process of ours has touched what was lost: it never came, or it was handed over.
    pub fn may_be_salts_own(self) -> bool {
        matches!(self, Self::Unheard | Self::Unkept)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Unpublished => "not published",
            Self::Unheard => "published, and no guard heard it",
            Self::Unkept => "returned to the master, which has not kept it",
            Self::Unclaimed => "heard, and not claimed by anybody",
            Self::Unrun => "claimed, and not run",
            Self::Unreturned => "run, and not returned",
            Self::Unfinished => "returned before it was done",
            Self::Doubled => "claimed, run or returned more than once",
            Self::Elsewhere => "returned to a master that did not ask",
            Self::Unexplained => "not run, and no guard has kept a job log",
        }
    }
}

impl JobSeen {
    /// What became of it; `watched`: the guards kept a job log.
    pub fn fate(&self, watched: bool) -> Fate {
        let answered_twice = self.answers > 1 && !self.may_be_sent_again();
        if self.executed > 1 || answered_twice || self.count("claimed") > 1 {
            return Fate::Doubled;
        }
        if self.elsewhere {
            return Fate::Elsewhere;
        }
        match (self.published, self.executed > 0, self.returned) {
            (false, ..) => Fate::Unpublished,
            (true, true, true) if self.kind == "long" && !self.finished => Fate::Unfinished,
            (true, true, true) => Fate::Whole,
            (true, true, false) if self.reached_its_master() => Fate::Unkept,
            (true, true, false) => Fate::Unreturned,
            // Answered by somebody who could not run it.
            (true, false, true) => Fate::Unrun,
            (true, false, false) if self.claim_file || self.count("claimed") > 0 => Fate::Unrun,
            (true, false, false) if !self.steps.is_empty() => Fate::Unclaimed,
            (true, false, false) if watched => Fate::Unheard,
            (true, false, false) => Fate::Unexplained,
        }
    }

    /// Whether the guards have told of each of its steps.
    pub fn is_traced(&self) -> bool {
        self.claim_file && ["heard", "claimed", "started", "sending", "sent"].iter().all(|what| self.count(what) > 0)
    }

    fn count(&self, what: &str) -> usize {
        self.steps.iter().filter(|step| step.what == what).count()
    }

    /// Whether Salt may have sent its one return again: one process had it on its way for longer than Salt waits for a master that is busy.
    fn may_be_sent_again(&self) -> bool {
        let of = |what: &str| self.steps.iter().filter(|step| step.what == what).collect::<Vec<_>>();
        match (&of("sending")[..], &of("sent")[..]) {
            ([begun], [end]) => begun.pid == end.pid && end.at >= begun.at + ACKNOWLEDGED_SECONDS,
            _ => false,
        }
    }

    /// Whether its return has left: the master's bus had it, or the master acknowledged it before Salt could have given it up.
    fn reached_its_master(&self) -> bool {
        let acknowledged = |begun: &Step| {
            let mut ends = self.steps.iter().filter(|step| step.what == "sent" && step.pid == begun.pid);
            ends.any(|end| (begun.at..begun.at + ACKNOWLEDGED_SECONDS).contains(&end.at))
        };
        self.answers > 0 || self.steps.iter().filter(|step| step.what == "sending").any(acknowledged)
    }
}

/// A job that is not whole.
#[derive(Debug, Clone)]
pub struct Finding<'a> {
    pub fate: Fate,
    pub job: &'a JobSeen,
}

impl fmt::Display for Finding<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.fate.may_be_salts_own() { "may be Salt's own" } else { "never tolerated" };
        write!(formatter, "{} ({whose}): {:?}", self.fate.words(), self.job)
    }
}

/// All jobs that are not whole, the worst last.
pub fn findings(jobs: &[JobSeen], watched: bool) -> Vec<Finding<'_>> {
    let found = jobs.iter().map(|job| Finding { fate: job.fate(watched), job });
    let mut found: Vec<Finding<'_>> = found.filter(|finding| !finding.fate.is_good()).collect();
    found.sort_by_key(|finding| finding.fate);
    found
}

/// Whether a test may overlook these: only what may be Salt's own, and no more than `tolerated` of it.
pub fn are_tolerable(findings: &[Finding<'_>], tolerated: usize) -> bool {
    findings.len() <= tolerated && findings.iter().all(|finding| finding.fate.may_be_salts_own())
}

/// A job of which everything is as it should be, as a guarded minion leaves it.
fn whole() -> JobSeen {
    let step = |what: &str, at: f64| Step { what: what.to_owned(), pid: 7, at };
    JobSeen {
        jid: "20260101000000000001".to_owned(),
        name: "m0-1".to_owned(),
        kind: "short".to_owned(),
        at: 1.0,
        published: true,
        error: String::new(),
        steps: vec![
            step("heard", 1.1),
            step("claimed", 1.1),
            step("started", 1.2),
            step("sending", 1.4),
            step("sent", 1.5),
        ],
        claim_file: true,
        executed: 1,
        finished: false,
        by: vec!["3008.5/7".to_owned()],
        answers: 1,
        returned: true,
        elsewhere: false,
    }
}

/// The same as far as it came before this step.
fn until(what: &str) -> JobSeen {
    let mut job = JobSeen { executed: 0, by: Vec::new(), answers: 0, returned: false, ..whole() };
    let end = job.steps.iter().position(|step| step.what == what).expect("it is a step");
    job.steps.truncate(end);
    job.claim_file = end > 1;
    job
}

/// The same, acknowledged a minute later.
fn late(job: JobSeen) -> JobSeen {
    let mut steps = job.steps.clone();
    steps.last_mut().unwrap().at += 60.0;
    JobSeen { steps, ..job }
}

#[test]
fn every_way_to_lose_a_job_has_its_own_name() {
    let ran = |job: JobSeen| JobSeen { executed: 1, ..job };
    let lost = JobSeen { answers: 0, returned: false, ..whole() };
    for (fate, job) in [
        (Fate::Whole, whole()),
        (Fate::Whole, JobSeen { kind: "long".to_owned(), finished: true, ..whole() }),
        (Fate::Unpublished, JobSeen { published: false, ..until("heard") }),
        (Fate::Unheard, until("heard")),
        (Fate::Unclaimed, until("claimed")),
        (Fate::Unrun, until("started")),
        // Killed between making the claim and telling of it.
        (Fate::Unrun, JobSeen { claim_file: true, ..until("claimed") }),
        // A process was started for it, which never came to the function.
        (Fate::Unrun, until("sending")),
        (Fate::Unrun, JobSeen { returned: true, answers: 1, ..until("sending") }),
        (Fate::Unreturned, ran(until("sending"))),
        // On its way when the process that had it was ended.
        (Fate::Unreturned, ran(until("sent"))),
        // Given up by Salt after all its tries.
        (Fate::Unreturned, late(lost.clone())),
        (Fate::Unkept, lost.clone()),
        (Fate::Unkept, JobSeen { answers: 1, ..ran(until("sending")) }),
        (Fate::Unfinished, JobSeen { kind: "long".to_owned(), ..whole() }),
        (Fate::Elsewhere, JobSeen { elsewhere: true, ..lost }),
    ] {
        assert_eq!(job.fate(true), fate, "{job:?}");
        assert_eq!(job.is_traced(), job.steps.len() == 5, "{job:?}");
    }
}

#[test]
fn what_is_doubled_is_seen_wherever_it_shows_also_where_nothing_was_published() {
    let mut claimed = whole();
    claimed.steps.push(Step { what: "claimed".to_owned(), pid: 8, at: 1.3 });
    for job in [
        JobSeen { executed: 2, ..whole() },
        JobSeen { answers: 2, ..whole() },
        JobSeen { executed: 2, published: false, ..until("heard") },
        claimed,
    ] {
        assert_eq!(job.fate(true), Fate::Doubled, "{job:?}");
    }
    // A return that a busy master did not acknowledge is sent again, by Salt itself.
    let slow = JobSeen { answers: 2, ..late(whole()) };
    assert_eq!(slow.fate(true), Fate::Whole, "{slow:?}");
    assert_eq!(JobSeen { executed: 2, ..slow }.fate(true), Fate::Doubled);
}

#[test]
fn without_a_job_log_a_loss_is_nobodys_excuse() {
    let unwatched = |job: JobSeen| JobSeen { steps: Vec::new(), claim_file: false, ..job };
    assert_eq!(unwatched(whole()).fate(false), Fate::Whole);
    let lost = unwatched(until("heard"));
    assert_eq!(lost.fate(false), Fate::Unexplained);
    assert_eq!(unwatched(JobSeen { executed: 1, ..until("sending") }).fate(false), Fate::Unreturned);
    let jobs = [lost];
    assert!(!are_tolerable(&findings(&jobs, false), 1));
}

#[test]
fn only_what_may_be_salts_own_is_tolerated_and_only_so_often() {
    let unkept = JobSeen { returned: false, ..whole() };
    let jobs = [whole(), until("heard"), unkept];
    let found = findings(&jobs, true);
    assert_eq!(found.iter().map(|finding| finding.fate).collect::<Vec<_>>(), [Fate::Unheard, Fate::Unkept]);
    assert!(are_tolerable(&found, 2) && !are_tolerable(&found, 1));
    assert!(found[0].to_string().starts_with("published, and no guard heard it (may be Salt's own): "), "{}", found[0]);

    let twice = JobSeen { executed: 2, ..whole() };
    for job in [until("claimed"), until("started"), JobSeen { executed: 1, ..until("sent") }, twice] {
        let jobs = [job];
        let found = findings(&jobs, true);
        assert!(!are_tolerable(&found, 100), "{found:?}");
        assert!(found[0].to_string().contains("(never tolerated): "), "{}", found[0]);
    }
}
