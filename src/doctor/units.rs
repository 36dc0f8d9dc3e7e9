//! The host's units: a boot starts the instance's supervisor, and nothing starts the package's own agent beside it.

use super::CheckedInstance;
use crate::adoption::replacement_unit::{self, UNIT_PLACES, UnitState};
use crate::agent::examination::{Group, Severity};
use crate::os::dir::Dir;
use crate::os::{OsError, units};
use crate::store::Store;
use std::path::Path;

/// The template that packages of sidle bring.
const TEMPLATE: &str = "sidle@.service";

/// Checks the unit files, which needs no rights; asks systemd only on the host's own root.
pub fn check(checked: &CheckedInstance<'_>, store: &Store) -> Group {
    let mut group = Group::new("units");
    if let Err(error) = files(&mut group, checked, store) {
        group.unknown("units", error, "run `sidle doctor` as root");
    }
    group
}

fn files(group: &mut Group, checked: &CheckedInstance<'_>, store: &Store) -> Result<(), OsError> {
    let (root, instance, package) = (checked.layout.root(), checked.instance, checked.package);
    let is_host = root == Path::new("/") && units::is_running();
    let unit = format!("sidle@{instance}.service");
    let own = match unit_state(root, &unit)? {
        UnitState::Missing => unit_state(root, TEMPLATE)?,
        state => state,
    };
    let used = store.current(instance).ok().flatten().is_some();
    let packaged = format!("{package}.service");
    let theirs = unit_state(root, &packaged)?;
    if own == UnitState::Missing && theirs == UnitState::Missing && !is_host {
        group.good("no systemd units: another manager starts the supervisor");
        return Ok(());
    }
    let enable = format!("`systemctl enable --now {unit}`");
    match own {
        _ if !used => {}
        UnitState::Missing => {
            let what = format!("there is no unit {TEMPLATE}: no boot starts {instance}");
            let remedy = format!("install sidle's own package, or packaging/systemd/{TEMPLATE}; then {enable}");
            group.find(Severity::Warning, "unit-missing", what, remedy);
        }
        UnitState::Masked => {
            let what = format!("{unit} is masked: no boot starts {instance}");
            group.find(Severity::Error, "unit-masked", what, format!("`systemctl unmask {unit}`, then {enable}"));
        }
        UnitState::Replacement | UnitState::Unit if is_enabled(root, &unit)? => {
            group.good(format!("{unit} is enabled"));
        }
        UnitState::Replacement | UnitState::Unit => {
            let what = format!("{unit} is not enabled: no boot starts {instance}");
            group.find(Severity::Warning, "unit-disabled", what, enable);
        }
    }
    if used && theirs == UnitState::Unit {
        let what = format!("{packaged}, the package's own unit, could start a second agent beside sidle's");
        let remedy = format!(
            "`sidle adopt {package}` takes it over; or `systemctl disable --now {packaged}` and `systemctl mask {packaged}`"
        );
        let severity = if is_enabled(root, &packaged)? { Severity::Error } else { Severity::Warning };
        group.find(severity, "packaged-unit", what, remedy);
    } else if theirs == UnitState::Masked && !used {
        let what = format!("{packaged} is masked, and sidle runs no {instance}: nothing starts the agent");
        let remedy = format!("`systemctl unmask {packaged}`, or `sidle switch {package}`");
        group.find(Severity::Warning, "packaged-unit-masked", what, remedy);
    } else if theirs == UnitState::Replacement {
        group.good(format!("{packaged} is sidle's replacement unit"));
    }
    if is_host && used && own == UnitState::Unit {
        match units::activity(&unit).as_deref() {
            Some("failed") => {
                let remedy = format!(
                    "`journalctl -u {unit}` shows why; `systemctl reset-failed {unit}` and `systemctl start {unit}`"
                );
                group.find(Severity::Error, "unit-failed", format!("{unit} has failed"), remedy);
            }
            Some(word) => group.good(format!("it is {word}")),
            None => group.unknown(&unit, "systemd did not answer", "run `sidle doctor` as root"),
        }
    }
    Ok(())
}

/// The unit that counts: that in the first place that has one.
fn unit_state(root: &Path, unit: &str) -> Result<UnitState, OsError> {
    for place in UNIT_PLACES {
        let Some(units) = Dir::open_if_exists(&root.join(place))? else { continue };
        match replacement_unit::unit_state(&units, unit)? {
            UnitState::Missing => {}
            state => return Ok(state),
        }
    }
    Ok(UnitState::Missing)
}

/// True if a target wants it, as `systemctl enable` makes it.
fn is_enabled(root: &Path, unit: &str) -> Result<bool, OsError> {
    for place in UNIT_PLACES {
        let Some(directory) = Dir::open_if_exists(&root.join(place))? else { continue };
        for name in directory.names()? {
            let lists = name.to_string_lossy().ends_with(".wants") || name.to_string_lossy().ends_with(".requires");
            let list = if lists { directory.child_if_exists(&name).ok().flatten() } else { None };
            if list.is_some_and(|list| matches!(list.stat(unit), Ok(Some(_)))) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
