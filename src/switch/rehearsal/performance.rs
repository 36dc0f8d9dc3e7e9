//! Runs a rehearsal: the agent's programs, one after the other, while the agent works; no call waits for them.
//!
//! The journal has nothing about it: after a crash of the supervisor the rehearsal begins again.

use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::{Identity, Priority, Program, end_group};
use crate::rehearsal::{Performance, Rehearsal, Rehearser, Role, Scene};
use crate::switch::process::running::exit_text;
use crate::switch::rehearsal::workplace::{end_of, fresh, in_scene, record};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// The directory of a rehearsal in the instance's run directory.
pub(in crate::switch) const DIRECTORY_NAME: &str = "rehearsal";
/// Longest output kept. A report of all functions has a quarter of a megabyte; a custom module may print without end.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// A rehearsal under way. If it is dropped before its end, it ends its programs.
pub struct Rehearsing {
    rehearser: &'static dyn Rehearser,
    scene: Scene,
    run: Dir,
    directory: Dir,
    waiting: VecDeque<Role>,
    playing: Option<Playing>,
    trial: Option<Performance>,
    former: Option<Performance>,
    longest: Duration,
    question: Question,
}

/// The question of a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// What fails with the new release and works with the former release.
    Worse,
    /// Whether a release that has worked on this host still works after the host has changed.
    Still,
}

struct Playing {
    role: Role,
    child: Child,
    since: Duration,
    /// The program, while it has low priority.
    aside: Option<Identity>,
}

impl Role {
    fn name(self) -> &'static str {
        if self == Self::Trial { "trial" } else { "former" }
    }
}

impl Rehearsing {
    /// Begins: the trial first, then the former release, each for at most `longest`: a custom module may wait for something that never comes. `run`:
    /// the instance's run directory ([`crate::layout::Layout::run`]), which must exist. The caller must hold leases on the trees until the end.
    /// `now`: time since boot.
    pub fn start(
        rehearser: &'static dyn Rehearser,
        scene: Scene,
        question: Question,
        run: &Path,
        longest: Duration,
        now: Duration,
    ) -> Result<Self, OsError> {
        let run = Dir::open(run)?;
        let directory = fresh(&run, DIRECTORY_NAME)?;
        let waiting = [Role::Trial, Role::Former].into_iter().filter(|role| scene.part(*role).is_some()).collect();
        let (playing, trial, former) = (None, None, scene.former.failed());
        let mut rehearsing =
            Self { rehearser, scene, run, directory, waiting, playing, trial, former, longest, question };
        rehearsing.play_next(now)?;
        Ok(rehearsing)
    }

    /// Returns the result once the rehearsal is over; never waits. An error is a fault of the host (no space, no rights): the release has neither
    /// passed nor failed. Do not call it again after a result.
    pub fn poll(&mut self, now: Duration) -> Option<Result<Rehearsal, String>> {
        match self.step(now) {
            Ok(true) => {
                let judged = match self.question {
                    Question::Worse => self.rehearser.judge(self.trial.as_ref(), self.former.as_ref()),
                    Question::Still => self.rehearser.judge_again(self.trial.as_ref()),
                };
                self.tidy();
                Some(Ok(judged))
            }
            Ok(false) => None,
            Err(error) => {
                self.tidy();
                Some(Err(format!("cannot rehearse: {error}")))
            }
        }
    }

    /// The program that runs now.
    pub fn child(&self) -> Option<u32> {
        self.playing.as_ref().map(|playing| playing.child.id())
    }

