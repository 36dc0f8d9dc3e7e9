//! What `salt-pip` has laid over the running release, laid over the next one, too: by that one's own `salt-pip`, and only what would vanish.

use super::SaltRehearser;
use super::carrying::SCRIPT as CARRY;
use super::report::{Extra as LoadedExtra, RehearsalReport};
use super::words::{counted, listed, plain};
use crate::os::ground::{self, Keeper};
use crate::os::process::{self, Program};
use crate::rehearsal::extras::{Builder, Building, Extra, Vanishing};
use crate::rehearsal::{Former, Performance, Scene};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names another directory than the usual one.
const DIRECTORY_VARIABLE: &str = "SALT_EXTRAS_DIR";
/// The directory that is filled.
const BUILT_NAME: &str = "built";
/// pip writes them as the last of a package, and finds the package by them.
const SEALS: &[&str] = &[".dist-info", ".egg-info"];
/// The list of a package's files in its `.dist-info` (the specification "Recording installed projects").
const RECORD: &str = "RECORD";

/// The remedy where both releases have different minor versions of Python, and one directory of packages.
const SHARED_REMEDY: &str = "no longer set SALT_EXTRAS_DIR, so that each Python has a directory of its own, or go ahead with \
                             `extras = \"report\"` in the settings if nothing of them is compiled";

/// Arguments: the tree, where the packages belong, where they are built; then those of pip. What pip says goes to standard error; on
/// standard output is what pip thinks of the outcome, whose exit code is also about packages of the release itself.
const SCRIPT: &str = r#"umask 022
tree=$1 into=$2 built=$3
shift 3
"$tree/bin/salt-pip" install "$@" >&2 || exit 1
"$tree/bin/python3" -I -B -c 'import runpy, sys
sys.path[:0] = sys.argv[1:3]
sys.argv[1:] = ["check"]
runpy.run_module("pip", run_name="__main__")' "$built" "$into" || :
"#;

/// Packages that `salt-pip` installed for the former release's Python, and that the trial's doesn't see, or sees in an earlier version.
pub(super) fn lost<'a>(trial: &RehearsalReport, former: &'a RehearsalReport) -> Vec<&'a LoadedExtra> {
    let is_same_python = minor(trial).is_some() && minor(trial) == minor(former);
    let stays = |extra: &LoadedExtra| {
        if let Some(other) = trial.extras.iter().flatten().find(|other| other.name == extra.name) {
            // What a package has compiled fits one minor version: both Pythons list a directory that both use, and only one can import it.
            return if is_same_python {
                !is_earlier(&other.version, &extra.version)
            } else {
                other.directory != extra.directory
            };
        }
        let own = trial.own_versions.get(&extra.name);
        trial.packages.contains(&extra.name) && own.is_none_or(|own| !is_earlier(own, &extra.version))
    };
    former.extras.iter().flatten().filter(|extra| !stays(extra)).collect()
}

/// The note about packages of `salt-pip` that hide a later version of the release's own.
pub(super) fn hiding(trial: &RehearsalReport) -> Option<String> {
    let hides = |extra: &&LoadedExtra| {
        let own = trial.own_versions.get(&extra.name);
        own.is_some_and(|own| is_earlier(&extra.version, own) && !is_earlier(own, &extra.version))
    };
    let hiding: Vec<&LoadedExtra> = trial.extras.iter().flatten().filter(hides).collect();
    let directory = &hiding.first()?.directory;
    let names = listed(hiding.iter().map(|extra| {
        format!("{} {} instead of the release's own {}", extra.name, extra.version, trial.own_versions[&extra.name])
    }));
    Some(format!(
        "older packages that salt-pip installed in {directory} are used: {names}; remove them there, unless something needs the older version"
    ))
}

