//! Asks a release's own Salt what it makes of a configuration. Sidle has no rules of its own for that.

use super::MinionConfig;
use super::answer::{Answer, Options, cannot_load};
use super::kept::{self, Kept};
use crate::agent::gate::{GATE_VARIABLE, ROLE_VARIABLE, USES_VARIABLE};
use crate::agent::{AgentError, AgentSettings, Answers, Subject};
use crate::os::clock;
use crate::os::notify::NOTIFY_SOCKET;
use crate::os::process::Program;
use crate::rehearsal::Part;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::Duration;

/// The program: it travels with sidle, so that every release can be asked.
const SCRIPT: &str = include_str!("asking.py");
/// The guard's description of options, which the program uses.
const DESCRIPTION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/bundles/salt-minion/guard/sidle_guard/options.py"));

/// How long an answer may take. A host at rest needs half a second; one that is always busy, a hundred times that.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// How long a question that got no answer is not asked again: the supervisor looks several times a second.
const PAUSE: Duration = Duration::from_secs(60);

/// How long the supervisor's looks go by an answer whose files change all the time.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Variables of a working agent, and those by which Salt would read another configuration.
const NOT_PASSED_ON: [&str; 6] =
    [NOTIFY_SOCKET, GATE_VARIABLE, ROLE_VARIABLE, USES_VARIABLE, "SALT_MINION_CONFIG", "SALT_CONFIG_DIR"];

/// Asks one release about one configuration directory, and remembers the answers.
#[derive(Debug)]
pub struct Asker {
    settings: AgentSettings,
    known: RefCell<Option<Kept>>,
    /// When the release was last asked, since boot.
    asked_at: Cell<Option<Duration>>,
    /// A question without an answer: when, since boot, and why.
    failed: RefCell<Option<(Duration, AgentError)>>,
}

impl Asker {
    /// One for these settings. Nothing is asked yet.
    pub fn new(settings: &AgentSettings) -> Self {
        Self {
            settings: settings.clone(),
            known: RefCell::default(),
            asked_at: Cell::new(None),
            failed: RefCell::default(),
        }
    }

    /// One about the same directory as another process sees it: below `image`, its root. None: it is another one, or nothing is known of it.
    pub fn again(&self, directory: &Path, image: &Path) -> Option<Self> {
        let known = self.known.borrow().as_ref()?.moved(self.settings.image.as_deref()?, image)?;
        let settings = self.settings.about(directory.to_owned(), Some(image.to_owned()));
        let (known, asked_at) = ((known.directory == directory).then_some(known)?, self.asked_at.clone());
        Some(Self { settings, known: RefCell::new(Some(known)), asked_at, failed: RefCell::default() })
    }

    /// The options that a process started now would have. The error is Salt's own, or says why Salt cannot be asked.
    pub fn present(&self) -> Result<MinionConfig, AgentError> {
        let answer = self.answer()?;
        answer.config().map_err(|why| self.cannot_load(&answer, &why))
    }

    /// The same for what looks several times a second: it asks once in [`LOOK_PAUSE`], however often a file changes.
    pub fn lately(&self) -> Result<MinionConfig, AgentError> {
        let is_due = self.asked_at.get().is_none_or(|at| clock::since_boot().saturating_sub(at) >= LOOK_PAUSE);
        if is_due || self.fresh(self.part()?).is_some() {
            return self.present();
        }
        let known = self.known.borrow();
        let newest = known.as_ref().and_then(Kept::newest);
        let none = || AgentError::new("cannot tell what Salt makes of the configuration: it was asked just now");
        newest.map_or_else(|| Err(none()), |answer| answer.config().map_err(|why| self.cannot_load(answer, &why)))
    }

    /// The answer about the present files.
    pub fn answer(&self) -> Result<Answer, AgentError> {
        let part = self.part()?;
        if let Some(answer) = self.fresh(part) {
            return Ok(answer);
        }
        self.rest()?;
        let asked = ask(part, &self.settings);
        let directory = &self.settings.config_directory;
        self.asked_at.set(Some(clock::since_boot()));
        let answer = asked.map_err(|why| {
            let tree = part.tree.display();
            let directory = directory.display();
            let error =
                AgentError::new(format!("cannot ask the release in {tree} what Salt makes of {directory}: {why}"));
            *self.failed.borrow_mut() = Some((clock::since_boot(), error.clone()));
            error
        })?;
        let empty = || Kept { tree: part.tree.clone(), directory: directory.clone(), loaded: None, refused: None };
        let known = self.known.take().or_else(|| self.kept(part)).unwrap_or_else(empty).with(answer.clone());
        if let Answers::Kept(state) = &self.settings.answers {
            let _ = kept::write(state, &known);
        }
        *self.known.borrow_mut() = Some(known);
        Ok(answer)
    }

    /// The newest answer in memory or on disk, if no file has changed since.
    fn fresh(&self, part: &Part) -> Option<Answer> {
        if let Some(answer) = self.known.borrow().as_ref().and_then(Kept::fresh) {
            return Some(answer.clone());
        }
        let kept = self.kept(part)?;
        let answer = kept.fresh()?.clone();
        *self.known.borrow_mut() = Some(kept);
        Some(answer)
    }

