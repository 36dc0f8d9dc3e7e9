//! What an adoption changes on the host beside the switch itself: on record before it is changed, and how it is undone.

use super::asking_unit::{self, Asks};
use super::manual_start::quoted;
use super::packaged_tree::PackagedTree;
use super::replacement_unit::{self, KEPT_SUFFIX, UNITS, UnitState, unit_state};
use super::{AdoptingInstance, environment, is_own_host};
use crate::agent::AgentKind;
use crate::agent::gate::CLAIMS_NAME;
use crate::bundle::path::BundlePath;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::account::{self, Rights};
use crate::os::dir::Dir;
use crate::os::{OsError, units};
use crate::saved;
use crate::switch::gate::gatekeeper::Gatekeeper;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(super) const RECORD_NAME: &str = "record";
const RECORD_LENGTH_MAXIMUM: u64 = 64 * 1024;
const SCHEMA: u32 = 1;
/// Longest command that may be one of the scripts.
const SCRIPT_BYTES_MAXIMUM: u64 = 64 * 1024;
/// Where the guard is copied to while the adoption runs.
pub(super) const GUARD_NAME: &str = "guard";
/// Before the packages' directories in each search path, and never written by a package.
pub(super) const COMMANDS: &str = "usr/local/sbin";

/// How far an adoption is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The switch may be under way.
    Begun,
    /// The package's agent is retired.
    Held,
}

/// An adoption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    schema: u32,
    /// How far it is.
    pub stage: Stage,
    /// The kind of agent.
    pub agent: AgentKind,
    /// The package's unit.
    pub unit: String,
    /// True if systemd ran the agent as that unit.
    pub managed: bool,
    /// The program and its arguments that started the agent.
    pub command: Vec<String>,
    /// The rights with which it was started; None: systemd starts it, or they are not known for certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<Rights>,
    /// The package's tree, with the variables of its process; None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packaged: Option<PackagedTree>,
    /// True if an administrator's own unit file was renamed.
    pub unit_kept: bool,
    /// The scripts in /usr/local/sbin that lead to the running release.
    pub commands: Vec<PathBuf>,
}

impl Adoption {
    /// An adoption that has not changed anything yet.
    pub fn new(agent: AgentKind, unit: String, managed: bool, command: Vec<String>) -> Self {
        let (stage, rights, packaged, unit_kept, commands) = (Stage::Begun, None, None, false, Vec::new());
        Self { schema: SCHEMA, stage, agent, unit, managed, command, rights, packaged, unit_kept, commands }
    }

    /// Reads an instance's adoption; None: it was not adopted.
    pub fn read(layout: &Layout, instance: &InstanceName) -> Result<Option<Self>, Report> {
        let Some(directory) = Dir::open_if_exists(&layout.adoption(instance))? else { return Ok(None) };
        let Some(bytes) = directory.read_if_exists(RECORD_NAME, RECORD_LENGTH_MAXIMUM)? else { return Ok(None) };
        let path = directory.path().join(RECORD_NAME);
        saved::parse(&bytes, SCHEMA).map(Some).map_err(|error| {
            let remedy =
                "it says how to give the agent back to its package; docs/adopting.md lists what an adoption changes";
            let report = Report::of(Class::Failed, format!("cannot understand {}", path.display()));
            Report { hint: error.hint(remedy), ..report.because(error) }
        })
    }

    /// Writes the record.
    pub fn write(&self, layout: &Layout, instance: &InstanceName) -> Result<(), OsError> {
        Dir::open_or_create(&layout.adoption(instance), 0o755)?.write_atomic(RECORD_NAME, &saved::line(self), 0o644)
    }

    /// Keeps systemd from starting the package's unit: until the next boot in any case, and from then on where sidle runs its agent.
    pub(super) fn hold(&self, instance: &AdoptingInstance) -> Result<(), OsError> {
        let layout = instance.layout();
        if !self.managed && !is_own_host(layout) {
            return Ok(());
        }
        // Also a unit that has not started this agent: a boot would start it.
        let units = Dir::open_or_create(&layout.root().join(UNITS), 0o755)?;
        asking_unit::put(instance, &units, &self.unit, Asks::Adopted)?;
        units.sync()?;
        if self.managed { units::mask_until_boot(&self.unit) } else { units::reload() }
    }

