//! Why a repository can't be made, changed or exported from.

use super::stage::{Need, Waiting};
use crate::bundle::file::BundleError;
use crate::bundle::manifest::ManifestError;
use crate::failure::Class;
use crate::os::OsError;
use crate::os::lock::{Holder, by};
use crate::trust::{KeyId, Role, SignError, TrustError};
use std::path::PathBuf;

/// Why a repository can't be made, changed or exported from.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum RepositoryError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The directory has a repository already.
    #[error("cannot make a repository in {path}: a repository is there already")]
    Exists { path: PathBuf },
    /// The directory has no repository.
    #[error("cannot find a repository in {path}: it has no metadata/1.root.json")]
    NoRepository { path: PathBuf },
    /// Another command holds the repository's lock.
    #[error("cannot change the repository {path}: another command uses it{}", by(.holder.as_ref()))]
    Locked { path: PathBuf, holder: Option<Holder> },
    /// A file of the repository is not as it was written.
    #[error("cannot use {path}: {reason}")]
    Damaged { path: PathBuf, reason: String },
    /// The release exists with other bytes.
    #[error("cannot add {id}: {path} has it already, or had it before it was withdrawn, with other bytes")]
    Conflict { path: PathBuf, id: String },
    /// The repository doesn't have the release.
    #[error("cannot find {id} in the repository {path}")]
    Unknown { path: PathBuf, id: String },
    /// The release is staged only.
    #[error("cannot export {id}: it is staged, not published")]
    Unpublished { id: String },
    /// The repository doesn't have the release before it.
    #[error("cannot export what changed in {id}: the repository does not have {since} as a release before it")]
    NoSince { id: String, since: String },
    /// An export names no release.
    #[error("cannot export: no release is named")]
    NoReleases,
    /// The output's path names no file.
    #[error("cannot write {path}: the path names no file")]
    NoFile { path: PathBuf },
    /// The payload isn't the one that the manifest describes.
    #[error("cannot add the payload: its length or digest is not the one in its manifest")]
    OtherPayload,
    /// The key doesn't sign for the role, by version `root_version` of `file`.
    #[error(
        "cannot sign {role} metadata with the key {keyid}: {file} version {root_version} doesn't name it for that role"
    )]
    WrongKey { role: String, keyid: KeyId, root_version: u64, file: String },
    /// The role needs more signatures than there are keys.
    #[error("cannot sign {role} metadata with these keys: {threshold} are needed")]
    Threshold { role: Role, threshold: u64 },
    /// Nothing waits for signatures.
    #[error("cannot sign anything: nothing waits for signatures in {path}")]
    NothingWaits { path: PathBuf },
    /// Nothing has been published yet.
    #[error("cannot refresh {path}: nothing has been published yet")]
    NothingPublished { path: PathBuf },
    /// The next files need more signatures.
    #[error("cannot publish: {}", incomplete(.waiting))]
    Incomplete { waiting: Vec<Waiting> },
    /// A role can't have these keys.
    #[error("cannot give {role} these keys: {reason}")]
    Keys { role: String, reason: String },
    /// Nothing is delegated to the role.
    #[error("cannot find the role {role}: nothing is delegated to it")]
    NoRole { role: String },
    /// A delegation without patterns.
    #[error("cannot delegate to {role} without paths")]
    NoPaths { role: String },
    /// The signer's answer is not a signature by its key.
    #[error("cannot use the signature that the signer gave: it is not by the key {keyid}")]
    BadSignature { keyid: KeyId },
    /// The signer couldn't sign.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The manifest is not valid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bundle couldn't be written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The repository's own metadata isn't valid.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl RepositoryError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Exists { .. } | Self::Conflict { .. } => Class::Conflict,
            Self::NoFile { .. } | Self::NoReleases | Self::Keys { .. } | Self::NoPaths { .. } => Class::Usage,
            Self::NothingWaits { .. } => Class::NothingToDo,
            Self::Locked { .. } => Class::Locked,
            Self::Damaged { .. } | Self::OtherPayload => Class::Integrity,
            Self::NoRepository { .. }
            | Self::Unknown { .. }
            | Self::Unpublished { .. }
            | Self::NoSince { .. }
            | Self::WrongKey { .. }
            | Self::Threshold { .. }
            | Self::NothingPublished { .. }
            | Self::Incomplete { .. }
            | Self::NoRole { .. }
            | Self::BadSignature { .. }
            | Self::Sign(_) => Class::Failed,
            Self::Manifest(error) => error.class(),
            Self::Bundle(error) => error.class(),
            Self::Trust(error) => error.class(),
        }
    }

    /// A remedy for the author.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Exists { .. } => Some("use that repository, or name another directory".to_owned()),
            Self::NoRepository { path } => Some(format!("make a repository: `sidle repo init {}`", path.display())),
            Self::Locked { .. } => Some("wait for the other command, then try again".to_owned()),
            Self::Damaged { .. } => {
                Some("restore the repository from a backup, or add the release again as the next revision".to_owned())
            }
            Self::Conflict { .. } => Some(
                "hosts may have the published bytes: pack it again with the next revision (`--revision`)".to_owned(),
            ),
            Self::Unknown { path, .. } => Some(format!("add a packed release: `sidle repo add {}`", path.display())),
            Self::Unpublished { .. } => Some("publish it first: `sidle repo publish`".to_owned()),
            Self::NoSince { .. } => {
                Some("`sidle repo status` lists the releases: name one that the hosts have".to_owned())
            }
            Self::NoReleases => Some("name at least one release".to_owned()),
            Self::WrongKey { .. } => {
                Some("`sidle key show FILE` prints a key's id; the root lists the ids of its signers".to_owned())
            }
            Self::Manifest(error) => error.hint(),
            Self::Bundle(error) => error.hint(),
            Self::Trust(error) => error.hint(),
            Self::NothingWaits { path } => {
                Some(format!("`sidle repo stage {}` drafts the files to sign next", path.display()))
            }
            Self::NothingPublished { path } => {
                Some(format!("`sidle repo publish {}` publishes for the first time", path.display()))
            }
            Self::Incomplete { .. } => {
                Some("each signer runs `sidle repo sign REPO --key KEY`; then publish again".to_owned())
            }
            Self::Keys { .. } => Some(
                "`sidle repo status REPO` lists the keys of each role; give other keys, or another threshold"
                    .to_owned(),
            ),
            Self::NoRole { .. } => Some("`sidle repo status REPO` lists the roles".to_owned()),
            Self::NoPaths { .. } => Some("name them with --path 'PACKAGE/*/*/*'".to_owned()),
            Self::Threshold { .. } => Some("give all keys: --online-key may be repeated".to_owned()),
            Self::NoFile { .. } | Self::OtherPayload | Self::BadSignature { .. } | Self::Sign(_) => None,
        }
    }
}

/// `2.targets.json has 1 of the 2 signatures that root version 1 asks for (not from …)`, for each.
fn incomplete(waiting: &[Waiting]) -> String {
    let needs = waiting.iter().flat_map(|one| one.needs.iter().map(move |need| (&one.file, need)));
    let lacking = needs.filter(|(_, need)| need.valid < need.threshold).map(|(file, need)| {
        let missing: Vec<String> = need.missing.iter().map(|key| key.keyid().to_string()).collect();
        let (Need { by, threshold, valid, .. }, missing) = (need, missing.join(", "));
        format!("{file} has {valid} of the {threshold} signatures that {by} asks for (not from {missing})")
    });
    lacking.collect::<Vec<_>>().join("; ")
}

crate::reports!(RepositoryError);
