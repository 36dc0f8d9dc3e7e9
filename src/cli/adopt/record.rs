//! What an adoption has changed on the host beside the switch itself, on record before it is changed, and how that is taken back.

use super::other_name;
use super::stand_in::{self, KEPT_SUFFIX, UNITS, UnitState};
use crate::agent::AgentKind;
use crate::bundle::path::BundlePath;
use crate::cli::agents;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::{OsError, units};
use crate::saved;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const RECORD_NAME: &str = "record";
const RECORD_LENGTH_MAXIMUM: u64 = 64 * 1024;
const SCHEMA: u32 = 1;
/// Where the guard is copied to for the time of the adoption.
pub const GUARD_NAME: &str = "guard";
/// Before the packages' directories in everybody's search path, and never written by a package.
const COMMANDS: &str = "usr/local/sbin";

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
#[serde(deny_unknown_fields)]
pub struct Adoption {
    schema: u32,
    /// How far it is.
    pub stage: Stage,
    /// What kind of agent it is.
    pub agent: AgentKind,
    /// The unit of the package.
    pub unit: String,
    /// Whether a service manager ran it as that unit.
    pub managed: bool,
    /// How it was started: a program and its arguments.
    pub command: Vec<String>,
    /// An administrator's unit file had to make room.
    pub unit_kept: bool,
    /// The commands that lead to the running release, as files that were made for it.
    pub commands: Vec<PathBuf>,
}

impl Adoption {
    /// One that has not changed anything yet.
    pub fn new(agent: AgentKind, unit: String, managed: bool, command: Vec<String>) -> Self {
        let (stage, unit_kept, commands) = (Stage::Begun, false, Vec::new());
        Self { schema: SCHEMA, stage, agent, unit, managed, command, unit_kept, commands }
    }

    /// The one on record.
    pub fn read(layout: &Layout, instance: &InstanceName) -> Result<Option<Self>, Report> {
        let Some(directory) = Dir::open_if_exists(&layout.adoption(instance))? else { return Ok(None) };
        let Some(bytes) = directory.read_if_exists(RECORD_NAME, RECORD_LENGTH_MAXIMUM)? else { return Ok(None) };
        let path = directory.path().join(RECORD_NAME);
        saved::parse(&bytes, SCHEMA).map(Some).map_err(|error| Report {
            class: Class::Failed,
            message: format!("cannot understand {}", path.display()),
            causes: vec![error.to_string()],
            hint: error
                .hint("it says how the package's agent is given back; docs/adopting.md says what an adoption changes"),
        })
    }

    /// Puts it on record.
    pub fn write(&self, layout: &Layout, instance: &InstanceName) -> Result<(), OsError> {
        let bytes = serde_json::to_vec(self).expect("an adoption has no map keys but strings");
        Dir::open_or_create(&layout.adoption(instance), 0o755)?.write_atomic(RECORD_NAME, &bytes, 0o644)
    }

    /// Keeps the package's agent from being started beside the adopted one, until the next boot.
    pub fn hold(&self) -> Result<(), OsError> {
        if self.managed { units::mask_until_boot(&self.unit) } else { Ok(()) }
    }

