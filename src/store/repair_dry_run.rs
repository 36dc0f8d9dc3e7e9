//! What a repair would do, for dry runs: nothing is written, not even the index.

use super::check::Depth;
use super::error::{Defect, Problem};
use super::held::HeldFiles;
use super::incident::Repaired;
use super::repair::{ASIDE, free_aside};
use super::{Result, Store};
use crate::bundle::manifest::{EntryKind, Manifest};
use crate::bundle::rebuild::is_held;
use crate::os::dir::Dir;
use crate::version::Release;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};

/// What a repair would come to, with this host's own files.
#[derive(Debug)]
pub struct ExpectedRepair {
    /// The result; `left` are files whose content this host lacks.
    pub repaired: Repaired,
    /// The entries of these files in the manifest.
    pub lacking: Vec<usize>,
    /// The manifest.
    pub manifest: Manifest,
}

impl Store {
    /// What [`Store::repair`] would do without a payload.
    pub fn dry_run_repair(&self, release: &Release, depth: Depth) -> Result<ExpectedRepair> {
        let (manifest, found) = self.check_without_index(release, depth)?;
        let mut expected = ExpectedRepair { repaired: Repaired::default(), lacking: Vec::new(), manifest };
        if found.is_empty() {
            return Ok(expected);
        }
        let held = HeldFiles::of(self, &expected.manifest)?;
        let entries: HashMap<&str, usize> =
            expected.manifest.entries.iter().enumerate().map(|(index, entry)| (entry.path.as_str(), index)).collect();
        let aside = self.layout().package(self.package()).join(ASIDE).join(release.to_string());
        let there = Dir::open_if_exists(&aside)?.map_or(Ok(Vec::new()), |aside| aside.names())?;
        let mut taken: BTreeSet<OsString> = there.into_iter().collect();
        for problem in &found {
            let path = problem.path.to_string_lossy();
            let entry = problem.path.to_str().and_then(|path| entries.get(path).copied());
            if matches!(problem.defect, Defect::Foreign | Defect::Stray) {
                let name = problem.path.file_name().unwrap_or_default().to_string_lossy();
                let free = free_aside(&name, &aside, |free| Ok(!taken.contains(OsStr::new(free))))?;
                expected.repaired.aside.push((path.clone().into_owned(), aside.join(&free)));
                taken.insert(free.into());
            }
            let Some(index) = entry else { continue };
            match &expected.manifest.entries[index].kind {
                EntryKind::File { size, sha256, .. } if !is_held(&held, *size, sha256) => {
                    expected.lacking.push(index);
                    expected.repaired.left.push(problem.clone());
                }
                EntryKind::File { .. } | EntryKind::Directory { .. } | EntryKind::Link { .. } => {
                    expected.repaired.mended.push(path.into_owned());
                }
            }
        }
        expected.repaired.mended.sort();
        expected.repaired.mended.dedup();
        expected.lacking.sort_unstable();
        expected.lacking.dedup();
        expected.repaired.found = found;
        Ok(expected)
    }

    /// Fails with the remaining problems, if there are any; strays are no problem.
    pub fn judge(&self, release: &Release, left: Vec<Problem>) -> Result<()> {
        self.verdict(release, left)
    }
}
