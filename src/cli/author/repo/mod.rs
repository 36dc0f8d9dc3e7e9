//! `sidle repo`: a directory of signed releases.
//!
//! `init` makes one, `people` has the verbs of those who sign one after another, `roles` changes who may sign, `status` tells how it stands.

mod init;
mod people;
mod roles;
mod status;

use super::key::KeyOpener;
use super::named_release::NamedRelease;
use crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES;
use crate::bundle::member::ReleaseId;
use crate::bundle::pack::PAYLOAD_NAME;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::Facts;
use crate::cli::pack::MANIFEST_NAME;
use crate::cli::{Context, Ended, input, usage};
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::repository::{Added, Publication, Renewal, Repository, RepositoryError, Withdrawal};
use crate::signer::KeySource;
use crate::trust::Signer;
use crate::trust::publish::Lifetimes;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};

/// `sidle repo`
#[derive(Debug, Subcommand)]
pub enum RepoVerb {
    /// Make a repository and its first root, which hosts pin
    Init(init::InitArguments),
    /// Add a packed release; `publish` signs it
    Add(AddArguments),
    /// Draft the next metadata, for people who sign one after another
    Stage(people::StageArguments),
    /// Sign the drafted metadata, and show its changes; without a key, only show them
    Sign(people::SignArguments),
    /// Publish metadata with enough signatures, and renew metadata that is halfway to its expiry
    Publish(PublishArguments),
    /// Renew snapshot and timestamp only; for a timer
    Refresh(RefreshArguments),
    /// Withdraw releases; hosts learn of it with the next publish
    Withdraw(WithdrawArguments),
    /// Change the signers of a role: root, targets, online (snapshot and timestamp), or a delegated role
    Rotate(roles::RotateArguments),
    /// Delegate a part of the releases to other signers
    Delegate(roles::DelegateArguments),
    /// End a delegation
    Undelegate(roles::UndelegateArguments),
    /// Show published metadata with its expiry, staged releases, and missing signatures
    Status(status::StatusArguments),
}

