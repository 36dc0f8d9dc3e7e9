//! `sidle repo rotate`, `delegate`, `undelegate`: who may sign.

use super::people::{discarded_value, tell_discarded, tell_waiting, waiting_value};
use crate::cli::author::key::KeyOpener;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended, usage};
use crate::failure::Report;
use crate::os::clock;
use crate::repository::{Delegation, Discarded, Repository, RoleName, RotatedRole, Rotation};
use crate::signer::KeySource;
use crate::trust::KeyId;
use crate::trust::publish::{Lifetimes, RoleKeys};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// A keyid as sidle writes it has so many digits.
const KEYID_DIGITS: usize = 64;

/// `sidle repo rotate DIR ROLE [--add KEY]… [--remove KEYID|KEY]… [--threshold N]`
#[derive(Debug, Args)]
pub struct RotateArguments {
    /// The repository's directory
    directory: PathBuf,
    /// root, targets, online (snapshot and timestamp), snapshot, timestamp, or a delegated role. `root` without any change renews the root
    role: RotatedRole,
    /// A key that may sign from then on
    #[arg(long, value_name = "KEY")]
    add: Vec<KeySource>,
    /// A key that may no longer sign
    #[arg(long, value_name = "KEYID|KEY")]
    remove: Vec<String>,
    /// How many signatures are needed from then on
    #[arg(long, value_name = "N")]
    threshold: Option<u64>,
    /// A key to sign the change with at once, as `sidle repo sign` does
    #[arg(long, value_name = "KEY")]
    key: Vec<KeySource>,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo delegate DIR NAME --path PATTERN… --key KEY…`
#[derive(Debug, Args)]
pub struct DelegateArguments {
    /// The repository's directory
    directory: PathBuf,
    /// The role's name: a-z, 0-9, '.', '_', '-'
    name: RoleName,
    /// What the role may sign: PACKAGE/RELEASE/PLATFORM/FILE, with wildcards: 'salt-minion/*/*/*'
    #[arg(long, required = true, value_name = "PATTERN")]
    path: Vec<String>,
    /// A key that signs for the role; the public key suffices
    #[arg(long, required = true, value_name = "KEY")]
    key: Vec<KeySource>,
    /// How many of the keys have to sign
    #[arg(long, value_name = "N", default_value_t = 1)]
    threshold: u64,
    /// For the releases that this role may sign, hosts ask no later role
    #[arg(long)]
    terminating: bool,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo undelegate DIR NAME`
#[derive(Debug, Args)]
pub struct UndelegateArguments {
    /// The repository's directory
    directory: PathBuf,
    /// The role's name
    name: RoleName,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo rotate`
pub fn rotate(context: &Context, arguments: &RotateArguments) -> Result<Ended, Report> {
    let RotateArguments { directory, role, add, remove, threshold, key, opener, .. } = arguments;
    let is_renewal = add.is_empty() && remove.is_empty() && threshold.is_none();
    if is_renewal && *role != "root".parse().expect("root is a role") {
        let hint = "say --add KEY, --remove KEYID, --threshold N; only `rotate DIR root` without any renews the root";
        return Err(usage("cannot rotate nothing", hint));
    }
    let remove = remove.iter().map(|text| keyid(text, opener)).collect::<Result<_, _>>()?;
    let rotation = Rotation { role: role.clone(), add: opener.public(add)?, remove, threshold: *threshold };
    let signers = opener.signers(key)?;
    let mut repository = Repository::open_for(directory, context.effect)?;
    let discarded = repository.rotate(&rotation, &Lifetimes::default(), clock::now())?;
    for signer in super::refs(&signers) {
        repository.sign(signer)?;
    }
    tell(context, &repository, directory, &discarded)
}

/// `sidle repo delegate`
pub fn delegate(context: &Context, arguments: &DelegateArguments) -> Result<Ended, Report> {
    let DelegateArguments { directory, name, path, key, threshold, terminating, opener, .. } = arguments;
    let keys = RoleKeys { keys: opener.public(key)?, threshold: *threshold };
    let delegation = Delegation { name: name.clone(), paths: path.clone(), keys, terminating: *terminating };
    let mut repository = Repository::open_for(directory, context.effect)?;
    repository.delegate(delegation)?;
    let discarded = repository.stage(&Lifetimes::default(), clock::now())?;
    tell(context, &repository, directory, &discarded)
}

/// `sidle repo undelegate`
pub fn undelegate(context: &Context, arguments: &UndelegateArguments) -> Result<Ended, Report> {
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    repository.undelegate(&arguments.name)?;
    let discarded = repository.stage(&Lifetimes::default(), clock::now())?;
    tell(context, &repository, &arguments.directory, &discarded)
}

fn tell(
    context: &Context,
    repository: &Repository,
    directory: &Path,
    discarded: &[Discarded],
) -> Result<Ended, Report> {
    let waiting = repository.waiting()?;
    let mut facts = Facts::new();
    tell_discarded(&mut facts, discarded);
    tell_waiting(&mut facts, &waiting);
    facts.add("next", format!("each of them: sidle repo sign {} --key KEY", directory.display()));
    facts.add("then", format!("sidle repo publish {} --online-key KEY", directory.display()));
    let value = json!({"waiting": waiting_value(&waiting), "discarded": discarded_value(discarded)});
    context.output.result(facts, value);
    Ok(Ended::Well)
}

/// A keyid as it stands in metadata, or that of a key.
fn keyid(text: &str, opener: &KeyOpener) -> Result<KeyId, Report> {
    if text.len() == KEYID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(KeyId::new(text).expect("it is neither empty nor too long"));
    }
    let Ok(source) = text.parse::<KeySource>();
    let keys = opener.public(&[source])?;
    Ok(keys.first().expect("one key was opened").keyid())
}
