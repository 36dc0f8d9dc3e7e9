//! What a repair would do, for dry runs: nothing is written, not even the index.

use super::check::Depth;
use super::error::{Defect, Problem};
use super::held::HeldFiles;
use super::incident::Repaired;
use super::repair::{ASIDE, ASIDE_MAXIMUM};
use super::{Result, Store};
use crate::bundle::manifest::{EntryKind, Manifest};
use crate::bundle::rebuild::is_held;
use crate::os::dir::Dir;
use crate::version::Release;
use std::collections::{BTreeSet, HashMap};

/// What a repair would come to, with this host's own files.
#[derive(Debug)]
pub struct Forecast {
    /// The result; `left` are files whose content this host lacks.
    pub repaired: Repaired,
    /// The entries of these files in the manifest.
    pub lacking: Vec<usize>,
    /// The manifest.
    pub manifest: Manifest,
}

impl Store {
    /// What [`Store::repair`] would do without a payload.
    pub fn foresee_repair(&self, release: &Release, depth: Depth) -> Result<Forecast> {
        let (manifest, found) = self.check_without_index(release, depth)?;
        let mut forecast = Forecast { repaired: Repaired::default(), lacking: Vec::new(), manifest };
        if found.is_empty() {
            return Ok(forecast);
        }
        let held = HeldFiles::of(self, &forecast.manifest)?;
        let entries: HashMap<&str, usize> =
            forecast.manifest.entries.iter().enumerate().map(|(index, entry)| (entry.path.as_str(), index)).collect();
        let mut names = self.names_aside(release)?;
        for problem in &found {
            let entry = entries.get(problem.path.as_str()).copied();
            if matches!(problem.defect, Defect::Foreign | Defect::Stray) {
                let place = self.place_aside(release, &problem.path, &mut names);
                forecast.repaired.aside.push((problem.path.clone(), place));
            }
            let Some(index) = entry else { continue };
            match &forecast.manifest.entries[index].kind {
                EntryKind::File { size, sha256, .. } if !is_held(&held, *size, sha256) => {
                    forecast.lacking.push(index);
                    forecast.repaired.left.push(problem.clone());
                }
                EntryKind::File { .. } | EntryKind::Directory { .. } | EntryKind::Link { .. } => {
                    forecast.repaired.mended.push(problem.path.clone());
                }
            }
        }
        forecast.repaired.mended.sort();
        forecast.repaired.mended.dedup();
        forecast.lacking.sort_unstable();
        forecast.lacking.dedup();
        forecast.repaired.found = found;
        Ok(forecast)
    }

    /// Fails with the remaining problems, if there are any; strays are no problem.
    pub fn judge(&self, release: &Release, left: Vec<Problem>) -> Result<()> {
        self.verdict(release, left)
    }

    fn names_aside(&self, release: &Release) -> Result<BTreeSet<String>> {
        let path = self.layout().package(self.package()).join(ASIDE).join(release.to_string());
        let Some(directory) = Dir::open_if_exists(&path)? else { return Ok(BTreeSet::new()) };
        Ok(directory.names()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// The first free name, as a repair takes it.
    fn place_aside(&self, release: &Release, path: &str, names: &mut BTreeSet<String>) -> std::path::PathBuf {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let free = (1..=ASIDE_MAXIMUM).map(|number| format!("{number}-{name}")).find(|free| !names.contains(free));
        let free = free.unwrap_or_else(|| name.to_owned());
        names.insert(free.clone());
        self.layout().package(self.package()).join(ASIDE).join(release.to_string()).join(free)
    }
}
