//! `sidle repo stage` and `sign`: people who sign one after another, at one place or at several.

use crate::cli::author::key::KeyOpener;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::repository::{Discarded, Repository, Waiting};
use crate::signer::KeySource;
use crate::trust::PublicKey;
use crate::trust::publish::Lifetimes;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// `sidle repo stage DIR`
#[derive(Debug, Args)]
pub struct StageArguments {
    /// The repository's directory
    directory: PathBuf,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo sign DIR [--key KEY]…`
#[derive(Debug, Args)]
pub struct SignArguments {
    /// The repository's directory, or a copy of its directories author/ and metadata/; from a copy, carry the new files in author/pending/ back to the repository
    directory: PathBuf,
    /// The key to sign with; without a key, nothing is signed
    #[arg(long, value_name = "KEY")]
    key: Vec<KeySource>,
    #[command(flatten)]
    opener: KeyOpener,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle repo stage`
pub fn stage(context: &Context, arguments: &StageArguments) -> Result<Ended, Report> {
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    let discarded = repository.stage(&Lifetimes::default(), clock::now())?;
    let waiting = repository.waiting()?;
    let mut facts = Facts::new();
    tell_discarded(&mut facts, &discarded);
    tell_waiting(&mut facts, &waiting);
    let directory = arguments.directory.display();
    if waiting.is_empty() {
        facts.add("nothing to do", "everything is published, and far from its expiry");
    } else if waiting.iter().all(Waiting::is_complete) {
        facts.add("next", format!("sidle repo publish {directory} --online-key KEY"));
    } else {
        facts.add("next", format!("each of them: sidle repo sign {directory} --key KEY"));
    }
    let value = json!({"waiting": waiting_value(&waiting), "discarded": discarded_value(&discarded)});
    context.output.result(facts, value);
    Ok(if waiting.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

/// `sidle repo sign`
pub fn sign(context: &Context, arguments: &SignArguments) -> Result<Ended, Report> {
    let signers = arguments.opener.signers(&arguments.key)?;
    let mut repository = Repository::open_for(&arguments.directory, context.effect)?;
    let mut waiting = repository.waiting()?;
    let mut files = Vec::new();
    for signer in super::refs(&signers) {
        let signed = repository.sign(signer)?;
        waiting = signed.waiting;
        files.extend(signed.files);
    }
    let mut facts = Facts::new();
    tell_waiting(&mut facts, &waiting);
    for name in &files {
        facts.add("signed", name);
    }
    if waiting.is_empty() {
        facts.add("nothing to do", "nothing waits for signatures");
    } else if !signers.is_empty() && files.is_empty() {
        facts.add("nothing to do", "this key has signed all that it may");
    } else if waiting.iter().all(Waiting::is_complete) {
        facts.add("next", format!("sidle repo publish {} --online-key KEY", arguments.directory.display()));
    }
    let value = json!({"signed": files, "waiting": waiting_value(&waiting)});
    context.output.result(facts, value);
    let is_idle = waiting.is_empty() || (!signers.is_empty() && files.is_empty());
    Ok(if is_idle { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

/// What waits, for people: what each file changes, and who is missing.
pub fn tell_waiting(facts: &mut Facts, waiting: &[Waiting]) {
    for one in waiting {
        facts.add("waiting", format!("{}, expires {}", one.file, one.expires));
        for change in &one.changes {
            facts.add("  it", change);
        }
        for key in &one.signed {
            facts.add("  signed by", key.keyid());
        }
        for need in &one.needs {
            let enough = if need.valid >= need.threshold { ": enough" } else { "" };
            facts.add("  has", format!("{} of {} signatures by {}{enough}", need.valid, need.threshold, need.by));
            for key in need.missing.iter().filter(|_| need.valid < need.threshold) {
                facts.add("  may sign", key.keyid());
            }
        }
    }
}

/// What became void, for people.
pub fn tell_discarded(facts: &mut Facts, discarded: &[Discarded]) {
    for one in discarded {
        for key in &one.keys {
            facts.add("void", format!("the signature of {} on {}: the file has changed since", key.keyid(), one.file));
        }
    }
}

/// What waits, for programs.
pub fn waiting_value(waiting: &[Waiting]) -> Value {
    let one = |one: &Waiting| {
        let needs: Vec<Value> = one
            .needs
            .iter()
            .map(|need| {
                let missing = keyids(&need.missing);
                json!({"by": need.by, "threshold": need.threshold, "valid": need.valid, "missing": missing})
            })
            .collect();
        let changes: Vec<String> = one.changes.iter().map(ToString::to_string).collect();
        json!({
            "role": one.role.to_string(), "file": one.file, "expires": one.expires, "changes": changes,
            "signed": keyids(&one.signed), "needs": needs, "complete": one.is_complete(),
        })
    };
    waiting.iter().map(one).collect()
}

/// What became void, for programs.
pub fn discarded_value(discarded: &[Discarded]) -> Value {
    discarded.iter().map(|one| json!({"file": one.file, "keys": keyids(&one.keys)})).collect()
}

fn keyids(keys: &[PublicKey]) -> Vec<String> {
    keys.iter().map(|key| key.keyid().to_string()).collect()
}
