//! The distribution's package beside sidle's releases, and its programs in the search path.

use super::CheckedInstance;
use crate::agent::examination::{Examiner, Group, Severity};
use crate::os::dir::Dir;
use crate::os::process::Program;
use crate::os::{OsError, file};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// dpkg's list of all packages: a few megabytes on a desktop.
const STATUS_BYTES_MAX: u64 = 64 << 20;
const SCRIPT_BYTES_MAX: u64 = 64 * 1024;
/// An rpm database that is locked makes rpm wait.
const RPM_WAIT: Duration = Duration::from_secs(10);
/// The search path of login shells and cron.
const SEARCH_PATH: [&str; 6] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];
/// Where a shim keeps its programs: a package with such a directory leads to sidle.
const SHIMS: &str = "usr/lib/sidle";

/// Checks the package database and the search path.
pub fn check(checked: &CheckedInstance<'_>, examiner: Option<&dyn Examiner>) -> Group {
    let mut group = Group::new("packages");
    let root = checked.layout.root();
    match installed(root, checked.package.as_str()) {
        Ok(None) => group.good(format!("no package {} of the distribution", checked.package)),
        Ok(Some(version)) => package(&mut group, checked, &version),
        Err(error) => group.unknown("the distribution's packages", error, "run `sidle doctor` as root"),
    }
    let (mut count, before) = (0, group.findings.len());
    for program in examiner.map(Examiner::programs).unwrap_or_default() {
        count += 1;
        command(&mut group, checked, program);
    }
    if count > 0 && group.findings.len() == before {
        group.good(format!("{count} commands in the search path"));
    }
    group
}

fn package(group: &mut Group, checked: &CheckedInstance<'_>, version: &str) {
    let (root, name) = (checked.layout.root(), checked.package);
    if matches!(Dir::open_if_exists(&root.join(SHIMS).join(name.as_str())), Ok(Some(_))) {
        return group.good(format!("package {name} {version} is a shim of sidle's"));
    }
    let what = format!(
        "the distribution's package {name} {version} is installed: an update may start its unit, beside sidle's agent"
    );
    let remedy = format!("`sidle adopt {name}` takes its agent over; a shim (packaging/shim) can replace the package");
    let adopted = matches!(Dir::open_if_exists(&checked.layout.adoption(checked.instance)), Ok(Some(_)));
    let severity = if adopted { Severity::Note } else { Severity::Warning };
    group.find(severity, "distribution-package", what, remedy);
}

/// The version of a package in dpkg's or rpm's database; None: it is not installed.
fn installed(root: &Path, name: &str) -> Result<Option<String>, OsError> {
    if let Some(bytes) = file::read_if_exists(&root.join("var/lib/dpkg/status"), STATUS_BYTES_MAX)? {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        return Ok(text.split("\n\n").find_map(|entry| in_dpkg(entry, name)));
    }
    let has_database = ["var/lib/rpm", "usr/lib/sysimage/rpm"]
        .iter()
        .any(|place| matches!(Dir::open_if_exists(&root.join(place)), Ok(Some(_))));
    if !has_database {
        return Ok(None);
    }
    let rpm = Program::new("rpm").argument("--root").argument(root).argument("-q");
    let said = rpm.argument("--qf").argument("%{VERSION}-%{RELEASE}\\n").argument(name).answer_within(RPM_WAIT)?;
    let timed_out = || OsError::new("ask", Path::new("rpm"), std::io::ErrorKind::TimedOut);
    let said = said.ok_or_else(timed_out)?;
    Ok(said.success.then(|| said.output.lines().next().unwrap_or_default().to_owned()))
}

/// The version in an entry of dpkg's list, if that package is installed.
fn in_dpkg(entry: &str, name: &str) -> Option<String> {
    let field = |key: &str| entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let is_it = field("Package") == Some(name) && field("Status")?.ends_with(" installed");
    if is_it { field("Version").map(str::to_owned) } else { None }
}

/// Checks that the first program of that name in the search path leads to sidle.
fn command(group: &mut Group, checked: &CheckedInstance<'_>, program: &str) {
    let root = checked.layout.root();
    let mut seen = BTreeSet::new();
    let places = SEARCH_PATH.iter().map(|place| root.join(place).join(program));
    // Where /bin is a link to /usr/bin both are one file.
    let there: Vec<PathBuf> = places.filter(|path| file::canonical(path).is_ok_and(|path| seen.insert(path))).collect();
    let Some((first, others)) = there.split_first() else { return };
    if is_ours(checked, first) {
        return;
    }
    let others = others.iter().find(|other| is_ours(checked, other));
    let also = others.map_or_else(String::new, |ours| format!(", before sidle's {}", ours.display()));
    let what = format!("{program} is {}{also}: it belongs to another installation", first.display());
    let remedy = format!(
        "call `sidle run {} {program} -- …`; `sidle adopt {}` puts a command before it",
        checked.package, checked.package
    );
    group.find(Severity::Warning, "command-of-another", what, remedy);
}

/// True for a script of `sidle adopt` or a shim, or a link into the store.
fn is_ours(checked: &CheckedInstance<'_>, path: &Path) -> bool {
    let store = file::canonical(&checked.layout.packages()).unwrap_or_else(|_| checked.layout.packages());
    let leads_there = file::canonical(path).is_ok_and(|path| path.starts_with(store));
    // Sidle's scripts are short.
    leads_there
        || file::read(path, SCRIPT_BYTES_MAX)
            .is_ok_and(|bytes| bytes.starts_with(b"#!") && String::from_utf8_lossy(&bytes).contains("sidle "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_installed_counts() {
        let entry = |status: &str| format!("Package: a-b\nStatus: {status}\nArchitecture: all\nVersion: 1:2-3");
        assert_eq!(in_dpkg(&entry("install ok installed"), "a-b").as_deref(), Some("1:2-3"));
        assert_eq!(in_dpkg(&entry("deinstall ok config-files"), "a-b"), None);
        assert_eq!(in_dpkg(&entry("install ok not-installed"), "a-b"), None);
        assert_eq!(in_dpkg(&entry("install ok installed"), "a"), None);
    }
}