    /// True once all programs have ended.
    fn step(&mut self, now: Duration) -> Result<bool, OsError> {
        let Some(playing) = &mut self.playing else { return Ok(true) };
        let ended = playing.child.try_wait();
        let ended = ended.map_err(|source| OsError::new("wait for", Path::new("the rehearsal"), source))?;
        let failure = match ended {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("it {}", exit_text(status))),
            None if now.saturating_sub(playing.since) < self.longest => {
                // On a host that is always busy, a program with low priority may get no processor time, which is not the release's fault. After
                // a quarter of the limit it gets normal priority: the programs of both releases have to fit into `longest` together.
                if now.saturating_sub(playing.since) >= self.longest / 4 {
                    if let Some(identity) = playing.aside.take() {
                        let _ = identity.prioritise(Priority::Own);
                    }
                }
                return Ok(false);
            }
            None => Some(format!("it did not end within {} s", self.longest.as_secs())),
        };
        // Also ends what the program started in the background.
        end_group(&mut playing.child)?;
        let role = playing.role;
        self.playing = None;
        let performance = self.performance(role, failure)?;
        self.keep(role, performance);
        self.play_next(now)?;
        Ok(self.playing.is_none())
    }

    /// Starts the agent's next program; a program that can't be started has failed.
    fn play_next(&mut self, now: Duration) -> Result<(), OsError> {
        while let Some(role) = self.waiting.pop_front() {
            let place = self.directory.child_or_create(role.name(), 0o711)?;
            let scratch = place.child_or_create("scratch", 0o700)?;
            let Some(program) = self.rehearser.program(&self.scene, role, scratch.path()) else { continue };
            let rights = self.scene.rights(role).cloned();
            if let Some(rights) = &rights {
                scratch.set_owner(rights.user)?;
            }
            let program = Program { rights, ..in_scene(program, &self.scene) };
            let output = place.create_file("output", 0o600)?;
            let errors = place.create_file("errors", 0o600)?;
            match program.start_aside(output, errors, OUTPUT_BYTES_MAX) {
                Ok(child) => {
                    let identity = Identity::of(child.id());
                    let playing = self.playing.insert(Playing { role, child, since: now, aside: None });
                    if let Some(identity) = identity? {
                        record(&self.directory, &identity)?;
                        playing.aside = Some(identity);
                    }
                    return Ok(());
                }
                Err(error) => {
                    let failure = Some(error.to_string());
                    self.keep(role, Performance { failure, output: Vec::new(), errors: String::new() });
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, role: Role, performance: Performance) {
        match role {
            Role::Trial => self.trial = Some(performance),
            Role::Former => self.former = Some(performance),
        }
    }

    fn performance(&self, role: Role, failure: Option<String>) -> Result<Performance, OsError> {
        let place = self.directory.child(role.name())?;
        // The start has limited the length of the file.
        let output = place.read("output", OUTPUT_BYTES_MAX)?;
        Ok(Performance { failure, output, errors: end_of(&place, "errors")? })
    }

    fn tidy(&mut self) {
        if let Some(mut playing) = self.playing.take() {
            let _ = end_group(&mut playing.child);
        }
        self.waiting.clear();
        let _ = self.run.remove_tree(DIRECTORY_NAME);
    }
}

impl Drop for Rehearsing {
    fn drop(&mut self) {
        self.tidy();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use crate::os::environment::Passed;
    use crate::os::process::Program;
    use crate::os::{clock, proc_fs};
    use crate::rehearsal::Part;
    use std::fs;
    use std::path::PathBuf;

    const REHEARSAL_MAX: Duration = Duration::from_secs(120);

    /// Runs a shell script for each role; its output is the finding.
    struct Shell;

    impl Rehearser for Shell {
        fn program(&self, scene: &Scene, role: Role, scratch: &Path) -> Option<Program> {
            let script = scene.part(role)?.tree.to_str()?.to_owned();
            (!script.is_empty()).then(|| Program::new("/bin/sh").argument("-c").argument(script).argument(scratch))
        }

        fn judge(&self, trial: Option<&Performance>, former: Option<&Performance>) -> Rehearsal {
            let text = |performance: &Performance| {
                let failure = performance.failure.clone().unwrap_or_default();
                format!("{}|{failure}|{}", String::from_utf8_lossy(&performance.output).trim(), performance.errors)
            };
            Rehearsal {
                blocking: trial.map(text).into_iter().collect(),
                notes: former.map(text).into_iter().collect(),
                ..Rehearsal::default()
            }
        }

        fn judge_again(&self, again: Option<&Performance>) -> Rehearsal {
            self.judge(again, None)
        }
    }

    static SHELL: Shell = Shell;

    fn scene(trial: &str, former: Option<&str>) -> Scene {
        let part = |script: &str| Part { tree: PathBuf::from(script), environment: Vec::new() };
        Scene {
            trial: part(trial),
            former: former.map(part).into(),
            config_directory: PathBuf::from("/"),
            passed: Passed::default(),
            states: None,
        }
    }

    fn started(run: &Path, scene: Scene, longest: Duration) -> Rehearsing {
        Rehearsing::start(&SHELL, scene, Question::Worse, run, longest, clock::since_boot()).unwrap()
    }

    fn ended(mut rehearsing: Rehearsing) -> Rehearsal {
        loop {
            if let Some(answer) = rehearsing.poll(clock::since_boot()) {
                return answer.unwrap();
            }
            std::thread::yield_now();
        }
    }

    fn played(run: &Path, trial: &str, former: Option<&str>) -> Rehearsal {
        ended(started(run, scene(trial, former), REHEARSAL_MAX))
    }

    #[test]
    fn a_rehearsal_runs_both_releases_and_leaves_nothing_behind() {
        let run = tempfile::tempdir().unwrap();
        let script = "echo found; echo because >&2; test -d \"$0\" && touch \"$0/x\" || echo no scratch";
        let found = played(run.path(), script, Some("nice"));
        assert_eq!(found.blocking, ["found||because"]);
        let nice: i32 = found.notes[0].trim_end_matches('|').parse().unwrap();
        assert!(nice >= 10, "{nice}");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
        assert_eq!(played(run.path(), "exit 3", None).blocking, ["|it exited with code 3|"]);
        assert_eq!(played(run.path(), "", None), Rehearsal::default());
    }

    #[test]
    fn a_rehearsal_that_cannot_start_is_a_failure_of_its_release() {
        struct Absent;
        impl Rehearser for Absent {
            fn program(&self, _scene: &Scene, _role: Role, _scratch: &Path) -> Option<Program> {
                Some(Program::new("/nowhere/python3"))
            }
            fn judge(&self, trial: Option<&Performance>, _former: Option<&Performance>) -> Rehearsal {
                Rehearsal { blocking: vec![trial.unwrap().failure.clone().unwrap()], ..Rehearsal::default() }
            }
            fn judge_again(&self, again: Option<&Performance>) -> Rehearsal {
                self.judge(again, None)
            }
        }
        static ABSENT: Absent = Absent;
        let run = tempfile::tempdir().unwrap();
        let now = clock::since_boot();
        let mut rehearsing =
            Rehearsing::start(&ABSENT, scene("x", None), Question::Worse, run.path(), REHEARSAL_MAX, now).unwrap();
        let found = rehearsing.poll(now).unwrap().unwrap();
        assert_eq!(found.blocking, ["cannot start /nowhere/python3: No such file or directory"]);
    }

    #[test]
    fn a_rehearsal_that_hangs_is_ended_with_what_it_started() {
        let run = tempfile::tempdir().unwrap();
        let mark = run.path().join("pid");
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", mark.display());
        let pid = || loop {
            if let Ok(text) = fs::read_to_string(&mark) {
                fs::remove_file(&mark).unwrap();
                return text.trim().parse::<u32>().unwrap();
            }
            std::thread::yield_now();
        };
        let gone = |pid| while proc_fs::process(pid).unwrap().is_some_and(|process| process.is_alive()) {};

        let mut hangs = started(run.path(), scene(&script, Some("echo before")), REHEARSAL_MAX);
        let child = pid();
        assert!(hangs.poll(clock::since_boot()).is_none(), "it is not waited for");
        assert!(hangs.poll(clock::since_boot() + REHEARSAL_MAX).is_none(), "the former is still to come");
        gone(child);
        let found = ended(hangs);
        assert_eq!((&*found.blocking[0], &*found.notes[0]), ("|it did not end within 120 s|", "before||"));

        let dropped = started(run.path(), scene(&script, None), REHEARSAL_MAX);
        let child = pid();
        drop(dropped);
        gone(child);
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_rehearsal_whose_supervisor_was_killed_is_ended_by_the_next() {
        let run = tempfile::tempdir().unwrap();
        let mut left = started(run.path(), scene("exec sleep 600", None), REHEARSAL_MAX);
        let identity = Identity::of(left.playing.as_ref().unwrap().child.id()).unwrap().unwrap();
        assert_eq!(played(run.path(), "echo again", None).blocking, ["again||"]);
        // The signal was sent; the process may take a moment to die.
        while identity.is_alive().unwrap() {
            std::thread::yield_now();
        }
        left.playing.take().unwrap().child.wait().unwrap();
    }

    #[test]
    fn a_rehearsal_that_prints_without_end_is_bounded() {
        let run = tempfile::tempdir().unwrap();
        let flood = |byte| format!("head -c 40000000 /dev/zero | tr '\\0' {byte}");
        let found = played(run.path(), &format!("{}; {} >&2; echo end", flood('x'), flood('y')), None);
        let length = found.blocking[0].len();
        assert!((16 << 20..17 << 20).contains(&length), "{length}");
    }

    #[test]
    fn a_rehearsal_of_the_demonstration_agent_goes_as_its_tree_says() {
        let host = tempfile::tempdir().unwrap();
        let part = |name: &str, lines: &str| {
            let tree = host.path().join(name);
            fs::create_dir_all(tree.join("share/demo-agent")).unwrap();
            fs::write(tree.join("share/demo-agent/rehearsal"), lines).unwrap();
            Part { tree, environment: Vec::new() }
        };
        let run = host.path().join("run");
        fs::create_dir(&run).unwrap();
        let played = |trial: Part, former: Option<Part>| {
            let former = former.into();
            let scene =
                Scene { trial, former, config_directory: PathBuf::from("/"), passed: Passed::default(), states: None };
            let now = clock::since_boot();
            let demo = &crate::demo::rehearsal::DEMO;
            ended(Rehearsing::start(demo, scene, Question::Worse, &run, REHEARSAL_MAX, now).unwrap())
        };
        let found =
            played(part("new", "refuse: no greeting\nrefuse: old\nnote: more\n"), Some(part("old", "refuse: old\n")));
        assert_eq!((found.blocking, found.notes), (vec!["no greeting".to_owned()], vec!["more".to_owned()]));
        let found = played(part("new", "note: far\ncrash\n"), Some(part("old", "")));
        assert_eq!(found.blocking, ["cannot rehearse: it exited with code 1: crashed as told"]);
        let both = played(part("new", "crash\n"), Some(part("old", "crash\n")));
        assert!(both.blocking.is_empty() && both.refuses(), "there is no comparison, and nothing is known: {both:?}");
        let bare = Part { tree: host.path().join("bare"), environment: Vec::new() };
        assert_eq!(played(bare, None), Rehearsal::default());
    }

    /// Taking back a low priority needs root.
    mod system {
        use super::*;

        #[test]
        fn a_rehearsal_that_gets_nothing_gives_way_no_more() {
            let run = tempfile::tempdir().unwrap();
            let script = "echo up >\"$0/up\"; until test \"$(nice)\" -lt 10; do sleep 0.01; done";
            let since = clock::since_boot();
            let mut rehearsing =
                Rehearsing::start(&SHELL, scene(script, None), Question::Worse, run.path(), REHEARSAL_MAX, since)
                    .unwrap();
            let scratch = run.path().join(DIRECTORY_NAME).join(Role::Trial.name()).join("scratch");
            while !scratch.join("up").exists() {
                assert!(rehearsing.poll(since + REHEARSAL_MAX / 5).is_none(), "it gives way");
                assert!(clock::since_boot() < since + REHEARSAL_MAX, "it does not start");
                clock::sleep(Duration::from_millis(10));
            }
            let found = loop {
                assert!(clock::since_boot() < since + REHEARSAL_MAX, "it gives way for ever");
                if let Some(found) = rehearsing.poll(since + REHEARSAL_MAX / 4) {
                    break found.unwrap();
                }
                clock::sleep(Duration::from_millis(10));
            };
            assert_eq!(found.blocking, ["||"], "it ended by itself, well");
        }
    }
}
