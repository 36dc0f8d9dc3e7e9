//! Compares the trial's report with the former's: what got worse, and whether that forbids the switch.

use super::report::{How, RehearsalReport};
use super::words::{broken, called, counted, listed, plain, said};
use super::{extras, highstates, lost, masters};
use crate::rehearsal::Rehearsal;
use std::collections::{BTreeMap, BTreeSet};

/// Warnings of one kind that are told one by one.
const WARNINGS_MAX: usize = 5;
/// How much a finding weighs; heavier ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The minion would not come up.
    Startup,
    /// A module of this host's own no longer works.
    OwnModule,
    /// Something that this host provably uses is missing.
    Used,
    /// About this rehearsal itself. Findings from here on are notes.
    About,
    /// Masters may refuse its sign-in.
    SignIn,
    /// Grains vanish.
    Grain,
    /// Packages of `salt-pip` hide later ones, or are found by the new release alone.
    Hidden,
    /// Modules of this host's own that failed before.
    Uncounted,
    /// Functions vanish.
    Function,
    /// About the configuration.
    Option,
}

/// Compares the trial's report with the former's, or with the reason why there is none. None: there is no former release.
pub fn compare(trial: &RehearsalReport, former: Option<Result<&RehearsalReport, &str>>) -> Rehearsal {
    let mut findings = Vec::new();
    let before = former.and_then(Result::ok).and_then(|former| former.failure.as_ref());
    let baseline = former.and_then(Result::ok).filter(|_| before.is_none());
    match (&trial.failure, before) {
        // The running one was started before it came to that; the new release isn't to blame.
        (Some(failure), Some(before)) if failure.stage == before.stage => {
            findings.push((Weight::About, format!("cannot compare: with either release it {}", said(failure))));
        }
        (Some(failure), _) => findings.push((Weight::Startup, said(failure))),
        (None, _) => {
            let cause = former.and_then(Result::err).map(str::to_owned).or_else(|| before.map(said));
            if let Some(cause) = cause {
                let text = format!("nothing to compare with: the running release could not be rehearsed: {cause}");
                findings.push((Weight::About, text));
            }
            modules(trial, baseline, &mut findings);
            configured(trial, baseline, &mut findings);
            findings.extend(extras::hiding(trial).map(|text| (Weight::Hidden, text)));
            if let Some(former) = baseline {
                findings.extend(extras::gained(trial, former).map(|text| (Weight::Hidden, text)));
                sign_in(trial, former, &mut findings);
                vanished(trial, former, &mut findings);
            }
        }
    }
    warnings(trial, baseline, &mut findings);
    findings.sort_by_key(|(weight, _)| *weight);
    let (blocking, notes): (Vec<_>, Vec<_>) = findings.into_iter().partition(|(weight, _)| *weight < Weight::About);
    let texts =
        |findings: Vec<(Weight, String)>| -> Vec<String> { findings.iter().map(|(_, text)| plain(text)).collect() };
    // A report lists the packages of salt-pip also where something else fails.
    let listed = former.and_then(Result::ok).filter(|_| trial.failure.is_none());
    let unseen = listed.map(|former| extras::lost(trial, former)).unwrap_or_default();
    let unlisted = former.and_then(Result::err).filter(|_| trial.failure.is_none());
    let of_masters = of_masters(trial, former.and_then(Result::ok));
    let states =
        Some(trial).filter(|trial| trial.failure.is_none()).and_then(|trial| highstates::compare(trial, baseline));
    let of_states = |part: fn(&highstates::Found) -> &Vec<String>| states.iter().flat_map(part).map(|text| plain(text));
    Rehearsal {
        blocking: texts(blocking).into_iter().chain(of_states(|found| &found.blocking)).collect(),
        notes: of_states(|found| &found.notes).chain(texts(notes)).chain(plainly(&of_masters.notes)).collect(),
        needs: baseline.unwrap_or(trial).needs.clone(),
        peers: plainly(&of_masters.reasons).collect(),
        extras: extras::told(trial, &unseen),
        vanishing: listed.and_then(|former| extras::vanishing(&unseen, trial, former)),
        unknown_extras: unlisted.map(|cause| plain(&extras::unknown(trial, cause))),
        lost: baseline
            .filter(|_| trial.failure.is_none())
            .map(|former| lost::by_reports(trial, former))
            .unwrap_or_default(),
        states: states.map(|found| found.compared),
        ..Rehearsal::default()
    }
}

