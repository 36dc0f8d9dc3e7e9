//! What a package's unit gives its agent beside the command (variables, limits), carried over to the service that runs sidle's agent.
//!
//! The unit files are read as systemd reads them (systemd.unit(5)), not asked for: that works below any root, and values stay as the
//! administrator wrote them, references to other files, too.

use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::{OsError, units};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where units lie, the first one counts. Those below /run are what programs made for this boot.
const PLACES: [&str; 6] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "usr/share/systemd/system",
];
/// What packages without a unit read, and units of some distributions, too.
const DEFAULTS: [&str; 2] = ["etc/default", "etc/sysconfig"];
/// A unit file is some hundred bytes long.
const FILE_LENGTH_MAXIMUM: u64 = 256 * 1024;
/// The drop-in's name in the directory of sidle's service.
const NAME: &str = "adopted.conf";
const HEAD: &str = "# Made by `sidle adopt`, removed by `sidle unadopt`: what the package's unit sets.\n[Service]\n";

/// Directives of which all count, until an empty one.
const LISTS: [&str; 4] = ["Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment"];
/// Directives that an agent inherits from its supervisor as from its unit; and all that begin with `Limit`.
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
/// Directives that sidle's service has its own of, for the same end.
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

/// What a unit sets for its processes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `Name=value`, as it is carried over.
    carried: Vec<(String, String)>,
    /// `Name=value` that would mean something else in sidle's service.
    left: BTreeSet<String>,
    /// Some of it is not for everybody to read.
    private: bool,
}

impl Environment {
    /// What `unit` sets, with its drop-ins. Without a unit: the files of settings that a package of that name reads.
    pub fn read(layout: &Layout, unit: &str) -> Result<Self, OsError> {
        let mut environment = Self::default();
        let mut has_unit = false;
        let mut parts: BTreeMap<OsString, (String, bool)> = BTreeMap::new();
        for place in PLACES {
            let Some(units) = Dir::open_if_exists(&layout.root().join(place))? else { continue };
            if !has_unit {
                if let Some((text, private)) = unit_text(&units, unit)? {
                    has_unit = true;
                    environment.take(&text, unit, private);
                }
            }
            let Some(drop_ins) = Dir::open_if_exists(&units.path().join(format!("{unit}.d")))? else { continue };
            for name in drop_ins.names()? {
                if Path::new(&name).extension().is_some_and(|end| end == "conf") && !parts.contains_key(&name) {
                    let part = unit_text(&drop_ins, &name)?;
                    parts.extend(part.map(|part| (name, part)));
                }
            }
        }
        for (text, private) in parts.into_values() {
            environment.take(&text, unit, private);
        }
        if !has_unit {
            for place in DEFAULTS {
                let Some(settings) = Dir::open_if_exists(&layout.root().join(place))? else { continue };
                if settings.stat(stem(unit))?.is_some() {
                    environment.carried.push(("EnvironmentFile".to_owned(), format!("-/{place}/{}", stem(unit))));
                }
            }
        }
        Ok(environment)
    }

