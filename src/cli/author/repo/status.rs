//! `sidle repo status`: how a repository stands.

use super::people::{tell_waiting, waiting_value};
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended};
use crate::failure::Report;
use crate::os::clock;
use crate::repository::{Delegation, Repository, Status};
use crate::store::collect::Effect;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// `sidle repo status DIR`
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The repository's directory
    directory: PathBuf,
}

/// `sidle repo status`
pub fn status(context: &Context, arguments: &StatusArguments) -> Result<Ended, Report> {
    let status = Repository::open_for(&arguments.directory, Effect::DryRun)?.status()?;
    context.output.result(facts(&status), value(&status));
    Ok(Ended::Well)
}

fn facts(status: &Status) -> Facts {
    let now = clock::now();
    let mut facts = Facts::new();
    match &status.fingerprint {
        Some(fingerprint) => facts.add("fingerprint", fingerprint),
        None => facts.add("fingerprint", "none yet: the first root waits for signatures"),
    }
    for file in &status.published {
        let state = if file.expires <= now { "expired" } else { "expires" };
        facts.add("published", format!("{} version {}, {state} {}", file.role, file.version, file.expires));
    }
    for release in &status.releases {
        facts.add(if release.is_published { "release" } else { "staged" }, &release.id);
    }
    for (id, withdrawn, is_told) in &status.withdrawn {
        let told = if *is_told { "" } else { " (hosts see this after the next publish)" };
        let reason = withdrawn.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        facts.add("withdrawn", format!("{id}{told}{reason}"));
    }
    for Delegation { name, paths, keys, terminating } in &status.delegations {
        let last = if *terminating { ", terminating" } else { "" };
        let text = format!("{name}: {} ({} of {} keys{last})", paths.join(", "), keys.threshold, keys.keys.len());
        facts.add("delegated", text);
    }
    tell_waiting(&mut facts, &status.waiting);
    for name in &status.void {
        facts.add("void", format!("author/pending/{name}: it signs nothing that waits"));
    }
    facts
}

fn value(status: &Status) -> Value {
    let published: Vec<Value> = status
        .published
        .iter()
        .map(|file| json!({"role": file.role, "version": file.version, "expires": file.expires}))
        .collect();
    let releases: Vec<Value> = status
        .releases
        .iter()
        .map(|one| json!({"release": one.id.to_string(), "published": one.is_published}))
        .collect();
    let withdrawn: Vec<Value> = status
        .withdrawn
        .iter()
        .map(|(id, one, is_told)| json!({"release": id.to_string(), "time": one.time, "reason": one.reason, "published": is_told}))
        .collect();
    let delegations: Vec<Value> = status
        .delegations
        .iter()
        .map(|one| {
            let keys: Vec<String> = one.keys.keys.iter().map(|key| key.keyid().to_string()).collect();
            json!({
                "role": one.name.as_str(), "paths": one.paths, "keys": keys, "threshold": one.keys.threshold,
                "terminating": one.terminating,
            })
        })
        .collect();
    json!({
        "fingerprint": status.fingerprint, "metadata": published, "releases": releases, "withdrawn": withdrawn,
        "delegations": delegations, "waiting": waiting_value(&status.waiting), "void": status.void,
    })
}