    /// Retires the package's agent for good: another unit stands in for its unit, its commands lead to the running release. `programs`: their
    /// names, and where they are in a release. Gives what there is to tell.
    pub fn retire(
        &mut self,
        layout: &Layout,
        (package, instance): (&PackageName, &InstanceName),
        programs: &BTreeMap<String, BundlePath>,
    ) -> Result<Vec<String>, OsError> {
        let mut told = Vec::new();
        let units = Dir::open_or_create(&layout.root().join(UNITS), 0o755)?;
        let makes_room = stand_in::unit_state(&units, &self.unit)? == UnitState::Unit;
        self.unit_kept |= makes_room;
        let commands = Dir::open_or_create(&layout.root().join(COMMANDS), 0o755)?;
        for program in programs.keys() {
            let path = commands.path().join(program);
            let ours = self.commands.contains(&path);
            if ours || commands.stat(program)?.is_none() {
                if !ours {
                    self.commands.push(path);
                }
            } else {
                told.push(format!("{} is there already and stays as it is", path.display()));
            }
        }
        // On record first: what is made is known to whoever takes it back.
        self.write(layout, instance)?;
        if makes_room {
            units.rename(&self.unit, &units, format!("{}{KEPT_SUFFIX}", self.unit))?;
        }
        stand_in::put(layout, (package, instance), &units, &self.unit)?;
        for unit in self.other_units() {
            other_name::put(layout, (package, instance), &units, unit)?;
        }
        for path in &self.commands {
            let name = path.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
            // Also one that only an earlier release had leads somewhere.
            let place =
                programs.get(name.as_ref()).map_or(Path::new("bin").join(name.as_ref()), |at| at.as_path().to_owned());
            let text = script(layout, package, instance, (&name, &place));
            commands.write_atomic(name.as_ref(), text.as_bytes(), 0o755)?;
        }
        if self.managed {
            units::unmask_until_boot(&self.unit)?;
            units::reload()?;
        }
        self.stage = Stage::Held;
        self.write(layout, instance)?;
        // It counts as running from now on. If it doesn't, only its name is missing.
        if let Some(error) = self.managed.then(|| units::start(&self.unit).err()).flatten() {
            told.push(error.to_string());
        }
        Ok(told)
    }

    /// The units that would run the same agent under another package's name.
    fn other_units(&self) -> impl Iterator<Item = &'static str> {
        let adopter = agents::parts(&self.agent).ok().and_then(|parts| parts.adopter);
        let names = adopter.map(|adopter| adopter.other_names(&self.unit)).unwrap_or_default();
        names.into_iter().map(|(unit, _)| unit)
    }

    /// Whether the package's unit is only masked, as adoptions of old left it.
    pub fn is_only_masked(&self, layout: &Layout) -> Result<bool, OsError> {
        let units = Dir::open_if_exists(&layout.root().join(UNITS))?;
        units.map_or(Ok(false), |units| Ok(stand_in::unit_state(&units, &self.unit)? == UnitState::Mask))
    }

    /// Why there is nothing to give back to; None: there is. A package may have been removed, or replaced by one that only stands in.
    pub fn lacks(&self, layout: &Layout) -> Result<Option<String>, OsError> {
        let unit = if self.managed { stand_in::packaged(layout, &self.unit, self.unit_kept)? } else { None };
        Ok((self.managed && unit.is_none())
            .then(|| format!("no package has a {} that runs an agent any more", self.unit)))
    }

    /// Takes everything back and strikes the adoption off the record; starts nothing.
    pub fn undo(&self, layout: &Layout, instance: &InstanceName) -> Result<(), OsError> {
        let mut enabled = false;
        if let Some(units) = Dir::open_if_exists(&layout.root().join(UNITS))? {
            // Active as it is, it would keep the package's unit from being started.
            if self.managed && stand_in::unit_state(&units, &self.unit)? == UnitState::StandIn {
                enabled = units::is_enabled(&self.unit);
                units::stop(&self.unit)?;
            }
            stand_in::remove(&units, &self.unit)?;
            for unit in self.other_units() {
                other_name::remove(&units, unit)?;
            }
            let kept = format!("{}{KEPT_SUFFIX}", self.unit);
            if self.unit_kept
                && units.stat(&kept)?.is_some()
                && stand_in::unit_state(&units, &self.unit)? == UnitState::Nothing
            {
                units.rename(&kept, &units, &self.unit)?;
            }
            // Before it is off the record: a power cut must not leave what nobody knows of any more.
            units.sync()?;
        }
        for path in &self.commands {
            if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
                if let Some(directory) = Dir::open_if_exists(directory)? {
                    directory.remove_file(name)?;
                    directory.sync()?;
                }
            }
        }
        if self.managed {
            units::unmask_until_boot(&self.unit)?;
            units::reload()?;
            // Links that were made for the stand-in lead nowhere now.
            if enabled {
                units::enable_again(&self.unit)?;
            }
        }
        let Some(adoptions) = layout.adoption(instance).parent().map(Dir::open_if_exists).transpose()?.flatten() else {
            return Ok(());
        };
        adoptions.remove_tree(instance.as_str())?;
        adoptions.sync()
    }

    /// The commands that start the package's agent again, without sidle.
    pub fn way_out(&self, layout: &Layout, instance: &InstanceName) -> Vec<String> {
        let unit = layout.root().join(UNITS).join(&self.unit);
        // An active stand-in would keep the package's unit from being started.
        let mut lines = if self.managed {
            // Its own unit first: a supervisor would start the agent beside the package's, now or at the next boot.
            vec![format!("systemctl disable --now sidle@{instance}"), format!("systemctl stop {}", self.unit)]
        } else {
            Vec::new()
        };
        lines.push(stand_in::removal(layout, &self.unit));
        for unit in self.other_units() {
            lines.push(format!("rm -f {}", super::way_out::quoted(&other_name::place(layout, unit).to_string_lossy())));
        }
        if self.unit_kept {
            lines.push(format!("mv {0}{KEPT_SUFFIX} {0}", unit.display()));
        }
        if self.managed {
            lines.push(format!("systemctl daemon-reload && systemctl start {}", self.unit));
        } else {
            lines.push(self.command.iter().map(|word| super::way_out::quoted(word)).collect::<Vec<_>>().join(" "));
        }
        lines
    }
}