    /// The options of a process that runs: those that its guard reports, else those that were last loaded. A change of the files since its start
    /// does not matter to it, however wrong they are.
    pub fn running(&self, subject: Subject<'_>) -> Result<MinionConfig, AgentError> {
        let reported = subject.report.and_then(|report| report.options.as_ref());
        let reported = reported.and_then(Options::reported).and_then(|options| options.config().ok());
        reported.map_or_else(|| self.last(), Ok)
    }

    /// The options that were last loaded.
    pub fn last(&self) -> Result<MinionConfig, AgentError> {
        let loaded = |kept: &Kept| kept.loaded.as_ref().and_then(|answer| answer.config().ok());
        if let Some(config) = self.known.borrow().as_ref().and_then(loaded) {
            return Ok(config);
        }
        if let Some(kept) = self.part().ok().and_then(|part| self.kept(part)) {
            if let Some(config) = loaded(&kept) {
                *self.known.borrow_mut() = Some(kept);
                return Ok(config);
            }
        }
        self.present()
    }

    /// The release that can be asked.
    fn part(&self) -> Result<&Part, AgentError> {
        self.settings.release.as_ref().ok_or_else(|| {
            let directory = self.settings.config_directory.display();
            AgentError::new(format!("cannot tell what Salt makes of {directory}: no release is there to ask"))
        })
    }

    fn kept(&self, part: &Part) -> Option<Kept> {
        let (Answers::Kept(state) | Answers::Read(state)) = &self.settings.answers else { return None };
        let all = kept::read(state).into_iter();
        all.filter(|kept| kept.tree == part.tree).find(|kept| kept.directory == self.settings.config_directory)
    }