    /// Retires the package's agent: a replacement unit takes the name of its unit, its commands lead to the running release. `programs`: the names
    /// of the commands, and their paths in a release. Returns warnings.
    pub fn retire(
        &mut self,
        instance: &AdoptingInstance,
        programs: &BTreeMap<String, BundlePath>,
    ) -> Result<Vec<String>, OsError> {
        let layout = instance.layout();
        let mut warnings = Vec::new();
        let units = Dir::open_or_create(&layout.root().join(UNITS), 0o755)?;
        let makes_room = unit_state(&units, &self.unit)? == UnitState::Unit;
        self.unit_kept |= makes_room;
        let commands = Dir::open_or_create(&layout.root().join(COMMANDS), 0o755)?;
        for program in programs.keys() {
            let path = commands.path().join(program);
            if self.commands.contains(&path) {
                continue;
            }
            if commands.stat(program)?.is_none() {
                self.commands.push(path);
            } else {
                warnings.push(format!("{} exists already and stays as it is", path.display()));
            }
        }
        // On record first, so that a crash leaves nothing that `undo` does not know.
        self.write(layout, instance.name())?;
        if makes_room {
            units.rename(&self.unit, &units, format!("{}{KEPT_SUFFIX}", self.unit))?;
        }
        replacement_unit::put(instance, &units, &self.unit)?;
        for unit in self.other_units(instance) {
            asking_unit::put(instance, &units, unit, Asks::OtherName)?;
        }
        asking_unit::remove(&units, &self.unit, Asks::Adopted)?;
        for path in &self.commands {
            let name = path.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
            // A command that only an earlier release had keeps a path.
            let default = Path::new("bin").join(name.as_ref());
            let place = programs.get(name.as_ref()).map_or(default.as_path(), BundlePath::as_path);
            commands.write_atomic(name.as_ref(), script(instance, &name, place).as_bytes(), 0o755)?;
        }
        if self.managed {
            units::unmask_until_boot(&self.unit)?;
            units::reload()?;
        }
        self.stage = Stage::Held;
        self.write(layout, instance.name())?;
        // The unit counts as running from now on. If the start fails, nothing else is missing.
        if self.managed {
            warnings.extend(units::start(&self.unit).err().map(|error| error.to_string()));
        }
        Ok(warnings)
    }

