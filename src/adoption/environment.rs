//! Variables, limits and priorities that a package's unit gives its agent, carried over to the service that runs sidle's agent.
//!
//! `systemctl cat` gives the unit and its drop-ins in the order in which they count. Values stay as the administrator wrote them, and so do
//! references to other files. Where systemd does not run the host, no unit has started the agent.

use super::replacement_unit::{UNIT_BYTES_MAXIMUM, UNITS, drop_ins};
use super::{asking_unit, is_own_host};
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::{OsError, units};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The drop-in's name in the directory of sidle's service.
const NAME: &str = "adopted.conf";
const HEAD: &str = "# Made by `sidle adopt`, removed by `sidle unadopt`: what the package's unit sets.\n[Service]\n";

/// Directives that add to a list; an empty value empties it.
const LISTS: [&str; 4] = ["Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment"];
/// Directives with one value, which an agent inherits from its supervisor, too; and all that begin with `Limit`.
const SINGLE: [&str; 9] = [
    "Nice",
    "OOMScoreAdjust",
    "UMask",
    "CPUAffinity",
    "CPUSchedulingPolicy",
    "CPUSchedulingPriority",
    "IOSchedulingClass",
    "IOSchedulingPriority",
    "TimerSlackNSec",
];
/// Directives that sidle's service sets itself.
const OWN: [&str; 21] = [
    "Type",
    "NotifyAccess",
    "ExecStart",
    "ExecReload",
    "ExecStop",
    "KillMode",
    "KillSignal",
    "SendSIGKILL",
    "Restart",
    "RestartSec",
    "RestartForceExitStatus",
    "RestartPreventExitStatus",
    "SuccessExitStatus",
    "StartLimitInterval",
    "StartLimitBurst",
    "TimeoutSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "PIDFile",
    "GuessMainPID",
    "RemainAfterExit",
];

/// The settings of a unit that its processes inherit: variables, limits, priorities.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Environment {
    /// Names and values that are carried over.
    carried: Vec<(String, String)>,
    /// `Name=value` that would mean something else in sidle's service.
    left: BTreeSet<String>,
}

impl Environment {
    /// Reads what `unit` sets, with its drop-ins.
    pub(super) fn read(layout: &Layout, unit: &str) -> Result<Self, OsError> {
        let text = if is_own_host(layout) { units::text(unit)? } else { None };
        Ok(text.map_or_else(Self::default, |text| Self::parse(&asking_unit::without_its_own(&text), unit)))
    }

