//! What a release is asked about the configuration that its agent would load.

use crate::agent::{Agent, AgentError, AgentSettings, Answers};
use crate::bundle::manifest::Head;
use crate::os::file;
use crate::rehearsal::Part;
use crate::switch::process::Processes;
use std::path::PathBuf;

impl Processes {
    /// The agent's configuration directory.
    pub fn configuration(&self, manifest: &Head) -> PathBuf {
        self.configuration.clone().unwrap_or_else(|| self.layout.on_host(manifest.service.config.as_ref()))
    }

    /// The settings of a release's agent.
    pub fn settings(&self, manifest: &Head) -> AgentSettings {
        let tree = self.layout.versions(&self.package).join(manifest.release().to_string());
        let programs = manifest.commands.iter().map(|(name, path)| (name.clone(), tree.join(path.as_path()))).collect();
        let configuration = self.configuration(manifest);
        let part = Part::of(file::canonical(&tree).unwrap_or(tree), manifest, &configuration);
        let settings = AgentSettings::new(&configuration);
        let settings = settings.asking(part, Answers::Kept(self.layout.instance(&self.instance)));
        AgentSettings { programs, passed: self.passed.clone(), ..settings }
    }

    /// The agent of a release, as a process started now would be.
    pub fn agent_now(&self, manifest: &Head, answers: fn(PathBuf) -> Answers) -> Result<Box<dyn Agent>, AgentError> {
        let state = self.layout.instance(&self.instance);
        let settings = AgentSettings { answers: answers(state), ..self.settings(manifest) };
        (self.registry)(&manifest.agent).and_then(|parts| (parts.observer)(&settings))
    }

    /// An error says why a process of this release could not load its configuration now.
    pub fn loads_configuration(&self, manifest: &Head, answers: fn(PathBuf) -> Answers) -> Result<(), AgentError> {
        self.agent_now(manifest, answers)?.configuration().map(drop)
    }
}