/// `sidle repo add DIR PACKED`
#[derive(Debug, Args)]
pub struct AddArguments {
    /// The repository's directory
    directory: PathBuf,
    /// A directory that `sidle pack` filled, or a manifest and its payload
    #[arg(required = true, num_args = 1..=2, value_names = ["PACKED_DIR|MANIFEST", "PAYLOAD"])]
    packed: Vec<PathBuf>,
    /// Write each frame of the payload as a separate file, too: for web caches that do not keep parts of files
    #[arg(long)]
    frame_files: bool,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo publish DIR [--key KEY]… [--online-key KEY]…`
#[derive(Debug, Args)]
pub struct PublishArguments {
    /// The repository's directory
    directory: PathBuf,
    /// A key that signs the drafted metadata; without --online-key, also snapshot and timestamp
    #[arg(long, value_name = "KEY")]
    key: Vec<KeySource>,
    /// The key of the targets role, if it is another key
    #[arg(long, value_name = "KEY")]
    targets_key: Vec<KeySource>,
    /// The key of the snapshot and timestamp roles, if it is another key; during a rotation of this key, the old key and the new key
    #[arg(long, value_name = "KEY")]
    online_key: Vec<KeySource>,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo refresh DIR --online-key KEY`
#[derive(Debug, Args)]
pub struct RefreshArguments {
    /// The repository's directory
    directory: PathBuf,
    /// The key of the snapshot and timestamp roles
    #[arg(long, required = true, value_name = "KEY")]
    online_key: Vec<KeySource>,
    /// Renew snapshot and timestamp also if they are far from their expiry
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo withdraw DIR PACKAGE@RELEASE[/PLATFORM]…`
#[derive(Debug, Args)]
pub struct WithdrawArguments {
    /// The repository's directory
    directory: PathBuf,
    /// The release to withdraw; without PLATFORM, on all platforms
    #[arg(required = true, value_name = "PACKAGE@RELEASE[/PLATFORM]")]
    releases: Vec<NamedRelease>,
    /// The reason: kept in the repository, shown by `sidle repo status`
    #[arg(long)]
    reason: Option<String>,
    /// Delete the release's files as well. Do it in this order: withdraw without --delete, publish (hosts learn that the release is gone), withdraw again with --delete
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo …`
pub fn repo(context: &Context, verb: &RepoVerb) -> Result<Ended, Report> {
    match verb {
        RepoVerb::Init(arguments) => init::init(context, arguments),
        RepoVerb::Add(arguments) => add(context, arguments),
        RepoVerb::Stage(arguments) => people::stage(context, arguments),
        RepoVerb::Sign(arguments) => people::sign(context, arguments),
        RepoVerb::Publish(arguments) => publish(context, arguments),
        RepoVerb::Refresh(arguments) => refresh(context, arguments),
        RepoVerb::Withdraw(arguments) => withdraw(context, arguments),
        RepoVerb::Rotate(arguments) => roles::rotate(context, arguments),
        RepoVerb::Delegate(arguments) => roles::delegate(context, arguments),
        RepoVerb::Undelegate(arguments) => roles::undelegate(context, arguments),
        RepoVerb::Status(arguments) => status::status(context, arguments),
    }
}

fn add(context: &Context, arguments: &AddArguments) -> Result<Ended, Report> {
    let (manifest, payload) = match arguments.packed.as_slice() {
        [directory] => (directory.join(MANIFEST_NAME), directory.join(PAYLOAD_NAME)),
        [manifest, payload] => (manifest.clone(), payload.clone()),
        _ => {
            return Err(usage(
                "cannot add this",
                "name a directory that `sidle pack` filled, or a manifest and its payload",
            ));
        }
    };
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    let (manifest, mut payload) = packed_files(&manifest, &payload)?;
    let added = repository.add(&manifest, &mut payload)?;
    if arguments.frame_files {
        let (Added::Staged(id) | Added::Already(id)) = &added;
        repository.write_frame_files(id)?;
    }
    let (id, word, ended) = match &added {
        Added::Staged(id) => (id, "added", Ended::Well),
        Added::Already(id) => (id, "there already", Ended::As(Class::NothingToDo)),
    };
    let next = format!("sidle repo publish {} --key FILE", arguments.directory.display());
    let facts = Facts::new().with(word, id).with("next", next);
    context.output.result(facts, json!({"release": id.to_string(), "added": matches!(added, Added::Staged(_))}));
    Ok(ended)
}

/// The two files of a packed release: its manifest's bytes, and its payload to be read.
pub fn packed_files(manifest: &Path, payload: &Path) -> Result<(Vec<u8>, File), Report> {
    const EXPECTED: &str = "a directory that `sidle pack` filled, or a manifest and its payload";
    Ok((input::read(manifest, MANIFEST_COMPRESSED_MAXIMUM_BYTES, EXPECTED)?, input::open(payload, EXPECTED)?))
}

fn publish(context: &Context, arguments: &PublishArguments) -> Result<Ended, Report> {
    let PublishArguments { directory, key, targets_key, online_key, opener, .. } = arguments;
    if key.is_empty() && online_key.is_empty() {
        return Err(usage(
            "cannot publish without a key",
            "name the key of the online roles with --online-key KEY, or with --key KEY the one that signs everything",
        ));
    }
    let people = opener.signers(if targets_key.is_empty() { key } else { targets_key })?;
    let online = opener.signers(if online_key.is_empty() { key } else { online_key })?;
    let mut repository = Repository::open_for(directory, context.effect)?;
    let publication = repository.publish_with(&refs(&people), &refs(&online), &Lifetimes::default(), clock::now())?;
    if publication.signed.is_empty() && !publication.waiting.is_empty() {
        return Err(RepositoryError::Incomplete { waiting: publication.waiting }.into());
    }
    let mut facts = publication_facts(&publication);
    if publication.signed.iter().any(|name| name == "1.root.json") {
        if let Some(fingerprint) = repository.status()?.fingerprint {
            facts.add("fingerprint", fingerprint);
        }
    }
    if publication.signed.is_empty() {
        facts.add("nothing to do", "everything is published, and far from its expiry");
    } else if let Some(id) = publication.added.first() {
        let directory = directory.display();
        facts.add("next", format!("sidle export {directory} {}@{} -o {}.sidle", id.package, id.release, id.package));
    }
    context.output.result(facts, publication_value(&publication));
    Ok(if publication.signed.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

fn refresh(context: &Context, arguments: &RefreshArguments) -> Result<Ended, Report> {
    let online = arguments.opener.signers(&arguments.online_key)?;
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    let renewal = if arguments.force { Renewal::Always } else { Renewal::WhenDue };
    let signed = repository.refresh(&refs(&online), renewal, &Lifetimes::default(), clock::now())?;
    let mut facts = Facts::new();
    for name in &signed {
        facts.add("signed", format!("metadata/{name}"));
    }
    if signed.is_empty() {
        facts.add("nothing to do", "snapshot and timestamp are far from their expiry (--force renews them now)");
    }
    context.output.result(facts, json!({"signed": signed}));
    Ok(if signed.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

fn withdraw(context: &Context, arguments: &WithdrawArguments) -> Result<Ended, Report> {
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    let status = repository.status()?;
    let known: Vec<ReleaseId> =
        status.releases.iter().map(|one| &one.id).chain(status.withdrawn.iter().map(|one| &one.0)).cloned().collect();
    let mut ids: Vec<ReleaseId> = Vec::new();
    for which in &arguments.releases {
        let found: Vec<ReleaseId> = known.iter().filter(|id| which.means(id)).cloned().collect();
        if found.is_empty() {
            let message = format!("cannot withdraw {which}: {} has no such release", arguments.directory.display());
            let hint = format!("`sidle repo status {}` lists its releases", arguments.directory.display());
            return Err(Report::of(Class::Failed, message).hint(hint));
        }
        ids.extend(found);
    }
    let came: Vec<&ReleaseId> = ids.iter().filter(|id| !repository.is_withdrawn(id)).collect();
    let came: Vec<String> = came.into_iter().map(ToString::to_string).collect();
    let withdrawal = if arguments.delete { Withdrawal::DeleteFiles } else { Withdrawal::KeepFiles };
    let deleted = repository.withdraw(&ids, arguments.reason.as_deref(), withdrawal, clock::now())?;
    let deleted: Vec<String> = deleted.iter().map(ToString::to_string).collect();
    let mut facts = Facts::new();
    for id in &came {
        facts.add("withdrawn", id);
    }
    for id in &deleted {
        facts.add("deleted", format!("targets/{id}"));
    }
    if arguments.delete && deleted.len() < ids.len() {
        facts.add("kept", "the files of releases that are still published: publish, then withdraw with --delete again");
    }
    if came.is_empty() && deleted.is_empty() {
        facts.add("nothing to do", "the named releases are withdrawn already");
    } else {
        facts.add(
            "next",
            format!("sidle repo publish {} …: hosts see the withdrawal from then on", arguments.directory.display()),
        );
    }
    context.output.result(facts, json!({"withdrawn": came, "deleted": deleted}));
    Ok(if came.is_empty() && deleted.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

/// Signers as the repository takes them.
fn refs(signers: &[Box<dyn Signer>]) -> Vec<&dyn Signer> {
    signers.iter().map(AsRef::as_ref).collect()
}

/// What was published, for people.
pub fn publication_facts(publication: &Publication) -> Facts {
    let mut facts = Facts::new();
    for id in &publication.added {
        facts.add("published", id);
    }
    for id in &publication.withdrawn {
        facts.add("withdrawn", id);
    }
    for name in &publication.signed {
        facts.add("signed", format!("metadata/{name}"));
    }
    people::tell_discarded(&mut facts, &publication.discarded);
    people::tell_waiting(&mut facts, &publication.waiting);
    facts
}

fn publication_value(publication: &Publication) -> Value {
    let added: Vec<String> = publication.added.iter().map(ToString::to_string).collect();
    let withdrawn: Vec<String> = publication.withdrawn.iter().map(ToString::to_string).collect();
    let waiting = people::waiting_value(&publication.waiting);
    json!({"published": added, "withdrawn": withdrawn, "signed": publication.signed, "waiting": waiting})
}
