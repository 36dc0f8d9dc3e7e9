//! Delegations of a targets role (TUF §4.5, TAP 15): read, and searched for the roles that may list a target.

use crate::digest::Digest;
use crate::trust::key::KeyId;
use crate::trust::limits;
use crate::trust::pattern;
use crate::trust::reader::{Fields, Reason};
use crate::trust::role::Role;
use crate::trust::scheme::{Key, KeyRule, key_rule, keys};
use std::collections::{BTreeMap, BTreeSet};

/// A targets role's delegations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegations {
    /// The keys of its roles.
    pub keys: BTreeMap<KeyId, Key>,
    /// The roles.
    pub roles: Delegated,
}

/// The two forms of delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delegated {
    /// Named roles, in order of precedence.
    Named(Vec<DelegatedRole>),
    /// Hash bins by one rule (TAP 15).
    Succinct {
        /// The keys of every bin.
        rule: KeyRule,
        /// The number of bins as a power of two, 1 to 32.
        bit_length: u32,
        /// The prefix of the bins' names.
        name_prefix: String,
    },
}

/// One named delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedRole {
    /// The role's name.
    pub name: String,
    /// Its keys.
    pub rule: KeyRule,
    /// The targets that it may sign.
    pub scope: Scope,
    /// True when the search ends with it, found or not.
    pub terminating: bool,
}

/// The targets that a delegated role may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Names that fit one of these patterns.
    Paths(Vec<String>),
    /// Names whose SHA-256 begins with one of these.
    HashPrefixes(Vec<String>),
}

/// A role that may list a target.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heir {
    pub name: String,
    pub rule: KeyRule,
    pub terminating: bool,
}

impl Delegations {
    /// The roles that may list a target, in order of precedence, up to the first terminating one.
    pub fn heirs(&self, target: &str) -> Vec<Heir> {
        let digest = Digest::of(target.as_bytes());
        match &self.roles {
            Delegated::Named(roles) => {
                let mut heirs = Vec::new();
                for role in roles.iter().filter(|role| role.scope.covers(target, &digest)) {
                    let DelegatedRole { name, rule, terminating, .. } = role.clone();
                    heirs.push(Heir { name, rule, terminating });
                    if terminating {
                        break;
                    }
                }
                heirs
            }
            Delegated::Succinct { rule, bit_length, name_prefix } => {
                let first = digest.as_bytes().first_chunk().expect("a digest has more than 4 bytes");
                let bin = u32::from_be_bytes(*first) >> (u32::BITS - bit_length);
                // A target is in one bin, so the search ends there.
                vec![Heir { name: bin_name(name_prefix, bin, *bit_length), rule: rule.clone(), terminating: true }]
            }
        }
    }

    /// Every role that may list a name below the top-level directory `directory` (empty: any name), in order of precedence. None: more than
    /// `most` bins.
    pub fn heirs_below(&self, directory: &str, most: usize) -> Option<Vec<Heir>> {
        match &self.roles {
            Delegated::Named(roles) => {
                let reached = roles.iter().filter(|role| role.scope.may_cover_below(directory));
                // A role that ends the search for some names doesn't end it for all.
                let heirs = reached.map(|DelegatedRole { name, rule, terminating, .. }| Heir {
                    name: name.clone(),
                    rule: rule.clone(),
                    terminating: *terminating,
                });
                Some(heirs.collect())
            }
            Delegated::Succinct { rule, bit_length, name_prefix } => {
                let count = 1_u64.checked_shl(*bit_length).filter(|count| *count <= most as u64)?;
                let bins = u32::try_from(count).ok()?;
                let heir =
                    |bin| Heir { name: bin_name(name_prefix, bin, *bit_length), rule: rule.clone(), terminating: true };
                Some((0..bins).map(heir).collect())
            }
        }
    }
}

/// The name of a hash bin, padded to the digits of the last bin (TAP 15).
fn bin_name(prefix: &str, bin: u32, bit_length: u32) -> String {
    let width = usize::try_from(bit_length.div_ceil(4)).expect("at most 8");
    format!("{prefix}-{bin:0width$x}")
}

impl Scope {
    fn may_cover_below(&self, directory: &str) -> bool {
        match self {
            Self::Paths(_) if directory.is_empty() => true,
            Self::Paths(patterns) => patterns.iter().any(|pattern| pattern::may_fit_below(pattern, directory)),
            // Any name may have any digest.
            Self::HashPrefixes(prefixes) => !prefixes.is_empty(),
        }
    }

    fn covers(&self, target: &str, digest: &Digest) -> bool {
        match self {
            Self::Paths(patterns) => patterns.iter().any(|pattern| pattern::fits(pattern, target)),
            Self::HashPrefixes(prefixes) => {
                let digest = digest.to_string();
                prefixes.iter().any(|prefix| digest.starts_with(prefix))
            }
        }
    }
}

/// Reads the `delegations` of a targets role.
pub(in crate::trust) fn delegations(parent: &Fields<'_>) -> Result<Delegations, Reason> {
    let fields = Fields::of(parent.get("delegations")?, "delegations")?;
    let roles = match (fields.optional("roles"), fields.optional("succinct_roles")) {
        (Some(_), None) => Delegated::Named(named_roles(&fields)?),
        (None, Some(value)) => succinct_roles(&Fields::of(value, "succinct_roles")?)?,
        _ => return Err(Reason("delegations must have either roles or succinct_roles".to_owned())),
    };
    Ok(Delegations { keys: keys(&fields)?, roles })
}

fn named_roles(fields: &Fields<'_>) -> Result<Vec<DelegatedRole>, Reason> {
    let mut names = BTreeSet::new();
    fields
        .array("roles", limits::DELEGATED_ROLES_MAXIMUM)?
        .iter()
        .map(|item| {
            let role = Fields::of(item, "a delegated role")?;
            let name = role_name(&role, "name")?;
            // A delegated `root` or `snapshot` would share a file name with the top-level one.
            if Role::ALL.iter().any(|top| top.as_str() == name) {
                return Err(Reason(format!("a delegated role is named {name:?}")));
            }
            if !names.insert(name.clone()) {
                return Err(Reason(format!("two delegated roles are named {name:?}")));
            }
            let scope = match (role.optional("paths"), role.optional("path_hash_prefixes")) {
                (Some(_), None) => Scope::Paths(role.texts("paths", limits::TARGETS_MAXIMUM)?),
                (None, Some(_)) => Scope::HashPrefixes(role.texts("path_hash_prefixes", limits::TARGETS_MAXIMUM)?),
                _ => {
                    return Err(Reason(format!(
                        "the delegated role {name:?} must have either paths or path_hash_prefixes"
                    )));
                }
            };
            Ok(DelegatedRole { name, rule: key_rule(&role)?, scope, terminating: role.flag("terminating")? })
        })
        .collect()
}

fn succinct_roles(fields: &Fields<'_>) -> Result<Delegated, Reason> {
    let bit_length = u32::try_from(fields.count("bit_length", 1)?).ok().filter(|bits| *bits <= 32);
    let bit_length = bit_length.ok_or_else(|| Reason("succinct_roles has a bit_length over 32".to_owned()))?;
    Ok(Delegated::Succinct { rule: key_rule(fields)?, bit_length, name_prefix: role_name(fields, "name_prefix")? })
}

fn role_name(fields: &Fields<'_>, field: &str) -> Result<String, Reason> {
    let name = fields.text(field)?;
    if name.is_empty() || name.len() > limits::NAME_BYTES_MAXIMUM {
        return Err(Reason("a delegated role's name is empty or too long".to_owned()));
    }
    Ok(name.to_owned())
}
