//! Compares the highstates that two releases make of this host.

use super::highstate::{Highstate, Known, Reason, State, Untested};
use super::lost::SUCCESSORS;
use super::report::RehearsalReport;
use super::state_words::{differ, span, told};
use super::words::{counted, listed};
use crate::rehearsal::states::{Compared, Difference, Extent, What};
use std::collections::{BTreeMap, BTreeSet};

/// States that one message names; the others are counted.
const STATES_MAX: usize = 8;

/// What a comparison found: itself, reasons not to switch, and notes.
pub(super) struct Found {
    pub compared: Compared,
    pub blocking: Vec<String>,
    pub notes: Vec<String>,
}

/// Compares both reports. None: nothing was asked.
pub(super) fn compare(trial: &RehearsalReport, former: Option<&RehearsalReport>) -> Option<Found> {
    let new = trial.highstate.as_ref()?;
    let Some((former, old)) = former.and_then(|former| Some((former, former.highstate.as_ref()?))) else {
        return Some(not_compared("there is nothing to compare with"));
    };
    let told = |reasons: &[Reason]| listed(reasons.iter().map(Reason::told).collect::<Vec<_>>().into_iter());
    Some(match (new.reasons.as_slice(), old.reasons.as_slice()) {
        ([], []) => Pair { trial, former, new, old }.compared(),
        (reasons, [_, ..]) if !reasons.is_empty() => not_compared(&told(reasons)),
        ([], reasons) => not_compared(&format!("with the running release, {}", told(reasons))),
        (reasons, _) if reasons.iter().all(Reason::is_of_host) => {
            not_compared(&format!("with the new release, {}", told(reasons)))
        }
        (reasons, _) => {
            let why =
                format!("the new release cannot render the highstate, and the running release can: {}", told(reasons));
            let compared = Compared { refuses: true, ..nothing(why.clone()) };
            Found { blocking: vec![why], notes: Vec::new(), compared }
        }
    })
}

fn nothing(why: String) -> Compared {
    Compared { compared: Extent::Nothing, states: 0, differences: Vec::new(), refuses: false, why: Some(why) }
}

fn not_compared(why: &str) -> Found {
    let note = format!("the highstate was not compared: {why}");
    Found { blocking: Vec::new(), notes: vec![note], compared: nothing(why.to_owned()) }
}

/// Two highstates with the reports that they are part of.
struct Pair<'a> {
    trial: &'a RehearsalReport,
    former: &'a RehearsalReport,
    new: &'a Highstate,
    old: &'a Highstate,
}

