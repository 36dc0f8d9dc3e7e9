//! Rehearsing a minion: `sidle_rehearsal.py` loads the host's configuration and extensions with the trial and with the former release;
//! what fails or vanishes only with the trial counts.

pub mod again;
pub(super) mod carrying;
pub mod compare;
pub mod describing;
pub mod extras;
pub mod highstate;
mod highstates;
pub mod lost;
pub mod masters;
pub(super) mod packaged;
pub mod report;
pub(super) mod setup_files;
mod state_words;
mod uses;
mod words;

use crate::bundle::contents::Offers;
use crate::os::dir::Dir;
use crate::os::process::{Identity, Program};
use crate::rehearsal::extras::Builder;
use crate::rehearsal::lost::{Lost, Successors};
use crate::rehearsal::{Former, Performance, Rehearsal, Rehearser, Role, Scene};
use crate::version::Version;
use report::RehearsalReport;
use serde_json::Value;
use std::path::{Path, PathBuf};
pub(in crate::salt) use uses::USES_NAME;

/// The program, in a tree's `lib/python3.…/site-packages`.
const SCRIPT_NAME: &str = "sidle_rehearsal.py";
/// What describes a release, beside it.
const RELEASE_SCRIPT_NAME: &str = "sidle_release.py";

/// Where Pythons look for packages below `lib/python3.…`: as Python's own makers have it, and as Debian has it for its Python.
const PACKAGES_NAMES: [&str; 2] = ["site-packages", "dist-packages"];

/// What to do about a rehearsal that is impossible.
const REMEDY: &str = "pack the release with the guard and its `sidle_rehearsal.py`, or set `rehearsal = \"report\"`";

/// A program whose supervisor was killed ends itself after this; a supervisor that lives bounds it before, by `rehearsal_timeout`.
const SECONDS_MAX: &str = "3600";

/// The minion's rehearser.
pub static SALT: SaltRehearser = SaltRehearser { script: None };

/// Rehearses minions.
#[derive(Debug)]
pub struct SaltRehearser {
    script: Option<PathBuf>,
}

impl SaltRehearser {
    /// One that runs `script` in place of the one that the releases bring.
    pub fn with_script(script: &Path) -> Self {
        Self { script: Some(script.to_owned()) }
    }

    /// The trial's script, also for the former: both reports are of one make. On the way back the older release may have none.
    fn script(&self, scene: &Scene) -> Option<PathBuf> {
        let brought = || {
            let mut trees = [Some(&scene.trial), scene.former.part()].into_iter().flatten();
            trees.find_map(|part| script_of(&part.tree, SCRIPT_NAME))
        };
        self.script.clone().or_else(brought)
    }
}

fn script_of(tree: &Path, script: &str) -> Option<PathBuf> {
    for library in ["lib", "lib64"] {
        let directory = Dir::open_if_exists(&tree.join(library)).ok().flatten();
        for name in directory.map(|directory| directory.names().unwrap_or_default()).unwrap_or_default() {
            if !name.to_string_lossy().starts_with("python3") {
                continue;
            }
            let places = PACKAGES_NAMES.map(|packages| tree.join(library).join(&name).join(packages));
            let has_script = |place: &PathBuf| {
                let packages = Dir::open_if_exists(place).ok().flatten();
                packages.is_some_and(|packages| matches!(packages.stat(script), Ok(Some(_))))
            };
            if let Some(place) = places.iter().find(|place| has_script(place)) {
                return Some(place.join(script));
            }
        }
    }
    None
}

impl Rehearser for SaltRehearser {
    fn program(&self, scene: &Scene, role: Role, scratch: &Path) -> Option<Program> {
        let part = scene.part(role)?;
        let script = self.script(scene)?;
        // As the tree's own programs start: neither the caller's PYTHON* nor ~/.local, and nothing is written beside a source.
        let mut program = Program::python(part.tree.join("bin/python3"));
        program = program.argument(script).argument("-c").argument(&scene.config_directory);
        program = program.argument("--scratch").argument(scratch).argument("--seconds").argument(SECONDS_MAX);
        program.environment.clone_from(&part.environment);
        // Not an argument: a program of an older release refuses what it does not know.
        let asked = scene.states.as_ref().map(highstate::words);
        program.environment.extend(asked.map(|words| (highstate::VARIABLE.into(), words.into())));
        Some(program)
    }

