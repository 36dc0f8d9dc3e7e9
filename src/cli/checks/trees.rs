//! What status, history and metrics tell of the trees: whether they are as they were signed, when that was last looked into, what was broken.

use crate::cli::exposition::{Sample, labels};
use crate::cli::facts::count;
use crate::failure::{Report, moment};
use crate::store::Store;
use crate::store::check::{Defect, Depth, Problem};
use crate::store::incident::Incident;
use crate::store::scrub::Scrubbed;
use crate::version::Release;
use serde_json::{Value, json};

/// How many problems a line of status names.
const PROBLEMS_SHOWN: usize = 3;

/// One installed release's tree.
pub struct Tree {
    release: Release,
    problems: Vec<Problem>,
    scrubbed: Option<Scrubbed>,
}

/// The trees of a package.
pub struct Trees {
    trees: Vec<Tree>,
    incidents: Vec<Incident>,
}

impl Trees {
    /// Checks these releases quickly. A release that cannot be read is listed with the reason; status does not fail.
    pub fn read<'a>(store: &Store, releases: impl IntoIterator<Item = &'a Release>) -> Result<Self, Report> {
        let mut trees = Vec::new();
        for release in releases {
            let problems = store.check(release, Depth::Quick).unwrap_or_else(|error| {
                vec![Problem { path: "its tree".into(), defect: Defect::Unreadable(error.to_string()) }]
            });
            trees.push(Tree { release: release.clone(), problems, scrubbed: store.scrubbed(release).ok().flatten() });
        }
        Ok(Self { trees, incidents: store.incidents()? })
    }

    /// Lines for status: name and text.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<_> = self.trees.iter().map(Tree::line).collect();
        lines.extend(self.incidents.last().map(|last| ("damage", format!("{}: {last}", moment(last.at)))));
        lines
    }

    /// The same for programs.
    pub fn value(&self) -> Value {
        let told = |tree: &Tree| {
            let problems: Vec<String> = tree.problems.iter().map(ToString::to_string).collect();
            json!({"release": tree.release, "sound": tree.is_sound(), "problems": problems, "scrubbed": tree.scrubbed})
        };
        json!({"trees": self.trees.iter().map(told).collect::<Vec<_>>(), "last_incident": self.incidents.last()})
    }

    /// The same as samples of the Prometheus text format.
    pub fn samples(&self, package: &str, out: &mut Vec<Sample>) {
        for tree in &self.trees {
            let labels = labels(&[("package", package), ("release", &tree.release.to_string())]);
            // Not known is not damaged: a caller without rights cannot read every tree.
            if tree.problems.is_empty() || !tree.problems.iter().all(Problem::is_not_known) {
                out.push(Sample::new("sidle_tree_problems", &labels, tree.problems.len()));
            }
            if let Some(scrubbed) = &tree.scrubbed {
                out.push(Sample::new("sidle_scrub_problems", &labels, scrubbed.found));
                out.extend(
                    scrubbed.ended_at.map(|at| Sample::new("sidle_scrub_ended_seconds", &labels, at.as_second())),
                );
            }
        }
        out.push(Sample::new("sidle_tree_incidents", &labels(&[("package", package)]), self.incidents.len()));
    }
}

impl Tree {
    fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.defect == Defect::Stray)
    }

    fn line(&self) -> (&'static str, String) {
        let scrubbed = match &self.scrubbed {
            None => "never scrubbed".to_owned(),
            Some(Scrubbed { ended_at: Some(at), all, .. }) => {
                format!("scrubbed {} ({})", moment(*at), count(*all, "entry"))
            }
            Some(Scrubbed { done, all, .. }) => format!("being scrubbed: {done} of {all} entries"),
        };
        let shown: Vec<String> = self.problems.iter().take(PROBLEMS_SHOWN).map(ToString::to_string).collect();
        let shown = shown.join("; ");
        let more = if self.problems.len() > PROBLEMS_SHOWN { "; …" } else { "" };
        let release = &self.release;
        let name = if self.is_sound() { "tree" } else { "WARNING" };
        let text = match (self.problems.is_empty(), self.problems.iter().all(Problem::is_not_known)) {
            (true, _) => format!("{release} is whole; {scrubbed}"),
            (false, true) => format!("cannot tell whether {release} is whole: {shown}{more}"),
            (false, false) if self.is_sound() => format!("{release} is whole; {shown}{more}; {scrubbed}"),
            (false, false) => {
                format!(
                    "{release} is damaged: {}: {shown}{more}; `sidle repair` repairs the release",
                    count(self.problems.len(), "problem")
                )
            }
        };
        (name, text)
    }
}