impl Pair<'_> {
    fn compared(&self) -> Found {
        let (new, old) = (self.new.known(), self.old.known());
        let (mut differences, mut unstable) = (Vec::new(), 0);
        for (key, before) in &old {
            match new.get(key) {
                None => differences.push(of(before.0, vec![What::Missing], Vec::new())),
                Some(now) if now.0.unstable.is_empty() && before.0.unstable.is_empty() => {
                    differences.extend(self.between(*now, *before));
                }
                Some(_) => unstable += 1,
            }
        }
        for (_, now) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
            differences.push(of(now.0, vec![What::New], Vec::new()));
        }
        let places: BTreeMap<&str, usize> =
            self.new.states.iter().enumerate().rev().map(|(place, state)| (state.id.as_str(), place)).collect();
        differences.sort_by_key(|difference| places.get(difference.id.as_str()).copied().unwrap_or_default());
        let is_tested = self.new.results.is_some() && self.old.results.is_some();
        let compared = Compared {
            compared: if is_tested { Extent::Tested } else { Extent::Rendered },
            states: self.new.states.len(),
            differences,
            refuses: false,
            why: self.untested(),
        };
        self.weighed(compared, unstable)
    }

    /// Why the results were not compared, although they were asked for.
    fn untested(&self) -> Option<String> {
        let ended = |untested: &Untested, which: &str| {
            let Untested { exception, id, function } = untested;
            format!("with the {which} release the run with test=True ends at {id} ({function}): {exception}")
        };
        let new = self.new.untested.as_ref().map(|untested| ended(untested, "new"));
        new.or_else(|| self.old.untested.as_ref().map(|untested| ended(untested, "running")))
    }

    fn between(&self, (now, new): Known<'_>, (before, old): Known<'_>) -> Option<Difference> {
        let mut what = Vec::new();
        let differs = |name: &&String| now.arguments.get(*name) != before.arguments.get(*name);
        let both: BTreeSet<&String> = now.arguments.keys().chain(before.arguments.keys()).collect();
        let arguments: Vec<&String> = both.into_iter().filter(differs).collect();
        let is_gone = !self.trial.has("states", &now.function) && self.former.has("states", &now.function);
        let ends =
            |of: &Highstate| of.untested.as_ref().is_some_and(|at| at.id == now.id && at.function == now.function);
        if is_gone {
            what.push(What::Function);
        }
        // What is no known name to one of the releases is not an argument with another value.
        let gone = self.gone(now, before);
        if arguments.iter().any(|name| !name.is_empty() && !gone.contains(name))
            || (!arguments.is_empty() && gone.is_empty() && !is_gone)
        {
            what.push(What::Arguments);
        }
        if let (Some(new), Some(old)) = (new, old) {
            let parts = [
                (new.result != old.result, What::Result),
                (new.changes != old.changes, What::Changes),
                (new.comment != old.comment, What::Text),
            ];
            what.extend(parts.iter().filter(|(differs, _)| *differs).map(|(_, what)| *what));
        }
        if ends(self.new) && !ends(self.old) {
            what.push(What::Run);
        }
        if !gone.is_empty() && !what.contains(&What::Run) {
            what.push(What::Arguments);
        }
        if what.is_empty() {
            return None;
        }
        let names = arguments.into_iter().filter(|name| !name.is_empty()).cloned().collect();
        Some(of(now, what, names).because(self.causes(now, before, is_gone, &gone)))
    }

    /// Arguments of a state that the new function does not take.
    fn gone<'s>(&self, now: &State, before: &'s State) -> Vec<&'s String> {
        let Some(taken) = self.new.signatures.get(&now.function) else { return Vec::new() };
        if taken.is_empty() || taken.keys().any(|name| name.starts_with("**")) {
            return Vec::new();
        }
        let is_gone = |name: &&String| self.old.default(&now.function, name).is_some() && !taken.contains_key(*name);
        before.arguments.keys().filter(is_gone).collect()
    }

    fn causes(&self, now: &State, before: &State, is_gone: bool, gone: &[&String]) -> Vec<String> {
        if is_gone {
            let module = now.function.split('.').next().unwrap_or_default();
            let successor = (SUCCESSORS.find)("states", module);
            let with = successor.map_or_else(String::new, |package| format!(" ({package} brings it back)"));
            return vec![format!("the function is gone{with}")];
        }
        let mut causes: Vec<String> = gone.iter().map(|name| format!("the argument {name} is gone")).collect();
        let is_same = now.arguments == before.arguments;
        let read: BTreeSet<&String> = if is_same {
            now.run_with.union(&before.run_with).collect()
        } else {
            now.rendered_with.union(&before.rendered_with).collect()
        };
        let changed = |name: &&&String| self.new.grains.get(**name) != self.old.grains.get(**name);
        let reader = if is_same { "its run" } else { "its SLS" };
        causes.extend(
            read.iter().filter(changed).map(|name| format!("{reader} reads the grain {name}, which has another value")),
        );
        if is_same {
            let taken = self.new.signatures.get(&now.function).into_iter().flatten();
            causes.extend(taken.filter(|(name, _)| !now.arguments.contains_key(*name)).filter_map(|(name, value)| {
                let old = self.old.default(&now.function, name).filter(|old| *old != value)?;
                Some(format!("the default of {name} was {old}, and is {value}"))
            }));
        } else {
            causes.extend(now.options.iter().filter_map(|(name, value)| {
                let old = before.options.get(name).filter(|old| *old != value)?;
                Some(format!("the default of the option {name}, which its text names, was {old}, and is {value}"))
            }));
        }
        causes
    }

    fn weighed(&self, compared: Compared, unstable: usize) -> Found {
        let (mut blocking, mut notes) = (Vec::new(), Vec::new());
        let (of_text, heavy): (Vec<_>, Vec<_>) =
            compared.differences.iter().partition(|difference| difference.is_of_text());
        let how = format!("{}, {}", counted(compared.states, "state"), self.how(compared.compared));
        if compared.differences.is_empty() && compared.why.is_none() {
            notes.push(format!("the highstate is the same with both releases: {how}"));
        } else {
            notes.push(format!("{}: {how}", differ(compared.differences.len())));
        }
        for difference in heavy.iter().take(STATES_MAX) {
            blocking.push(format!("the highstate differs: {}", told(difference)));
        }
        if let Some(more @ 1..) = heavy.len().checked_sub(STATES_MAX) {
            blocking.push(format!(
                "the highstate differs in {} more (`sidle --json rehearse` names all)",
                counted(more, "state")
            ));
        }
        if !of_text.is_empty() {
            let names = of_text.iter().map(|difference| format!("{} ({})", difference.id, difference.function));
            notes.push(format!(
                "only the text of the result differs: {}",
                listed(names.collect::<Vec<_>>().into_iter())
            ));
        }
        if let Some(why) = &compared.why {
            let is_new = self.new.untested.is_some() && self.old.untested.is_none();
            let is_told = compared.differences.iter().any(|difference| difference.what.contains(&What::Run));
            if is_new && !is_told { &mut blocking } else { &mut notes }
                .push(format!("the results were not compared: {why}"));
        }
        if !self.trial.sealed.contains("network") || !self.former.sealed.contains("network") {
            notes.push(
                "the highstate was rendered with the network open: this kernel or user cannot close it".to_owned(),
            );
        }
        if unstable > 0 {
            notes.push(format!(
                "{} of the highstate cannot be compared: it is rendered differently each time",
                counted(unstable, "state")
            ));
        }
        Found { compared: Compared { refuses: !blocking.is_empty(), ..compared }, blocking, notes }
    }

    /// How the states were compared.
    fn how(&self, extent: Extent) -> String {
        let tested = if extent == Extent::Tested { "rendered, and tested with test=True" } else { "rendered" };
        let from = match (self.new.source.as_str(), self.new.pillar_age) {
            ("own", _) => "from this host's own files".to_owned(),
            (_, None) => "from the minion's cache".to_owned(),
            (_, Some(age)) => format!("from the minion's cache (its pillar was cached {} ago)", span(age)),
        };
        format!("{tested} {from}")
    }
}