    /// Reads unit files, in the order in which they count.
    fn parse(text: &str, unit: &str) -> Self {
        let (mut environment, mut is_service) = (Self::default(), false);
        for line in lines(text) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_service) else { continue };
            let (name, value) = (name.trim(), expanded(value.trim(), unit));
            let is_list = LISTS.contains(&name);
            if is_list || SINGLE.contains(&name) || name.starts_with("Limit") {
                if !is_list || value.is_empty() {
                    environment.carried.retain(|(other, _)| other != name);
                }
                if !value.is_empty() {
                    environment.carried.push((name.to_owned(), value));
                }
            } else if !OWN.contains(&name) && !value.is_empty() {
                environment.left.insert(format!("{name}={value}"));
            }
        }
        environment
    }

    /// Adds a variable before all that the unit sets, which counts more.
    pub(super) fn add_variable(&mut self, name: &str, value: &str) {
        self.carried.insert(0, ("Environment".to_owned(), format!("\"{name}={value}\"")));
    }

    /// The drop-in's text.
    fn text(&self) -> String {
        let lines = self.carried.iter().flat_map(|(name, value)| [name.as_str(), "=", value.as_str(), "\n"]);
        format!("{HEAD}{}", lines.collect::<String>())
    }

    /// The steps of a dry run. Of variables only the names: a proxy's variable may hold a password.
    pub(super) fn steps(&self, layout: &Layout, instance: &InstanceName) -> Vec<String> {
        let mut steps = Vec::new();
        if !self.carried.is_empty() {
            let lines: Vec<String> = self.carried.iter().map(|(name, value)| shown(name, value)).collect();
            let path = directory(layout, instance).join(NAME);
            steps.push(format!("carry over into {}: {}", path.display(), lines.join(", ")));
        }
        if !self.left.is_empty() {
            let left: Vec<&str> = self.left.iter().map(String::as_str).collect();
            steps.push(format!("leave to you (meant for one process, not for two): {}", left.join(", ")));
        }
        steps
    }

    /// Writes the drop-in, and restarts sidle's service if that runs the instance. Returns a warning if the drop-in is not in force.
    pub(super) fn carry(&self, layout: &Layout, instance: &InstanceName) -> Result<Option<String>, OsError> {
        if self.carried.is_empty() {
            return Ok(None);
        }
        let (service, path) = (service(instance), directory(layout, instance).join(NAME));
        let path = path.display();
        if !self.write(layout, instance)? {
            return Ok(Some(format!("{path} exists already and stays as it is")));
        }
        units::reload()?;
        if units::main_process(&service)?.is_some() {
            // It has nothing to run yet.
            return units::restart(&service).map(|()| None);
        }
        Ok(Some(format!("{path} is in force from the next start of {service}, which does not run this supervisor")))
    }

    /// The drop-in that `carry` would write; None: nothing is carried over, or somebody else's file is there.
    pub(super) fn target(&self, layout: &Layout, instance: &InstanceName) -> Result<Option<PathBuf>, OsError> {
        let path = directory(layout, instance);
        if self.carried.is_empty() {
            return Ok(None);
        }
        let is_free = match Dir::open_if_exists(&path)? {
            Some(directory) => directory.stat(NAME)?.is_none() || is_ours(&directory)?,
            None => true,
        };
        Ok(is_free.then(|| path.join(NAME)))
    }

    /// Writes the drop-in; false: somebody else wrote a file of that name.
    fn write(&self, layout: &Layout, instance: &InstanceName) -> Result<bool, OsError> {
        let directory = Dir::open_or_create(&directory(layout, instance), 0o755)?;
        if directory.stat(NAME)?.is_some() && !is_ours(&directory)? {
            return Ok(false);
        }
        // A variable may hold a password.
        let is_private = self.carried.iter().any(|(name, _)| name == "Environment");
        directory.write_atomic(NAME, self.text().as_bytes(), if is_private { 0o600 } else { 0o644 })?;
        Ok(true)
    }
}

/// Removes the drop-in, unless somebody else wrote it. systemd has to reload after it.
pub(super) fn remove(layout: &Layout, instance: &InstanceName) -> Result<(), OsError> {
    match Dir::open_if_exists(&directory(layout, instance))? {
        Some(directory) if is_ours(&directory)? => directory.remove_file(NAME),
        _ => Ok(()),
    }
}

/// True if sidle wrote the drop-in.
fn is_ours(directory: &Dir) -> Result<bool, OsError> {
    let text = directory.read_if_exists(NAME, UNIT_BYTES_MAXIMUM)?;
    Ok(text.is_some_and(|text| text.starts_with(HEAD.as_bytes())))
}

fn service(instance: &InstanceName) -> String {
    format!("sidle@{instance}.service")
}

fn directory(layout: &Layout, instance: &InstanceName) -> PathBuf {
    layout.root().join(UNITS).join(drop_ins(&service(instance)))
}

fn stem(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

/// The lines without comments; a continued line is one line.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        // A comment between continued lines does not end the line (systemd.syntax(7)).
        if line.trim_start().starts_with(['#', ';']) || (line.trim().is_empty() && !goes_on) {
            continue;
        }
        let (part, continues) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.push(' ');
                last.push_str(part.trim());
            }
            None => lines.push(part.trim().to_owned()),
        }
        goes_on = continues;
    }
    lines
}

