//! What an adoption would leave on the host, and what it would leave alone: for its dry run.

use super::asking_unit::{self, Asks};
use super::plan::AdoptionPlan;
use super::record::{COMMANDS, RECORD_NAME};
use super::replacement_unit::{DROP_IN_NAME, KEPT_SUFFIX, UNIT_PLACES, UNITS, UnitState, drop_ins, unit_state};
use crate::agent::findings::{Change, Findings};
use crate::failure::Report;
use crate::layout::Layout;
use crate::os::dir::Dir;
use std::path::PathBuf;

fn change(findings: &mut Findings, path: PathBuf, what: impl Into<String>) {
    findings.changes.push(Change { path, what: what.into() });
}

impl AdoptionPlan<'_> {
    /// The steps of the adoption, what it would change, and what not.
    pub fn dry_run(&self) -> Result<Findings, Report> {
        let (instance, unit) = (self.instance, self.unit.as_str());
        let (layout, name, package) = (instance.layout(), instance.name(), instance.package());
        let mut expected = Findings { steps: self.steps()?, ..Findings::default() };
        let record = layout.adoption(name).join(RECORD_NAME);
        change(&mut expected, record, "the record for `sidle unadopt`");
        if let Some(path) = self.adoption().described_extras(instance, &self.to)? {
            change(&mut expected, path, "the packages that are installed over the agent, for `sidle unadopt`");
        }
        let link = layout.package(package).join(Layout::link_name(package, name));
        change(&mut expected, link, format!("a link to {}, which a boot starts from then on", self.to));
        let state = layout.instance(name);
        change(&mut expected, state, "the journal and the history of the switch");
        if let Some(path) = self.environment.target(layout, name)? {
            change(&mut expected, path, "settings of the package's unit, for sidle's unit");
        }
        let units = layout.root().join(UNITS);
        if let Some(directory) = Dir::open_if_exists(&units)? {
            if unit_state(&directory, unit)? == UnitState::Unit {
                change(
                    &mut expected,
                    units.join(format!("{unit}{KEPT_SUFFIX}")),
                    format!("your own {unit}, moved away"),
                );
            }
        }
        change(
            &mut expected,
            units.join(unit),
            "the replacement unit: its stop stops nothing, its restart loads a changed configuration",
        );
        change(&mut expected, units.join(drop_ins(unit)).join(DROP_IN_NAME), "undoes the commands of other drop-ins");
        for (other, _) in self.adopter.other_names(unit) {
            let what = format!("keeps {other} from starting a second agent");
            change(&mut expected, asking_unit::path(layout, other, Asks::OtherName), what);
        }
        let commands = layout.root().join(COMMANDS);
        let present = Dir::open_if_exists(&commands)?;
        for program in instance.replaced(&self.manifest)?.keys() {
            let path = commands.join(program);
            let exists = present.as_ref().map_or(Ok(None), |directory| directory.stat(program))?.is_some();
            if exists {
                expected.unchanged.push(format!("{}: it exists already", path.display()));
            } else {
                change(&mut expected, path, format!("starts {program} of the running release"));
            }
        }
        expected.unchanged.extend(self.unchanged(layout));
        Ok(expected)
    }

    fn unchanged(&self, layout: &Layout) -> Vec<String> {
        let user = self.found.user.as_deref().unwrap_or("root");
        let mut unchanged = vec![
            format!("{}: the configuration, with id and keys", self.configuration.display()),
            "the agent's cache, grains and own modules".to_owned(),
            format!("the user that the agent runs as: {user}"),
            "the master sees one agent, with the same id and key".to_owned(),
            "the package and its files; it stays installed".to_owned(),
        ];
        let packaged = UNIT_PLACES[1..].iter().map(|place| layout.root().join(place).join(&self.unit));
        let packaged = packaged.filter(|path| crate::os::file::is_input(path)).map(|path| path.display().to_string());
        unchanged.extend(packaged.map(|path| format!("{path}: the package's own unit")));
        unchanged.push("jobs that run: they finish in the process that runs them".to_owned());
        unchanged
    }
}