fn plainly(texts: &[String]) -> impl Iterator<Item = String> {
    texts.iter().map(|text| plain(text))
}

/// What the masters have said of themselves. A release that does not come up has no version that counts.
fn of_masters(trial: &RehearsalReport, former: Option<&RehearsalReport>) -> masters::Weighed {
    let before = former.and_then(|former| former.version.as_deref());
    match (&trial.masters, &trial.version) {
        (Some(known), Some(version)) if trial.failure.is_none() => {
            masters::weigh(known, masters::AsMinion { version, sign_in: trial.sign_in, before })
        }
        _ => masters::Weighed::default(),
    }
}

type Findings = Vec<(Weight, String)>;

/// This host's own modules that don't load, or lose functions.
fn modules(trial: &RehearsalReport, baseline: Option<&RehearsalReport>, findings: &mut Findings) {
    let mut uncounted = BTreeSet::new();
    let mut told = BTreeSet::new();
    for error in trial.errors.iter().filter(|error| error.own) {
        let before = baseline.and_then(|former| former.error(&error.kind, &error.name));
        match (baseline, before) {
            // It did not load before: no loss. A module that declines in both is not meant for this host.
            (Some(_), Some(before)) => {
                if (before.how, error.how) != (How::Declined, How::Declined) {
                    uncounted.insert(error.name.as_str());
                }
            }
            (None, _) if error.how == How::Declined => {}
            // A grains function may fail for lack of what the rehearsal has not: a network.
            (None, _) if error.kind == "grains" && error.how == How::Failed => {
                findings.push((Weight::Uncounted, broken(error)));
            }
            (_, None) | (None, Some(_)) => {
                told.insert((error.kind.as_str(), error.name.as_str()));
                findings.push((Weight::OwnModule, broken(error)));
            }
        }
    }
    if !uncounted.is_empty() {
        let names = listed(uncounted.iter().map(ToString::to_string));
        let text = format!("custom modules that fail with the running release, too, and don't count: {names}");
        findings.push((Weight::Uncounted, text));
    }
    for (kind, names) in baseline.iter().flat_map(|former| &former.own) {
        let mut lost: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in names.iter().filter(|name| !trial.has(kind, name)) {
            let (module, function) = name.split_once('.').unwrap_or((name, ""));
            lost.entry(module).or_default().push(function);
        }
        for (module, functions) in lost.into_iter().filter(|(module, _)| !told.contains(&(kind.as_str(), *module))) {
            let functions = listed(functions.iter().map(ToString::to_string));
            let text = format!("the custom {} {module} loses functions: {functions}", called(kind));
            findings.push((Weight::OwnModule, text));
        }
    }
}

/// What to do about a module that only comes with the first `saltutil.sync_all`.
const SYNCED_LATER: &str = "; if a master syncs it to the minion later, set `rehearsal = \"report\"` for this switch, or put the module into the \
                            minion's extension_modules before";

/// What the configuration has the minion use, and the release doesn't have.
fn configured(trial: &RehearsalReport, baseline: Option<&RehearsalReport>, findings: &mut Findings) {
    for missing in &trial.missing {
        if baseline.is_some_and(|former| former.missing.contains(missing)) {
            continue;
        }
        let module = missing.name.split('.').next().unwrap_or_default();
        let reason = trial.error(&missing.kind, module).map(|error| error.reason.as_str()).unwrap_or_default();
        let reason = match (reason, baseline) {
            // A fresh host: its master would bring it once the minion is there.
            ("", None) => SYNCED_LATER.to_owned(),
            ("", Some(_)) => String::new(),
            (reason, _) => format!(" ({reason})"),
        };
        let what = if missing.kind == "module" { "function".to_owned() } else { called(&missing.kind) };
        let text =
            format!("{} needs the {what} {}, which the release does not have{reason}", missing.place, missing.name);
        findings.push((Weight::Used, text));
    }
}

