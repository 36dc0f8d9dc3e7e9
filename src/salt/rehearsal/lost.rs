//! The functions that a release no longer has: by the reports of two rehearsals, or by the lists in two manifests.

use super::report::RehearsalReport;
use crate::bundle::contents::Offers;
use crate::rehearsal::lost::{Lost, Successors};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Utility and matcher functions are Salt's inner affairs; what a custom module needs of them shows when it is loaded.
const INNER: [&str; 2] = ["utils", "matchers"];

/// A minion loads these for a pillar, a request or a proxy that a rehearsal has not.
pub const LISTED_ONLY: [&str; 5] = ["fileserver", "pillar", "proxy", "sdb", "tops"];

/// Written by `scripts/successors`.
const LIST: &str = include_str!("successors.tsv");

/// The extensions that are known to bring modules of older releases to Salt 3008.
pub static SUCCESSORS: LazyLock<Successors> = LazyLock::new(|| {
    let as_of = LIST.lines().nth(1).and_then(|line| line.strip_prefix("# ")).unwrap_or("an unknown day");
    Successors { as_of, find }
});

fn find(kind: &str, module: &str) -> Option<&'static str> {
    LIST.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = line.split('\t');
        let is_it = fields.next() == Some(kind) && fields.next() == Some(module);
        fields.next().filter(|_| is_it)
    })
}

/// By the reports of this host: what the former release loaded here, and the trial does not. Modules of this host's own are told elsewhere.
pub fn by_reports(trial: &RehearsalReport, former: &RehearsalReport) -> Vec<Lost> {
    let mut lost = Vec::new();
    for (kind, modules) in former.functions.iter().filter(|(kind, _)| !INNER.contains(&kind.as_str())) {
        for (module, functions) in modules {
            let called =
                |function: &String| if function.is_empty() { module.clone() } else { format!("{module}.{function}") };
            let is_own = |name: &str| former.own.get(kind).is_some_and(|own| own.contains(name));
            let gone = functions.iter().filter(|function| {
                let name = called(function);
                !trial.has(kind, &name) && !is_own(&name)
            });
            let gone: Vec<String> = gone.cloned().collect();
            let whole = !trial.functions.get(kind).is_some_and(|modules| modules.contains_key(module));
            add(&mut lost, kind, module, gone, whole);
        }
    }
    lost
}

/// By the lists in the manifests, whatever this host is; None: a manifest has no list.
pub fn by_lists(trial: &Offers, former: &Offers) -> Option<Vec<Lost>> {
    if trial.is_empty() || former.is_empty() {
        return None;
    }
    let (there, before) = (trial.functions(), former.functions());
    let nothing = BTreeMap::new();
    let mut lost = Vec::new();
    for (kind, modules) in before.into_iter().filter(|(kind, _)| !INNER.contains(kind)) {
        let of_kind = there.get(kind).unwrap_or(&nothing);
        for (module, functions) in modules {
            let left = of_kind.get(module);
            let is_gone = |function: &&&str| !left.is_some_and(|left: &BTreeSet<&str>| left.contains(**function));
            let gone = functions.iter().filter(is_gone).map(ToString::to_string).collect();
            add(&mut lost, kind, module, gone, left.is_none());
        }
    }
    Some(lost)
}

fn add(lost: &mut Vec<Lost>, kind: &str, module: &str, functions: Vec<String>, whole: bool) {
    if !functions.is_empty() {
        lost.push(Lost { kind: kind.to_owned(), module: module.to_owned(), functions, whole });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::contents::Contents;

    fn offers(text: &str) -> Offers {
        let text = format!(r#"{{"schema":1,"extras":[],"kept":[],"sbom":null,"offers":{text}}}"#);
        Contents::parse(text.as_bytes()).unwrap().offers
    }

    #[test]
    fn a_function_is_lost_when_no_module_of_that_name_has_it() {
        let former = offers(
            r#"{"module":{"modules":{"aptpkg":["install","hold"],"yumpkg":["install"],"tomcat":["ls"]},"names":{"aptpkg":["pkg"],"yumpkg":["pkg"]}},
                "matchers":{"modules":{"glob_match":["match"]}}}"#,
        );
        let trial = offers(r#"{"module":{"modules":{"yumpkg":["install"]},"names":{"yumpkg":["pkg"]}}}"#);
        let lost = |module: &str, function: &str, whole| Lost {
            kind: "module".to_owned(),
            module: module.to_owned(),
            functions: vec![function.to_owned()],
            whole,
        };
        assert_eq!(by_lists(&trial, &former), Some(vec![lost("pkg", "hold", false), lost("tomcat", "ls", true)]));
        assert_eq!(by_lists(&former, &trial), Some(Vec::new()));
        assert_eq!(by_lists(&trial, &Offers::default()), None, "unknown is not nothing");
    }

    #[test]
    fn the_list_of_successors_has_a_day_and_names_one_version_of_a_package() {
        assert!(SUCCESSORS.as_of.len() == 10 && SUCCESSORS.as_of.starts_with("20"), "{}", SUCCESSORS.as_of);
        for line in LIST.lines().skip(2) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(fields.len() == 3 && fields[2].contains("=="), "{line}");
        }
        assert!(find("module", "vault").unwrap().starts_with("saltext-vault=="));
        assert_eq!(find("module", "tomcat"), None);
    }
}
