//! The path by which this program is called, which a self-upgrade makes a link into the store.

use crate::failure::{Class, Report};
use crate::layout::{CURRENT, Layout};
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::process::{self, Program};
use crate::os::{file, proc_fs};
use crate::supervise::status::SupervisorStatus;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a package manager may take to name the owner of a file.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// The largest program that is kept for the way back.
const PROGRAM_BYTES_MAXIMUM: u64 = 256 << 20;
/// Directories of programs. Elsewhere `install.sh` leaves the list of its files beside them.
const PLACES: [&str; 5] = ["usr/bin", "usr/local/bin", "usr/sbin", "usr/local/sbin", "bin"];
const INSTALLED: &str = "lib/sidle/installed";

/// A package manager: its program, the words by which it tells the owner of a path, and its words for "none".
struct Manager(&'static str, &'static [&'static str], &'static str);

const MANAGERS: [Manager; 3] = [
    Manager("/usr/bin/dpkg-query", &["-S"], "no path found"),
    Manager("/usr/bin/rpm", &["-qf"], "not owned by any package"),
    Manager("/sbin/apk", &["info", "--who-owns"], "Could not find owner"),
];

/// The path by which the program is called.
pub(super) struct CalledBy {
    directory: Dir,
    name: OsString,
    /// Its name until the upgrade has succeeded.
    kept: OsString,
}

impl CalledBy {
    /// The path to replace by a link; None: this program runs through `current` already. Refuses a program that is a distribution's, that is not
    /// the one of this host, or that the supervisors do not execute.
    pub(super) fn find(
        layout: &Layout,
        package: &PackageName,
        supervised: &[(InstanceName, SupervisorStatus)],
    ) -> Result<Option<Self>, Report> {
        let running = process::own_program()?;
        let root = file::canonical(layout.root())?;
        let versions = file::canonical(&layout.versions(package))?;
        if running.starts_with(&versions) {
            return Ok(None);
        }
        let refused = |why: String, hint: &str| {
            Report::of(Class::Conflict, format!("cannot upgrade sidle: {} {why}", running.display())).hint(hint)
        };
        let (Ok(below), Some(parent), Some(name)) =
            (running.strip_prefix(&root), running.parent(), running.file_name())
        else {
            let hint = "copy it to usr/bin/sidle there, and run the copy: it is replaced by a link";
            return Err(refused(format!("is not below {}", root.display()), hint));
        };
        let prefix = parent.parent().unwrap_or(parent);
        let is_installed = below.parent().is_some_and(|parent| PLACES.iter().any(|place| parent == Path::new(place)))
            || file::is_input(&prefix.join(INSTALLED));
        if !is_installed {
            let hint = "run the program that is installed on this host: `command -v sidle`";
            return Err(refused("is not the installed program".to_owned(), hint));
        }
        for (instance, status) in supervised {
            let other = proc_fs::program(status.supervisor.pid)
                .map(|program| proc_fs::without_deleted(&program))
                .filter(|program| *program != running && !program.starts_with(&versions));
            if let Some(other) = other {
                let why = format!("is not what the supervisor of {instance} executes: {}", other.display());
                return Err(refused(why, "run that program"));
            }
        }
        for Manager(manager, words, none) in MANAGERS {
            if root != Path::new("/") || !file::is_input(Path::new(manager)) {
                continue;
            }
            let asked = words.iter().fold(Program::new(manager).variable("LC_ALL", "C"), Program::argument);
            let said = asked.argument(&running).answer_within(ANSWER_WAIT)?;
            match said {
                Some(said) if said.success => {
                    let hint = "upgrade that package: `apt-get install sidle`, `dnf upgrade sidle`, `zypper update sidle`; or remove it, and \
                                install the tarball";
                    return Err(refused("belongs to a package of the distribution".to_owned(), hint));
                }
                Some(said) if said.errors.contains(none) || said.output.contains(none) => {}
                Some(_) | None => {
                    let why = format!("may belong to a package: {manager} did not answer");
                    return Err(refused(
                        why,
                        &format!("repair that first: `{manager} {} {}`", words.join(" "), running.display()),
                    ));
                }
            }
        }
        let mut kept = name.to_owned();
        kept.push(".before-upgrade");
        Ok(Some(Self { directory: Dir::open(parent)?, name: name.to_owned(), kept }))
    }

    /// Makes the path a link to `file` of the current release of the package in `package`; the program is kept beside it.
    pub(super) fn link(&self, package: &Path, file: &str) -> Result<(), Report> {
        let bytes = file::read(&self.directory.path().join(&self.name), PROGRAM_BYTES_MAXIMUM)?;
        self.directory.write_atomic(&self.kept, &bytes, 0o755)?;
        let target = file::canonical(package)?.join(CURRENT).join(file);
        let here = file::canonical(self.directory.path())?;
        Ok(self.directory.replace_symlink(&relative(&here, &target), &self.name)?)
    }

    /// Puts the program back, if it was replaced.
    pub(super) fn restore(&self) -> Result<(), Report> {
        if self.directory.stat(&self.kept)?.is_none() {
            return Ok(());
        }
        Ok(self.directory.rename(&self.kept, &self.directory, &self.name)?)
    }

    pub(super) fn forget(&self) -> Result<(), Report> {
        Ok(self.directory.remove_file(&self.kept)?)
    }
}

/// The way from a directory to `target`; both absolute and without links.
fn relative(directory: &Path, target: &Path) -> PathBuf {
    let shared = directory.iter().zip(target.iter()).take_while(|(one, other)| one == other).count();
    let up = directory.iter().skip(shared).map(|_| std::ffi::OsStr::new(".."));
    up.chain(target.iter().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_holds_wherever_its_root_is_mounted() {
        let way = |from: &str, to: &str| relative(Path::new(from), Path::new(to)).display().to_string();
        assert_eq!(
            way("/usr/local/bin", "/opt/sidle/sidle/current/bin/sidle"),
            "../../../opt/sidle/sidle/current/bin/sidle"
        );
        assert_eq!(way("/mnt/a/usr/bin", "/mnt/a/opt/x"), "../../opt/x");
    }
}