/// An older sign-in: what a master makes of it is the master's to say. 3 is the default of 3006.30, 3007.17 and 3008.5
/// (`minimum_auth_version` in `salt/config/__init__.py`).
fn sign_in(trial: &RehearsalReport, former: &RehearsalReport, findings: &mut Findings) {
    let (Some(trial), Some(former)) = (trial.sign_in, former.sign_in) else { return };
    if trial < former {
        let text = format!(
            "the new release signs in with version {trial}, the running release with {former}: \
             a master whose minimum_auth_version is above {trial} refuses the new release"
        );
        findings.push((Weight::SignIn, text));
    }
}

/// Grains and functions of Salt itself that are gone: nobody knows whether this host needs them.
fn vanished(trial: &RehearsalReport, former: &RehearsalReport, findings: &mut Findings) {
    let gone: Vec<String> = former.grains.difference(&trial.grains).cloned().collect();
    if !gone.is_empty() {
        let text = format!("{} would vanish: {}", counted(gone.len(), "grain"), listed(gone.into_iter()));
        findings.push((Weight::Grain, text));
    }
    for (kind, modules) in &former.functions {
        // Utility and matcher functions are Salt's inner affairs; what a custom module needs of them shows when it is loaded.
        if ["utils", "matchers"].contains(&kind.as_str()) {
            continue;
        }
        let is_own = |name: &str| former.own.get(kind).is_some_and(|own| own.contains(name));
        let lost = modules.iter().filter_map(|(module, functions)| {
            let name =
                |function: &String| if function.is_empty() { module.clone() } else { format!("{module}.{function}") };
            let names = functions.iter().map(name);
            let count = names.filter(|name| !trial.has(kind, name) && !is_own(name)).count();
            (count > 0).then_some((count, module))
        });
        let mut lost: Vec<(usize, &String)> = lost.collect();
        if lost.is_empty() {
            continue;
        }
        lost.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
        let total = lost.iter().map(|(count, _)| count).sum();
        let of = counted(lost.len(), &called(kind));
        let names = listed(lost.iter().map(|(count, module)| format!("{module} ({count})")));
        findings.push((Weight::Function, format!("{} of {of} would vanish: {names}", counted(total, "function"))));
    }
}

