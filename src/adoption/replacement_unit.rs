//! The replacement unit: it has the name of a package's unit, and lets nobody stop or replace the running agent by that name.

use super::AdoptingInstance;
use super::manual_start::quoted;
use crate::layout::Layout;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::store::own_program;
use std::path::Path;

const TEMPLATE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/replacement.service"));
/// Stands in the first line of each replacement unit and drop-in, and in no other unit.
pub const MARK: &str = "X-Sidle=replacement";
/// A masked unit is a link to this.
const NOWHERE: &str = "/dev/null";
/// A unit file is a page or two.
pub(super) const UNIT_BYTES_MAXIMUM: u64 = 256 * 1024;

/// Where an administrator's units lie: no package writes there.
pub(super) const UNITS: &str = UNIT_PLACES[0];
/// Where units lie; the first place that has a unit counts.
pub const UNIT_PLACES: [&str; 4] =
    ["etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// An administrator's own unit file keeps this name beside the replacement unit.
pub(super) const KEPT_SUFFIX: &str = ".before-sidle";
/// Drop-ins for the package's unit apply to the replacement unit, too. This one comes last, and undoes their commands.
pub(super) const DROP_IN_NAME: &str = "zzz-sidle.conf";
/// Lists that a drop-in may have added to, and values that would change the user of the replacement unit.
const EMPTIED: [&str; 9] = [
    "ExecStartPre",
    "ExecStart",
    "ExecStartPost",
    "ExecReload",
    "ExecStop",
    "ExecStopPost",
    "User",
    "Group",
    "EnvironmentFile",
];

/// What lies at a unit's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// Nothing.
    Missing,
    /// A replacement unit.
    Replacement,
    /// A mask.
    Masked,
    /// A unit of a package or an administrator.
    Unit,
}

/// Returns what lies at a unit's path. A link counts as a unit.
pub fn unit_state(units: &Dir, unit: &str) -> Result<UnitState, OsError> {
    if units.stat(unit)?.is_none() {
        return Ok(UnitState::Missing);
    }
    if units.read_link(unit).ok().flatten().is_some_and(|target| target == Path::new(NOWHERE)) {
        return Ok(UnitState::Masked);
    }
    let text = units.read(unit, UNIT_BYTES_MAXIMUM).unwrap_or_default();
    let is_ours = String::from_utf8_lossy(&text).lines().next().is_some_and(|first| first.contains(MARK));
    Ok(if is_ours { UnitState::Replacement } else { UnitState::Unit })
}

/// The unit's text.
fn text(instance: &AdoptingInstance, unit: &str) -> Result<String, OsError> {
    let text = TEMPLATE.replace("@UNIT@", unit).replace("@SIDLE@", &program(instance.layout())?);
    Ok(text.replace("@PACKAGE@", instance.package().as_str()).replace("@INSTANCE@", instance.name().as_str()))
}

/// How a unit calls this program, for as long as there is one.
pub(super) fn program(layout: &Layout) -> Result<String, OsError> {
    let program = word(&own_program::path(layout)?.to_string_lossy());
    let root = layout.root();
    Ok(if root == Path::new("/") { program } else { format!("{program} --root {}", word(&root.to_string_lossy())) })
}

/// A word of a command line as systemd takes it literally (systemd.service(5), "Command lines").
fn word(word: &str) -> String {
    let escaped = word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if escaped.contains([' ', '\t', '\'', ';']) { format!("\"{escaped}\"") } else { escaped }
}

/// The drop-in: the same service, after it empties what other drop-ins added.
fn drop_in(text: &str) -> String {
    let service = text.split("[Service]\n").nth(1).and_then(|rest| rest.split("\n[Install]").next());
    let emptied = EMPTIED.map(|name| format!("{name}=\n")).concat();
    format!(
        "# {MARK}: drop-ins for the package's own unit start and stop nothing here.\n[Service]\nRestart=no\n{emptied}{}",
        service.unwrap_or_default()
    )
}

/// The directory of a unit's drop-ins.
pub(super) fn drop_ins(unit: &str) -> String {
    format!("{unit}.d")
}

