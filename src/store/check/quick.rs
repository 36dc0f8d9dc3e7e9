//! The quick check: what the file system says now of every entry, beside what it said when the content was verified. Nothing is read but the
//! index; what differs is suspected, never condemned: a restored backup, an image or a relabelled file system changes every one of them.

use super::{FileTime, TICK, time};
use crate::os::dir::Dir;
use crate::os::host;
use crate::store::index::{Index, Indexed, Place};
use std::path::Path;

/// What is to be looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspects {
    /// Every entry, and every directory's names.
    All,
    /// These.
    Some {
        /// The names in the tree's own directory.
        root: bool,
        /// Entries, by their numbers in the manifest, ascending.
        entries: Vec<usize>,
    },
}

impl Suspects {
    /// Whether nothing is suspected.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Some { root: false, entries } if entries.is_empty())
    }
}

/// Compares a tree with an index that was written at `taken`.
pub fn suspects(tree: &Dir, index: &Index, taken: FileTime) -> Suspects {
    let comparison = Comparison { tree, index, taken };
    let places = index.places();
    let share = places.len().div_ceil(host::parallelism()).max(1);
    let root = tree.stat_self().ok().is_none_or(|stat| !comparison.is_as_before(&Indexed::of(&stat), &index.root));
    let mut entries = Vec::new();
    std::thread::scope(|scope| {
        let mut shares = places.chunks(share);
        // The first share is this thread's own.
        let own = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|places| scope.spawn(|| comparison.of(places))).collect();
        entries.extend(comparison.of(own));
        for other in others {
            entries.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    entries.sort_unstable();
    Suspects::Some { root, entries }
}

struct Comparison<'a> {
    tree: &'a Dir,
    index: &'a Index,
    taken: FileTime,
}

impl Comparison<'_> {
    /// The numbers of those that differ.
    fn of(&self, places: &[Place]) -> Vec<usize> {
        let mut suspected = Vec::new();
        for places in places.chunk_by(|one, next| one.directory == next.directory) {
            let path = Path::new(self.index.directory(places[0].directory));
            // Where the directory can't be opened, all that is in it is suspected.
            let directory = self.tree.beneath(path).ok();
            let differs = |place: &&Place| {
                let stat =
                    directory.as_ref().and_then(|directory| directory.stat(self.index.name(place)).ok().flatten());
                stat.is_none_or(|stat| !self.is_as_before(&Indexed::of(&stat), &place.stat))
            };
            suspected.extend(places.iter().filter(differs).map(|place| place.number));
        }
        suspected
    }

    /// A change just before the index was written may hide another one just after it, with the same times: such an entry is suspected.
    fn is_as_before(&self, now: &Indexed, known: &Indexed) -> bool {
        now == known && time(now.ctime).checked_add(TICK).is_ok_and(|end| end < time(self.taken))
    }
}