/// What is new in what Salt says of the configuration.
fn warnings(trial: &RehearsalReport, baseline: Option<&RehearsalReport>, findings: &mut Findings) {
    let Some(former) = baseline else { return };
    let fresh: Vec<&String> = trial.problems.iter().filter(|text| !former.problems.contains(text)).collect();
    for text in fresh.iter().take(WARNINGS_MAX) {
        findings.push((Weight::Option, format!("a new warning about the configuration: {text}")));
    }
    if let Some(more @ 1..) = fresh.len().checked_sub(WARNINGS_MAX) {
        findings.push((Weight::Option, format!("{more} more new warnings about the configuration")));
    }
    let unknown: Vec<String> = trial.unknown_options.difference(&former.unknown_options).cloned().collect();
    if !unknown.is_empty() {
        findings.push((Weight::Option, format!("options that are no longer known: {}", listed(unknown.into_iter()))));
    }
    let minor = |report: &RehearsalReport| report.python.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    // Where it is known what salt-pip installed, that is told by `extras`.
    let unknown = former.extras.is_none() && minor(trial) != minor(former);
    if let (Some(new), Some(old), true) = (minor(trial), minor(former), unknown) {
        let text = format!("Python {new} instead of {old}: packages that salt-pip installed for {old} are not seen");
        findings.push((Weight::Option, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salt::rehearsal::report::{Extra, Failure, LoadError, Missing};
    use crate::salt::rehearsal::words::MESSAGE_CHARACTERS_MAX;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn error(name: &str, own: bool, how: How) -> LoadError {
        let file = format!("/x/{name}.py");
        LoadError { kind: "module".to_owned(), name: name.to_owned(), file, own, how, reason: "why".to_owned() }
    }

    fn missing(name: &str) -> Missing {
        Missing { kind: "module".to_owned(), name: name.to_owned(), place: "schedule nap".to_owned() }
    }

    fn failing(stage: &str) -> RehearsalReport {
        let failure = Failure { stage: stage.to_owned(), reason: "why".to_owned() };
        RehearsalReport { failure: Some(failure), ..RehearsalReport::default() }
    }

    fn report(modules: &[(&str, &[&str])], own: &[&str]) -> RehearsalReport {
        let modules = modules.iter().map(|(name, functions)| ((*name).to_owned(), set(functions))).collect();
        RehearsalReport {
            schema: 1,
            python: "3.11.7".to_owned(),
            functions: BTreeMap::from([("module".to_owned(), modules)]),
            own: BTreeMap::from([("module".to_owned(), set(own))]),
            ..RehearsalReport::default()
        }
    }

    #[test]
    fn rehearsal_of_two_equal_reports_finds_nothing() {
        let same = RehearsalReport {
            errors: vec![error("theirs", false, How::Import), error("guest", true, How::Declined)],
            missing: vec![missing("a.b")],
            problems: vec!["odd".to_owned()],
            ..report(&[("test", &["ping"]), ("mine", &["go"])], &["mine.go"])
        };
        assert_eq!(compare(&same, Some(Ok(&same))), Rehearsal::default());
    }

    #[test]
    fn rehearsal_blocks_on_an_own_module_that_no_longer_loads_however_that_shows() {
        let former = report(&[("mine", &["go"])], &["mine.go"]);
        for how in [How::Import, How::Failed, How::Declined] {
            let trial = RehearsalReport { errors: vec![error("mine", true, how)], ..report(&[], &[]) };
            let found = compare(&trial, Some(Ok(&former)));
            assert_eq!((found.blocking.len(), found.notes.len()), (1, 0), "{found:?}");
            assert!(found.blocking[0].starts_with("the custom execution module mine (/x/mine.py) "), "{found:?}");
        }
        let found = compare(&report(&[("mine", &[])], &[]), Some(Ok(&former)));
        assert_eq!(found.blocking, ["the custom execution module mine loses functions: go"]);
    }

    #[test]
    fn rehearsal_tells_of_an_older_sign_in_and_of_no_other() {
        let with = |sign_in| RehearsalReport { sign_in, ..report(&[], &[]) };
        let notes = |trial, former| compare(&with(trial), Some(Ok(&with(former)))).notes;
        assert!(notes(Some(2), Some(3)).iter().any(|note| note.contains("minimum_auth_version is above 2")));
        for (trial, former) in [(Some(3), Some(2)), (Some(2), Some(2)), (None, Some(3)), (Some(2), None)] {
            assert_eq!(notes(trial, former), Vec::<String>::new());
        }
    }

    #[test]
    fn rehearsal_does_not_count_what_failed_before() {
        let former = RehearsalReport {
            errors: vec![error("mine", true, How::Import), error("shy", true, How::Declined)],
            missing: vec![missing("a.b")],
            ..RehearsalReport::default()
        };
        let trial = RehearsalReport {
            errors: vec![error("mine", true, How::Failed), error("shy", true, How::Import)],
            missing: vec![missing("a.b")],
            ..RehearsalReport::default()
        };
        let found = compare(&trial, Some(Ok(&former)));
        assert!(!found.refuses(), "{found:?}");
        assert_eq!(found.notes, ["custom modules that fail with the running release, too, and don't count: mine, shy"]);
    }

    #[test]
    fn rehearsal_without_a_baseline_counts_own_errors_and_the_configuration_only() {
        let function = LoadError { kind: "grains".to_owned(), ..error("mine.cloud", true, How::Failed) };
        let errors = vec![
            error("mine", true, How::Import),
            error("shy", true, How::Declined),
            error("theirs", false, How::Import),
            function,
        ];
        let trial = RehearsalReport { errors, missing: vec![missing("gone.function")], ..RehearsalReport::default() };
        let broken = failing("grains");
        for former in [None, Some(Err("it did not end")), Some(Ok(&broken))] {
            let found = compare(&trial, former);
            assert_eq!(found.blocking.len(), 2, "{found:?}");
            assert!(found.blocking[0].contains("mine (/x/mine.py) cannot be imported: why"), "{found:?}");
            let needs = "schedule nap needs the function gone.function, which the release does not have";
            assert!(found.blocking[1].starts_with(needs), "{found:?}");
            assert!(found.blocking[1].contains("syncs it to the minion later"), "{found:?}");
            assert_eq!(found.notes.len(), 1 + usize::from(former.is_some()), "{found:?}");
        }
    }

    #[test]
    fn rehearsal_blocks_on_a_minion_that_would_not_come_up() {
        let trial = failing("configuration");
        let found = compare(&trial, Some(Ok(&report(&[("test", &["ping"])], &[]))));
        assert_eq!(found.blocking, ["cannot load the configuration: why"]);
        assert_eq!(found.notes, Vec::<String>::new(), "nothing more can be known");
        assert!(compare(&trial, None).refuses());
        assert!(!compare(&trial, Some(Ok(&trial))).refuses(), "broken since the running one was started");
        let earlier = failing("modules");
        assert!(compare(&trial, Some(Ok(&earlier))).refuses());
    }

    #[test]
    fn rehearsal_notes_what_vanishes_by_module_and_not_name_by_name() {
        let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let modules: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
        let mut pairs: Vec<(&str, &[&str])> = modules.iter().map(|name| (name.as_str(), &names[..])).collect();
        pairs.push(("zfs", &names[..1]));
        let former = RehearsalReport { grains: set(&["os", "zfs_support"]), ..report(&pairs, &[]) };
        let trial =
            RehearsalReport { grains: set(&["os"]), python: "3.12.1".to_owned(), ..report(&[("m00", &["f1"])], &[]) };
        let found = compare(&trial, Some(Ok(&former)));
        assert!(!found.refuses());
        let expected = [
            "1 grain would vanish: zfs_support",
            "800 functions of 21 execution modules would vanish: m01 (40), m02 (40), m03 (40), m04 (40), m05 (40), m06 (40), m07 (40), m08 (40) and 13 more",
            "Python 3.12 instead of 3.11: packages that salt-pip installed for 3.11 are not seen",
        ];
        assert_eq!(found.notes, expected);
    }

    #[test]
    fn rehearsal_names_what_salt_pip_installed_and_the_release_would_not_see() {
        let extra = |name: &str| Extra {
            name: name.to_owned(),
            version: "1.2".to_owned(),
            directory: "/var/lib/salt/minion/extras-3.10".to_owned(),
        };
        let former = RehearsalReport {
            python: "3.10.4".to_owned(),
            extras: Some(vec![extra("boto3"), extra("netaddr"), extra("six")]),
            ..RehearsalReport::default()
        };
        let trial =
            RehearsalReport { python: "3.11.2".to_owned(), packages: set(&["six"]), ..RehearsalReport::default() };
        let found = compare(&trial, Some(Ok(&former)));
        assert!(!found.refuses() && found.notes.is_empty(), "{found:?}");
        let text = &found.extras[0];
        assert!(text.starts_with("2 packages that salt-pip installed in /var/lib/salt/minion/extras-3.10"), "{text}");
        assert!(text.contains("boto3 1.2, netaddr 1.2;") && text.contains("salt-pip --release"), "{text}");
        let broken = RehearsalReport { extras: former.extras.clone(), ..failing("modules") };
        assert_eq!(
            compare(&trial, Some(Ok(&broken))).extras.len(),
            1,
            "a release that fails elsewhere has a list all the same"
        );
        let blind = compare(&trial, Some(Err("it did not end")));
        assert!(blind.extras.is_empty() && blind.unknown_extras.unwrap().contains("cannot tell which packages"));
        let all = RehearsalReport { packages: set(&["boto3", "netaddr", "six"]), ..trial };
        assert!(compare(&all, Some(Ok(&former))).extras.is_empty());
    }

    #[test]
    fn rehearsal_words_of_custom_modules_stay_on_their_line() {
        let evil = LoadError { reason: format!("\u{1b}[2J\n{}", "x".repeat(1000)), ..error("mine", true, How::Import) };
        let found = compare(&RehearsalReport { errors: vec![evil], ..RehearsalReport::default() }, None);
        assert!(found.blocking[0].chars().all(|character| !character.is_control()));
        assert_eq!(found.blocking[0].chars().count(), MESSAGE_CHARACTERS_MAX + 1);
    }
}