    /// The last failure, while the question is not asked again.
    fn rest(&self) -> Result<(), AgentError> {
        match &*self.failed.borrow() {
            Some((at, error)) if clock::since_boot().saturating_sub(*at) < PAUSE => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }

    fn cannot_load(&self, answer: &Answer, why: &str) -> AgentError {
        cannot_load(&self.settings.config_directory, answer.version.as_deref(), why)
    }
}

/// The options of a configuration directory that any release has last loaded; `instances`: the directory of all instances' states.
pub fn last_of(instances: &Path, directory: &Path) -> Option<MinionConfig> {
    let names = crate::os::dir::Dir::open_if_exists(instances).ok()??.names().ok()?;
    let mut all = names.iter().flat_map(|name| kept::read(&instances.join(name)));
    all.find(|kept| kept.directory == directory)?.loaded?.config().ok()
}

/// Runs the program with the release's own Python and with the variables that the agent would get.
fn ask(part: &Part, settings: &AgentSettings) -> Result<Answer, String> {
    let mut program = Program::python(part.tree.join("bin/python3")).passing(settings.passed.clone());
    program = program.argument("-c").argument(SCRIPT).argument(&settings.config_directory);
    program = program.argument(settings.image.as_deref().unwrap_or(Path::new(""))).argument(DESCRIPTION);
    program.environment.clone_from(&part.environment);
    program.without = NOT_PASSED_ON.map(Into::into).into();
    let said = program.answer_within(ANSWER_WAIT).map_err(|error| error.to_string())?;
    let said = said.ok_or_else(|| format!("it did not answer within {} s", ANSWER_WAIT.as_secs()))?;
    let last = said.errors.lines().last().unwrap_or_default();
    match Answer::parse(&said.output) {
        Ok(answer) if said.success => Ok(answer),
        Ok(_) => Err(format!("its Python failed: {last}")),
        Err(_) if !last.is_empty() => Err(format!("its Python failed: {last}")),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::recorded;
    use super::*;
    use crate::agent::gate::GuardReport;
    use crate::os::dir::Dir;
    use crate::os::process::Identity;
    use serde_json::json;
    use tempfile::TempDir;

    /// A host with a release whose Python prints what the file `answer` holds, and counts the questions.
    fn host() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let bin = Dir::open_or_create(&root.path().join("tree/bin"), 0o755).unwrap();
        let text = format!("#!/bin/sh\necho asked >>{0}/asked\ncat {0}/answer\n", root.path().display());
        bin.write_atomic("python3", text.as_bytes(), 0o755).unwrap();
        Dir::open_or_create(&root.path().join("state"), 0o755).unwrap();
        Dir::open_or_create(&root.path().join("etc"), 0o755).unwrap();
        root
    }

    fn settings(root: &TempDir) -> AgentSettings {
        let part = Part { tree: root.path().join("tree"), environment: Vec::new() };
        AgentSettings::new(&root.path().join("etc")).asking(part, Answers::Kept(root.path().join("state")))
    }

    /// Writes the configuration, and what the release will make of it.
    fn put(root: &TempDir, cachedir: Option<&str>) {
        let etc = Dir::open(&root.path().join("etc")).unwrap();
        etc.write_atomic("minion", format!("cachedir: {cachedir:?}").as_bytes(), 0o644).unwrap();
        let stat = etc.stat("minion").unwrap().unwrap();
        let nanoseconds = |time: (i64, u32)| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
        let signature = json!([stat.device, stat.inode, stat.size, nanoseconds(stat.mtime), nanoseconds(stat.ctime)]);
        let options = cachedir.map(|path| json!({"cachedir": path}));
        let options = options.map(|more| {
            let mut all = serde_json::to_value(recorded()).unwrap();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        });
        let failure = options.is_none().then_some("Error parsing configuration file: minion");
        let files = json!([[root.path().join("etc/minion"), signature]]);
        let answer = json!({"schema": 1, "version": "3006.30", "failure": failure, "options": options, "files": files});
        Dir::open(root.path()).unwrap().write_atomic("answer", answer.to_string().as_bytes(), 0o644).unwrap();
    }

    fn asked(root: &TempDir) -> usize {
        let lines = Dir::open(root.path()).unwrap().read_if_exists("asked", 1 << 20).unwrap().unwrap_or_default();
        String::from_utf8_lossy(&lines).lines().count()
    }

    fn cache(config: Result<MinionConfig, AgentError>) -> String {
        config.map_or_else(|error| error.message, |config| config.cache_directory.display().to_string())
    }

    #[test]
    fn nothing_is_asked_twice_while_nothing_changes_not_by_another_process_either() {
        let root = host();
        put(&root, Some("/a"));
        let asker = Asker::new(&settings(&root));
        for _ in 0..3 {
            assert_eq!(cache(asker.present()), "/a");
            assert_eq!(cache(Asker::new(&settings(&root)).present()), "/a");
        }
        assert_eq!(asked(&root), 1);
        put(&root, Some("/b"));
        assert_eq!((cache(asker.present()), asked(&root)), ("/b".to_owned(), 2));
        // A reader writes nothing.
        let state = root.path().join("state");
        let reader = AgentSettings { answers: Answers::Read(state), ..settings(&root) };
        put(&root, Some("/c"));
        assert_eq!(cache(Asker::new(&reader).present()), "/c");
        assert_eq!(cache(Asker::new(&settings(&root)).last()), "/b");
        assert_eq!(last_of(root.path(), &root.path().join("etc")).map(|config| config.id), Some(Some("a".to_owned())));
    }

    #[test]
    fn a_configuration_that_cannot_be_loaded_stops_the_next_start_and_not_the_process_that_runs() {
        let root = host();
        put(&root, Some("/a"));
        let asker = Asker::new(&settings(&root));
        asker.present().unwrap();
        put(&root, None);
        let leader = Identity::own().unwrap();
        let subject = Subject::unguarded(&leader);
        for asker in [asker, Asker::new(&settings(&root))] {
            let refused = cache(asker.present());
            assert!(refused.ends_with("etc: Error parsing configuration file: minion"), "{refused}");
            assert_eq!((cache(asker.running(subject)), cache(asker.last())), ("/a".to_owned(), "/a".to_owned()));
        }
        assert_eq!(asked(&root), 2, "a failure is an answer, too");
    }

    #[test]
    fn a_look_asks_once_in_a_while_however_often_a_file_changes() {
        let root = host();
        put(&root, Some("/a"));
        let asker = Asker::new(&settings(&root));
        for path in ["/b", "/c", "/d"] {
            assert_eq!(cache(asker.lately()), "/a");
            put(&root, Some(path));
        }
        assert_eq!(asked(&root), 1);
        Asker::new(&settings(&root)).present().unwrap();
        assert_eq!((cache(asker.lately()), asked(&root)), ("/d".to_owned(), 2), "who asked meanwhile has told all");
    }

    #[test]
    fn the_options_of_the_process_win_over_those_of_the_files() {
        let root = host();
        put(&root, Some("/a"));
        let asker = Asker::new(&settings(&root));
        let mut options = serde_json::to_value(recorded()).unwrap();
        options["cachedir"] = json!("/runs/with");
        let report = |options: serde_json::Value| {
            let report = json!({"schema": 1, "leader": 1, "pid": 7, "start_time": 1, "wrapped": [], "overlap": null, "serial": 1,
                "role": "active", "singletons": true, "announced": true, "prove": 0, "jobs": [], "held": 0, "returning": 0,
                "peers": [], "updated": 1.0, "options": options});
            GuardReport::parse(report.to_string().as_bytes()).unwrap()
        };
        let leader = Identity::own().unwrap();
        let running = |report: &GuardReport| {
            cache(asker.running(Subject { report: Some(report), ..Subject::unguarded(&leader) }))
        };
        assert_eq!(running(&report(options)), "/runs/with");
        assert_eq!(asked(&root), 0);
        assert_eq!(running(&report(json!(null))), "/a", "an older guard reports none");
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_its_reason_and_not_asked_at_each_look() {
        let root = host();
        let none = Asker::new(&AgentSettings::new(&root.path().join("etc")));
        assert!(cache(none.present()).contains("no release is there to ask"));
        let asker = Asker::new(&settings(&root));
        for _ in 0..3 {
            let refused = cache(asker.last());
            assert!(refused.starts_with("cannot ask the release in ") && refused.contains("answer"), "{refused}");
        }
        assert_eq!(asked(&root), 1);
    }
}
