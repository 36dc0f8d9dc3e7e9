//! `sidle pack --suggest-extras OLD NEW`: the lines of a recipe that bring back what a release has lost: all of it, or what a fleet uses.

use super::PackArguments;
use super::layer::normalised;
use crate::bundle::contents::{Extra, Offers};
use crate::bundle::manifest::Manifest;
use crate::cli::author::manifests;
use crate::cli::facts::{Facts, count};
use crate::cli::{Context, Ended, agents, input, usage};
use crate::failure::{Class, Report};
use crate::rehearsal::Rehearser;
use crate::rehearsal::lost::{Lost, Successors};
use crate::rehearsal::uses::is_use_of;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Longest file of uses read: a fleet's, with 20,000 functions, has some megabytes.
const USES_BYTES_MAX: u64 = 16 << 20;
const SCHEMA: u32 = 1;

/// The uses of a host (`sidle uses --json`) or of a fleet (`salt-run sidle.uses format=data`).
#[derive(Debug, Deserialize)]
struct Gathered {
    schema: u32,
    uses: Vec<Used>,
}

#[derive(Debug, Deserialize)]
struct Used {
    kind: String,
    name: String,
}

/// The extras and modules to name in a recipe and to `pack`, for what is lost.
#[derive(Debug, Default, PartialEq, Eq)]
struct Suggestion {
    /// Packages for the recipe, which names all that a release is to have: also those that the newer release has already. Empty: nothing is added.
    extras: BTreeSet<String>,
    /// `KIND.NAME`, for `--keep-modules`.
    keep: BTreeSet<String>,
    /// Functions of modules that are there: nothing brings them back but a change of what calls them.
    partly: BTreeSet<String>,
    /// Modules without a successor whose files the older release does not list.
    nowhere: BTreeSet<String>,
}

/// Shows the lines.
pub(super) fn suggest(
    context: &Context,
    arguments: &PackArguments,
    paths: &[std::path::PathBuf],
) -> Result<Ended, Report> {
    let [old, new] = paths else {
        return Err(usage("cannot compare: name two releases", "sidle pack --suggest-extras OLD.sidle NEW.sidle"));
    };
    let (former, trial) = (only(context, old)?, only(context, new)?);
    let rehearser = agents::parts(&trial.agent)?.rehearser;
    let lost = rehearser.and_then(|rehearser| rehearser.lost(&trial.offers, &former.offers)).ok_or_else(|| {
        let message = format!(
            "cannot compare {} with {}: a manifest does not list what its loader offers",
            old.display(),
            new.display()
        );
        Report::of(Class::Failed, message).hint("pack both releases with this sidle, as new revisions")
    })?;
    let uses = arguments.uses.as_deref().map(gathered).transpose()?;
    let is_used =
        |lost: &&Lost| uses.as_ref().is_none_or(|uses| uses.iter().any(|each| is_use_of(lost, &each.kind, &each.name)));
    let wanted: Vec<&Lost> = lost.iter().filter(is_used).collect();
    let successors = rehearser.and_then(Rehearser::successors);
    let mut found = Suggestion::of(&wanted, (&former.offers, &trial.offers), successors);
    found.keep_own(&trial.extras);
    let value = json!({"suggested": {
        "from": former.release(), "to": trial.release(), "lost": lost.len(), "wanted": wanted.len(), "extras": found.extras, "keep_modules": found.keep,
        "partly": found.partly, "nowhere": found.nowhere, "successors_as_of": successors.map(|successors| successors.as_of),
    }});
    context.output.result(found.facts(&lost, wanted.len(), uses.is_some(), old), value);
    Ok(Ended::Well)
}

/// The one release of a bundle or manifest.
fn only(context: &Context, path: &Path) -> Result<Manifest, Report> {
    let mut found = manifests(context, path)?;
    match (found.pop(), found.is_empty()) {
        (Some(manifest), true) => Ok(manifest),
        _ => Err(usage(
            format!("cannot tell which release of {} is meant: it does not hold exactly one", path.display()),
            "name a bundle file or a packed manifest.json.zst with one release; `sidle export` writes one",
        )),
    }
}

fn gathered(path: &Path) -> Result<Vec<Used>, Report> {
    let bytes = input::read(path, USES_BYTES_MAX, "the uses of a host or a fleet, as JSON")?;
    let cannot = |why: String| {
        usage(
            format!("cannot read the uses in {}: {why}", path.display()),
            "`salt-run sidle.uses format=data file=uses.json` and `sidle --json uses PACKAGE` write them",
        )
    };
    let found: Gathered = serde_json::from_slice(&bytes).map_err(|error| cannot(error.to_string()))?;
    if found.schema == SCHEMA { Ok(found.uses) } else { Err(cannot(format!("they have schema {}", found.schema))) }
}

impl Suggestion {
    fn of(wanted: &[&Lost], (former, trial): (&Offers, &Offers), successors: Option<Successors>) -> Self {
        let mut found = Self::default();
        for lost in wanted {
            let successor = successors.and_then(|successors| (successors.find)(&lost.kind, &lost.module));
            if let Some(package) = successor {
                found.extras.insert(package.to_owned());
            } else if !lost.whole {
                let functions =
                    lost.functions.iter().map(|function| format!("{} {}.{function}", lost.kind, lost.module));
                found.partly.extend(functions);
            } else {
                let files = files(former, trial, lost);
                if files.is_empty() {
                    found.nowhere.insert(format!("{} {}", lost.kind, lost.module));
                }
                found.keep.extend(files.into_iter().map(|file| format!("{}.{file}", lost.kind)));
            }
        }
        found
    }