    /// Takes the lines of one file.
    fn take(&mut self, text: &str, unit: &str, private: bool) {
        self.private |= private;
        let mut is_service = false;
        for line in lines(text) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_service) else { continue };
            let (name, value) = (name.trim(), expanded(value.trim(), unit));
            if LISTS.contains(&name) {
                if value.is_empty() {
                    self.carried.retain(|(other, _)| other != name);
                } else {
                    self.carried.push((name.to_owned(), value));
                }
            } else if SINGLE.contains(&name) || name.starts_with("Limit") {
                self.carried.retain(|(other, _)| other != name);
                if !value.is_empty() {
                    self.carried.push((name.to_owned(), value));
                }
            } else if !OWN.contains(&name) && !value.is_empty() {
                self.left.insert(format!("{name}={value}"));
            }
        }
    }

    /// The drop-in; None: there is nothing to carry over.
    fn text(&self) -> Option<String> {
        let lines: String =
            self.carried.iter().flat_map(|(name, value)| [name.as_str(), "=", value.as_str(), "\n"]).collect();
        (!self.carried.is_empty()).then(|| format!("{HEAD}{lines}"))
    }

    /// What is carried over, a directive a line, and what is not. Of variables only the names: a proxy's may hold a password.
    pub fn told(&self, layout: &Layout, instance: &InstanceName) -> Vec<String> {
        let mut told = Vec::new();
        if !self.carried.is_empty() {
            let lines: Vec<String> = self.carried.iter().map(|(name, value)| shown(name, value)).collect();
            told.push(format!("carry over into {}: {}", path(layout, instance).display(), lines.join(", ")));
        }
        if !self.left.is_empty() {
            let left: Vec<&str> = self.left.iter().map(String::as_str).collect();
            told.push(format!(
                "leave to you what is set for one process and not for two beside each other: {}",
                left.join(", ")
            ));
        }
        told
    }

    /// Writes the drop-in, and lets sidle's service take it up if that runs the instance; gives what it could not do.
    /// `own_host`: systemd runs what lies below the root.
    pub fn carry(&self, layout: &Layout, instance: &InstanceName, own_host: bool) -> Result<Option<String>, OsError> {
        let Some(text) = self.text() else { return Ok(None) };
        let directory = Dir::open_or_create(&directory(layout, instance), 0o755)?;
        let path = directory.path().join(NAME);
        if directory.stat(NAME)?.is_some() && ours(&directory)?.is_none() {
            return Ok(Some(format!("{} is there already and stays as it is", path.display())));
        }
        directory.write_atomic(NAME, text.as_bytes(), if self.private { 0o600 } else { 0o644 })?;
        let service = service(instance);
        if own_host {
            units::reload()?;
            // It has nothing to run yet.
            if units::main_process(&service)?.is_some() {
                return units::restart(&service).map(|()| None);
            }
        }
        Ok(Some(format!(
            "{} counts from the next start of {service} on: that does not run this supervisor",
            path.display()
        )))
    }
}

/// Removes the drop-in that [`Environment::carry`] wrote; what somebody else has written there stays.
pub fn remove(layout: &Layout, instance: &InstanceName, own_host: bool) -> Result<(), OsError> {
    let Some(directory) = Dir::open_if_exists(&directory(layout, instance))? else { return Ok(()) };
    if ours(&directory)?.is_none() {
        return Ok(());
    }
    directory.remove_file(NAME)?;
    if own_host { units::reload() } else { Ok(()) }
}

/// The drop-in's text, if sidle wrote it.
fn ours(directory: &Dir) -> Result<Option<String>, OsError> {
    let text = directory.read_if_exists(NAME, FILE_LENGTH_MAXIMUM)?;
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(text.filter(|text| text.starts_with(HEAD)))
}

fn service(instance: &InstanceName) -> String {
    format!("sidle@{instance}.service")
}

fn directory(layout: &Layout, instance: &InstanceName) -> PathBuf {
    layout.root().join(PLACES[0]).join(format!("{}.d", service(instance)))
}

fn path(layout: &Layout, instance: &InstanceName) -> PathBuf {
    directory(layout, instance).join(NAME)
}

fn stem(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

/// A unit file's text, and whether it is not for everybody; None: there is none. A masked one is empty.
fn unit_text(directory: &Dir, name: impl AsRef<std::ffi::OsStr>) -> Result<Option<(String, bool)>, OsError> {
    // Links are what `systemctl link` makes, and masks.
    let path = directory.path().join(name.as_ref());
    if directory.stat(name.as_ref())?.is_none() {
        return Ok(None);
    }
    let Ok(target) = crate::os::file::canonical(&path) else { return Ok(None) };
    if target == Path::new("/dev/null") {
        return Ok(Some((String::new(), false)));
    }
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else { return Ok(None) };
    let parent = Dir::open(parent)?;
    let private = parent.stat(name)?.is_some_and(|stat| stat.mode & 0o004 == 0);
    let bytes = parent.read(name, FILE_LENGTH_MAXIMUM)?;
    Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), private)))
}

/// The lines that say something, continued ones put together.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        // A comment between continued lines is left out, and ends nothing.
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

