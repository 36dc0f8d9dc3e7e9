//! Laying extras over a new release: they are built in a directory of their own, and moved into place once they are whole. Nothing that is there
//! is removed; what was built says that it is there last of all, so that a crash leaves nothing that looks complete and isn't.

use crate::os::OsError;
use crate::os::dir::{Dir, FileKind};
use crate::os::process::{Identity, end_group};
use crate::rehearsal::extras::{Builder, Building, Vanishing};
use crate::rehearsal::{Performance, Scene};
use crate::switch::process::running::exit_text;
use crate::switch::rehearsal::workplace::{end_of, fresh, record, without_agent};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// The working directory in the instance's state directory: what is built may be large, and is mostly moved within one file system.
const DIRECTORY_NAME: &str = "extras";
const OUTPUT_NAME: &str = "output";
const ERRORS_NAME: &str = "errors";
/// No file of a package is larger; a download without end would fill the disk.
const FILE_BYTES_MAX: u64 = 1 << 30;
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Where extras are built, and out of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workshop {
    /// The instance's state directory.
    pub state: PathBuf,
    /// A directory of packages; None: from where the agent's own configuration says.
    pub wheels: Option<PathBuf>,
    /// How long it may take: a package index may never answer.
    pub longest: Duration,
}

/// Extras that are being built. Dropped before its end, it ends what it started and leaves nothing.
pub struct Rebuilding {
    state: Dir,
    directory: Dir,
    building: Building,
    vanishing: Vanishing,
    child: Child,
    since: Duration,
    longest: Duration,
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Where it lies now.
    pub into: PathBuf,
    /// What a person may want to know.
    pub notes: Vec<String>,
}

impl Rebuilding {
    /// Begins. An error, in words: these can't be built. `now`: time since boot.
    pub fn start(
        builder: &dyn Builder,
        scene: &Scene,
        vanishing: Vanishing,
        workshop: &Workshop,
        now: Duration,
    ) -> Result<Self, String> {
        let said = |error: OsError| error.to_string();
        let state = Dir::open_or_create(&workshop.state, 0o755).map_err(said)?;
        let directory = fresh(&state, DIRECTORY_NAME).map_err(said)?;
        let begin = || {
            let building = builder.building(scene, &vanishing, workshop.wheels.as_deref(), directory.path())?;
            if building.into == vanishing.from {
                return Err(format!("the running release uses {}, too", building.into.display()));
            }
            let output = directory.create_file(OUTPUT_NAME, 0o600).map_err(said)?;
            let errors = directory.create_file(ERRORS_NAME, 0o600).map_err(said)?;
            let program = without_agent(building.program.clone());
            let child = program.start_aside(output, errors, FILE_BYTES_MAX).map_err(said)?;
            Ok((building, child))
        };
        match begin() {
            Ok((building, child)) => {
                if let Ok(Some(identity)) = Identity::of(child.id()) {
                    // What can't be written bounds its own time.
                    let _ = record(&directory, &identity);
                }
                let longest = workshop.longest;
                Ok(Self { state, directory, building, vanishing, child, since: now, longest })
            }
            Err(reason) => {
                let _ = state.remove_tree(DIRECTORY_NAME);
                Err(reason)
            }
        }
    }

    /// Looks how far it is; never waits. None: not over yet. After the first answer that is not None it is over.
    pub fn poll(&mut self, builder: &dyn Builder, now: Duration) -> Option<Result<Rebuilt, String>> {
        let said = |error: OsError| error.to_string();
        let failure = match self.child.try_wait() {
            Ok(Some(status)) if status.success() => None,
            Ok(Some(status)) => Some(format!("it {}", exit_text(status))),
            Ok(None) if now.saturating_sub(self.since) < self.longest => return None,
            Ok(None) => Some(format!("it did not end within {} s", self.longest.as_secs())),
            Err(error) => Some(error.to_string()),
        };
        if let Err(error) = end_group(&mut self.child) {
            return Some(Err(error.to_string()));
        }
        let performance = || {
            let output = self.directory.read(OUTPUT_NAME, OUTPUT_BYTES_MAX)?;
            Ok(Performance { failure, output, errors: end_of(&self.directory, ERRORS_NAME)? })
        };
        let judged = performance().map_err(said).and_then(|built| builder.built(&self.vanishing, &built));
        Some(judged.and_then(|notes| {
            lay(&self.directory, &self.building, &self.vanishing.from).map_err(said)?;
            Ok(Rebuilt { into: self.building.into.clone(), notes })
        }))
    }

    /// The program that runs.
    pub fn child(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Rebuilding {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = end_group(&mut self.child);
        }
        let _ = self.state.remove_tree(DIRECTORY_NAME);
    }
}

/// Moves what was built into place: all at once where nothing is there, else entry by entry, the seals last.
fn lay(work: &Dir, building: &Building, former: &Path) -> Result<(), OsError> {
    let name = |path: &Path| path.file_name().map(OsStr::to_owned).unwrap_or_default();
    let built = work.child(name(&building.built))?;
    // What is not on disk yet must not get a name that says it is there.
    built.sync_filesystem()?;
    let parent = building.into.parent().unwrap_or_else(|| Path::new("/"));
    let parent = Dir::open_or_create(parent, 0o755)?;
    // A link there is not followed: it may be another user's.
    if let Some(there) = parent.child_if_exists(name(&building.into))? {
        let is_seal = |name: &OsStr| building.seals.iter().any(|end| name.to_string_lossy().ends_with(end));
        let (seals, others): (Vec<_>, Vec<_>) = built.names()?.into_iter().partition(|name| is_seal(name));
        for name in &others {
            merge(&built, &there, name)?;
        }
        there.sync()?;
        for name in &seals {
            merge(&built, &there, name)?;
        }
        return there.sync();
    }
    // Whoever may add to the one beside may add to this one.
    let beside = Dir::open(former)?.stat_self()?;
    if beside.uid != built.stat_self()?.uid {
        built.set_owner(beside.uid)?;
    }
    work.rename_exclusive(name(&building.built), &parent, name(&building.into))?;
    parent.sync()
}

