//! The quick check: the present stat of every entry against the index. Only the index is read. A difference is only a suspicion: a restored
//! backup, an image or a relabelled file system changes every stat.

use crate::os::dir::Dir;
use crate::os::host;
use crate::os::thread::helper;
use crate::store::index::{FileTime, Index, Indexed};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The step in which the kernel counts file times: at most a hundredth of a second (`CONFIG_HZ` is 100 or more).
const TICK_NANOSECONDS: u32 = 10_000_000;

/// The entries to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspects {
    /// Every entry, and every directory's names.
    All,
    /// Some entries.
    Some {
        /// The names in the tree's own directory.
        root: bool,
        /// Entries, by their numbers in the manifest, ascending.
        entries: Vec<usize>,
    },
}

impl Suspects {
    /// Whether no entry is suspected.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Some { root: false, entries } if entries.is_empty())
    }
}

/// Entries that a thread takes at a time: two threads open a shared directory twice.
const BATCH_ENTRIES: usize = 256;

/// Compares a tree with an index that was written at `taken`.
pub fn suspects(tree: &Dir, index: &Index, taken: FileTime) -> Suspects {
    let comparison = Comparison { tree, index, settled: before(taken, TICK_NANOSECONDS), next: AtomicUsize::new(0) };
    let root = tree.stat_self().ok().is_none_or(|stat| !comparison.is_as_before(&Indexed::of(&stat), &index.root()));
    let mut entries = std::thread::scope(|scope| {
        let others = host::parallelism().min(index.count().div_ceil(BATCH_ENTRIES)).saturating_sub(1);
        let others: Vec<_> = (0..others).filter_map(|_| helper(scope, || comparison.run())).collect();
        let mut entries = comparison.run();
        for other in others {
            entries.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        entries
    });
    entries.sort_unstable();
    Suspects::Some { root, entries }
}

struct Comparison<'a> {
    tree: &'a Dir,
    index: &'a Index,
    /// A later change may be followed by another with the same times, after the index was written.
    settled: FileTime,
    /// The first entry that no thread has taken.
    next: AtomicUsize,
}

impl Comparison<'_> {
    /// Compares until all are taken; the numbers of those that differ.
    fn run(&self) -> Vec<usize> {
        let mut suspected = Vec::new();
        loop {
            let start = self.next.fetch_add(BATCH_ENTRIES, Ordering::Relaxed).min(self.index.count());
            let batch = start..self.index.count().min(start + BATCH_ENTRIES);
            if batch.is_empty() {
                return suspected;
            }
            self.compare(batch, &mut suspected);
        }
    }

    fn compare(&self, batch: Range<usize>, suspected: &mut Vec<usize>) {
        // The open directory; None: it cannot be opened, and all its entries are suspected.
        let mut open: Option<(usize, Option<Dir>)> = None;
        for place in self.index.places(batch) {
            let (_, directory) = match open.take() {
                Some(at) if at.0 == place.directory => open.insert(at),
                _ => open.insert((place.directory, self.tree.beneath(self.index.directory(place.directory)).ok())),
            };
            let stat = directory.as_ref().and_then(|directory| directory.stat(place.name).ok().flatten());
            if stat.is_none_or(|stat| !self.is_as_before(&Indexed::of(&stat), &place.stat)) {
                suspected.push(place.number);
            }
        }
    }

    fn is_as_before(&self, now: &Indexed, known: &Indexed) -> bool {
        now == known && now.ctime < self.settled
    }
}

/// So much before a time.
fn before((seconds, nanoseconds): FileTime, less: u32) -> FileTime {
    match nanoseconds.checked_sub(less) {
        Some(nanoseconds) => (seconds, nanoseconds),
        None => (seconds.saturating_sub(1), nanoseconds + 1_000_000_000 - less),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_another_borrows_a_second() {
        assert_eq!(before((5, 10_000_001), 10_000_000), (5, 1));
        assert_eq!(before((5, 1), 10_000_000), (4, 990_000_001));
        assert_eq!(before((i64::MIN, 0), 1), (i64::MIN, 999_999_999));
    }
}