/// The note about packages of `salt-pip` that the new release finds and the running one does not: the hook in the Python of Salt's own packages hides
/// what lies outside of its tree.
pub(super) fn gained(trial: &RehearsalReport, former: &RehearsalReport) -> Option<String> {
    let before = former.extras.as_ref()?;
    let is_new = |extra: &&LoadedExtra| !before.iter().any(|other| other.name == extra.name);
    let gained: Vec<&LoadedExtra> = trial.extras.iter().flatten().filter(is_new).collect();
    let directory = &gained.first()?.directory;
    if before.iter().any(|other| other.directory == *directory) {
        return None;
    }
    let names = listed(gained.iter().map(|extra| {
        let own = trial.own_versions.get(&extra.name);
        let instead = own.map_or_else(String::new, |own| format!(" instead of the release's own {own}"));
        format!("{} {}{instead}", extra.name, extra.version)
    }));
    Some(format!(
        "packages that salt-pip installed in {directory}, which the running release does not use, would be used: {names}; remove there what is not wanted"
    ))
}

/// Whether a version is earlier than another one; of two with the same numbers nobody can tell, so that either counts as earlier.
fn is_earlier(version: &str, other: &str) -> bool {
    let numbers = |text: &str| {
        let text = text.split(|one: char| one != '.' && !one.is_ascii_digit()).next().unwrap_or_default();
        let mut numbers: Vec<u64> = text.split('.').map_while(|part| part.parse().ok()).collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    };
    version != other && numbers(version) <= numbers(other)
}

/// The minor version of a report's Python: `3.11`.
fn minor(report: &RehearsalReport) -> Option<&str> {
    report.python.rsplit_once('.').map(|(minor, _)| minor)
}

/// The finding about lost packages.
pub(super) fn told(trial: &RehearsalReport, lost: &[&LoadedExtra]) -> Vec<String> {
    let Some(first) = lost.first() else { return Vec::new() };
    let shadowed = |name: &str| {
        let own = trial.own_versions.get(name);
        own.map_or_else(String::new, |own| format!(" (in place of the release's own {own})"))
    };
    let names = listed(lost.iter().map(|extra| format!("{} {}{}", extra.name, extra.version, shadowed(&extra.name))));
    let is_shared = |other: &LoadedExtra| other.name == first.name && other.directory == first.directory;
    if trial.extras.iter().flatten().any(is_shared) {
        return vec![plain(&format!(
            "{} in {}, which both releases use, may not work with Python {}: {names}; {SHARED_REMEDY}",
            counted(lost.len(), "package"),
            first.directory,
            trial.python
        ))];
    }
    let told = format!(
        "{} that salt-pip installed in {} would vanish with Python {}: {names}; install them with the release's own salt-pip first \
         (`sidle run PACKAGE salt-pip --release RELEASE -- install NAME`), have that done with `extras = \"rebuild\"` in the settings, or let \
         them go with `extras = \"report\"`",
        counted(lost.len(), "package"),
        first.directory,
        trial.python
    );
    // A line that is cut is no line of a recipe.
    vec![plain(&told) + &recipe(trial, lost).map_or_else(String::new, |line| packed(&line))]
}

/// The line of a recipe's `[build]` that brings these packages with a release; None: no recipe can. A release's own packages are no extras.
fn recipe(trial: &RehearsalReport, lost: &[&LoadedExtra]) -> Option<String> {
    let own = |extra: &LoadedExtra| trial.own_versions.contains_key(&extra.name);
    let pins = lost.iter().filter(|extra| !own(extra)).filter_map(|extra| requirement(&extra.name, &extra.version));
    let pins: Vec<String> = pins.map(|pin| format!("\"{pin}\"")).collect();
    (!pins.is_empty()).then(|| format!("extras = [{}]", pins.join(", ")))
}

fn packed(line: &str) -> String {
    format!("; or pack a revision of the release with `{line}` in its recipe")
}

/// The finding where the running release could not say what `salt-pip` has installed for it.
pub(super) fn unknown(trial: &RehearsalReport, cause: &str) -> String {
    format!(
        "cannot tell which packages of salt-pip would vanish with Python {}: the running release did not list its own: {cause}; correct \
         that, or go without with `extras = \"report\"`",
        trial.python
    )
}