/// A value in which the unit's own name stands for itself: in another unit it would be that one's.
fn expanded(value: &str, unit: &str) -> String {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        let specifier = if character == '%' { characters.next() } else { None };
        match specifier {
            Some('n') => text.push_str(unit),
            Some('N' | 'p' | 'P') => text.push_str(stem(unit)),
            Some('i' | 'I') => {}
            Some(other) => text.extend(['%', other]),
            None => text.push(character),
        }
    }
    text
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

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            let directory = Dir::open_or_create(path.parent().unwrap(), 0o755).unwrap();
            directory.write_atomic(path.file_name().unwrap(), text.as_bytes(), 0o644).unwrap();
        }
        let layout = Layout::new(root.path());
        (root, layout)
    }

    #[test]
    fn units_and_drop_ins_are_read_as_systemd_reads_them() {
        let (_root, layout) = host(&[
            (
                "usr/lib/systemd/system/salt-minion.service",
                "[Unit]\nDescription=x\n[Service]\nType=notify\nLimitNOFILE=8192\nEnvironment=A=1\nExecStart=/usr/bin/x\n",
            ),
            ("lib/systemd/system/salt-minion.service", "[Service]\nEnvironment=SHADOWED=1\n"),
            ("usr/lib/systemd/system/salt-minion.service.d/10.conf", "[Service]\nEnvironment=B=2\nMemoryMax=1G\n"),
            ("etc/systemd/system/salt-minion.service.d/10.conf", "[Service]\nEnvironment=C=%N%%\n"),
            (
                "etc/systemd/system/salt-minion.service.d/20.conf",
                "# no\n[Service]\nLimitNOFILE=\nLimitNOFILE=100000\nEnvironment=\"D=4 5\" \\\n  E=6\nMemoryMax=2G\n[Install]\nNice=5\n",
            ),
            ("etc/systemd/system/salt-minion.service.d/30.not", "[Service]\nEnvironment=F=7\n"),
        ]);
        let read = Environment::read(&layout, UNIT).unwrap();
        let text = read.text().unwrap();
        let expected = "Environment=A=1\nEnvironment=C=salt-minion%%\nLimitNOFILE=100000\nEnvironment=\"D=4 5\"  E=6\n";
        assert_eq!(text.replace("\"  E", "\" E"), format!("{HEAD}{}", expected.replace("\"  E", "\" E")));
        let told = read.told(&layout, &"salt-minion".parse().unwrap()).join("\n");
        assert!(told.contains("Environment=D=… E=…") && !told.contains("4 5"), "{told}");
        assert!(told.contains("MemoryMax=2G") && !told.contains("Type"), "{told}");
    }

    #[test]
    fn an_empty_value_takes_back_what_was_set_before() {
        let mut environment = Environment::default();
        environment.take("[Service]\nEnvironment=A=1\nNice=5\nEnvironmentFile=-/etc/x\n", UNIT, false);
        environment.take("[Service]\nEnvironment=\nNice=\nEnvironment=B=2\n", UNIT, true);
        assert_eq!(environment.text().unwrap(), format!("{HEAD}EnvironmentFile=-/etc/x\nEnvironment=B=2\n"));
        assert!(environment.private);
    }

    #[test]
    fn a_host_without_a_unit_has_its_package_s_settings() {
        let (_root, layout) = host(&[("etc/sysconfig/salt-minion", "A=1\n")]);
        let text = Environment::read(&layout, UNIT).unwrap().text();
        assert_eq!(text, Some(format!("{HEAD}EnvironmentFile=-/etc/sysconfig/salt-minion\n")));
        let (_root, layout) = host(&[]);
        assert_eq!(Environment::read(&layout, UNIT).unwrap(), Environment::default());
    }

    #[test]
    fn what_was_carried_over_is_removed_and_nothing_else() {
        let (_root, layout) = host(&[("etc/systemd/system/salt-minion.service", "[Service]\nNice=5\n")]);
        let instance = "salt-minion".parse().unwrap();
        let read = Environment::read(&layout, UNIT).unwrap();
        assert!(
            read.carry(&layout, &instance, false).unwrap().unwrap().contains("next start of sidle@salt-minion.service")
        );
        let directory = Dir::open(&directory(&layout, &instance)).unwrap();
        assert!(ours(&directory).unwrap().unwrap().contains("Nice=5"));
        remove(&layout, &instance, false).unwrap();
        assert!(directory.names().unwrap().is_empty());
        directory.write_atomic(NAME, b"[Service]\nNice=7\n", 0o644).unwrap();
        assert!(read.carry(&layout, &instance, false).unwrap().unwrap().contains("stays as it is"));
        remove(&layout, &instance, false).unwrap();
        assert_eq!(directory.read(NAME, FILE_LENGTH_MAXIMUM).unwrap(), b"[Service]\nNice=7\n");
    }
}
