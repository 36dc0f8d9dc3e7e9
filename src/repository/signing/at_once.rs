//! Adds a release and publishes it at once. A release that can't be published is removed again, so that nobody publishes it later by
//! accident.

use crate::bundle::member::ReleaseId;
use crate::os::place::Effect;
use crate::repository::add::Added;
use crate::repository::pending::Pending;
use crate::repository::publish::{Publication, PublishKeys, may_sign_online};
use crate::repository::published::Published;
use crate::repository::{Repository, RepositoryError, TARGETS};
use crate::trust::Role;
use crate::trust::publish::Lifetimes;
use jiff::Timestamp;
use std::io::Read;
use std::path::Path;

/// A packed release.
pub struct PackedRelease<'a> {
    /// The compressed manifest.
    pub manifest: &'a [u8],
    /// The payload.
    pub payload: &'a mut dyn Read,
}

impl Repository {
    /// Refuses keys that could not publish a release here.
    pub fn may_publish(&self, keys: PublishKeys<'_>) -> Result<(), RepositoryError> {
        let (published, pending) = self.load()?;
        self.may_sign(&published, &pending, &[keys.targets])?;
        if let (Some(root), None) = (&published.root, &pending.root) {
            for role in [Role::Snapshot, Role::Timestamp] {
                may_sign_online(root, role, &[keys.online])?;
            }
        }
        Ok(())
    }

    /// Stages a packed release, as [`Repository::add`] does, and publishes. The keys are checked first; if publishing fails later, the
    /// release is removed again.
    pub fn add_and_publish(
        &mut self,
        PackedRelease { manifest, payload }: PackedRelease<'_>,
        keys: PublishKeys<'_>,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<(Added, Publication), RepositoryError> {
        self.may_publish(keys)?;
        let (_, pending) = self.load()?;
        let added = self.add(manifest, payload)?;
        match self.publish(keys, lifetimes, now) {
            Ok(publication) => Ok((added, publication)),
            Err(error) => {
                if let Added::Staged(id) = &added {
                    self.take_back(id, &pending)?;
                }
                Err(error)
            }
        }
    }

    /// Undoes an `add` that was not published; `pending` is restored.
    fn take_back(&mut self, id: &ReleaseId, pending: &Pending) -> Result<(), RepositoryError> {
        let published = Published::load(&self.place)?;
        if self.state.releases.get(id).is_none_or(|files| published.lists(id, files)) {
            return Ok(());
        }
        self.state.releases.remove(id);
        self.state.store(&self.place)?;
        pending.store(&self.place)?;
        self.remove_release(id)?;
        if self.place.effect() == Effect::DryRun {
            return Ok(());
        }
        let package = Path::new(TARGETS).join(id.package.as_str());
        let parents =
            [(package, id.release.to_string()), (Path::new(TARGETS).to_owned(), id.package.as_str().to_owned())];
        for (parent, name) in parents {
            let Some(parent) = self.place.directory(&parent)? else { continue };
            if parent.child(&name)?.names()?.is_empty() {
                parent.remove_tree(&name)?;
            }
        }
        Ok(())
    }
}
