//! `sidle repo init`: a repository and its first root.

use crate::cli::author::key::KeyOpener;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended, usage};
use crate::failure::Report;
use crate::os::clock;
use crate::repository::Repository;
use crate::signer::{KeySource, OpenedKey};
use crate::trust::publish::{Lifetimes, RoleKeys};
use crate::trust::{Role, Signer, minisign};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `sidle repo init DIR --key KEY`
#[derive(Debug, Args)]
pub struct InitArguments {
    /// The repository's directory; made if it is missing
    directory: PathBuf,
    /// The key of each role for which no other option names a key
    #[arg(long, value_name = "KEY")]
    key: Option<KeySource>,
    /// A key of the root role; the public key suffices, if its owner signs later
    #[arg(long, value_name = "KEY")]
    root_key: Vec<KeySource>,
    /// How many of the root keys have to sign
    #[arg(long, value_name = "N", default_value_t = 1)]
    root_threshold: u64,
    /// A key of the targets role, which signs the list of releases
    #[arg(long, value_name = "KEY")]
    targets_key: Vec<KeySource>,
    /// How many of the targets keys have to sign
    #[arg(long, value_name = "N", default_value_t = 1)]
    targets_threshold: u64,
    /// A key of the snapshot and timestamp roles; of several keys, one suffices to sign
    #[arg(long, value_name = "KEY")]
    online_key: Vec<KeySource>,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo init`
pub fn init(context: &Context, arguments: &InitArguments) -> Result<Ended, Report> {
    let InitArguments { directory, key, opener, .. } = arguments;
    let open = |keys: &[KeySource], role: &str| -> Result<Vec<OpenedKey>, Report> {
        let all = if keys.is_empty() { key.as_slice() } else { keys };
        if all.is_empty() {
            let hint = format!(
                "name it with --{role}-key KEY, or one key for everything with --key KEY; `sidle key new FILE` makes one"
            );
            return Err(usage(format!("cannot make a repository without a key for {role}"), hint));
        }
        opener.open(all)
    };
    let root_keys = open(&arguments.root_key, "root")?;
    let targets_keys = open(&arguments.targets_key, "targets")?;
    let online_keys = open(&arguments.online_key, "online")?;
    let rule =
        |keys: &[OpenedKey], threshold| RoleKeys { keys: keys.iter().map(OpenedKey::public).collect(), threshold };
    let roles = BTreeMap::from([
        (Role::Root, rule(&root_keys, arguments.root_threshold)),
        (Role::Targets, rule(&targets_keys, arguments.targets_threshold)),
        (Role::Snapshot, rule(&online_keys, 1)),
        (Role::Timestamp, rule(&online_keys, 1)),
    ]);
    let signers: Vec<&dyn Signer> = root_keys.iter().filter_map(OpenedKey::signer).collect();
    let (repository, fingerprint) =
        Repository::init(directory, &roles, &signers, (&Lifetimes::default(), clock::now()), context.effect)?;
    let minisign: Vec<String> = targets_keys.iter().map(|key| minisign::public_key_line(&key.public())).collect();
    let mut facts = Facts::new().with("repository", directory.display());
    let root = directory.join("metadata/1.root.json");
    if let Some(fingerprint) = fingerprint {
        facts.add("root", root.display());
        facts.add("fingerprint", fingerprint);
        for line in &minisign {
            facts.add("minisign", line);
        }
        facts.add("on each host", format!("sidle trust pin {} --fingerprint {fingerprint}", root.display()));
        facts.add("next", format!("sidle pack RECIPE --version VERSION --repo {} --key FILE", directory.display()));
    } else {
        super::people::tell_waiting(&mut facts, &repository.waiting()?);
        facts.add("next", format!("each of them: sidle repo sign {} --key KEY", directory.display()));
        facts.add("then", format!("sidle repo publish {} --online-key KEY", directory.display()));
    }
    let waiting = super::people::waiting_value(&repository.waiting()?);
    let value = json!({
        "repository": directory, "root": root, "fingerprint": fingerprint, "minisign": minisign.first(),
        "minisign_keys": minisign, "waiting": waiting,
    });
    context.output.result(facts, value);
    Ok(Ended::Well)
}