    /// Adds the extras that the newer release has by its recipe: a pack with `--base` takes off what the recipe does not name.
    fn keep_own(&mut self, own: &[Extra]) {
        if self.extras.is_empty() {
            return;
        }
        let name = |pin: &String| normalised(pin.split("==").next().unwrap_or_default());
        let suggested: BTreeSet<String> = self.extras.iter().map(name).collect();
        let own = own.iter().filter(|extra| extra.requested && !suggested.contains(&extra.name));
        self.extras.extend(own.map(|extra| format!("{}=={}", extra.name, extra.version)));
    }

    fn facts(&self, lost: &[Lost], wanted: usize, by_use: bool, old: &Path) -> Facts {
        let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(",");
        let weighed =
            if by_use { format!("{wanted} of them used") } else { "without --uses all of them count".to_owned() };
        let mut facts = Facts::new().with("lost", format!("{}: {weighed}", count(lost.len(), "module")));
        if !self.extras.is_empty() {
            let quoted: Vec<String> = self.extras.iter().map(|package| format!("\"{package}\"")).collect();
            facts.add("recipe", "[build]");
            facts.add("recipe", format!("extras = [{}]", quoted.join(", ")));
        }
        if !self.keep.is_empty() {
            facts.add("pack", format!("--keep-modules {} --from {}", listed(&self.keep), old.display()));
        }
        for (name, names) in [("partly lost", &self.partly), ("not found", &self.nowhere)] {
            if !names.is_empty() {
                facts.add(name, listed(names));
            }
        }
        if !self.extras.is_empty() {
            facts.add("next", "sidle pack RECIPE --version VERSION --lock, look at the lock, and pack a new revision");
        }
        facts
    }
}

/// The files of a module in the older release that the newer one lacks: `--keep-modules` goes by them.
fn files<'a>(former: &'a Offers, trial: &Offers, lost: &Lost) -> Vec<&'a String> {
    let Some(offer) = former.0.get(&lost.kind) else { return Vec::new() };
    let there = trial.0.get(&lost.kind);
    let is_it = |file: &&String| match offer.names.get(*file) {
        Some(names) => names.contains(&lost.module),
        None => **file == lost.module,
    };
    let is_gone = |file: &&String| !there.is_some_and(|there| there.modules.contains_key(*file));
    offer.modules.keys().filter(is_it).filter(is_gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::contents::Contents;

    fn offers(text: &str) -> Offers {
        let text = format!(r#"{{"schema":1,"extras":[],"kept":[],"sbom":null,"offers":{text}}}"#);
        Contents::parse(text.as_bytes()).unwrap().offers
    }

    fn lost(kind: &str, module: &str, whole: bool) -> Lost {
        Lost { kind: kind.to_owned(), module: module.to_owned(), functions: vec!["go".to_owned()], whole }
    }

    /// Packed with these lines, the release lost the extras that it had.
    #[test]
    fn what_a_release_has_by_its_recipe_stays_in_the_line() {
        let extra = |name: &str, version: &str, requested| Extra {
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: crate::digest::Digest::of(b""),
            licence: String::new(),
            requested,
            provides: std::collections::BTreeMap::new(),
        };
        let own =
            [extra("saltext-zabbix", "1.0.0", true), extra("saltext-vault", "1.7.0", true), extra("six", "1", false)];
        let mut found =
            Suggestion { extras: BTreeSet::from(["saltext.vault==1.8.0".to_owned()]), ..Suggestion::default() };
        found.keep_own(&own);
        assert_eq!(found.extras.iter().collect::<Vec<_>>(), ["saltext-zabbix==1.0.0", "saltext.vault==1.8.0"]);
        let mut nothing = Suggestion::default();
        nothing.keep_own(&own);
        assert!(nothing.extras.is_empty(), "there is no line to print");
    }

    #[test]
    fn what_is_lost_becomes_an_extra_a_kept_file_or_is_named() {
        let former = offers(
            r#"{"module":{"modules":{"vault":["go"],"redismod":["go"],"nginx":["go"],"yumpkg":["go"]},"names":{"redismod":["redis"],"yumpkg":["pkg"]}}}"#,
        );
        let trial = offers(r#"{"module":{"modules":{"yumpkg":["stay"]},"names":{"yumpkg":["pkg"]}}}"#);
        let find = |_: &str, module: &str| (module == "vault").then_some("saltext-vault==1.8.0");
        let all = [
            lost("module", "vault", true),
            lost("module", "redis", true),
            lost("module", "pkg", false),
            lost("sdb", "etcd", true),
        ];
        let wanted: Vec<&Lost> = all.iter().collect();
        let found = Suggestion::of(&wanted, (&former, &trial), Some(Successors { as_of: "2026-11-26", find }));
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(
            found,
            Suggestion {
                extras: set(&["saltext-vault==1.8.0"]),
                keep: set(&["module.redismod"]),
                partly: set(&["module pkg.go"]),
                nowhere: set(&["sdb etcd"]),
            }
        );
    }
}