    fn judge(&self, trial: Option<&Performance>, former: Option<&Performance>) -> Rehearsal {
        let Some(trial) = trial else {
            return Rehearsal::not_done(format!(
                "cannot rehearse: neither this release nor the running release has the rehearsal program: {REMEDY}"
            ));
        };
        let former = former.map(read);
        match (read(trial), former) {
            (Ok(trial), former) => {
                compare::compare(&trial, former.as_ref().map(|former| former.as_ref().map_err(String::as_str)))
            }
            (Err(cause), Some(Err(before))) => {
                let why = format!("{}; nor can the running release: {before}", cannot(&cause));
                Rehearsal::not_done(format!("{why}: correct that, or set `rehearsal = \"report\"`"))
            }
            (Err(cause), Some(Ok(_)) | None) => Rehearsal { blocking: vec![cannot(&cause)], ..Rehearsal::default() },
        }
    }

    fn packaged(&self, leader: &Identity) -> Former {
        packaged::of(leader)
    }

    fn uses_file(&self, options: Option<&Value>, state: &Path) -> Option<PathBuf> {
        uses::file(options, state)
    }

    fn peers_refuse(&self, options: Option<&Value>, state: &Path, version: &Version) -> Vec<String> {
        masters::refuse(options, state, version)
    }

    fn successors(&self) -> Option<Successors> {
        Some(*lost::SUCCESSORS)
    }

    fn lost(&self, trial: &Offers, former: &Offers) -> Option<Vec<Lost>> {
        lost::by_lists(trial, former)
    }

    fn listed_only(&self) -> &'static [&'static str] {
        &lost::LISTED_ONLY
    }

    fn builder(&self) -> Option<&dyn Builder> {
        Some(self)
    }

    fn judge_again(&self, again: Option<&Performance>) -> Rehearsal {
        match again.map(read) {
            None => Rehearsal::not_done(format!("cannot rehearse: this release has no rehearsal program: {REMEDY}")),
            Some(Ok(report)) => again::judge(&report),
            Some(Err(cause)) => Rehearsal { blocking: vec![cannot(&cause)], ..Rehearsal::default() },
        }
    }
}

fn cannot(cause: &str) -> String {
    format!("cannot load this host's configuration and modules: {cause}")
}

/// A report, or in words why there is none.
fn read(performance: &Performance) -> Result<RehearsalReport, String> {
    if let Some(failure) = &performance.failure {
        let last = performance.errors.lines().last().map(words::plain).unwrap_or_default();
        return Err(if last.is_empty() { failure.clone() } else { format!("{failure}: {last}") });
    }
    RehearsalReport::parse(&performance.output).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(failure: Option<&str>, output: &str) -> Performance {
        let errors = "Traceback:\nMemoryError".to_owned();
        Performance { failure: failure.map(str::to_owned), output: output.as_bytes().to_vec(), errors }
    }

    #[test]
    fn a_rehearsal_that_breaks_blocks_unless_the_running_release_breaks_it_too() {
        let good = r#"{"schema":1,"version":"1","python":"3.11.7","failure":null}"#;
        let broken = ended(Some("it was ended by signal 9"), "");
        let judged = SALT.judge(Some(&broken), Some(&ended(None, good)));
        let message = "cannot load this host's configuration and modules: it was ended by signal 9: MemoryError";
        assert_eq!(judged.blocking, [message]);
        assert!(SALT.judge(Some(&broken), None).refuses());
        let both = SALT.judge(Some(&broken), Some(&broken));
        assert!(both.blocking.is_empty() && both.unknown[0].contains("nor can the running release"), "{both:?}");
        assert!(both.refuses(), "nothing is known of the release");
        assert!(SALT.judge(Some(&ended(None, "{")), None).refuses(), "no report is no pass");
        assert!(!SALT.judge(Some(&ended(None, good)), Some(&broken)).refuses());
    }

    #[test]
    fn a_release_that_cannot_be_rehearsed_is_not_known_to_work() {
        for judged in [SALT.judge(None, None), SALT.judge_again(None)] {
            assert!(judged.refuses() && judged.blocking.is_empty(), "{judged:?}");
            assert!(judged.unknown[0].starts_with("cannot rehearse: ") && judged.unknown[0].contains("report"));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes real files")]
    fn the_program_is_found_in_every_layout_of_python() {
        for place in ["lib/python3.11/site-packages", "lib/python3.14/dist-packages", "lib64/python3.9/site-packages"] {
            let tree = tempfile::tempdir().unwrap();
            let packages = tree.path().join(place);
            std::fs::create_dir_all(&packages).unwrap();
            assert_eq!(script_of(tree.path(), SCRIPT_NAME), None);
            std::fs::write(packages.join(SCRIPT_NAME), "").unwrap();
            assert_eq!(script_of(tree.path(), SCRIPT_NAME), Some(packages.join(SCRIPT_NAME)));
        }
    }
}
