//! What a copy of a repository would come to, for dry runs: the metadata is fetched and judged, targets are not, and nothing is written.

use super::error::FetchError;
use super::fetcher::Fetcher;
use super::mark::Mark;
use super::mirror::{FRAMES, Mirrored, Wanted as MirrorWanted, has, releases};
use crate::bundle::member::ReleaseId;
use crate::os::dir::{Dir, FileKind};
use crate::os::place::Place;
use crate::os::walk;
use crate::trust::request::encoded;
use crate::trust::{MetadataFiles, TrustedTargets, target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

impl Fetcher<'_> {
    /// What [`Fetcher::mirror`] would do. Returns its result, and the bytes of the targets to fetch.
    pub fn foresee_mirror(
        &self,
        into: &Place,
        targets: &TrustedTargets,
        metadata: &MetadataFiles,
        wanted: &MirrorWanted<'_>,
    ) -> Result<(Mirrored, u64), FetchError> {
        let (mut mirrored, mut bytes) = (Mirrored::default(), 0);
        let mut expected = BTreeSet::new();
        for (id, release) in releases(targets).into_iter().filter(|(id, _)| (wanted.release)(id)) {
            let here = |name: &str| PathBuf::from(id.to_string()).join(name);
            let directory = into.directory(&Path::new("targets").join(id.to_string()))?;
            let payload = target::payload(&id);
            // As the copy goes: the payload last.
            let (last, first): (Vec<_>, Vec<_>) = release.iter().partition(|(name, _)| **name == payload);
            for (name, signed) in first.into_iter().chain(last) {
                let stored = self.basename(name, signed);
                expected.insert(here(&stored));
                let is_there = directory.as_ref().map_or(Ok(false), |directory| has(directory, &stored, signed))?;
                if is_there {
                    mirrored.kept += 1;
                } else {
                    mirrored.fetched.push(format!("targets/{id}/{stored}"));
                    bytes += signed.length;
                }
            }
            expected.extend([here("SHA256SUMS"), here("SHA256SUMS.minisig")]);
            if wanted.frame_files {
                expected.extend(frames(directory.as_ref(), &id)?);
            }
        }
        for (name, content) in metadata {
            let name = encoded(name);
            let file = Path::new("metadata").join(&name);
            if into.read(&file, content.len() as u64).ok().flatten().as_ref() != Some(content) {
                mirrored.fetched.push(file.display().to_string());
            }
        }
        if let (true, Some(directory)) = (wanted.clean, into.directory(Path::new(""))?) {
            mirrored.removed = stale(&directory, &expected, metadata)?;
        }
        Ok((mirrored, bytes))
    }
}

/// The files of frames that are there: the copy keeps them, or writes them again.
fn frames(directory: Option<&Dir>, id: &ReleaseId) -> Result<Vec<PathBuf>, FetchError> {
    let frames = directory.map_or(Ok(None), |directory| directory.child_if_exists(FRAMES))?;
    let names = frames.map_or(Ok(Vec::new()), |frames| frames.names())?;
    Ok(names.into_iter().map(|name| PathBuf::from(id.to_string()).join(FRAMES).join(name)).collect())
}

/// What the copy would remove, in its order.
fn stale(into: &Dir, expected: &BTreeSet<PathBuf>, metadata: &MetadataFiles) -> Result<Vec<String>, FetchError> {
    let mark = Mark::read(into)?;
    let mut removed = Vec::new();
    if let Some(targets) = into.child_if_exists("targets")? {
        let mut left: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let walked = walk::walk(&targets)?;
        for found in &walked {
            *left.entry(found.path.parent().unwrap_or(Path::new("")).to_owned()).or_default() += 1;
        }
        for found in walked.into_iter().rev() {
            let path = Path::new("targets").join(&found.path);
            let goes = match found.stat.kind {
                FileKind::Directory => mark.has_below(&path) && left.get(&found.path).copied().unwrap_or_default() == 0,
                FileKind::File | FileKind::Symlink | FileKind::Other => {
                    mark.has(&path) && !expected.contains(&found.path)
                }
            };
            if goes {
                if let Some(left) = left.get_mut(found.path.parent().unwrap_or(Path::new(""))) {
                    *left -= 1;
                }
                removed.push(path.display().to_string());
            }
        }
    }
    let newest: BTreeSet<String> = metadata.keys().map(|name| encoded(name)).collect();
    if let Some(directory) = into.child_if_exists("metadata")? {
        for name in directory.names()? {
            let text = name.to_string_lossy();
            let is_marked = mark.has(&Path::new("metadata").join(&name));
            if is_marked && !text.ends_with(".root.json") && !newest.contains(&*text) {
                removed.push(format!("metadata/{text}"));
            }
        }
    }
    Ok(removed)
}
