//! Packages that were installed over an adopted agent: described when the adoption ends, and given back with the agent.

use super::AdoptingInstance;
use super::record::Adoption;
use crate::agent::adoption::{ExtrasBack, Trees};
use crate::agent::{AgentError, AgentKind};
use crate::failure::Report;
use crate::os::dir::Dir;
use crate::os::{file, proc_fs};
use crate::rehearsal::Part;
use crate::supervise::status::SupervisorStatus;
use crate::version::Release;
use std::path::PathBuf;

const NAME: &str = "extras";
/// A package is a line of a hundred bytes.
const LENGTH_MAXIMUM: u64 = 1 << 20;
/// The description of an adoption that has none: nothing was there.
const NOTHING: &str = r#"{"ours": {}, "theirs": {}}"#;

impl Adoption {
    /// Describes what is installed over both trees, so that `unadopt` knows what is new. Returns a warning if it cannot.
    pub(super) fn describe_extras(&self, instance: &AdoptingInstance, release: &Release) -> Option<String> {
        let describe = || -> Result<(), Report> {
            let Some(trees) = self.trees(instance, release)? else { return Ok(()) };
            let adopter = instance.adopter(&self.agent).map_err(super::running_agent::failed)?;
            let described = adopter.map_or(Ok(None), |adopter| adopter.extras(&trees));
            if let Some(text) = described.map_err(super::running_agent::failed)? {
                let directory = Dir::open_or_create(&instance.layout().adoption(instance.name()), 0o755)?;
                directory.write_atomic(NAME, text.as_bytes(), 0o644)?;
            }
            Ok(())
        };
        let said = describe().err()?;
        Some(format!("{said}: `sidle unadopt` will give back each package that the packaged agent lacks then"))
    }

    /// The file that [`Self::describe_extras`] would write; None: none.
    pub(super) fn described_extras(
        &self,
        instance: &AdoptingInstance,
        release: &Release,
    ) -> Result<Option<PathBuf>, Report> {
        let (trees, adopter) = (self.trees(instance, release)?, instance.adopter(&self.agent).ok().flatten());
        let described = trees.zip(adopter).and_then(|(trees, adopter)| adopter.extras(&trees).ok().flatten());
        Ok(described.map(|_| instance.layout().adoption(instance.name()).join(NAME)))
    }

    /// The trees of the adoption; None: the package's is not known, or gone.
    fn trees(&self, instance: &AdoptingInstance, release: &Release) -> Result<Option<Trees>, Report> {
        let Some(packaged) = &self.packaged else { return Ok(None) };
        let manifest = instance.store().head(release)?;
        let tree = file::canonical(instance.store().tree(release)?.path())?;
        let mut release = Part::of(tree, &manifest, &instance.configuration(&manifest)?);
        let status = SupervisorStatus::read(instance.layout(), instance.name())?;
        let leader = status.and_then(|status| status.agent).map(|agent| agent.leader);
        // Now: `unadopt` ends this process before it gives anything back.
        if let (Some(leader), Some(adopter)) = (&leader, instance.adopter(&self.agent)?) {
            for name in adopter.shared_variables() {
                if let Some(value) = proc_fs::environment_variable(leader.pid, name)? {
                    release.environment.retain(|(known, _)| known != name);
                    release.environment.push((name.into(), value));
                }
            }
        }
        Ok(Some(Trees { packaged: packaged.part(), release, leader }))
    }

    /// Prepares giving back; None: there is nothing that could be given back.
    pub(super) fn extras<'a>(
        &self,
        instance: &'a AdoptingInstance,
        release: Option<&Release>,
    ) -> Result<Option<Extras<'a>>, Report> {
        let Some(release) = release else { return Ok(None) };
        let Some(trees) = self.trees(instance, release)? else { return Ok(None) };
        let directory = Dir::open_if_exists(&instance.layout().adoption(instance.name()))?;
        let bytes = directory.map_or(Ok(None), |directory| directory.read_if_exists(NAME, LENGTH_MAXIMUM))?;
        let record = bytes.map_or_else(|| NOTHING.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Some(Extras { instance, agent: self.agent.clone(), trees, record }))
    }
}

/// Packages to be given back.
pub(super) struct Extras<'a> {
    instance: &'a AdoptingInstance,
    agent: AgentKind,
    trees: Trees,
    record: String,
}

impl Extras<'_> {
    /// The lines of a dry run: which packages would be given back.
    pub(super) fn plan(&self) -> Result<Vec<String>, AgentError> {
        self.back(true).map(|back| lines(&back, "give back"))
    }

    /// Gives back. What cannot be given back stays where it is; the lines name it, and where that is.
    pub(super) fn give(&self) -> Vec<String> {
        match self.back(false) {
            Ok(back) => lines(&back, "gave back"),
            Err(error) => vec![format!("{error}: no package was given back to the packaged agent; sidle removed none")],
        }
    }

    fn back(&self, is_plan: bool) -> Result<ExtrasBack, AgentError> {
        let adopter = self.instance.adopter(&self.agent)?;
        adopter.map_or_else(
            || Ok(ExtrasBack::default()),
            |adopter| adopter.extras_back(&self.trees, &self.record, is_plan),
        )
    }
}

/// In lines for people, none where there is nothing to tell.
fn lines(back: &ExtrasBack, act: &str) -> Vec<String> {
    let path = |path: &Option<PathBuf>| path.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let (place, into) = (path(&back.place), path(&back.into));
    let of = |names: &[String], text: String| (!names.is_empty()).then(|| text.replace("NAMES", &names.join(", ")));
    [
        of(&back.given, format!("{act} to the packaged agent, in {into}: NAMES")),
        of(&back.conflicts, format!("changed in {into}, too, where it stays as it is: NAMES; this one stays in {place}")),
        of(&back.removed, format!("removed from {place}, and not from {into}: NAMES; the packaged agent has it again")),
        of(&back.unfit, format!("made for another Python than that of the packaged agent: NAMES; install it there anew, it stays in {place}")),
        of(&back.failed, format!("cannot give back to the packaged agent: NAMES; it stays in {place}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_told_and_what_is_not_is_told_with_its_place() {
        assert!(lines(&ExtrasBack::default(), "gave back").is_empty());
        let back = ExtrasBack {
            place: Some("/var/lib/ours".into()),
            into: Some("/opt/theirs".into()),
            given: vec!["a 1".to_owned(), "b 2".to_owned()],
            unfit: vec!["c 3".to_owned()],
            ..ExtrasBack::default()
        };
        let told = lines(&back, "gave back");
        assert_eq!(told[0], "gave back to the packaged agent, in /opt/theirs: a 1, b 2");
        assert!(told.len() == 2 && told[1].contains("c 3") && told[1].contains("stays in /var/lib/ours"), "{told:?}");
    }
}
