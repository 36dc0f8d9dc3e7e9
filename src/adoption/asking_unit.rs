//! Units that ask sidle before they start their agent, by a drop-in: a second process of the same agent would run each job again.

use super::{AdoptingInstance, replacement_unit};
use crate::layout::Layout;
use crate::os::OsError;
use crate::os::dir::Dir;
use std::path::PathBuf;

/// A unit that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The adopted agent's own, from before the switch until the replacement unit is in its place: a mask until the next boot would let that boot start it.
    Adopted,
    /// That of the same agent from another package: Uyuni's bundle beside the distribution's minion. States that move a host from one package to the
    /// other copy its configuration and start the other unit.
    OtherName,
}

impl Asks {
    fn drop_in(self) -> &'static str {
        match self {
            // Before that of the replacement unit, which empties what this one says.
            Self::Adopted => "zzz-sidle-adopted.conf",
            Self::OtherName => "zzz-sidle-other-name.conf",
        }
    }
}

/// Makes a unit ask `sidle may-start` before it starts. Without sidle the unit starts.
pub(super) fn put(instance: &AdoptingInstance, units: &Dir, unit: &str, asks: Asks) -> Result<(), OsError> {
    let (package, name) = (instance.package(), instance.name());
    let sidle = replacement_unit::program(instance.layout())?;
    // Who is refused must not be the only one that would have started it.
    let wants = if asks == Asks::Adopted { format!("[Unit]\nWants=sidle@{name}.service\n") } else { String::new() };
    // A shell, because a unit fails if its program is missing. `exec`: the exit code is sidle's.
    let text = format!(
        "# {mark}: sidle runs this agent as {package}; this unit does not start it a second time.\n{wants}[Service]\n\
         ExecStartPre=/bin/sh -c 'command -v {program} >/dev/null || exit 0; \
         exec {sidle} may-start {unit} {package} --instance {name}'\n",
        mark = replacement_unit::MARK,
        program = sidle.split(' ').next().unwrap_or_default(),
    );
    let directory = units.child_or_create(replacement_unit::drop_ins(unit), 0o755)?;
    directory.write_atomic(asks.drop_in(), text.as_bytes(), 0o644)
}

/// The text of a unit, as `systemctl cat` gives it, without the drop-in of an adoption that was cut off.
pub(super) fn without_its_own(text: &str) -> String {
    let mut is_own = false;
    let lines = text.lines().filter(|line| {
        if let Some(path) = line.strip_prefix("# /") {
            is_own = path.ends_with(Asks::Adopted.drop_in());
        }
        !is_own
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Removes the drop-in.
pub(super) fn remove(units: &Dir, unit: &str, asks: Asks) -> Result<(), OsError> {
    replacement_unit::remove_drop_in(units, unit, asks.drop_in())
}

/// The drop-in's path.
pub(super) fn path(layout: &Layout, unit: &str, asks: Asks) -> PathBuf {
    layout.root().join(replacement_unit::UNITS).join(replacement_unit::drop_ins(unit)).join(asks.drop_in())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_adoption_that_was_cut_off_has_left_is_none_of_the_units_settings() {
        let unit = "# /lib/systemd/system/a.service\n[Service]\nUMask=0077\n";
        let other = "\n# /etc/systemd/system/a.service.d/zzz-other.conf\n[Service]\nLimitCORE=0\n";
        let own = "\n# /etc/systemd/system/a.service.d/zzz-sidle-adopted.conf\n[Service]\nExecStartPre=/bin/sh\n";
        assert_eq!(without_its_own(&format!("{unit}{own}{other}")), format!("{unit}\n{}", &other[1..]));
    }
}
