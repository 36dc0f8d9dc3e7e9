//! What status and history tell of a host that has changed under the releases on it.

use crate::config::Settings;
use crate::failure::Report;
use crate::failure::moment;
use crate::layout::Layout;
use crate::name::PackageName;
use crate::store::Store;
use crate::store::host_fingerprint::{self, HostFingerprint};
use crate::store::preflight::Host;
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::journal::repeated::Rehearsed;
use crate::version::Release;

/// What a changed host means for the current and the previous release.
#[derive(Debug, Default)]
pub struct HostChanges {
    /// One line for each release under which the host has changed, and one for settings that the supervisor has not read.
    pub lines: Vec<String>,
    /// What must not be missed: which of them would fail now, and what to do.
    pub warnings: Vec<String>,
    /// What came of rehearsing them again on the host as it is.
    pub rehearsed: Vec<Rehearsed>,
}

/// A release under which the host has changed since it was proven.
struct Shifted {
    release: Release,
    changes: Vec<String>,
    lacks: Vec<String>,
    again: Option<Rehearsed>,
}

impl Shifted {
    /// Not known to come up is no way out.
    fn is_known_to_load(&self) -> bool {
        self.again.as_ref().is_some_and(Rehearsed::loads)
    }

    fn line(&self) -> String {
        let verdict = match &self.again {
            Some(again) => {
                format!("rehearsed again on {} ({}): {again}", again.fingerprint.libc_words(), moment(again.at))
            }
            None if self.lacks.is_empty() => {
                "the host still has all that the release needs; a restart proves it".to_owned()
            }
            None => format!(
                "{}: install what is missing, or switch to a release that is built for this host",
                self.lacks.join("; ")
            ),
        };
        format!("has changed since {} was proven: {}; {verdict}", self.release, self.changes.join(", "))
    }
}

impl HostChanges {
    /// Adds that the settings files are other ones than those that the supervisor has read. Who may not read them does not know.
    #[must_use]
    pub fn with_settings(mut self, layout: &Layout, supervisor: Option<&SupervisorStatus>) -> Self {
        let known = supervisor.filter(|status| !status.settings_sha256.is_empty());
        if let (Some(status), Ok(now)) = (known, Settings::digest(layout)) {
            if now.to_string() != status.settings_sha256 {
                self.lines.push(format!(
                    "the settings have changed since the supervisor read them: `kill -HUP {}` loads them, and leaves the agent running",
                    status.supervisor.pid
                ));
            }
        }
        self
    }

    /// Looks at the host, and reads what the supervisor has found out.
    pub fn read(files: &InstanceFiles, store: &Store) -> Result<Self, Report> {
        let (journal, fingerprints, again) = (files.journal()?, files.host_fingerprints()?, files.rehearsed_again()?);
        let mut shifted = Vec::new();
        for release in journal.proven.iter().chain(&journal.previous) {
            // A receipt that can't be read is another command's to tell.
            let (Some(before), Ok(manifest)) = (fingerprints.of(release), store.head(release)) else { continue };
            let fingerprint = HostFingerprint::read(&manifest);
            let changes = fingerprint.changes(before);
            if !changes.is_empty() {
                let (lacks, again) =
                    (host_fingerprint::lacks(&manifest, &Host::read()), again.of(release, &fingerprint).cloned());
                shifted.push(Shifted { release: release.clone(), changes, lacks, again });
            }
        }
        let fails = |release: &Release| {
            let one = shifted.iter().find(|one| one.release == *release)?;
            one.again.as_ref().filter(|again| again.fails())
        };
        let stands = |release: &&Release| {
            let one = shifted.iter().find(|one| one.release == **release);
            one.is_none_or(Shifted::is_known_to_load)
        };
        let mut warnings = Vec::new();
        let package = files.package();
        if let Some(current) = journal.proven.as_ref().filter(|current| fails(current).is_some()) {
            let other = journal.previous.as_ref().filter(stands);
            warnings.push(format!(
                "{current} would not come up again on this host; the running process is left alone, but no restart of it and no boot would \
                 succeed: put back what is missing, or {}",
                remedy(package, other)
            ));
        }
        if let Some(previous) = journal.previous.as_ref().filter(|previous| fails(previous).is_some()) {
            warnings.push(format!("a rollback to {previous} would fail on this host"));
        }
        let lines = shifted.iter().map(Shifted::line).collect();
        Ok(Self { lines, warnings, rehearsed: shifted.into_iter().filter_map(|one| one.again).collect() })
    }
}

fn remedy(package: &PackageName, other: Option<&Release>) -> String {
    match other {
        Some(other) => format!("`sidle switch {package} {other}`, which comes up here"),
        None => format!(
            "install a release that is built for this host, and `sidle switch {package} RELEASE`: it is rehearsed before anything is touched"
        ),
    }
}

/// A line of the history.
pub fn line(again: &Rehearsed) -> String {
    format!("{}  {} rehearsed again ({}): {again}", moment(again.at), again.release, again.changes.join(", "))
}