/// Moves an entry; directories that are there already take what is in it. A file of that name is left of something that is not there whole.
fn merge(from: &Dir, to: &Dir, name: &OsStr) -> Result<(), OsError> {
    let is_directory = |dir: &Dir| Ok(dir.stat(name)?.is_some_and(|stat| stat.kind == FileKind::Directory));
    if !(is_directory(from)? && is_directory(to)?) {
        return from.rename(name, to, name);
    }
    let (inner, there) = (from.child(name)?, to.child(name)?);
    for entry in inner.names()? {
        merge(&inner, &there, &entry)?;
    }
    there.sync()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use crate::os::clock;
    use crate::os::process::Program;
    use crate::rehearsal::Part;
    use crate::rehearsal::extras::Extra;
    use std::fs;

    /// Runs a shell script in the directory that it is to fill.
    struct Shell(&'static str);

    impl Builder for Shell {
        fn building(
            &self,
            _scene: &Scene,
            vanishing: &Vanishing,
            _wheels: Option<&Path>,
            work: &Path,
        ) -> Result<Building, String> {
            let built = work.join("built");
            fs::create_dir(&built).unwrap();
            let script = format!("cd \"$0\" && {}", self.0);
            let program = Program::new("/bin/sh").argument("-c").argument(script).argument(&built);
            Ok(Building { program, built, into: vanishing.into.clone().ok_or("nowhere")?, seals: &[".info"] })
        }

        fn built(&self, _vanishing: &Vanishing, built: &Performance) -> Result<Vec<String>, String> {
            built.failure.clone().map_or(Ok(Vec::new()), Err)
        }

        fn remedy(&self, _wheels: Option<&Path>) -> String {
            String::new()
        }
    }

    fn built(root: &Path, script: &'static str, longest: Duration) -> Result<Rebuilt, String> {
        let part = Part { tree: root.to_owned(), environment: Vec::new() };
        let scene = Scene { trial: part, former: None, config_directory: root.to_owned() };
        let packages = vec![Extra { name: "a".to_owned(), version: "1".to_owned() }];
        let vanishing = Vanishing { packages, from: root.join("old"), into: Some(root.join("new")) };
        fs::create_dir_all(&vanishing.from).unwrap();
        let workshop = Workshop { state: root.join("state"), wheels: None, longest };
        let builder = Shell(script);
        let mut rebuilding = Rebuilding::start(&builder, &scene, vanishing, &workshop, clock::since_boot())?;
        let came = loop {
            if let Some(came) = rebuilding.poll(&builder, clock::since_boot()) {
                break came;
            }
            std::thread::yield_now();
        };
        drop(rebuilding);
        assert_eq!(fs::read_dir(root.join("state")).unwrap().count(), 0, "nothing is left");
        came
    }

    const SECONDS: Duration = Duration::from_secs(60);
    const SCRIPT: &str = "mkdir -p a/part a-1.info bin && echo new >a/part/x && echo 1 >a-1.info/M && echo a >bin/a";

    #[test]
    fn what_was_built_comes_whole_where_nothing_is_and_beside_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        built(root.path(), SCRIPT, SECONDS).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("new/a/part/x")).unwrap(), "new\n");
        let root = tempfile::tempdir().unwrap();
        let new = root.path().join("new");
        for (path, text) in [("bin/b", "b\n"), ("a/part/x", "half\n"), ("a/part/y", "y\n"), ("b-2.info/M", "2\n")] {
            fs::create_dir_all(new.join(path).parent().unwrap()).unwrap();
            fs::write(new.join(path), text).unwrap();
        }
        built(root.path(), SCRIPT, SECONDS).unwrap();
        for (path, text) in
            [("bin/b", "b\n"), ("bin/a", "a\n"), ("a/part/x", "new\n"), ("a/part/y", "y\n"), ("a-1.info/M", "1\n")]
        {
            assert_eq!(fs::read_to_string(new.join(path)).unwrap(), text, "{path}");
        }
    }

    #[test]
    fn what_could_not_be_moved_does_not_look_complete() {
        let root = tempfile::tempdir().unwrap();
        // A file in the way of a directory.
        fs::create_dir_all(root.path().join("new")).unwrap();
        fs::write(root.path().join("new/bin"), "").unwrap();
        let failed = built(root.path(), SCRIPT, SECONDS).unwrap_err();
        assert!(failed.starts_with("cannot move "), "{failed}");
        assert!(!root.path().join("new/a-1.info").exists());
    }

    #[test]
    fn what_fails_or_hangs_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(built(root.path(), "mkdir a; exit 3", SECONDS).unwrap_err(), "it exited with code 3");
        let hung = built(root.path(), "mkdir a; exec sleep 600", Duration::ZERO).unwrap_err();
        assert_eq!(hung, "it did not end within 0 s");
        assert!(!root.path().join("new").exists());
    }
}
