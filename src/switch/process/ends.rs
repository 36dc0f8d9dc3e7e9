//! The ends of an agent's processes: by themselves, or because sidle ends them.

use crate::agent::Job;
use crate::crash_point;
use crate::os::OsError;
use crate::os::process::SignalNumber;
use crate::switch::journal::kind::ProcessKind;
use crate::switch::process::Processes;
use crate::switch::process::running::{Record, Running, exit_text};
use std::collections::BTreeSet;

/// Ends kept for questions: more than an agent ever has processes at one time.
const REMEMBERED: usize = 8;

/// How a process of the agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Its record.
    pub record: Record,
    /// How it ended: `exited with code 1`.
    pub how: String,
    /// The unfinished jobs of its guard's last report.
    pub unfinished: Vec<Job>,
    /// All processes were asked to end, since the service is stopped.
    pub is_asked_for: bool,
}

/// The processes that have ended.
#[derive(Debug, Default)]
pub(in crate::switch) struct Ends {
    /// For the supervisor, which has not handled them yet.
    unhandled: Vec<End>,
    /// Not in the log yet.
    unlogged: Vec<End>,
    /// All processes were asked to end.
    asked: bool,
    /// How the last processes ended, oldest first.
    known: Vec<(Record, String)>,
}

impl Ends {
    /// Remembers how a process ended.
    pub(in crate::switch) fn remember(&mut self, record: &Record, how: String) {
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        self.known.push((record.clone(), how));
    }

    /// Adds an end to the log, and returns it.
    pub(in crate::switch) fn note(&mut self, record: &Record, how: String, unfinished: Vec<Job>) -> End {
        let end = End { record: record.clone(), how, unfinished, is_asked_for: self.asked };
        self.unlogged.push(end.clone());
        end
    }

    /// Forgets the ends of earlier processes, when such a process is started again.
    pub(in crate::switch) fn forget(&mut self, which: ProcessKind<'_>) {
        self.known.retain(|(record, _)| !which.is(record.release.as_ref(), record.trial_of));
    }

    fn how(&self, which: ProcessKind<'_>) -> Option<&str> {
        let is_it = |record: &Record| which.is(record.release.as_ref(), record.trial_of);
        self.known.iter().rev().find(|(record, _)| is_it(record)).map(|(_, how)| how.as_str())
    }
}

impl Processes {
    /// How a process ended; None: its end was not seen.
    pub fn how_ended(&mut self, which: ProcessKind<'_>) -> Option<&str> {
        // It may have ended since the last turn, when only an earlier process's end is known. A failure here shows again at the next turn.
        let _ = self.reap();
        self.ends.how(which)
    }

    /// Collects processes that have ended; true if there was any.
    pub fn reap(&mut self) -> Result<bool, OsError> {
        let before = self.running.len();
        let (gate, ends) = (&self.gate, &mut self.ends);
        self.running.retain_mut(|running| {
            let status = running.take_end();
            if !running.ended && (status.is_some() || !running.leads()) {
                running.ended = true;
                let how = status.map_or_else(|| "ended".to_owned(), exit_text);
                let report = gate.report(running.record.leader.pid).filter(|_| running.guarded);
                ends.remember(&running.record, how.clone());
                let end = ends.note(&running.record.clone(), how, running.unfinished(report));
                ends.unhandled.push(end);
            }
            running.lives()
        });
        let ended = self.running.len() != before;
        if ended {
            self.save()?;
        }
        Ok(ended)
    }