/// What would vanish with the trial, and where the trial would see it.
pub(super) fn vanishing(lost: &[&LoadedExtra], trial: &RehearsalReport, former: &RehearsalReport) -> Option<Vanishing> {
    let from = PathBuf::from(&lost.first()?.directory);
    let label = |report: &RehearsalReport| minor(report).map(|minor| format!("extras-{minor}"));
    let usual = label(former).is_some_and(|name| from.file_name() == Some(OsStr::new(&name)));
    let beside = || label(trial).filter(|_| usual).map(|name| from.with_file_name(name));
    let into = trial.extras_place.clone().or_else(beside);
    let packages = lost.iter().map(|extra| Extra { name: extra.name.clone(), version: extra.version.clone() });
    let fits = minor(former).is_some() && minor(former) == minor(trial);
    Some(Vanishing { packages: packages.collect(), from, into, fits, recipe: recipe(trial, lost) })
}

/// What pip is to install; None: names and versions come from files that anybody may have put there, and these are none.
fn requirement(name: &str, version: &str) -> Option<String> {
    let is_plain = |text: &str, more: &str| {
        text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.chars().all(|one| one.is_ascii_alphanumeric() || more.contains(one))
    };
    (is_plain(name, "-") && is_plain(version, ".+!_-")).then(|| format!("{name}=={version}"))
}

/// Copies the files of the packages, which may belong to `keeper`, too.
fn copying(tree: &Path, vanishing: &Vanishing, built: &Path, keeper: u32) -> Program {
    let mut program = Program::python(tree.join("bin/python3")).argument("-c").argument(CARRY).argument("copy");
    program = program.argument(&vanishing.from).argument(built).argument(keeper.to_string());
    for extra in &vanishing.packages {
        program = program.argument(&extra.name);
    }
    program
}

