//! SELinux labels: a tree has the labels of the host's policy before it comes into place, without libselinux. On a host without a policy nothing
//! happens.

use super::file_contexts::{FileContexts, Kind, Texts};
use crate::bundle::manifest::{Entry, EntryKind, Manifest};
use crate::layout::Layout;
use crate::name::PackageName;
use crate::os::dir::Dir;
use crate::os::{OsError, file, labels};
use crate::version::Release;
use std::path::Path;
use tracing::warn;

/// Largest file of a policy that is read: Fedora's has 0.4 MiB.
const POLICY_FILE_BYTES_MAX: u64 = 16 << 20;

/// `1`: the kernel enforces its policy; missing: it has none.
const KERNEL: &str = "/sys/fs/selinux/enforce";

/// Whether the host runs what has the wrong label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It may not.
    Enforcing,
    /// It does, and logs it.
    Permissive,
}

/// The labels of one release's files.
#[derive(Debug)]
pub struct Labels {
    contexts: FileContexts,
    /// The path of the tree on the host.
    tree: String,
    mode: Mode,
}

impl Labels {
    /// Those that the host's policy gives. None: the host has no policy, or SELinux is off.
    pub fn of(layout: &Layout, package: &PackageName, release: &Release) -> Result<Option<Self>, OsError> {
        let place = layout.root().join("etc/selinux");
        let read = |path: &Path| -> Result<String, OsError> {
            let bytes = file::read_if_exists(path, POLICY_FILE_BYTES_MAX)?.unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let settings = read(&place.join("config"))?;
        let setting = |name: &str| {
            let lines = settings.lines().filter_map(|line| line.trim().split_once('='));
            lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next_back()
        };
        let mode = match (setting("SELINUX"), layout.root() == Path::new("/")) {
            // The running kernel decides, which may be without SELinux, as in a container.
            (Some("enforcing" | "permissive"), true) => match file::read_if_exists(Path::new(KERNEL), 16)? {
                Some(enforced) if enforced.starts_with(b"1") => Mode::Enforcing,
                Some(_) => Mode::Permissive,
                None => return Ok(None),
            },
            // Nothing runs below another root now.
            (Some("enforcing" | "permissive"), false) => Mode::Permissive,
            _ => return Ok(None),
        };
        let Some(kind) = setting("SELINUXTYPE").filter(|kind| !kind.contains('/')) else { return Ok(None) };
        let files = place.join(kind).join("contexts/files");
        let part = |end: &str| read(&files.join(format!("file_contexts{end}")));
        let contexts = [part("")?, part(".homedirs")?, part(".local")?];
        if contexts[0].is_empty() {
            return Ok(None);
        }
        let texts = Texts { contexts, subs: part(".subs")?, subs_dist: part(".subs_dist")? };
        let tree = Path::new("/opt/sidle").join(package.as_str()).join("versions").join(release.to_string());
        let tree = tree.to_string_lossy().into_owned();
        Ok(Some(Self { contexts: FileContexts::for_tree(&texts, &tree), tree, mode }))
    }

    /// Whether the host runs what has the wrong label.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The label that the tree itself has to have; None: any.
    pub fn of_tree(&self) -> Option<&str> {
        self.contexts.label(&self.tree, Kind::Directory)
    }

    /// The label of an entry; None: any.
    pub fn of_entry(&self, entry: &Entry) -> Option<&str> {
        let kind = match entry.kind {
            EntryKind::Directory { .. } => Kind::Directory,
            EntryKind::File { .. } => Kind::File,
            EntryKind::Link { .. } => Kind::Link,
        };
        self.contexts.label(&format!("{}/{}", self.tree, entry.path.as_str()), kind)
    }

    /// Labels a tree in staging. A refusal is told, and fails where the host would not run the tree.
    pub(in crate::store) fn apply(&self, tree: &Dir, manifest: &Manifest) -> Result<(), OsError> {
        let own = self.of_tree().map(|label| (Path::new(""), label));
        let entries = manifest.entries.iter();
        let all = entries.filter_map(|entry| Some((Path::new(entry.path.as_str()), self.of_entry(entry)?)));
        self.set(tree, own.into_iter().chain(all))
    }

    /// Labels some entries of a tree.
    pub(in crate::store) fn apply_to<'a>(
        &self,
        tree: &Dir,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<(), OsError> {
        self.set(tree, entries.filter_map(|entry| Some((Path::new(entry.path.as_str()), self.of_entry(entry)?))))
    }

    fn set<'a>(&self, tree: &Dir, labels: impl Iterator<Item = (&'a Path, &'a str)>) -> Result<(), OsError> {
        for (path, label) in labels {
            match labels::set(tree, path, label) {
                Ok(()) => {}
                Err(error) if labels::is_refusal(&error) && self.mode == Mode::Permissive => {
                    // The kernel refuses all of them, then.
                    warn!(
                        "the tree has no SELinux labels of the policy: {error}; `restorecon -R /opt/sidle` sets them"
                    );
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
