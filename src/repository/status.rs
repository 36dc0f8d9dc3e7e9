//! The state of a repository: published files and their expiry, staged releases, missing signatures.

use super::published::Published;
use super::role::SignedRole;
use super::stage::Waiting;
use super::state::Withdrawn;
use super::{Delegation, Listed, Repository, RepositoryError};
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::trust::metadata::Header;
use jiff::Timestamp;

/// The state of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The fingerprint of the first root, which hosts pin; None before it is published.
    pub fingerprint: Option<Digest>,
    /// The published metadata, root first.
    pub published: Vec<PublishedFile>,
    /// All releases to publish.
    pub releases: Vec<Listed>,
    /// The withdrawn releases, and whether hosts know of it.
    pub withdrawn: Vec<(ReleaseId, Withdrawn, bool)>,
    /// The delegations.
    pub delegations: Vec<Delegation>,
    /// The files that wait for signatures.
    pub waiting: Vec<Waiting>,
    /// Signature files in `author/pending/` that fit no file there.
    pub void: Vec<String>,
}

/// A published metadata file.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedFile {
    pub role: String,
    pub version: u64,
    pub expires: Timestamp,
}

impl Repository {
    /// Returns the state of the repository.
    pub fn status(&self) -> Result<Status, RepositoryError> {
        let (published, pending) = self.load()?;
        let waiting = self.waiting_in(&published, &pending);
        let withdrawn = self.state.withdrawn.iter().filter(|(id, _)| self.is_withdrawn(id));
        let is_told = |id: &ReleaseId, one: &Withdrawn| !published.lists(id, &one.files);
        Ok(Status {
            fingerprint: published.roots.first().map(|bytes| Digest::of(bytes)),
            published: files(&published),
            releases: self.releases()?,
            withdrawn: withdrawn.map(|(id, one)| (id.clone(), one.clone(), is_told(id, one))).collect(),
            delegations: self.state.delegations.clone(),
            waiting,
            void: pending.void,
        })
    }
}

fn files(published: &Published) -> Vec<PublishedFile> {
    let file = |role: &str, header: Header| PublishedFile {
        role: role.to_owned(),
        version: header.version,
        expires: header.expires,
    };
    let mut files: Vec<PublishedFile> =
        published.root.iter().map(|root| file(&SignedRole::Root.to_string(), root.header)).collect();
    if let Some(set) = &published.set {
        files.push(file("targets", set.listing.targets.header));
        files.extend(set.listing.delegated.iter().map(|(name, one)| file(name.as_str(), one.header)));
        files.push(file("snapshot", set.snapshot.header));
        files.push(file("timestamp", set.timestamp.header));
    }
    files
}