    /// The units of other packages that would run the same agent.
    fn other_units(&self, instance: &AdoptingInstance) -> impl Iterator<Item = &'static str> + use<> {
        let names = instance
            .adopter(&self.agent)
            .ok()
            .flatten()
            .map(|adopter| adopter.other_names(&self.unit))
            .unwrap_or_default();
        names.into_iter().map(|(unit, _)| unit)
    }

    /// Returns why there is nothing to give the agent back to: a package may have been removed, or replaced by a shim.
    pub(super) fn lacks(&self, layout: &Layout) -> Result<Option<String>, OsError> {
        let is_gone = self.managed && !replacement_unit::is_packaged(layout, &self.unit, self.unit_kept)?;
        Ok(is_gone.then(|| format!("no package has a {} that runs an agent", self.unit)))
    }

    /// Undoes every change and removes the record; starts nothing.
    pub fn undo(&self, instance: &AdoptingInstance) -> Result<(), OsError> {
        let layout = instance.layout();
        environment::remove(layout, instance.name())?;
        let mut enabled = false;
        if let Some(units) = Dir::open_if_exists(&layout.root().join(UNITS))? {
            // An active replacement unit would keep the package's unit from being started.
            if self.managed && unit_state(&units, &self.unit)? == UnitState::Replacement {
                enabled = units::is_enabled(&self.unit);
                units::stop(&self.unit)?;
            }
            replacement_unit::remove(&units, &self.unit)?;
            for unit in self.other_units(instance) {
                asking_unit::remove(&units, unit, Asks::OtherName)?;
            }
            asking_unit::remove(&units, &self.unit, Asks::Adopted)?;
            let kept = format!("{}{KEPT_SUFFIX}", self.unit);
            let is_free = unit_state(&units, &self.unit)? == UnitState::Missing;
            if self.unit_kept && is_free && units.stat(&kept)?.is_some() {
                units.rename(&kept, &units, &self.unit)?;
            }
            // Before the record goes: a power cut must not leave a unit that no record knows.
            units.sync()?;
        }
        for path in &self.commands {
            if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
                if let Some(directory) = Dir::open_if_exists(directory)?.filter(|directory| is_script(directory, name))
                {
                    directory.remove_file(name)?;
                    directory.sync()?;
                }
            }
        }
        if self.managed {
            units::unmask_until_boot(&self.unit)?;
        }
        if is_own_host(layout) {
            units::reload()?;
        }
        if enabled {
            // Links that were made for the replacement unit lead nowhere now.
            units::enable_again(&self.unit)?;
        }
        // The package's agent makes no claims: with older ones here, a lack of one would look like a job that nobody has begun.
        if let Some(gate) = Dir::open_if_exists(Gatekeeper::new(layout, instance.name()).path())? {
            gate.remove_tree(CLAIMS_NAME)?;
        }
        let adoptions = layout.adoption(instance.name()).parent().map(Dir::open_if_exists).transpose()?.flatten();
        let Some(adoptions) = adoptions else { return Ok(()) };
        adoptions.remove_tree(instance.name().as_str())?;
        adoptions.sync()
    }

    /// The commands that start the package's agent again, without sidle.
    pub fn manual_undo(&self, instance: &AdoptingInstance) -> Vec<String> {
        let layout = instance.layout();
        let mut lines = Vec::new();
        if self.managed {
            // Its own unit first: a supervisor would start sidle's agent beside the package's agent, now or at the next boot.
            lines.push(format!("systemctl disable --now sidle@{}", instance.name()));
            lines.push(format!("systemctl stop {}", self.unit));
        }
        // Before the agent is retired, an administrator's own unit still has its name.
        if !self.has_own_unit(layout) {
            lines.push(replacement_unit::removal(layout, &self.unit));
        }
        let others = self.other_units(instance).map(|unit| asking_unit::path(layout, unit, Asks::OtherName));
        let is_begun = self.stage == Stage::Begun;
        let own = is_begun.then(|| asking_unit::path(layout, &self.unit, Asks::Adopted));
        lines.extend(others.chain(own).map(|path| format!("rm -f {}", quoted(&path.to_string_lossy()))));
        if is_begun && self.managed {
            lines.push(format!("systemctl unmask --runtime {}", self.unit));
        }
        if self.unit_kept {
            lines.push(format!("mv {0}{KEPT_SUFFIX} {0}", layout.root().join(UNITS).join(&self.unit).display()));
        }
        lines.push(if self.managed {
            format!("systemctl daemon-reload && systemctl start {}", self.unit)
        } else {
            self.by_hand()
        });
        lines
    }

    /// True if an administrator's own unit lies where a replacement unit would.
    fn has_own_unit(&self, layout: &Layout) -> bool {
        let units = Dir::open_if_exists(&layout.root().join(UNITS)).ok().flatten();
        units.and_then(|units| unit_state(&units, &self.unit).ok()) == Some(UnitState::Unit)
    }

    /// The command line that starts an agent without a unit, for a shell of root.
    fn by_hand(&self) -> String {
        let command = self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        match &self.rights {
            Some(rights) if rights.are_roots() => command,
            Some(rights) => format!("runuser -u {} -- {command}", quoted(&account::user_name(rights.user))),
            None => format!("# as the user that it ran as: {command}"),
        }
    }
}

/// How each script begins.
const SCRIPT_HEAD: &str = "#!/bin/sh\n# Made by `sidle adopt`, removed by `sidle unadopt`";

