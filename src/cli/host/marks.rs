//! What the instances of a package think of its releases: current, previous, in a live switch, bad, declined.

use crate::failure::Report;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::journal::hold::Hold;
use crate::version::Release;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What an instance thinks of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// The instance.
    pub instance: InstanceName,
    /// `current`, `previous`, `switching`, `bad` or `declined`.
    #[serde(rename = "mark")]
    pub word: &'static str,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip)]
    default: bool,
}

impl Mark {
    /// True where the release must stay because of it.
    pub fn keeps(&self) -> bool {
        matches!(self.word, "current" | "previous" | "switching")
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word)?;
        if !self.default {
            write!(formatter, " of {}", self.instance)?;
        }
        self.reason.as_ref().map_or(Ok(()), |reason| write!(formatter, " ({reason})"))
    }
}

/// The marks on the releases of `package`, by all its instances.
pub fn marks(layout: &Layout, package: &PackageName) -> Result<BTreeMap<Release, Vec<Mark>>, Report> {
    let mut marks: BTreeMap<Release, Vec<Mark>> = BTreeMap::new();
    for instance in instances(layout, package)? {
        let files = InstanceFiles::new(layout, &instance, package);
        let journal = files.journal()?;
        if journal.package != *package {
            continue;
        }
        let default = instance == InstanceName::default_of(package);
        let mut add = |release: &Release, word, reason| {
            let mark = Mark { instance: instance.clone(), word, reason, default };
            let known = marks.entry(release.clone()).or_default();
            if known.iter().all(|one| one.instance != mark.instance || one.word != mark.word) {
                known.push(mark);
            }
        };
        if let Some(release) = &journal.proven {
            add(release, "current", None);
        }
        if let Some(release) = &journal.previous {
            add(release, "previous", None);
        }
        if let Some(live) = &journal.live {
            for release in live.from.iter().chain([&live.request.to]) {
                add(release, "switching", Some(format!("switch {} is {}", live.id, live.phase)));
            }
        }
        let verdicts = files.verdicts()?;
        for (word, found) in [("bad", &verdicts.bad), ("declined", &verdicts.declined)] {
            for (release, verdict) in found {
                let reason = Some(verdict.reason.clone()).filter(|reason| !reason.is_empty());
                add(release, word, reason);
            }
        }
    }
    Ok(marks)
}

/// The holds that count now on instances of `package`.
pub fn holds(layout: &Layout, package: &PackageName, now: Timestamp) -> Result<Vec<(InstanceName, Hold)>, Report> {
    let mut found = Vec::new();
    for instance in instances(layout, package)? {
        let files = InstanceFiles::new(layout, &instance, package);
        if let Some(hold) = files.hold()?.filter(|hold| hold.is_on(now)) {
            if files.journal()?.package == *package {
                found.push((instance, hold));
            }
        }
    }
    Ok(found)
}

/// The default instance, and all that have a directory; some may be another package's.
pub fn instances(layout: &Layout, package: &PackageName) -> Result<Vec<InstanceName>, Report> {
    let mut instances = vec![InstanceName::default_of(package)];
    if let Some(directory) = Dir::open_if_exists(&layout.instances())? {
        let named = directory.names()?.into_iter().filter_map(|name| name.to_str()?.parse().ok());
        instances.extend(named.filter(|name| *name != InstanceName::default_of(package)));
    }
    Ok(instances)
}
