//! `sidle generalize`: makes an image of this host fit to be cloned.

use super::facts::Facts;
use super::{Context, Ended, agents};
use crate::failure::{Class, Report};
use crate::generalize::{IdentityFiles, generalize as remove_state};
use crate::store::collect::Effect;
use clap::Args;
use serde_json::json;

/// `sidle generalize`
#[derive(Debug, Args)]
pub struct GeneralizeArguments {
    /// Keep the agent's own files: its keys, its id, its caches
    #[arg(long)]
    keep_identity: bool,
    /// Show what would be removed; remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// Removes what must not be cloned, and lists it.
pub fn generalize(context: &Context, arguments: &GeneralizeArguments) -> Result<Ended, Report> {
    let identity = if arguments.keep_identity { IdentityFiles::Keep } else { IdentityFiles::Remove };
    let (word, effect) = if arguments.dry_run { ("would remove", Effect::DryRun) } else { ("removed", Effect::Apply) };
    let removed = remove_state(&context.layout, agents::parts, identity, effect)?;
    let mut facts = Facts::new();
    for path in &removed {
        facts.add(word, path.display());
    }
    if removed.is_empty() {
        facts.add("nothing to do", "nothing on this host is its own");
    }
    let paths: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
    context.output.result(facts, json!({"dry_run": arguments.dry_run, "removed": paths}));
    Ok(if removed.is_empty() { Ended::As(Class::NothingToDo) } else { Ended::Well })
}