/// A difference of a state without its causes.
fn of(state: &State, what: Vec<What>, arguments: Vec<String>) -> Difference {
    let State { id, function, sls, .. } = state.clone();
    Difference { id, function, sls, what, arguments, causes: Vec::new() }
}

impl Difference {
    fn because(self, causes: Vec<String>) -> Self {
        Self { causes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report(highstate: &Value, functions: &[&str]) -> RehearsalReport {
        let text = json!({
            "schema": 1, "python": "3.11.7", "failure": null, "sealed": ["files", "network"], "highstate": highstate,
            "functions": {"states": {"file": functions}},
        });
        RehearsalReport::parse(text.to_string().as_bytes()).unwrap()
    }

    fn highstate(more: &Value) -> Value {
        let mut whole = json!({
            "source": "cache", "pillar_age": 7200, "reasons": [], "states": [], "results": null, "untested": null,
            "grains": {}, "signatures": {},
        });
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        whole
    }

    fn state(id: &str, arguments: &Value) -> Value {
        json!({
            "id": id, "sls": "web", "function": "file.managed", "arguments": arguments, "unstable": [],
            "rendered_with": ["os"], "run_with": ["cpu"], "options": {},
        })
    }

    fn compared(new: &Value, old: &Value) -> Found {
        let all = &["managed"][..];
        compare(&report(&highstate(new), all), Some(&report(&highstate(old), all))).unwrap()
    }

    #[test]
    fn a_state_differs_by_what_is_known_of_it_and_not_by_its_place() {
        let (one, two) = (state("one", &json!({"name": "1"})), state("two", &json!({"name": "2"})));
        let found = compared(&json!({"states": [one, two]}), &json!({"states": [two, one]}));
        assert!(found.blocking.is_empty() && found.compared.differences.is_empty(), "{:?}", found.compared);
        assert!(
            found.notes[0].ends_with("rendered from the minion's cache (its pillar was cached 2 hours ago)"),
            "{:?}",
            found.notes
        );
        let other = state("two", &json!({"name": "3"}));
        let found = compared(
            &json!({"states": [one, other], "grains": {"os": "a", "cpu": "c"}}),
            &json!({"states": [one, two], "grains": {"os": "b", "cpu": "d"}}),
        );
        let words = "the highstate differs: two, file.managed in web: other arguments: name (its SLS reads the grain os, which has another value)";
        assert_eq!(found.blocking, [words]);
        assert!(found.compared.refuses);
        let found = compared(&json!({"states": [one]}), &json!({"states": [one, two]}));
        assert_eq!(
            found.blocking,
            ["the highstate differs: two, file.managed in web: only the running release has it"]
        );
        let mut unstable = two.clone();
        unstable["unstable"] = json!(["name"]);
        let found = compared(&json!({"states": [one, other]}), &json!({"states": [one, unstable]}));
        assert!(
            found.blocking.is_empty() && found.notes[1].contains("rendered differently each time"),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn a_result_that_differs_refuses_and_its_words_alone_do_not() {
        let came = |result: bool, comment: &str| json!([{"result": result, "comment": comment, "changes": "x"}]);
        let states = json!([state("one", &json!({"name": "1"}))]);
        let with = |results: Value, default: &str| json!({"states": states, "results": results, "signatures": {"file.managed": {"mode": default}}});
        let found = compared(&with(came(true, "a"), "1"), &with(came(true, "b"), "1"));
        assert!(
            found.blocking.is_empty() && found.notes[1].contains("only the text of the result differs: one"),
            "{:?}",
            found.notes
        );
        let found = compared(&with(came(false, "a"), "2"), &with(came(true, "a"), "1"));
        assert_eq!(
            found.blocking,
            ["the highstate differs: one, file.managed in web: another result (the default of mode was 1, and is 2)"]
        );
    }

    #[test]
    fn an_argument_that_is_gone_ends_the_run() {
        let states = json!([state("one", &json!({"name": "1", "encoding": "e"}))]);
        let now = json!([state("one", &json!({"name": "1", "": "e"}))]);
        let ended = json!({"exception": "SaltInvocationError", "id": "one", "function": "file.managed"});
        let old = json!({"states": states, "results": [null], "signatures": {"file.managed": {"name": "", "encoding": "None"}}});
        let new = json!({"states": now, "untested": ended, "signatures": {"file.managed": {"name": ""}}});
        let found = compared(&new, &old);
        let words =
            "the highstate differs: one, file.managed in web: the run ends there (the argument encoding is gone)";
        assert_eq!((&found.blocking[..], found.compared.compared), (&[words.to_owned()][..], Extent::Rendered));
        assert!(
            found.notes[1].starts_with("the results were not compared: with the new release the run"),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn what_neither_release_can_render_refuses_nothing_and_what_one_can_not_refuses_if_it_is_the_new_one() {
        let broken = |kind: &str| json!({"reasons": [{"kind": kind, "name": "vault.read_secret", "sls": "web"}]});
        let fine = json!({"states": [state("one", &json!({}))]});
        for (new, old, blocking, note) in [
            (broken("pillar"), broken("pillar"), None, "minion_pillar_cache"),
            (
                broken("function"),
                fine.clone(),
                Some("the function vault.read_secret is gone, which is called in web"),
                "",
            ),
            (broken("time"), fine.clone(), None, "with the new release, it did not end in time"),
            (
                fine.clone(),
                broken("sls"),
                None,
                "with the running release, vault.read_secret is not in the minion's cache",
            ),
        ] {
            let found = compared(&new, &old);
            assert_eq!(found.compared.refuses, blocking.is_some());
            assert!(
                found.blocking.iter().zip(blocking).all(|(text, part)| text.contains(part)),
                "{:?}",
                found.blocking
            );
            assert!(found.notes.first().is_none_or(|text| text.contains(note)), "{:?}", found.notes);
        }
        assert!(compare(&report(&Value::Null, &[]), None).is_none(), "nothing was asked");
    }
}
