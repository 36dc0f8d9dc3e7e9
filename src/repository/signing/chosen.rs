//! Chooses the next set among the published and the waiting files: the newest that a client trusts as a whole.

use crate::repository::pending::Pending;
use crate::repository::published::{Listing, Published, names};
use crate::repository::role::SignedRole;
use crate::repository::rule::Rule;
use crate::repository::stage::root_rules;
use crate::repository::{Repository, RepositoryError};
use crate::trust::Role;
use crate::trust::metadata::{Root, Signed};
use std::collections::BTreeMap;

/// The next set.
#[derive(Debug)]
pub(in crate::repository) struct Chosen {
    pub(in crate::repository) root: Signed<Root>,
    /// None: no complete listing has enough signatures.
    pub(in crate::repository) listing: Option<Listing>,
}

impl Repository {
    /// Chooses the next root and the next files of the other roles where they have enough signatures, but only together with the files that
    /// they need: a client never finds a set that it refuses.
    pub(in crate::repository) fn choose(
        &self,
        published: &Published,
        pending: &Pending,
    ) -> Result<Chosen, RepositoryError> {
        let next = pending.root.as_ref().filter(|draft| draft.is_complete(&root_rules(published, &draft.file)));
        let next = next.map(|draft| draft.assembled(&root_rules(published, &draft.file)));
        let roots: Vec<Signed<Root>> = next.into_iter().chain(published.root.clone()).collect();
        for root in &roots {
            let listing = self.listing(root, published, pending);
            if listing.is_some() || published.set.is_none() {
                return Ok(Chosen { root: root.clone(), listing });
            }
        }
        // The published set rests on keys that a published root no longer names: the waiting files must be signed first.
        match published.root.clone() {
            Some(root) => Ok(Chosen { root, listing: None }),
            None => Err(RepositoryError::Incomplete { waiting: self.waiting_in(published, pending) }),
        }
    }

    /// The newest listing that a client trusts under this root.
    fn listing(&self, root: &Signed<Root>, published: &Published, pending: &Pending) -> Option<Listing> {
        let top = Rule::of_root(root, Role::Targets);
        let old = published.root.as_ref().map(|root| Rule::of_root(root, Role::Targets));
        let draft = pending.targets.get(&SignedRole::Targets);
        // Under the present root, too, a draft needs the signatures that the next root asks for: its signers were asked for those.
        let wanted = self.rules(&SignedRole::Targets, published, pending);
        let next = draft.filter(|draft| draft.is_complete(std::slice::from_ref(&top)) && draft.is_complete(&wanted));
        // With the signatures that count under the old root: a client may not have seen the new root yet.
        let next = next.map(|draft| draft.assembled(&old.iter().chain([&top]).cloned().collect::<Vec<_>>()));
        let there = published.listing(&SignedRole::Targets).filter(|file| top.is_met_in(file)).cloned();
        let listings = next.into_iter().chain(there).filter_map(|targets| {
            let mut delegated = BTreeMap::new();
            for name in names(&targets) {
                let needed = Rule::of_delegation(&targets, &name)?;
                let role = SignedRole::Delegated(name.clone());
                let draft = pending.targets.get(&role);
                let next = draft.filter(|draft| draft.is_complete(std::slice::from_ref(&needed)));
                let next = next.map(|draft| draft.assembled(std::slice::from_ref(&needed)));
                let file = next.or_else(|| published.listing(&role).filter(|file| needed.is_met_in(file)).cloned())?;
                delegated.insert(name, file);
            }
            Some(Listing { targets, delegated })
        });
        let mut listings = listings.filter(|listing| self.keeps(published, listing));
        listings.next()
    }

    /// True when no wanted, published release would vanish, as it would between two roles of which one hasn't signed yet.
    fn keeps(&self, published: &Published, listing: &Listing) -> bool {
        let wanted = self.state.releases.iter().filter(|(id, files)| published.lists(id, files));
        wanted.into_iter().all(|(id, files)| listing.lists(id, files))
    }
}