/// Puts the replacement unit at the path of a unit, which is free or holds a mask.
pub(super) fn put(instance: &AdoptingInstance, units: &Dir, unit: &str) -> Result<(), OsError> {
    let text = text(instance, unit)?;
    let directory = units.child_or_create(drop_ins(unit), 0o755)?;
    directory.write_atomic(DROP_IN_NAME, drop_in(&text).as_bytes(), 0o644)?;
    // A link is replaced, not followed.
    units.write_atomic(unit, text.as_bytes(), 0o644)
}

/// Removes the replacement unit with its drop-in, or a mask.
pub(super) fn remove(units: &Dir, unit: &str) -> Result<(), OsError> {
    remove_drop_in(units, unit, DROP_IN_NAME)?;
    if matches!(unit_state(units, unit)?, UnitState::Replacement | UnitState::Masked) {
        units.remove_file(unit)?;
    }
    Ok(())
}

/// The same in a shell.
pub(super) fn removal(layout: &Layout, unit: &str) -> String {
    let place = layout.root().join(UNITS);
    let drop_in = place.join(drop_ins(unit)).join(DROP_IN_NAME);
    format!("rm -f {} {}", quoted(&place.join(unit).to_string_lossy()), quoted(&drop_in.to_string_lossy()))
}

/// Removes a drop-in, and the directory if it is empty then.
pub(super) fn remove_drop_in(units: &Dir, unit: &str, name: &str) -> Result<(), OsError> {
    if let Some(directory) = units.child_if_exists(drop_ins(unit))? {
        directory.remove_file(name)?;
        if directory.names()?.is_empty() {
            units.remove_tree(drop_ins(unit))?;
        }
    }
    Ok(())
}

/// True if the package, or the administrator's kept file, has a unit that runs an agent.
pub(super) fn is_packaged(layout: &Layout, unit: &str, kept: bool) -> Result<bool, OsError> {
    let kept = kept.then(|| (UNITS, format!("{unit}{KEPT_SUFFIX}")));
    for (place, name) in kept.into_iter().chain(UNIT_PLACES[1..].iter().map(|place| (*place, unit.to_owned()))) {
        let Some(units) = Dir::open_if_exists(&layout.root().join(place))? else { continue };
        match unit_state(&units, &name)? {
            UnitState::Missing => {}
            UnitState::Replacement | UnitState::Masked => return Ok(false),
            UnitState::Unit => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::journal::files::InstanceFiles;

    fn instance(root: &Path, package: &str, name: &str) -> AdoptingInstance {
        let files = InstanceFiles::new(&Layout::new(root), &name.parse().unwrap(), &package.parse().unwrap());
        AdoptingInstance { files, registry: |_| unreachable!() }
    }

    #[test]
    fn a_replacement_names_no_program_but_sidle_and_stops_nothing() {
        let text = text(&instance(Path::new("/a b"), "salt-minion", "other"), "salt-minion.service").unwrap();
        assert!(!text.replace("sidle@other", "").contains('@'), "{text}");
        for line in text.lines().filter(|line| line.starts_with("Exec")) {
            assert!(
                line.contains(" --root \"/a b\" restart salt-minion --instance other --if-changed --no-wait"),
                "{line}"
            );
        }
        assert!(!text.contains("ExecStop") && text.starts_with("# ") && text.lines().next().unwrap().contains(MARK));
        let drop_in = drop_in(&text);
        let place = |line: &str| drop_in.find(line).unwrap_or_else(|| panic!("{line}: {drop_in}"));
        assert!(place("\nExecStart=\n") < place("\nExecStart=/") && place("\nExecStop=\n") > 0);
        assert!(!drop_in.contains("[Install]") && drop_in.contains("Type=oneshot\n"));
    }

    #[test]
    fn the_first_line_of_a_unit_says_whether_it_is_a_replacement() {
        let root = tempfile::tempdir().unwrap();
        let units = Dir::open(root.path()).unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Missing);
        units.write_atomic("a.service", b"[Unit]\n# X-Sidle=replacement\n", 0o644).unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Unit);
        units.replace_symlink(Path::new(NOWHERE), "a.service").unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Masked);
        put(&instance(Path::new("/"), "a", "a"), &units, "a.service").unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Replacement);
        remove(&units, "a.service").unwrap();
        assert!(units.names().unwrap().is_empty());
    }
}
