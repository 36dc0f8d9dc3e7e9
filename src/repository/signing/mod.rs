//! Who signs what: roles, rules, pending files and their signatures.

pub(in crate::repository) mod at_once;
pub(in crate::repository) mod chosen;
pub(in crate::repository) mod pending;
pub(in crate::repository) mod role;
pub(in crate::repository) mod rotate;
pub(in crate::repository) mod rule;
pub(in crate::repository) mod sign;
pub(in crate::repository) mod stage;