    /// Returns the ends since the last call.
    pub fn take_ends(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends.unhandled)
    }

    /// Returns the ends that are not in the log yet.
    pub(in crate::switch) fn take_unlogged(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends.unlogged)
    }

    /// Ends the agent's own processes whose leader is gone, so that they do not run at the same time as the next process.
    pub fn end_remains(&mut self) -> Result<(), OsError> {
        for running in self.running.iter().filter(|running| !running.leads()) {
            for identity in running.record.all() {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        Ok(())
    }

    /// Kills all processes of the agent except the usable processes in `kept`; true once all others are gone. Job processes are not killed. A
    /// process that has just ended by itself is not marked as ended here, so that its unfinished jobs are still reported.
    pub fn end_all_but(&mut self, kept: &[ProcessKind<'_>]) -> Result<bool, OsError> {
        let mut spared = BTreeSet::new();
        for which in kept {
            spared.extend(self.of(*which).map(|record| record.leader.pid));
        }
        let is_spared = |running: &Running| {
            running.is_finishing() || (running.is_usable() && spared.contains(&running.record.leader.pid))
        };
        let mut news = false;
        for running in &mut self.running {
            if is_spared(running) || !running.leads() {
                continue;
            }
            let report = self.gate.report(running.record.leader.pid);
            if !running.refresh_core(report.as_ref()) && running.agent.is_ok() {
                running.keep_its_first_children()?;
            }
            news |= !running.record.being_ended;
            running.record.being_ended = true;
        }
        if news {
            self.save()?;
        }
        crash_point!("end.recorded");
        for running in self.running.iter().filter(|running| !is_spared(running)) {
            for identity in running.record.all() {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        crash_point!("end.killed");
        self.reap()?;
        Ok(self.running.iter().all(is_spared))
    }

    /// Sends every leader SIGTERM: for a stop of the service, not for a switch.
    pub fn ask_to_end(&mut self) -> Result<(), OsError> {
        self.ends.asked = true;
        for running in &mut self.running {
            running.record.finishing = false;
        }
        for running in self.running.iter().filter(|running| running.record.foreign.is_none()) {
            running.thaw()?;
            running.record.leader.signal(SignalNumber::TERM)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests start real processes")]

    use super::*;
    use crate::agent::gate::{GuardReport, Origin, Roles};
    use crate::agent::{Activity, Agent, AgentError, AgentSettings, Health, Subject};
    use crate::layout::Layout;
    use crate::os::dir::Dir;
    use crate::os::environment::Passed;
    use crate::os::process::{self, Identity};
    use crate::os::{clock, proc_fs};
    use crate::switch::process::own_commands::OwnCommands;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};
    use std::time::Duration;

    /// Starts a process that runs until it is killed.
    fn sleeper() -> (Child, Identity) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        (child, identity)
    }

    /// Starts a process with a child that runs until both are killed.
    fn parent() -> (Child, Identity) {
        use std::os::unix::process::CommandExt as _;
        let child = Command::new("sh").args(["-c", "sleep 600 & wait"]).process_group(0).spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        let end = clock::since_boot() + Duration::from_secs(10);
        while proc_fs::children(identity.pid).unwrap().is_empty() {
            assert!(clock::since_boot() < end, "no child");
            std::thread::yield_now();
        }
        (child, identity)
    }

    /// An instance whose release 1.0-1 serves and whose release 1.1-1 is on trial for switch 1; gives both processes.
    fn two(root: &Path) -> (Processes, [Identity; 2]) {
        let layout = Layout::new(root);
        let package = "demo-agent".parse().unwrap();
        let instance = "demo-agent".parse().unwrap();
        let registry: crate::agent::Registry = |_| Err(AgentError::new("no observer here"));
        let commands = OwnCommands {
            run: |_, _, _| Vec::new(),
            all_variables: "",
            is_run: |_| false,
            repair: |_, _| Vec::new(),
            scrub: |_| Vec::new(),
            check: "",
            class: |_| None,
        };
        let mut processes = Processes::new(&layout, &package, &instance, registry, commands, None, Passed::default());
        let identities = [("1.0-1", None), ("1.1-1", Some(1))].map(|(release, trial_of)| {
            let (child, leader) = sleeper();
            let record = Record::new(leader.clone(), release.parse().unwrap(), trial_of, Origin::Boot);
            let kind = "demo".parse().unwrap();
            let running = processes.observing(record, Some(child), &kind, false, AgentSettings::new(root));
            processes.running.push(running);
            leader
        });
        (processes, identities)
    }

    fn kill(identity: &Identity) {
        identity.signal(SignalNumber::KILL).unwrap();
        let end = clock::since_boot() + Duration::from_secs(10);
        while identity.is_alive().unwrap() {
            assert!(clock::since_boot() < end, "{:?} lives", proc_fs::all());
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_died_before_anybody_looked_was_not_ended_by_us() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, [former, trial]) = two(root.path());
        let (old, new) = ("1.0-1".parse().unwrap(), "1.1-1".parse().unwrap());
        let incumbent = ProcessKind::Incumbent { release: &old, switch: Some(1) };
        let tried = ProcessKind::Trial { switch: 1, release: &new };

        kill(&trial);
        assert!(processes.end_all_but(&[incumbent, tried]).unwrap(), "only what is kept is left");
        let ends = processes.take_ends();
        assert_eq!(ends.len(), 1);
        assert!(!ends[0].record.being_ended, "{ends:?}");
        // Another's end does not hide how it went.
        assert!(!processes.end_all_but(&[]).unwrap() || !former.is_alive().unwrap());
        let _ = processes.how_ended(incumbent);
        assert_eq!(processes.how_ended(tried), Some("was ended by signal 9"));
        kill(&former);
        processes.reap().unwrap();
        let ends = processes.take_ends();
        assert!(ends.len() == 1 && ends[0].record.being_ended, "what we end is being ended: {ends:?}");
    }

    #[test]
    fn work_that_nobody_can_tell_of_is_waited_for_only_while_the_process_has_children() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, [former, trial]) = two(root.path());
        let report = |pid: u32| {
            let text = format!(
                r#"{{"leader": {pid}, "pid": {pid}, "start_time": 1, "wrapped": ["x"], "overlap": null, "serial": 1, "role": "closed",
                "singletons": false, "announced": false, "prove": 0, "jobs": [], "held": 0, "returning": 0, "peers": [], "updated": 1.0}}"#
            );
            GuardReport::parse(text.as_bytes()).unwrap()
        };
        let busy = report(trial.pid);
        let unreported = |processes: &mut Processes, report| processes.running[1].unreported(report);
        assert_eq!(unreported(&mut processes, Some(&busy)), None, "its guard and /proc agree that nothing is left");
        assert!(
            unreported(&mut processes, None).is_some_and(|why| why.contains("no observer here")),
            "unknown is busy"
        );
        kill(&trial);
        let (child, leader) = parent();
        processes.running[1].record.leader = leader.clone();
        processes.running[1].record.core = vec![leader.clone()];
        let with_child = report(leader.pid);
        assert!(unreported(&mut processes, Some(&with_child)).is_some(), "a child may be a job");
        let mut child = child;
        crate::os::process::end_group(&mut child).unwrap();
        kill(&former);
    }

    /// An agent whose children are all services, or all jobs; it is always idle.
    struct Known {
        services: bool,
        user: Option<&'static str>,
    }

    impl Agent for Known {
        fn activity(&self, _: Subject<'_>) -> Activity {
            Activity::Idle
        }

        fn is_service(&self, _: &proc_fs::Process) -> bool {
            self.services
        }

        fn user(&self) -> Option<String> {
            self.user.map(str::to_owned)
        }

        fn health(&self, _: Subject<'_>) -> Health {
            Health::Unknown("nobody asks".to_owned())
        }

        fn watches(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    /// An agent that cannot tell its own processes yet.
    struct Young;

    impl Agent for Young {
        fn core(&self, _: Subject<'_>) -> Result<Vec<Identity>, AgentError> {
            Err(AgentError::new("it has just begun"))
        }

        fn activity(&self, _: Subject<'_>) -> Activity {
            Activity::Idle
        }

        fn health(&self, _: Subject<'_>) -> Health {
            Health::Unknown("it has just begun".to_owned())
        }

        fn watches(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    /// Of a minion as another user than root the main process went on without its parent, took jobs, and was named by nobody.
    #[test]
    fn a_process_that_is_ended_before_its_main_is_known_leaves_no_main_behind() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, leaders) = two(root.path());
        let (mut child, leader) = parent();
        let main = proc_fs::children(leader.pid).unwrap().remove(0);
        let main = Identity::of_process(&main).unwrap();
        let running = &mut processes.running[0];
        (running.record.leader, running.record.core) = (leader.clone(), vec![leader.clone()]);
        running.agent = Ok(Box::new(Young));
        let end = clock::since_boot() + Duration::from_secs(10);
        while !processes.end_all_but(&[]).unwrap() || main.is_alive().unwrap() {
            assert!(clock::since_boot() < end, "{main:?} lives");
            let _ = child.try_wait().unwrap();
        }
        leaders.iter().for_each(kill);
    }

    #[test]
    fn a_process_of_another_user_than_the_configured_one_shares_the_gate_with_none() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, leaders) = two(root.path());
        let old = "1.0-1".parse().unwrap();
        let incumbent = ProcessKind::Incumbent { release: &old, switch: None };
        let told = |processes: &mut Processes, user| {
            processes.running[0].agent = Ok(Box::new(Known { services: false, user: Some(user) }));
            processes.other_user(incumbent)
        };
        assert_eq!(told(&mut processes, "daemon"), None, "there is no gate");
        processes.gate.prepare(None).unwrap();
        let own: &'static str = Box::leak(crate::os::account::user_name(process::user()).into_boxed_str());
        assert_eq!(told(&mut processes, own), None);
        let why = told(&mut processes, "daemon").unwrap();
        assert!(why.contains(&format!("works as {own}")) && why.contains("names daemon"), "{why}");
        leaders.iter().for_each(kill);
    }

    /// Queued jobs that only it could run were lost when the host had slept for a minute.
    #[test]
    fn a_process_whose_last_report_is_old_is_silent_from_the_first_look_on() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, [former, trial]) = two(root.path());
        processes.gate.prepare(None).unwrap();
        processes.running[0].record.finishing = true;
        processes.running[0].agent = Ok(Box::new(Known { services: false, user: None }));
        let pid = former.pid;
        let report = format!(
            r#"{{"leader": {pid}, "pid": {pid}, "start_time": 1, "wrapped": ["x"], "overlap": null, "serial": 1, "role": "closed",
            "singletons": false, "announced": false, "prove": 0, "jobs": [], "held": 0, "returning": 0, "queued": 1, "peers": [], "updated": 1.0}}"#
        );
        std::fs::write(processes.gate.path().join("slots").join(format!("{pid}.json")), report).unwrap();
        let woken = Duration::from_secs(3600);
        for (later, lives) in [(0, true), (59, true), (61, false)] {
            processes.end_finished(woken + Duration::from_secs(later)).unwrap();
            let end = clock::since_boot() + Duration::from_secs(10);
            while former.is_alive().unwrap() != lives {
                assert!(clock::since_boot() < end, "after {later} s");
            }
        }
        kill(&trial);
    }

    /// Salt keeps jobs that it has accepted beyond `process_count_max` in memory: a stop would lose them.
    #[test]
    fn what_is_accepted_and_not_begun_is_no_idleness() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, leaders) = two(root.path());
        let report = |jobs: &str| {
            let text = format!(
                r#"{{"leader": 7, "pid": 8, "start_time": 1, "wrapped": ["x"], "overlap": null, "serial": 1, "role": "active",
                "singletons": true, "announced": true, "prove": 0, "jobs": [{jobs}], "held": 0, "returning": 0, "peers": [], "updated": 1.0}}"#
            );
            GuardReport::parse(text.as_bytes()).unwrap()
        };
        let running = &mut processes.running[0];
        running.agent = Ok(Box::new(Known { services: false, user: None }));
        let [waits, runs] = [8, 9].map(|pid| format!(r#"{{"id": "20", "what": "test.sleep", "pid": {pid}}}"#));
        assert_eq!(running.activity(None), Activity::Idle);
        assert_eq!(running.activity(Some(&report(""))), Activity::Idle);
        assert!(matches!(running.activity(Some(&report(&waits))), Activity::Busy(jobs) if jobs[0].id == "20"));
        assert_eq!(
            running.activity(Some(&report(&runs))),
            Activity::Idle,
            "the agent itself knows whether that still runs"
        );
        leaders.iter().for_each(kill);
    }

    #[test]
    fn what_belongs_to_the_agent_is_no_job_and_neither_is_what_runs_below_it() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, leaders) = two(root.path());
        let (mut child, leader) = parent();
        let below = |processes: &mut Processes, services, core: &Identity| {
            let running = &mut processes.running[0];
            (running.record.leader, running.record.core) = (leader.clone(), vec![core.clone()]);
            running.agent = Ok(Box::new(Known { services, user: None }));
            running.below().unwrap()
        };
        assert_eq!(below(&mut processes, false, &leader), 1);
        assert_eq!(below(&mut processes, true, &leader), 0);
        assert_eq!(below(&mut processes, true, &leaders[0]), 1, "only a child of the agent itself is one");
        crate::os::process::end_group(&mut child).unwrap();
        leaders.iter().for_each(kill);
    }

    #[test]
    fn a_process_that_has_finished_is_ended_also_where_that_cannot_be_recorded() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, [former, trial]) = two(root.path());
        processes.running[0].record.finishing = true;
        processes.running[0].agent = Ok(Box::new(Known { services: false, user: None }));
        let run = processes.layout.run(&processes.instance);
        std::fs::create_dir_all(run.parent().unwrap()).unwrap();
        std::fs::write(&run, "no directory").unwrap();
        processes.end_finished(clock::since_boot()).unwrap_err();
        let end = clock::since_boot() + Duration::from_secs(10);
        while former.is_alive().unwrap() {
            assert!(clock::since_boot() < end, "it lives");
            std::thread::yield_now();
        }
        kill(&trial);
    }

    #[test]
    fn a_gate_that_vanished_is_made_again_for_the_user_of_a_guard_that_another_supervisor_started() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, leaders) = two(root.path());
        // Only root can give directories away.
        let user = (process::user() == 0).then_some("daemon");
        processes.running[0].agent = Ok(Box::new(Known { services: false, user }));
        processes.running[0].guarded = true;
        processes.assign(&Roles { slots: Vec::new(), announce: None, prove: 0, prover: None }).unwrap();
        let claims = Dir::open(&processes.gate.path().join("claims")).unwrap();
        let expected = user.and_then(process::user_number).unwrap_or(process::user());
        assert_eq!(claims.stat_self().unwrap().uid, expected);
        leaders.iter().for_each(kill);
    }

    #[test]
    fn a_new_start_is_not_told_of_with_an_old_end() {
        let root = tempfile::tempdir().unwrap();
        let (mut processes, [former, trial]) = two(root.path());
        let old = "1.0-1".parse().unwrap();
        let incumbent = ProcessKind::Incumbent { release: &old, switch: None };
        kill(&former);
        kill(&trial);
        assert_eq!(processes.how_ended(incumbent), Some("was ended by signal 9"));
        processes.ends.forget(incumbent);
        assert_eq!(processes.how_ended(incumbent), None);
    }
}