impl Builder for SaltRehearser {
    fn building(
        &self,
        scene: &Scene,
        vanishing: &Vanishing,
        wheels: Option<&Path>,
        work: &Path,
    ) -> Result<Building, String> {
        let environment = &scene.trial.environment;
        let named = environment.iter().find(|(name, _)| name == DIRECTORY_VARIABLE).map(|(_, path)| path.into());
        let into = named.or_else(|| vanishing.into.clone());
        let into = into.ok_or("cannot tell where the new release looks for packages")?;
        let unsound = vanishing.packages.iter().filter(|extra| requirement(&extra.name, &extra.version).is_none());
        let unsound: Vec<String> = unsound.map(|extra| extra.name.clone()).collect();
        if !unsound.is_empty() {
            return Err(format!("cannot tell the name and version of these packages: {}", listed(unsound.into_iter())));
        }
        let (built, tree) = (work.join(BUILT_NAME), &scene.trial.tree);
        // With the rights of the new release would run what others may write there, or name there for pip. What the user of a package's tree may write
        // already runs with the rights of the packaged agent.
        let is_run_by_us = matches!(&scene.former, Former::Packaged(_, rights) if rights.user == process::user());
        let keeper = match ground::keeper(&vanishing.from).map_err(|error| error.to_string())? {
            Keeper::Nobody => process::user(),
            Keeper::User(user) if is_run_by_us => user,
            Keeper::User(_) | Keeper::Others => {
                return Err(format!("other users can change {}", vanishing.from.display()));
            }
        };
        if vanishing.fits {
            let program = copying(tree, vanishing, &built, keeper);
            return Ok(Building { program, built, into, seals: SEALS, record: RECORD, keeps_owner: !is_run_by_us });
        }
        let mut program = Program::new("/bin/sh").argument("-c").argument(SCRIPT).argument("sh");
        program = program.argument(tree).argument(&into).argument(&built);
        // Without what they depend on: what of that had been laid over the running release is in the list itself, and more would hide the
        // new release's own packages.
        for word in ["--no-deps", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--target"]
        {
            program = program.argument(word);
        }
        program = program.argument(&built);
        if let Some(wheels) = wheels {
            program = program.argument("--no-index").argument("--find-links").argument(wheels);
        }
        for extra in &vanishing.packages {
            if let Some(extra) = requirement(&extra.name, &extra.version) {
                program = program.argument(extra);
            }
        }
        program.environment.clone_from(environment);
        // The release is never written to; what pip unpacks goes with the rest.
        program = program.variable("PYTHONDONTWRITEBYTECODE", "1").variable("TMPDIR", work);
        Ok(Building { program, built, into, seals: SEALS, record: RECORD, keeps_owner: true })
    }

    fn built(&self, vanishing: &Vanishing, built: &Performance) -> Result<Vec<String>, String> {
        if let Some(failure) = &built.failure {
            let said: Vec<&str> = built.errors.lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
            // pip's first words are of what it looked for, its last ones of what came of it.
            let said = said.last().copied().or_else(|| built.errors.lines().last()).unwrap_or_default();
            return Err(if said.is_empty() {
                failure.clone()
            } else {
                // A copy has no program of its own to name.
                plain(&if vanishing.fits { said.to_owned() } else { format!("salt-pip: {said}") })
            });
        }
        let output = String::from_utf8_lossy(&built.output).into_owned();
        let is_one = |line: &&str| {
            let name = line.split(' ').next().unwrap_or_default().to_lowercase().replace(['_', '.'], "-");
            vanishing.packages.iter().any(|extra| extra.name == name)
        };
        let (missing, notes): (Vec<&str>, Vec<&str>) =
            output.lines().filter(is_one).partition(|line| line.ends_with("which is not installed."));
        match missing.first() {
            Some(missing) => Err(plain(missing.trim_end_matches('.'))),
            None => Ok(notes.into_iter().map(plain).collect()),
        }
    }

    fn remedy(&self, vanishing: &Vanishing, wheels: Option<&Path>) -> String {
        if vanishing.into.as_ref() == Some(&vanishing.from) {
            return SHARED_REMEDY.to_owned();
        }
        let place =
            wheels.map_or_else(|| "where pip's configuration says".to_owned(), |path| path.display().to_string());
        format!(
            "have packages for the new Python in {place}, install them by hand (`sidle run PACKAGE salt-pip --release RELEASE -- install NAME`), \
             or let them go with `extras = \"report\"` in the settings{}",
            vanishing.recipe.as_deref().map_or_else(String::new, packed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::SALT;
    use super::*;
    use crate::os::dir::Dir;
    use crate::os::environment::Passed;
    use crate::rehearsal::{Former, Part};

    fn found(name: &str, version: &str, directory: &str) -> LoadedExtra {
        LoadedExtra { name: name.to_owned(), version: version.to_owned(), directory: directory.to_owned() }
    }

    fn lost(name: &str, version: &str, directory: &str) -> Vanishing {
        let report = |python: &str| RehearsalReport { python: python.to_owned(), ..RehearsalReport::default() };
        vanishing(&[&found(name, version, directory)], &report("3.11.7"), &report("3.10.13")).unwrap()
    }

    #[test]
    fn extras_belong_beside_those_of_the_running_release() {
        assert_eq!(lost("a", "1", "/x/extras-3.10").into, Some(PathBuf::from("/x/extras-3.11")));
        assert_eq!(lost("a", "1", "/x/other").into, None);
        let part = |environment| Part { tree: PathBuf::from("/t"), environment };
        let scene = |environment| Scene {
            trial: part(environment),
            former: Former::Release(part(Vec::new())),
            config_directory: PathBuf::from("/e"),
            passed: Passed::default(),
            states: None,
        };
        let building = |vanishing: &Vanishing, environment| {
            SALT.building(&scene(environment), vanishing, Some(Path::new("/w")), Path::new("/work"))
        };
        let place = tempfile::tempdir().unwrap();
        let there = |name: &str, mode| {
            Dir::open_or_create(&place.path().join(name), mode).unwrap();
            place.path().join(name).display().to_string()
        };
        let (other, label) = (there("other", 0o755), there("extras-3.10", 0o755));
        let named = building(&lost("a", "1", &other), vec![(DIRECTORY_VARIABLE.into(), "/n".into())]).unwrap();
        assert_eq!(named.into, PathBuf::from("/n"));
        let usual = building(&lost("a-b", "1.0+x", &label), Vec::new()).unwrap();
        assert_eq!(usual.program.arguments.last().unwrap(), "a-b==1.0+x");
        assert!(usual.program.arguments.iter().any(|word| word == "--no-index"));
        assert!(building(&lost("a", "1", &other), Vec::new()).unwrap_err().contains("cannot tell where"));
        // The minion's user named what pip then installed with root's rights.
        let open = place.path().join("open/extras-3.10").display().to_string();
        let parent = Dir::open_or_create(&place.path().join("open"), 0o755).unwrap();
        parent.child_or_create("extras-3.10", 0o755).unwrap();
        parent.set_mode("extras-3.10", 0o777).unwrap();
        assert!(building(&lost("a", "1", &open), Vec::new()).unwrap_err().contains("other users can change"));
        let remedy = |version| SALT.remedy(&lost("a-b", version, "/x/extras-3.10"), None);
        assert!(remedy("1.0+x").ends_with("with `extras = [\"a-b==1.0+x\"]` in its recipe"));
        assert!(!remedy("1 --pre").contains("recipe"), "pip would read an option there");
        for (name, version) in
            [("a @ file:///x", "1"), ("a", ""), ("-r", "x"), ("a", "1 --pre"), ("a", "-1"), ("ä", "1")]
        {
            let refused = building(&lost(name, version, "/x/extras-3.10"), Vec::new()).unwrap_err();
            assert!(refused.contains(name), "{refused}");
        }
    }

    /// What shadows a package of the release was gone without a word, and so was a later version than an earlier adoption had left.
    #[test]
    fn a_package_is_lost_where_the_release_has_an_earlier_version_of_it() {
        let report = |python: &str, extras: &[(&str, &str)], own: &[(&str, &str)]| RehearsalReport {
            python: python.to_owned(),
            extras: Some(extras.iter().map(|(name, version)| found(name, version, "/x")).collect()),
            packages: extras.iter().chain(own).map(|(name, _)| (*name).to_owned()).collect(),
            own_versions: own.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect(),
            ..RehearsalReport::default()
        };
        let former = report("3.11.2", &[("idna", "99.0"), ("six", "1.16"), ("new", "2.10"), ("gone", "1")], &[]);
        let names = |trial: &RehearsalReport| -> Vec<String> {
            super::lost(trial, &former).into_iter().map(|extra| extra.name.clone()).collect()
        };
        let trial = report("3.11.7", &[("new", "2.9")], &[("idna", "3.18"), ("six", "1.16.0")]);
        assert_eq!(names(&trial), ["idna", "six", "new", "gone"], "nobody can tell whether 1.16 is 1.16.0");
        let text = &told(&trial, &super::lost(&trial, &former))[0];
        assert!(text.contains("idna 99.0 (in place of the release's own 3.18), six"), "{text}");
        let line = "`extras = [\"new==2.10\", \"gone==1\"]` in its recipe";
        assert!(text.ends_with(line), "a recipe does not change the release's own packages: {text}");
        let vanishing = vanishing(&super::lost(&trial, &former), &trial, &former).unwrap();
        assert!(SALT.remedy(&vanishing, None).ends_with(line));
        let trial = report("3.11.7", &[("new", "2.11")], &[("idna", "100"), ("six", "1.16"), ("gone", "1")]);
        assert_eq!(names(&trial), Vec::<String>::new());
        let mut trial = report("3.13.1", &[("new", "2.9")], &[("idna", "99.0")]);
        assert_eq!(names(&trial), ["six", "new", "gone"], "one directory for two Pythons");
        trial.extras = Some(vec![found("new", "2.9", "/x/extras-3.13")]);
        assert_eq!(names(&trial), ["six", "gone"], "made for it");
    }

    /// Both Pythons list the packages of such a directory; those with compiled modules could not be imported after the switch.
    #[test]
    fn packages_in_one_directory_for_two_pythons_are_lost_and_cannot_be_rebuilt_there() {
        let report = |python: &str| RehearsalReport {
            python: python.to_owned(),
            extras: Some(vec![found("a", "1", "/srv/extras")]),
            extras_place: Some(PathBuf::from("/srv/extras")),
            packages: ["a".to_owned()].into(),
            ..RehearsalReport::default()
        };
        let (former, trial) = (report("3.10.13"), report("3.11.7"));
        assert!(super::lost(&report("3.10.14"), &former).is_empty());
        let unseen = super::lost(&trial, &former);
        let text = &told(&trial, &unseen)[0];
        assert!(
            text.starts_with(
                "1 package in /srv/extras, which both releases use, may not work with Python 3.11.7: a 1; "
            )
        );
        let vanishing = vanishing(&unseen, &trial, &former).unwrap();
        assert_eq!((vanishing.into.as_deref(), vanishing.fits), (Some(Path::new("/srv/extras")), false));
        let remedy = SALT.remedy(&vanishing, None);
        assert!(remedy.contains("SALT_EXTRAS_DIR") && !remedy.contains("salt-pip"), "{remedy}");
    }

    #[test]
    fn an_older_package_that_hides_the_release_s_own_is_named() {
        let mut trial = RehearsalReport {
            extras: Some(vec![found("boto3", "1.0", "/x"), found("six", "1.16", "/x"), found("new", "3", "/x")]),
            own_versions: [("boto3", "1.2"), ("six", "1.16.0"), ("new", "2.9")]
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .into(),
            ..RehearsalReport::default()
        };
        let note = hiding(&trial).unwrap();
        assert!(note.contains("in /x are used: boto3 1.0 instead of the release's own 1.2; "), "{note}");
        trial.own_versions.remove("boto3");
        assert_eq!(hiding(&trial), None);
    }

    #[test]
    fn packages_that_only_the_new_release_finds_are_named() {
        let report = |extras: Option<&[(&str, &str)]>| RehearsalReport {
            extras: extras.map(|all| all.iter().map(|(name, version)| found(name, version, "/srv/extras")).collect()),
            own_versions: [("idna".to_owned(), "3.18".to_owned())].into(),
            ..RehearsalReport::default()
        };
        let trial = report(Some(&[("idna", "99.0"), ("new", "1")]));
        let note = gained(&trial, &report(Some(&[]))).unwrap();
        let words = "in /srv/extras, which the running release does not use, would be used: idna 99.0 instead of the release's own 3.18, new 1; ";
        assert!(note.contains(words), "{note}");
        assert_eq!(gained(&trial, &report(None)), None, "nobody knows what the running release finds");
        assert_eq!(
            gained(&trial, &report(Some(&[("idna", "98.0")]))),
            None,
            "both use it, and one was installed since"
        );
    }

    #[test]
    fn what_pip_says_of_extras_counts_and_what_it_says_of_others_does_not() {
        let said = |failure: Option<&str>, output: &str, errors: &str| {
            let (output, errors) = (output.as_bytes().to_vec(), errors.to_owned());
            let built = Performance { failure: failure.map(str::to_owned), output, errors };
            SALT.built(&lost("site-extra", "1", "/x/extras-3.10"), &built)
        };
        assert_eq!(said(None, "No broken requirements found.\n", "").unwrap(), Vec::<String>::new());
        assert_eq!(said(None, "salt 1 requires x, which is not installed.\n", "").unwrap(), Vec::<String>::new());
        let missing = said(None, "Site_Extra 1 requires six, which is not installed.\n", "").unwrap_err();
        assert_eq!(missing, "Site_Extra 1 requires six, which is not installed");
        let other = "site-extra 1 has requirement six<1, but you have six 1.16.\n";
        assert_eq!(said(None, other, "").unwrap(), [other.trim_end()]);
        let pip = "Looking in links: /w\nERROR: Could not find a version\nERROR: No matching distribution found for site-extra==1\n";
        let failed = said(Some("it exited with code 1"), "", pip).unwrap_err();
        assert_eq!(failed, "salt-pip: No matching distribution found for site-extra==1");
        assert_eq!(said(Some("it was ended by signal 9"), "", "").unwrap_err(), "it was ended by signal 9");
    }
}
