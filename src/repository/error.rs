//! Why a repository can't be made, changed or exported from.

use super::stage::{Need, Waiting};
use crate::bundle::file::BundleError;
use crate::bundle::manifest::ManifestError;
use crate::failure::Class;
use crate::os::OsError;
use crate::os::lock::{Holder, by};
use crate::trust::{KeyId, Role, SignError, TrustError};
use std::fmt;
use std::path::PathBuf;

/// Why a repository can't be made, changed or exported from.
#[derive(Debug)]
pub enum RepositoryError {
    /// The system refused.
    Os(OsError),
    /// There is a repository already.
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// There is none.
    NoRepository {
        /// Where.
        path: PathBuf,
    },
    /// Another command is at work in it.
    Locked {
        /// Where.
        path: PathBuf,
        /// Who holds its lock, where it could be seen.
        holder: Option<Holder>,
    },
    /// A file of it is not as it was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The release is there with other bytes.
    Conflict {
        /// The repository.
        path: PathBuf,
        /// The release.
        id: String,
    },
    /// The repository doesn't have the release.
    Unknown {
        /// The repository.
        path: PathBuf,
        /// The release.
        id: String,
    },
    /// The release is staged only.
    Unpublished {
        /// The release.
        id: String,
    },
    /// Nothing to export was named.
    NoReleases,
    /// The output's path names no file.
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The payload isn't the one that the manifest describes.
    OtherPayload,
    /// The key doesn't sign for the role.
    WrongKey {
        /// The role.
        role: String,
        /// The key.
        keyid: KeyId,
        /// The root that says who does.
        root_version: u64,
        /// Its file.
        file: String,
    },
    /// The role needs several signatures.
    Threshold {
        /// The role.
        role: Role,
        /// How many.
        threshold: u64,
    },
    /// Nothing waits for signatures.
    NothingWaits {
        /// The repository.
        path: PathBuf,
    },
    /// Nothing has been published yet.
    NothingPublished {
        /// The repository.
        path: PathBuf,
    },
    /// What is to be published waits for more signatures.
    Incomplete {
        /// What, and whose.
        waiting: Vec<Waiting>,
    },
    /// A role can't have these keys.
    Keys {
        /// The role.
        role: String,
        /// Why not.
        reason: String,
    },
    /// No such role is delegated to.
    NoRole {
        /// The role.
        role: String,
    },
    /// A delegation without patterns.
    NoPaths {
        /// The role.
        role: String,
    },
    /// What a signer gave is no signature of its key.
    BadSignature {
        /// The key.
        keyid: KeyId,
    },
    /// The signer couldn't sign.
    Sign(SignError),
    /// The manifest is none.
    Manifest(ManifestError),
    /// The bundle couldn't be written.
    Bundle(BundleError),
    /// The repository's own metadata isn't valid.
    Trust(TrustError),
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

    /// What an author can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Exists { .. } => Some("use it, or name another directory".to_owned()),
            Self::NoRepository { path } => Some(format!("`sidle repo init {}` makes one", path.display())),
            Self::Locked { .. } => Some("wait for the other command, then try again".to_owned()),
            Self::Damaged { .. } => {
                Some("restore the repository from a backup, or add the release again as the next revision".to_owned())
            }
            Self::Conflict { .. } => Some(
                "hosts may have the published bytes: pack it again with the next revision (`--revision`)".to_owned(),
            ),
            Self::Unknown { path, .. } => {
                Some(format!("`sidle repo add {}` takes a packed release in", path.display()))
            }
            Self::Unpublished { .. } => Some("publish it first: `sidle repo publish`".to_owned()),
            Self::NoReleases => Some("name at least one release".to_owned()),
            Self::WrongKey { .. } => {
                Some("`sidle key show FILE` prints a key's id; the root names those that sign".to_owned())
            }
            Self::Manifest(error) => error.hint(),
            Self::Bundle(error) => error.hint(),
            Self::Trust(error) => error.hint(),
            Self::NothingWaits { path } => {
                Some(format!("`sidle repo stage {}` drafts what is to be signed next", path.display()))
            }
            Self::NothingPublished { path } => {
                Some(format!("`sidle repo publish {}` publishes for the first time", path.display()))
            }
            Self::Incomplete { .. } => {
                Some("each of them runs `sidle repo sign REPO --key KEY`; then publish again".to_owned())
            }
            Self::Keys { .. } => Some(
                "`sidle repo status REPO` tells the keys of each role; give other keys, or another threshold"
                    .to_owned(),
            ),
            Self::NoRole { .. } => Some("`sidle repo status REPO` lists the roles".to_owned()),
            Self::NoPaths { .. } => Some("name them with --path 'PACKAGE/*/*/*'".to_owned()),
            Self::Threshold { .. } => Some("give the others, too: --online-key may be repeated".to_owned()),
            Self::NoFile { .. } | Self::OtherPayload | Self::BadSignature { .. } | Self::Sign(_) => None,
        }
    }
}