/// True if the file is a script of `sidle adopt`. Somebody may have replaced it by a command of their own, which stays.
fn is_script(directory: &Dir, name: &OsStr) -> bool {
    let text = directory.read(name, SCRIPT_BYTES_MAXIMUM);
    text.is_ok_and(|text| text.starts_with(SCRIPT_HEAD.as_bytes()))
}

/// A command that leads to the running release, also when sidle itself is gone.
fn script(instance: &AdoptingInstance, program: &str, place: &Path) -> String {
    let (layout, package, name) = (instance.layout(), instance.package(), instance.name());
    let link = layout.package(package).join(Layout::link_name(package, name));
    let (root, link, place) = (layout.root().display(), link.display(), place.display());
    format!(
        "{SCRIPT_HEAD}: {program} of the running release.\n\
         if command -v sidle >/dev/null; then\n    \
         exec sidle --root '{root}' run {package} --instance {name} {program} -- \"$@\"\nfi\n\
         exec \"$(readlink -f '{link}')/{place}\" \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentError;
    use crate::switch::journal::files::InstanceFiles;

    const UNIT: &str = "salt-minion.service";

    fn instance(root: &Path) -> AdoptingInstance {
        let files = InstanceFiles::new(&Layout::new(root), &"a".parse().unwrap(), &"a".parse().unwrap());
        AdoptingInstance { files, registry: |kind| Err(AgentError::new(kind)) }
    }

    /// An adoption whose unit asks already, as before the switch.
    fn begun(instance: &AdoptingInstance) -> (Adoption, Dir) {
        let units = Dir::open_or_create(&instance.layout().root().join(UNITS), 0o755).unwrap();
        asking_unit::put(instance, &units, UNIT, Asks::Adopted).unwrap();
        (Adoption::new("salt-minion".parse().unwrap(), UNIT.to_owned(), false, Vec::new()), units)
    }

    /// Else a shim took the package's files away under an agent that still has jobs.
    #[test]
    fn a_shim_knows_an_adoption_that_is_under_way_by_its_record() {
        let script = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/shim/preinst"));
        let wanted = script.split("grep -qs '").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
        let mut adoption = Adoption::new("salt-minion".parse().unwrap(), UNIT.to_owned(), true, Vec::new());
        let has = |adoption: &Adoption| String::from_utf8(saved::line(adoption)).unwrap().contains(wanted);
        assert!(has(&adoption));
        adoption.stage = Stage::Held;
        assert!(!has(&adoption));
    }

    /// It would refuse the start of the package's agent, or of the replacement unit.
    #[test]
    fn a_unit_asks_until_the_adoption_is_undone_or_the_agent_is_retired() {
        let root = tempfile::tempdir().unwrap();
        let instance = instance(root.path());
        let drop_in = asking_unit::path(instance.layout(), UNIT, Asks::Adopted);
        let (adoption, _) = begun(&instance);
        assert!(drop_in.exists());
        adoption.undo(&instance).unwrap();
        assert!(!drop_in.exists());
        let (mut adoption, units) = begun(&instance);
        adoption.retire(&instance, &BTreeMap::new()).unwrap();
        assert!(!drop_in.exists() && unit_state(&units, UNIT).unwrap() == UnitState::Replacement);
    }

    /// The commands that people type without sidle deleted it.
    #[test]
    fn an_administrators_own_unit_is_removed_by_no_printed_command() {
        let root = tempfile::tempdir().unwrap();
        let instance = instance(root.path());
        let (adoption, units) = begun(&instance);
        units.write_atomic(UNIT, b"[Service]\nExecStart=/usr/bin/salt-minion\n", 0o644).unwrap();
        let path = units.path().join(UNIT);
        let removes = |lines: &[String]| lines.iter().any(|line| line.contains(&format!("{} ", path.display())));
        let lines = adoption.manual_undo(&instance);
        assert!(!removes(&lines) && lines.iter().any(|line| line.ends_with("zzz-sidle-adopted.conf")), "{lines:?}");
        units.remove_file(UNIT).unwrap();
        assert!(removes(&adoption.manual_undo(&instance)));
    }
}