/// A value in which specifiers for the unit's own name are replaced: in another unit they would stand for that unit.
fn expanded(value: &str, unit: &str) -> String {
    let parts = value.split("%%").map(|part| {
        let part =
            ["%N", "%p", "%P"].iter().fold(part.replace("%n", unit), |part, name| part.replace(name, stem(unit)));
        part.replace("%i", "").replace("%I", "")
    });
    parts.collect::<Vec<_>>().join("%%")
}

fn shown(name: &str, value: &str) -> String {
    if name != "Environment" {
        return format!("{name}={value}");
    }
    let mut names = Vec::new();
    let mut quote = None;
    let mut word = String::new();
    for character in value.chars().chain([' ']) {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, _) if character.is_whitespace() => {
                names.extend(std::mem::take(&mut word).split_once('=').map(|(name, _)| format!("{name}=…")));
            }
            (None | Some(_), _) => word.push(character),
        }
    }
    format!("Environment={}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "salt-minion.service";

    /// As `systemctl cat` of systemd 252 prints a unit with three drop-ins.
    const CAT: &str = "# /lib/systemd/system/salt-minion.service
[Unit]
Description=The Salt Minion
[Service]
Type=notify
LimitNOFILE=8192
Environment=A=1
ExecStart=/usr/bin/salt-minion
[Install]
WantedBy=multi-user.target

# /etc/systemd/system/salt-minion.service.d/10.conf
[Service]
Environment=C=%N%%n

# /etc/systemd/system/salt-minion.service.d/20.conf
# no
[Service]
LimitNOFILE=
LimitNOFILE=100000
Environment=\"D=4 5\" \\
  # a comment
  E=6
MemoryMax=2G
[Install]
Nice=5
";

    #[test]
    fn the_text_of_a_unit_and_its_drop_ins_is_read_as_systemd_reads_it() {
        let read = Environment::parse(CAT, UNIT);
        let lines = "Environment=A=1\nEnvironment=C=salt-minion%%n\nLimitNOFILE=100000\nEnvironment=\"D=4 5\" E=6\n";
        assert_eq!(read.text(), format!("{HEAD}{lines}"));
        let steps = read.steps(&Layout::new(std::path::Path::new("/")), &"salt-minion".parse().unwrap()).join("\n");
        assert!(steps.contains("Environment=D=… E=…") && !steps.contains("4 5"), "{steps}");
        assert!(steps.contains("MemoryMax=2G") && !steps.contains("Type"), "{steps}");
    }

    #[test]
    fn an_empty_value_takes_back_earlier_values() {
        let text = "[Service]\nEnvironment=A=1\nNice=5\nEnvironmentFile=-/etc/x\n[Service]\nEnvironment=\nNice=\nEnvironment=B=2\n";
        let mut read = Environment::parse(text, UNIT);
        assert_eq!(read.text(), format!("{HEAD}EnvironmentFile=-/etc/x\nEnvironment=B=2\n"));
        read.add_variable("C", "/c");
        let lines = "Environment=\"C=/c\"\nEnvironmentFile=-/etc/x\nEnvironment=B=2\n";
        assert_eq!(read.text(), format!("{HEAD}{lines}"), "the unit's variables count more");
    }

    #[test]
    fn only_the_drop_in_that_sidle_wrote_is_replaced_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let (layout, instance) = (Layout::new(root.path()), "salt-minion".parse().unwrap());
        let read = Environment::parse("[Service]\nNice=5\n", UNIT);
        assert!(read.write(&layout, &instance).unwrap() && read.write(&layout, &instance).unwrap());
        let directory = Dir::open(&directory(&layout, &instance)).unwrap();
        assert!(directory.read(NAME, UNIT_BYTES_MAXIMUM).unwrap().ends_with(b"Nice=5\n"));
        remove(&layout, &instance).unwrap();
        assert!(directory.names().unwrap().is_empty());
        directory.write_atomic(NAME, b"[Service]\nNice=7\n", 0o644).unwrap();
        assert!(!read.write(&layout, &instance).unwrap());
        remove(&layout, &instance).unwrap();
        assert_eq!(directory.read(NAME, UNIT_BYTES_MAXIMUM).unwrap(), b"[Service]\nNice=7\n");
    }
}