/// A command that leads to the running release, also when sidle itself is gone.
fn script(layout: &Layout, package: &PackageName, instance: &InstanceName, (program, place): (&str, &Path)) -> String {
    let place = place.display();
    let link = layout.package(package).join(Layout::link_name(package, instance));
    let (root, link) = (layout.root().display(), link.display());
    format!(
        "#!/bin/sh\n# Made by `sidle adopt`, removed by `sidle unadopt`: {program} of the release that runs.\n\
         if command -v sidle >/dev/null; then\n    \
         exec sidle --root '{root}' run {package} --instance {instance} {program} -- \"$@\"\nfi\n\
         exec \"$(readlink -f '{link}')/{place}\" \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adoption_of_old_is_undone_as_one_of_now() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let (package, instance): (PackageName, InstanceName) = ("a".parse().unwrap(), "a".parse().unwrap());
        let units = Dir::open_or_create(&root.path().join(UNITS), 0o755).unwrap();
        let programs = BTreeMap::from([("a".to_owned(), "bin/a".parse().unwrap())]);
        for old in [true, false] {
            units.write_atomic("a.service", b"[Unit]\n", 0o644).unwrap();
            let mut adoption = Adoption::new("salt".parse().unwrap(), "a.service".to_owned(), false, Vec::new());
            adoption.retire(&layout, (&package, &instance), &programs).unwrap();
            assert!(adoption.unit_kept && !adoption.is_only_masked(&layout).unwrap());
            if old {
                units.replace_symlink(Path::new("/dev/null"), "a.service").unwrap();
                units.remove_tree("a.service.d").unwrap();
                assert!(adoption.is_only_masked(&layout).unwrap());
            }
            let read = Adoption::read(&layout, &instance).unwrap().unwrap();
            read.undo(&layout, &instance).unwrap();
            assert_eq!(units.read("a.service", 100).unwrap(), b"[Unit]\n");
            assert_eq!(units.names().unwrap().len(), 1, "{:?}", units.names());
            assert!(Dir::open(&root.path().join(COMMANDS)).unwrap().names().unwrap().is_empty());
        }
    }
}