impl fmt::Display for RepositoryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(out),
            Self::Exists { path } => {
                write!(out, "cannot make a repository in {}: there is one already", path.display())
            }
            Self::NoRepository { path } => {
                write!(out, "cannot find a repository in {}: it has no metadata/1.root.json", path.display())
            }
            Self::Locked { path, holder } => {
                let by = by(holder.as_ref());
                write!(out, "cannot change the repository {}: another command is at work in it{by}", path.display())
            }
            Self::Damaged { path, reason } => write!(out, "cannot use {}: {reason}", path.display()),
            Self::Conflict { path, id } => {
                write!(
                    out,
                    "cannot add {id}: {} has it already, or had it before it was withdrawn, with other bytes",
                    path.display()
                )
            }
            Self::Unknown { path, id } => write!(out, "cannot find {id} in the repository {}", path.display()),
            Self::Unpublished { id } => write!(out, "cannot export {id}: it is staged, not published"),
            Self::NoReleases => out.write_str("cannot export nothing"),
            Self::NoFile { path } => write!(out, "cannot write {}: the path names no file", path.display()),
            Self::OtherPayload => {
                out.write_str("cannot add the payload: its length or digest is not the one in its manifest")
            }
            Self::WrongKey { role, keyid, root_version, file } => {
                write!(
                    out,
                    "cannot sign {role} metadata with the key {keyid}: {file} version {root_version} doesn't name it for that role"
                )
            }
            Self::Threshold { role, threshold } => {
                write!(out, "cannot sign {role} metadata with these keys: {threshold} are needed")
            }
            Self::NothingWaits { path } => {
                write!(out, "cannot sign anything: nothing waits for signatures in {}", path.display())
            }
            Self::NothingPublished { path } => {
                write!(out, "cannot refresh {}: nothing has been published yet", path.display())
            }
            Self::Incomplete { waiting } => {
                out.write_str("cannot publish: ")?;
                incomplete(waiting, out)
            }
            Self::Keys { role, reason } => write!(out, "cannot give {role} these keys: {reason}"),
            Self::NoRole { role } => write!(out, "cannot find the role {role}: nothing is delegated to it"),
            Self::NoPaths { role } => write!(out, "cannot delegate nothing to {role}"),
            Self::BadSignature { keyid } => {
                write!(out, "cannot use the signature that the signer gave: it is none of the key {keyid}")
            }
            Self::Sign(error) => error.fmt(out),
            Self::Manifest(error) => error.fmt(out),
            Self::Bundle(error) => error.fmt(out),
            Self::Trust(error) => error.fmt(out),
        }
    }
}

/// `2.targets.json has 1 of the 2 signatures that root version 1 asks for (missing: …)`, for each.
fn incomplete(waiting: &[Waiting], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let needs = waiting.iter().flat_map(|one| one.needs.iter().map(move |need| (&one.file, need)));
    for (index, (file, need)) in needs.filter(|(_, need)| need.valid < need.threshold).enumerate() {
        let missing: Vec<String> = need.missing.iter().map(|key| key.keyid().to_string()).collect();
        let (Need { by, threshold, valid, .. }, missing) = (need, missing.join(", "));
        let joint = if index == 0 { "" } else { "; " };
        write!(out, "{joint}{file} has {valid} of the {threshold} signatures that {by} asks for (not from {missing})")?;
    }
    Ok(())
}

impl std::error::Error for RepositoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The wrapped error is printed in place of this one; its own source comes next.
            Self::Os(error) => error.source(),
            Self::Manifest(error) => error.source(),
            Self::Bundle(error) => error.source(),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($error:ident => $variant:ident),*) => {
        $(impl From<$error> for RepositoryError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from!(OsError => Os, SignError => Sign, ManifestError => Manifest, BundleError => Bundle, TrustError => Trust);

crate::reports!(RepositoryError);
