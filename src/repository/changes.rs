//! The changes in a file that waits for signatures, in words for the person who signs.

use crate::trust::delegation::{Delegated, DelegatedRole, Scope};
use crate::trust::metadata::{Root, Signed, Targets};
use crate::trust::scheme::{Key, KeyRule};
use crate::trust::{KeyId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A change. Keys are named by their keyids.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A release is added.
    Lists(String),
    /// A release is removed.
    Withdraws(String),
    /// A target of a known release has other bytes.
    Replaces(String),
    /// A key is added to a role.
    KeyIn { role: String, keyid: KeyId },
    /// A key is removed from a role.
    KeyOut { role: String, keyid: KeyId },
    /// A role needs this many signatures of this many keys.
    Threshold { role: String, threshold: u64, keys: usize },
    /// A role may sign these targets; `terminating`: the search for them ends with it.
    Delegates { role: String, paths: String, terminating: bool },
    /// A role may no longer sign.
    Undelegates(String),
    /// The first file of a role, without releases.
    Empty,
    /// Only dates and the version.
    Renews,
    /// A change without words here, such as the order of delegations.
    Other,
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lists(release) => write!(out, "lists {release}"),
            Self::Withdraws(release) => write!(out, "withdraws {release}"),
            Self::Replaces(target) => write!(out, "replaces {target}"),
            Self::KeyIn { role, keyid } => write!(out, "key {keyid} may sign {role}"),
            Self::KeyOut { role, keyid } => write!(out, "key {keyid} may no longer sign {role}"),
            Self::Threshold { role, threshold, keys } => {
                write!(out, "{role} needs {threshold} of {keys} keys")
            }
            Self::Delegates { role, paths, terminating } => {
                let last = if *terminating { ", terminating" } else { "" };
                write!(out, "role {role} may sign {paths}{last}")
            }
            Self::Undelegates(role) => write!(out, "role {role} may no longer sign"),
            Self::Empty => out.write_str("lists nothing yet"),
            Self::Renews => out.write_str("renews the file, without other changes"),
            Self::Other => out.write_str("has another change: compare the files"),
        }
    }
}

/// The changes in the next root.
pub(super) fn of_root(old: Option<&Signed<Root>>, new: &Signed<Root>) -> Vec<Change> {
    let mut changes = Vec::new();
    for role in Role::ALL {
        let before = old.map(|old| (old.body.rule(role), &old.body.keys));
        changes.extend(of_rule(role.as_str(), before, (new.body.rule(role), &new.body.keys)));
    }
    or_renews(changes, old.is_some_and(|old| old.body == new.body))
}

/// The changes in the next file of a targets role.
pub(super) fn of_targets(old: Option<&Signed<Targets>>, new: &Signed<Targets>) -> Vec<Change> {
    let none = BTreeMap::new();
    let before = old.map_or(&none, |old| &old.body.targets);
    let after = &new.body.targets;
    let names = |some: &BTreeMap<String, _>| -> BTreeSet<String> { some.keys().map(|name| release(name)).collect() };
    let (had, has) = (names(before), names(after));
    let mut changes: Vec<Change> = has.difference(&had).cloned().map(Change::Lists).collect();
    changes.extend(had.difference(&has).cloned().map(Change::Withdraws));
    for (name, target) in after.iter().filter(|(name, _)| had.contains(&release(name))) {
        if before.get(name) != Some(target) {
            changes.push(Change::Replaces(name.clone()));
        }
    }
    changes.extend(of_delegations(old, new));
    if old.is_none() && changes.is_empty() {
        changes.push(Change::Empty);
    }
    or_renews(changes, old.is_none_or(|old| old.body == new.body))
}

/// "Renews" must never stand for a file with changes.
fn or_renews(changes: Vec<Change>, is_same: bool) -> Vec<Change> {
    match (changes.is_empty(), is_same) {
        (false, _) => changes,
        (true, true) => vec![Change::Renews],
        (true, false) => vec![Change::Other],
    }
}

/// A release's two targets lie in one directory.
fn release(target: &str) -> String {
    target.rsplit_once('/').map_or(target, |(release, _)| release).to_owned()
}

type KeyedRule<'a> = (&'a KeyRule, &'a BTreeMap<KeyId, Key>);

fn of_rule(role: &str, old: Option<KeyedRule<'_>>, new: KeyedRule<'_>) -> Vec<Change> {
    // The key counts, not its name: a keyid that stands for another key now is a change, too.
    let keys = |(rule, keys): KeyedRule<'_>| -> BTreeSet<(KeyId, Option<Key>)> {
        rule.keyids.iter().map(|keyid| (keyid.clone(), keys.get(keyid).cloned())).collect()
    };
    let (before, after) = (old.map(keys).unwrap_or_default(), keys(new));
    let role = role.to_owned();
    let came = after.difference(&before).map(|(keyid, _)| Change::KeyIn { role: role.clone(), keyid: keyid.clone() });
    let went = before.difference(&after).map(|(keyid, _)| Change::KeyOut { role: role.clone(), keyid: keyid.clone() });
    let mut changes: Vec<Change> = came.chain(went).collect();
    if old.is_none_or(|(rule, _)| rule.threshold != new.0.threshold) || !changes.is_empty() {
        changes.push(Change::Threshold { role, threshold: new.0.threshold, keys: after.len() });
    }
    changes
}

fn of_delegations(old: Option<&Signed<Targets>>, new: &Signed<Targets>) -> Vec<Change> {
    let named = |file: &Signed<Targets>| -> Vec<(DelegatedRole, BTreeMap<KeyId, Key>)> {
        let Some(delegations) = &file.body.delegations else { return Vec::new() };
        let Delegated::Named(roles) = &delegations.roles else { return Vec::new() };
        roles.iter().map(|role| (role.clone(), delegations.keys.clone())).collect()
    };
    let (before, after) = (old.map(named).unwrap_or_default(), named(new));
    let mut changes = Vec::new();
    for (role, keys) in &after {
        let was = before.iter().find(|(was, _)| was.name == role.name);
        if was.is_none_or(|(was, _)| was.scope != role.scope || was.terminating != role.terminating) {
            changes.push(Change::Delegates {
                role: role.name.clone(),
                paths: paths(&role.scope),
                terminating: role.terminating,
            });
        }
        changes.extend(of_rule(&role.name, was.map(|(was, keys)| (&was.rule, keys)), (&role.rule, keys)));
    }
    let is_gone = |name: &String| after.iter().all(|(role, _)| role.name != *name);
    let gone = before.into_iter().map(|(role, _)| role.name).filter(is_gone);
    changes.extend(gone.map(Change::Undelegates));
    changes
}

fn paths(scope: &Scope) -> String {
    match scope {
        Scope::Paths(patterns) => patterns.join(", "),
        Scope::HashPrefixes(prefixes) => format!("names whose hash begins with {}", prefixes.join(", ")),
    }
}
