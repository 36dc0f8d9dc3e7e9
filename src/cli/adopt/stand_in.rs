//! The unit that stands in for the one of a package: it has its name, and lets nobody stop, restart or replace what runs.

use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::{OsError, process};
use std::path::{Path, PathBuf};

const UNIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/stand-in.service"));
/// What is in the first line of each of ours, and in no other unit.
pub const MARK: &str = "X-Sidle=stand-in";
/// What a masked unit is a link to: the form of the adoptions of old, and of an administrator's own mask.
const NOWHERE: &str = "/dev/null";
/// A unit is a page or two.
const UNIT_BYTES_MAXIMUM: u64 = 256 * 1024;

/// Where units of the administrator lie: no package writes there.
pub const UNITS: &str = "etc/systemd/system";
/// Where units of packages lie, the ones that count first.
const PACKAGED_UNITS: [&str; 3] = ["usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// An administrator's own unit file of that name is kept beside ours.
pub const KEPT_SUFFIX: &str = ".before-sidle";
/// Drop-ins for the package's unit go on applying to its name; the last one takes back what of them could start or stop something.
const DROP_IN_NAME: &str = "zzz-sidle.conf";
/// Lists that a drop-in may have added to, and single values that would change as whom ours runs.
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

/// What lies at the place of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// Nothing.
    Nothing,
    /// A stand-in of ours.
    StandIn,
    /// A mask.
    Mask,
    /// Somebody's unit.
    Unit,
}

/// Looks what lies at the place of a unit.
pub fn unit_state(units: &Dir, unit: &str) -> Result<UnitState, OsError> {
    if units.read_link(unit).ok().flatten().is_some_and(|target| target == Path::new(NOWHERE)) {
        return Ok(UnitState::Mask);
    }
    if units.stat(unit)?.is_none() {
        return Ok(UnitState::Nothing);
    }
    let text = units.read(unit, UNIT_BYTES_MAXIMUM).unwrap_or_default();
    let first = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
    Ok(if first.contains(MARK) { UnitState::StandIn } else { UnitState::Unit })
}

/// The text of the unit.
fn text(layout: &Layout, (package, instance): (&PackageName, &InstanceName), unit: &str) -> Result<String, OsError> {
    let sidle = program(layout)?;
    let text = UNIT.replace("@UNIT@", unit).replace("@SIDLE@", &sidle);
    Ok(text.replace("@PACKAGE@", package.as_str()).replace("@INSTANCE@", instance.as_str()))
}

/// How a unit calls this program.
pub fn program(layout: &Layout) -> Result<String, OsError> {
    let program = word(&process::own_path()?.to_string_lossy());
    let root = layout.root();
    Ok(if root == Path::new("/") { program } else { format!("{program} --root {}", word(&root.to_string_lossy())) })
}

/// A word of a command line as systemd takes it literally (systemd.service(5), "Command lines").
fn word(word: &str) -> String {
    let escaped = word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if escaped.contains([' ', '\t', '\'', ';']) { format!("\"{escaped}\"") } else { escaped }
}

/// The drop-in: the same service, after everything is emptied that others may have added.
fn drop_in(text: &str) -> String {
    let service = text.split("[Service]\n").nth(1).and_then(|rest| rest.split("\n[Install]").next());
    let emptied = EMPTIED.map(|name| format!("{name}=\n")).concat();
    format!(
        "# {MARK}: drop-ins for the package's own unit start and stop nothing here.\n[Service]\nRestart=no\n{emptied}{}",
        service.unwrap_or_default()
    )
}

/// The directory of a unit's drop-ins.
pub fn drop_ins(unit: &str) -> String {
    format!("{unit}.d")
}

/// Puts the stand-in at the place of a unit, which is free or holds a mask.
pub fn put(layout: &Layout, names: (&PackageName, &InstanceName), units: &Dir, unit: &str) -> Result<(), OsError> {
    let text = text(layout, names, unit)?;
    let directory = units.child_or_create(drop_ins(unit), 0o755)?;
    directory.write_atomic(DROP_IN_NAME, drop_in(&text).as_bytes(), 0o644)?;
    // A link is replaced, not followed.
    units.write_atomic(unit, text.as_bytes(), 0o644)
}

/// Removes what is ours: a stand-in with its drop-in, or a mask.
pub fn remove(units: &Dir, unit: &str) -> Result<(), OsError> {
    remove_drop_in(units, unit, DROP_IN_NAME)?;
    if matches!(unit_state(units, unit)?, UnitState::StandIn | UnitState::Mask) {
        units.remove_file(unit)?;
    }
    Ok(())
}

/// Removes a drop-in of ours, and the directory that it leaves empty.
pub fn remove_drop_in(units: &Dir, unit: &str, name: &str) -> Result<(), OsError> {
    if let Some(directory) = units.child_if_exists(drop_ins(unit))? {
        directory.remove_file(name)?;
        if directory.names()?.is_empty() {
            units.remove_tree(drop_ins(unit))?;
        }
    }
    Ok(())
}

/// The unit that the package has, where it has one that runs something.
pub fn packaged(layout: &Layout, unit: &str, kept: bool) -> Result<Option<PathBuf>, OsError> {
    let own = kept.then(|| (UNITS, format!("{unit}{KEPT_SUFFIX}")));
    let theirs = PACKAGED_UNITS.iter().map(|directory| (*directory, unit.to_owned()));
    for (directory, name) in own.into_iter().chain(theirs) {
        let Some(units) = Dir::open_if_exists(&layout.root().join(directory))? else { continue };
        match unit_state(&units, &name)? {
            UnitState::Nothing => {}
            UnitState::StandIn | UnitState::Mask => return Ok(None),
            UnitState::Unit => return Ok(Some(units.path().join(name))),
        }
    }
    Ok(None)
}

/// The same as `remove`, in a shell.
pub fn removal(layout: &Layout, unit: &str) -> String {
    use super::way_out::quoted;
    let place = layout.root().join(UNITS);
    let drop_in = place.join(drop_ins(unit)).join(DROP_IN_NAME);
    format!("rm -f {} {}", quoted(&place.join(unit).to_string_lossy()), quoted(&drop_in.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_names_no_program_but_sidle_and_stops_nothing() {
        let layout = Layout::new(Path::new("/a b"));
        let (package, instance) = ("salt-minion".parse().unwrap(), "other".parse().unwrap());
        let text = text(&layout, (&package, &instance), "salt-minion.service").unwrap();
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
    fn what_lies_there_is_known_by_its_first_line() {
        let root = tempfile::tempdir().unwrap();
        let units = Dir::open(root.path()).unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Nothing);
        units.write_atomic("a.service", b"[Unit]\n# X-Sidle=stand-in\n", 0o644).unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Unit);
        units.replace_symlink(Path::new(NOWHERE), "a.service").unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::Mask);
        let names = ("a".parse().unwrap(), "a".parse().unwrap());
        put(&Layout::new(Path::new("/")), (&names.0, &names.1), &units, "a.service").unwrap();
        assert_eq!(unit_state(&units, "a.service").unwrap(), UnitState::StandIn);
        remove(&units, "a.service").unwrap();
        assert!(units.names().unwrap().is_empty());
    }
}
