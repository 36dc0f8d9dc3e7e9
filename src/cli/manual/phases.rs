//! `docs/phases.md`: the switch machine's table, walked phase by phase and outcome by outcome, as a picture and as a table.

use super::GENERATED;
use crate::switch::machine::phase::Phase;
use crate::switch::machine::{Course, Former, Mode, Outcome, SETBACKS_MAXIMUM, Side, next};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What the next phase may depend on besides phase and outcome, and the words for it.
const CASES_COUNT: usize = 5;
const CASES: [(&str, Mode, Former); CASES_COUNT] = [
    ("overlap", Mode::Overlap, Former::Beside),
    ("overlap without an old process", Mode::Overlap, Former::Apart),
    ("idle", Mode::Idle, Former::Apart),
    ("now", Mode::Now, Former::Apart),
    ("first switch", Mode::Overlap, Former::None),
];

/// How to read the table of transitions.
const LEGEND: &str = "Outcomes: *done*: the work of the phase succeeded; in `stranded`: the pause is over, and sidle tries again. \
*not yet*: try again. *failed*: it cannot succeed. *too late*: the limit of the phase, or the deadline, has passed. *cancelled*: by `sidle cancel`. *gone*: the process has ended. (*new process gone* before `starting` cannot happen.)\n\n\
The column *when*: empty: always. *overlap*: the mode is `overlap`, and the old process still runs. *idle*, *now*: the mode of the switch. *first switch*: no \
release is current yet. *otherwise*: in all other cases, also in mode `overlap` if the old process ended during the switch. `A; B` means A or B.";

fn outcomes() -> [(&'static str, Outcome); 7] {
    let why = String::new;
    [
        ("done", Outcome::Done),
        ("not yet", Outcome::NotYet(why())),
        ("failed", Outcome::Failed(why())),
        ("old process gone", Outcome::Lost(Side::Former, why())),
        ("new process gone", Outcome::Lost(Side::Trial, why())),
        ("too late", Outcome::Expired),
        ("cancelled", Outcome::Cancelled),
    ]
}

/// The phases that may follow, each with the words for when; no words where the case makes no difference.
fn targets(phase: Phase, outcome: &Outcome) -> Vec<(Phase, String)> {
    let (fresh, worn) = (by_case(phase, outcome, 0), by_case(phase, outcome, SETBACKS_MAXIMUM));
    if fresh == worn {
        return fresh;
    }
    let said = |limit: String, (target, when): (Phase, String)| {
        (target, [limit, when].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", "))
    };
    let first = fresh.into_iter().map(|target| said(format!("up to {SETBACKS_MAXIMUM} times"), target));
    first.chain(worn.into_iter().map(|target| said("after that".to_owned(), target))).collect()
}

fn by_case(phase: Phase, outcome: &Outcome, setbacks: u32) -> Vec<(Phase, String)> {
    let mut found: BTreeMap<&str, (Phase, Vec<&str>)> = BTreeMap::new();
    for (words, mode, former) in CASES {
        let target = next(phase, outcome, Course { mode, former, steps: 0, setbacks });
        found.entry(target.word()).or_insert_with(|| (target, Vec::new())).1.push(words);
    }
    let most = found.values().map(|(_, cases)| cases.len()).max().unwrap_or_default();
    let words = |cases: &[&str]| match cases.len() {
        CASES_COUNT => String::new(),
        count if count == most => "otherwise".to_owned(),
        _ => cases.join("; "),
    };
    let mut told: Vec<_> = found.into_values().map(|(target, cases)| (target, words(&cases))).collect();
    told.sort_by_key(|(_, when)| when == "otherwise");
    told
}

pub(super) fn document() -> String {
    let mut edges: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    let place = |phase: Phase| Phase::ALL.iter().position(|known| *known == phase).unwrap_or_default();
    let mut table = String::new();
    for phase in Phase::ALL.into_iter().filter(|phase| !phase.is_ended()) {
        let mut rows: Vec<(Phase, String, Vec<&str>)> = Vec::new();
        for (word, outcome) in outcomes() {
            for (target, when) in targets(phase, &outcome).into_iter().filter(|(target, _)| *target != phase) {
                match rows.iter_mut().find(|row| (row.0, &row.1) == (target, &when)) {
                    Some((_, _, words)) => words.push(word),
                    None => rows.push((target, when, vec![word])),
                }
            }
        }
        for (target, when, words) in rows {
            let _ = writeln!(table, "| `{phase}` | {} | {when} | `{target}` |", words.join(", "));
            let known = edges.entry((place(phase), place(target))).or_default();
            known.extend(words);
            known.sort_by_key(|word| outcomes().iter().position(|(known, _)| known == word));
            known.dedup();
        }
    }
    let id = |place: usize| Phase::ALL[place].word().replace('-', "_");
    let mut picture = String::from("stateDiagram-v2\n    [*] --> scheduled\n");
    for ((from, to), words) in &edges {
        let _ = writeln!(picture, "    {} --> {}: {}", id(*from), id(*to), words.join(", "));
    }
    for phase in Phase::ALL.into_iter().filter(|phase| phase.is_ended()) {
        let _ = writeln!(picture, "    {} --> [*]", id(place(phase)));
    }
    let mut meanings = String::new();
    for phase in Phase::ALL {
        let _ = writeln!(meanings, "| `{phase}` | {} |", phase.doing());
    }
    format!(
        "# Phases of a switch\n\n{GENERATED}\n\nA switch moves from phase to phase; this page lists every transition. An outcome that is not listed for a \
         phase leaves the switch in that phase; in `finishing-old`, the end of `retire_timeout` counts as *done*. A switch that has not ended after 250 transitions rolls back. [What happens after \
         each crash](overlap.md#what-happens-after-each-crash) tells how a switch goes on after a boot or a killed supervisor. [Operations](operations.md#phases-that-status-shows) \
         says what to do in each phase.\n\n```mermaid\n{picture}```\n\n## Phases\n\n| phase | what happens |\n|---|---|\n{meanings}\n## Transitions\n\n{LEGEND}\n\n\
         | phase | outcome | when | next phase |\n|---|---|---|---|\n{table}"
    )
}
