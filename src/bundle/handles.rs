//! The directory of a tree that was used last, kept open: members are sorted, so one handle serves nearly all of them.

use super::path::BundlePath;
use crate::os::{Result, dir::Dir};
use std::path::Path;

/// Opens the directories of a tree beneath its root, without following links.
pub struct Handles<'a> {
    root: &'a Dir,
    last: Option<(String, Dir)>,
}

impl<'a> Handles<'a> {
    /// Handles below `root`.
    pub fn new(root: &'a Dir) -> Self {
        Self { root, last: None }
    }

    /// The directory that `path` is in, and the path's last component.
    pub fn parent<'b>(&'b mut self, path: &'b BundlePath) -> Result<(&'b Dir, &'b str)> {
        let (parent, name) = path.split();
        if parent.is_empty() {
            return Ok((self.root, name));
        }
        let kept = self.last.take().filter(|(kept, _)| kept == parent);
        let (_, dir) = self.last.insert(match kept {
            Some(kept) => kept,
            None => (parent.to_owned(), self.root.beneath(Path::new(parent))?),
        });
        Ok((dir, name))
    }
}
