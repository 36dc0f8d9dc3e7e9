//! Rebuilds extras for a new release: builds them in a work directory, and has them moved into place once they are whole.

use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::{Identity, end_group};
use crate::rehearsal::extras::{Builder, Building, Vanishing};
use crate::rehearsal::{Performance, Scene};
use crate::switch::process::running::exit_text;
use crate::switch::rehearsal::placing::{lay, refuse_other_file_system};
use crate::switch::rehearsal::workplace::{end_of, fresh, in_scene, record};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// The work directory in the instance's state directory: extras may be large, and this is mostly on the same file system as their place.
const DIRECTORY_NAME: &str = "extras";
const OUTPUT_NAME: &str = "output";
const ERRORS_NAME: &str = "errors";
/// Largest file of a package: a download without end would fill the disk.
const FILE_BYTES_MAX: u64 = 1 << 30;
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Where to build extras, and from which packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workshop {
    /// The instance's state directory.
    pub state: PathBuf,
    /// A directory of packages; None: the source that the agent's own configuration names.
    pub wheels: Option<PathBuf>,
    /// The time limit: a package index may never answer.
    pub longest: Duration,
}

/// A rebuild under way. If it is dropped before its end, it ends its program and removes its files.
pub struct Rebuilding {
    state: Dir,
    directory: Dir,
    building: Building,
    vanishing: Vanishing,
    child: Child,
    since: Duration,
    longest: Duration,
}

/// The result of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// The directory with the extras.
    pub into: PathBuf,
    /// Notes for people.
    pub notes: Vec<String>,
}

impl Rebuilding {
    /// Begins. An error says why these extras can't be built. `now`: time since boot.
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
            refuse_other_file_system(&directory, &building.into)?;
            let output = directory.create_file(OUTPUT_NAME, 0o600).map_err(said)?;
            let errors = directory.create_file(ERRORS_NAME, 0o600).map_err(said)?;
            let program = in_scene(building.program.clone(), scene);
            let child = program.start_aside(output, errors, FILE_BYTES_MAX).map_err(said)?;
            Ok((building, child))
        };
        match begin() {
            Ok((building, child)) => {
                if let Ok(Some(identity)) = Identity::of(child.id()) {
                    // Without this record a crash leaves the program to its own time limit.
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

    /// Returns the result once the rebuild is over; never waits. Do not call it again after a result.
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

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use crate::os::clock;
    use crate::os::environment::Passed;
    use crate::os::process::Program;
    use crate::rehearsal::extras::Extra;
    use crate::rehearsal::{Former, Part};
    use std::fs;
    use std::path::Path;

    /// Runs a shell script in the directory that it has to fill.
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
            Ok(Building {
                program,
                built,
                into: vanishing.into.clone().ok_or("nowhere")?,
                seals: &[".info"],
                record: "R",
                keeps_owner: true,
            })
        }

        fn built(&self, _vanishing: &Vanishing, built: &Performance) -> Result<Vec<String>, String> {
            built.failure.clone().map_or(Ok(Vec::new()), Err)
        }

        fn remedy(&self, _vanishing: &Vanishing, _wheels: Option<&Path>) -> String {
            String::new()
        }
    }

    fn built(root: &Path, script: &'static str, longest: Duration) -> Result<Rebuilt, String> {
        let part = Part { tree: root.to_owned(), environment: Vec::new() };
        let scene = Scene {
            trial: part,
            former: Former::Nothing,
            config_directory: root.to_owned(),
            passed: Passed::default(),
            states: None,
        };
        let packages = vec![Extra { name: "a".to_owned(), version: "1".to_owned() }];
        let vanishing =
            Vanishing { packages, from: root.join("old"), into: Some(root.join("new")), fits: false, recipe: None };
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
        fs::rename(new.join("a-1.info"), new.join("A-0.9.info")).unwrap();
        built(root.path(), SCRIPT, SECONDS).unwrap();
        assert!(new.join("a-1.info").exists() && !new.join("A-0.9.info").exists(), "one version of a package");
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

    /// The agent's loader took a module that only the earlier version has for one of the later version.
    #[test]
    fn a_later_version_leaves_nothing_of_the_earlier_one() {
        let root = tempfile::tempdir().unwrap();
        let new = root.path().join("new");
        let record = "a/old.py,sha256=x,1\na/part/x,,\n\"a/od,d.py\",,\na/other/deep/z.py,,\nlink/kept,,\n../kept,,\n/kept,,\nA-0.9.info/R,,\nA-0.9.info/M,,\n";
        for path in ["a/old.py", "a/part/x", "a/od,d.py", "a/other/deep/z.py", "a/own", "../kept", "../elsewhere/kept"]
        {
            let path = new.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        }
        std::os::unix::fs::symlink("../elsewhere", new.join("link")).unwrap();
        fs::create_dir(new.join("A-0.9.info")).unwrap();
        fs::write(new.join("A-0.9.info/R"), record).unwrap();
        // What cannot be moved leaves no version that looks complete, and the earlier one's list, by which the next attempt finds its files.
        fs::write(new.join("bin"), "").unwrap();
        built(root.path(), SCRIPT, SECONDS).unwrap_err();
        let aside = new.join(".A-0.9.info.stale");
        assert!(aside.join("R").exists() && !new.join("A-0.9.info").exists() && !new.join("a-1.info").exists());
        fs::remove_file(new.join("bin")).unwrap();
        built(root.path(), SCRIPT, SECONDS).unwrap();
        for gone in ["a/old.py", "a/od,d.py", "a/other", "A-0.9.info", ".A-0.9.info.stale"] {
            assert!(!new.join(gone).exists(), "{gone}");
        }
        for kept in ["a/part/x", "a/own", "../kept", "link/kept", "a-1.info/M"] {
            assert!(new.join(kept).exists(), "{kept}");
        }
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
