//! Weighs what a release has lost by what this host uses: what it uses is a reason not to switch.

use crate::rehearsal::Rehearsal;
use crate::rehearsal::lost::{Lost, Successors};
use crate::rehearsal::uses::{ENOUGH_DAYS, Known, Need, Use};
use std::collections::BTreeMap;

/// Functions of one module that a reason names.
const NAMES_MAX: usize = 5;

impl Rehearsal {
    /// This rehearsal with a reason for each lost module that this host uses, and one note about the rest.
    #[must_use]
    pub fn by_use(mut self, known: &Known, successors: Option<Successors>) -> Self {
        if self.lost.is_empty() {
            return self;
        }
        let counted = match known {
            Known::Counted(counted) => counted,
            Known::NotCounted(why) => {
                let named: Vec<String> = self.lost.iter().filter_map(|lost| self.named(lost)).collect();
                self.notes.extend(named);
                self.notes.push(format!("which of the lost functions this host uses is not known: {why}"));
                return self;
            }
        };
        let (mut unused, mut named) = (0, Vec::new());
        for lost in &self.lost {
            let used = counted.of(lost);
            if used.is_empty() {
                unused += 1;
                // A young count knows less than what the host's own files name.
                named.extend(self.named(lost).filter(|_| !counted.is_enough()));
            } else {
                self.blocking.push(reason(lost, &used, successors));
                self.used.extend(used);
            }
        }
        self.notes.extend(named);
        if unused > 0 {
            let modules = if unused == 1 { "1 module".to_owned() } else { format!("{unused} modules") };
            let covers = counted.covers();
            self.notes.push(if counted.is_enough() {
                format!("the lost functions of {modules} were not used here ({covers})")
            } else {
                format!(
                    "the lost functions of {modules} were not used here so far ({covers}: {ENOUGH_DAYS} days tell more)"
                )
            });
        }
        self
    }
}

impl Rehearsal {
    /// The note for a lost module that the configuration, the states or the log name, where nobody has counted, or not for long. What is configured and lost
    /// is a reason by itself.
    fn named(&self, lost: &Lost) -> Option<String> {
        let of = self.needs.iter().filter(|need| need.is_of(lost));
        let named: BTreeMap<&str, &Need> = of.map(|need| (need.name.as_str(), need)).collect();
        let told = named.values().take(NAMES_MAX).map(|need| {
            let when = need.last.as_ref().map_or_else(String::new, |day| format!(", last on {day}"));
            format!("{} ({}{when})", need.name, need.place)
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| format!("would vanish, and is named here ({}): {}", lost.kind, told.join("; ")))
    }
}

fn reason(lost: &Lost, used: &[Use], successors: Option<Successors>) -> String {
    let named: Vec<String> = used.iter().take(NAMES_MAX).map(|each| format!("{} {}", each.name, each.told())).collect();
    let more = used.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let remedy = match successors.and_then(|successors| (successors.find)(&lost.kind, &lost.module)) {
        Some(package) => format!("pack the release with `extras = [\"{package}\"]`"),
        None => format!("keep it with `sidle pack --keep-modules {} --from OLD`", lost.module),
    };
    format!("would vanish, and is used here ({}): {}{more}; {remedy}", lost.kind, named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::uses::Uses;

    fn lost(module: &str) -> Lost {
        Lost { kind: "module".to_owned(), module: module.to_owned(), functions: vec!["go".to_owned()], whole: true }
    }

    fn counted(days: std::ops::Range<u32>) -> Known {
        let days: Vec<u32> = days.collect();
        let text =
            format!(r#"{{"schema":1,"days":{days:?},"cut":null,"uses":{{"module":{{"vault.go":[[20000,12]]}}}}}}"#);
        Known::Counted(Uses::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_used_here_refuses_and_the_rest_is_a_note_that_says_how_much_it_is_worth() {
        let find = |_: &str, module: &str| (module == "vault").then_some("saltext-vault==1.8.0");
        let successors = Some(Successors { as_of: "2026-11-26", find });
        let found = || Rehearsal { lost: vec![lost("tomcat"), lost("vault"), lost("zfs")], ..Rehearsal::default() };
        let weighed = found().by_use(&counted(20_000..20_040), successors);
        assert_eq!(
            weighed.blocking,
            [
                "would vanish, and is used here (module): vault.go 12 times, last on 2024-10-04; pack the release with `extras = [\"saltext-vault==1.8.0\"]`"
            ]
        );
        assert_eq!(
            weighed.notes,
            ["the lost functions of 2 modules were not used here (counted on 40 days, 2024-10-04 to 2024-11-12)"]
        );
        assert!(weighed.refuses());
        assert_eq!(weighed.used.iter().map(Use::line).collect::<Vec<_>>(), ["module vault.go 2024-10-04"]);
        let weighed = found().by_use(&counted(20_000..20_002), None);
        assert!(weighed.blocking[0].ends_with("`sidle pack --keep-modules vault --from OLD`"), "{weighed:?}");
        assert!(weighed.notes[0].contains("so far (counted on 2 days"), "{weighed:?}");
        let blind = found().by_use(&Known::NotCounted("no guard counts".to_owned()), successors);
        assert!(!blind.refuses() && blind.notes[0].ends_with("is not known: no guard counts"), "{blind:?}");
        let (kind, place, last) = ("module".to_owned(), "log".to_owned(), Some("2026-11-20".to_owned()));
        let needs = vec![Need { kind, name: "vault.go".to_owned(), place, last }];
        let named = Rehearsal { needs, ..found() }.by_use(&Known::NotCounted("no guard counts".to_owned()), successors);
        assert_eq!(named.notes[0], "would vanish, and is named here (module): vault.go (log, last on 2026-11-20)");
        assert!(!named.refuses() && named.notes.len() == 2, "{named:?}");
        // A count of one day hid what the log of years had named.
        let (kind, name, place) = ("module".to_owned(), "tomcat.go".to_owned(), "log".to_owned());
        let needs = vec![Need { kind, name, place, last: None }];
        let young = Rehearsal { needs, ..found() };
        let told = |days| young.clone().by_use(&counted(days), successors).notes;
        assert_eq!(told(20_000..20_001)[0], "would vanish, and is named here (module): tomcat.go (log)");
        assert_eq!(told(20_000..20_040).len(), 1);
        let nothing = Rehearsal::default().by_use(&counted(20_000..20_040), successors);
        assert_eq!(nothing, Rehearsal::default(), "nothing is lost");
    }
}
