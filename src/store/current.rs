//! `current`: the link to the release that boot starts. It moves only by rename: at no instant is it missing.

use super::{PackageLock, Result, Store, StoreError};
use crate::crash_point;
use crate::layout::{self, Layout};
use crate::name::InstanceName;
use crate::version::Release;
use std::path::{Path, PathBuf};
use tracing::debug;

impl Store {
    /// The release of an instance's link; None before its first commit. A foreign link is an error.
    pub fn current(&self, instance: &InstanceName) -> Result<Option<Release>> {
        let Some(directory) = self.directory()? else { return Ok(None) };
        let name = Layout::link_name(&self.package, instance);
        let Some(target) = directory.read_link(&name)? else { return Ok(None) };
        let release =
            target.strip_prefix(layout::VERSIONS).ok().and_then(Path::to_str).and_then(|name| name.parse().ok());
        let path = directory.path().join(name);
        let reason = || format!("it points to {}, not to a release in {}/", target.display(), layout::VERSIONS);
        release.map(Some).ok_or_else(|| StoreError::Corrupt { path, reason: reason() })
    }

    /// Points an instance's link at an installed release; idempotent.
    pub fn flip(&self, _lock: &PackageLock, instance: &InstanceName, release: &Release) -> Result<()> {
        self.tree(release)?;
        let Some(directory) = self.directory()? else { return Ok(()) };
        crash_point!("flip.before");
        let target: PathBuf = [layout::VERSIONS, &release.to_string()].iter().collect();
        directory.replace_symlink(&target, Layout::link_name(&self.package, instance))?;
        crash_point!("flip.after");
        debug!(%instance, "`current` names {release} now");
        Ok(())
    }

    /// Removes an instance's link: boot starts nothing.
    pub fn unlink(&self, _lock: &PackageLock, instance: &InstanceName) -> Result<()> {
        let Some(directory) = self.directory()? else { return Ok(()) };
        directory.remove_file(Layout::link_name(&self.package, instance))?;
        Ok(directory.sync()?)
    }

    /// The releases of all instances' links of this package.
    pub fn linked(&self) -> Result<Vec<Release>> {
        let Some(directory) = self.directory()? else { return Ok(Vec::new()) };
        let mut linked = Vec::new();
        for name in directory.names()? {
            let is_link = name.to_str().is_some_and(|name| name.starts_with(layout::CURRENT));
            let target = if is_link { directory.read_link(&name)? } else { None };
            let release = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
            linked.extend(release);
        }
        Ok(linked)
    }
}
