//! `sidle repo`: a directory of signed releases.

use super::key::SigningArguments;
use crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES;
use crate::bundle::pack::PAYLOAD_NAME;
use crate::cli::facts::Facts;
use crate::cli::pack::MANIFEST_NAME;
use crate::cli::{Context, Ended, input, usage};
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::repository::{Added, Publication, Repository};
use crate::trust::minisign;
use crate::trust::publish::Lifetimes;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// `sidle repo`
#[derive(Debug, Subcommand)]
pub enum RepoVerb {
    /// Makes a repository and its first root: what hosts pin
    Init(InitArguments),
    /// Takes a packed release in; `publish` signs it
    Add(AddArguments),
    /// Signs what was added, and renews what is halfway to its expiry
    Publish(PublishArguments),
}

/// `sidle repo init DIR --key FILE`
#[derive(Debug, Args)]
pub struct InitArguments {
    /// The repository's directory; made if it is missing
    directory: PathBuf,
    #[command(flatten)]
    keys: SigningArguments,
}

/// `sidle repo add DIR PACKED`
#[derive(Debug, Args)]
pub struct AddArguments {
    /// The repository's directory
    directory: PathBuf,
    /// A directory that `sidle pack` filled, or a manifest and its payload
    #[arg(required = true, num_args = 1..=2, value_names = ["PACKED_DIR|MANIFEST", "PAYLOAD"])]
    packed: Vec<PathBuf>,
    /// Write the payload's frames as files of their own, too: for caches that don't keep ranges
    #[arg(long)]
    frame_files: bool,
}

/// `sidle repo publish DIR --key FILE`
#[derive(Debug, Args)]
pub struct PublishArguments {
    /// The repository's directory
    directory: PathBuf,
    #[command(flatten)]
    keys: SigningArguments,
}

/// `sidle repo …`
pub fn repo(context: &Context, verb: &RepoVerb) -> Result<Ended, Report> {
    match verb {
        RepoVerb::Init(arguments) => init(context, arguments),
        RepoVerb::Add(arguments) => add(context, arguments),
        RepoVerb::Publish(arguments) => publish(context, arguments),
    }
}

fn init(context: &Context, arguments: &InitArguments) -> Result<Ended, Report> {
    let keys = arguments.keys.open()?;
    let publish = keys.publish();
    let (targets, online) = (publish.targets.public(), publish.online.public());
    let directory = &arguments.directory;
    let (_, fingerprint) =
        Repository::init(directory, &keys.root, targets, online, &Lifetimes::default(), clock::now())?;
    let root = directory.join("metadata/1.root.json");
    let facts = Facts::new()
        .with("repository", directory.display())
        .with("root", root.display())
        .with("fingerprint", fingerprint)
        .with("minisign", minisign::public_key_line(&targets))
        .with("on each host", format!("sidle trust pin {} --fingerprint {fingerprint}", root.display()))
        .with("next", format!("sidle pack RECIPE --version VERSION --repo {} --key FILE", directory.display()));
    let minisign = minisign::public_key_line(&targets);
    let value = json!({"repository": directory, "root": root, "fingerprint": fingerprint, "minisign": minisign});
    context.output.result(&facts.to_string(), value);
    Ok(Ended::Well)
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
    let mut repository = Repository::open(&arguments.directory)?;
    let added = add_files(&mut repository, &manifest, &payload)?;
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
    context
        .output
        .result(&facts.to_string(), json!({"release": id.to_string(), "added": matches!(added, Added::Staged(_))}));
    Ok(ended)
}

/// Takes the two files of a packed release into a repository.
pub fn add_files(repository: &mut Repository, manifest: &Path, payload: &Path) -> Result<Added, Report> {
    const EXPECTED: &str = "a directory that `sidle pack` filled, or a manifest and its payload";
    let manifest = input::read(manifest, MANIFEST_COMPRESSED_MAXIMUM_BYTES, EXPECTED)?;
    let mut payload = input::open(payload, EXPECTED)?;
    Ok(repository.add(&manifest, &mut payload)?)
}

fn publish(context: &Context, arguments: &PublishArguments) -> Result<Ended, Report> {
    let keys = arguments.keys.open()?;
    let mut repository = Repository::open(&arguments.directory)?;
    let publication = repository.publish(keys.publish(), &Lifetimes::default(), clock::now())?;
    let mut facts = publication_facts(&publication);
    if publication.signed.is_empty() {
        facts.add("nothing to do", "everything is published, and far from its expiry");
    } else if let Some(id) = publication.added.first() {
        let directory = arguments.directory.display();
        facts.add("next", format!("sidle export {directory} {}@{} -o {}.sidle", id.package, id.release, id.package));
    }
    context.output.result(&facts.to_string(), publication_value(&publication));
    Ok(if publication.signed.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

/// What was published, for people.
pub fn publication_facts(publication: &Publication) -> Facts {
    let mut facts = Facts::new();
    for id in &publication.added {
        facts.add("published", id);
    }
    for name in &publication.signed {
        facts.add("signed", format!("metadata/{name}"));
    }
    facts
}

fn publication_value(publication: &Publication) -> Value {
    let added: Vec<String> = publication.added.iter().map(ToString::to_string).collect();
    json!({"published": added, "signed": publication.signed})
}
