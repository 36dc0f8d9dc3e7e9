//! The paths below the root directory. No disk is touched here.

use crate::name::{InstanceName, PackageName};
use std::path::{Path, PathBuf};

/// The paths below one root: `/`, or `--root` for tests, images and unprivileged use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    settings_file: Option<PathBuf>,
}

/// Name of the directory of installed releases.
pub const VERSIONS: &str = "versions";
/// Name of the staging directory; emptied by recovery.
pub const STAGING: &str = "staging";
/// Name of the directory of leases, beside the receipts: a file per release, held by each process that runs from it.
pub const LEASES: &str = "leases";
/// Name of the lock, beside the receipts, that starts share and a removal holds alone.
pub const STARTS: &str = "starts";
/// Name of the default instance's link.
pub const CURRENT: &str = "current";
/// The name of the place of `sidle try`, among the packages.
pub const TRYOUT: &str = ".try";

impl Layout {
    /// The places below `root`, which should be absolute.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), settings_file: None }
    }

    /// The same places, but the settings in this file alone: that of `--config`, which is not below the root.
    #[must_use]
    pub fn with_settings_file(self, settings_file: Option<PathBuf>) -> Self {
        Self { settings_file, ..self }
    }

    /// The root directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/opt/sidle/PACKAGE`: releases and links.
    pub fn package(&self, package: &PackageName) -> PathBuf {
        self.packages().join(package.as_str())
    }

    /// `/opt/sidle`: all packages.
    pub fn packages(&self) -> PathBuf {
        self.root.join("opt/sidle")
    }

    /// `/opt/sidle/.try`: a release that `sidle try` has unpacked; no package has such a name.
    pub fn tryout(&self) -> PathBuf {
        self.packages().join(TRYOUT)
    }

    /// `/opt/sidle/PACKAGE/versions`: one directory per release.
    pub fn versions(&self, package: &PackageName) -> PathBuf {
        self.package(package).join(VERSIONS)
    }

    /// `/var/lib/sidle`: state.
    pub fn state(&self) -> PathBuf {
        self.root.join("var/lib/sidle")
    }

    /// `/var/lib/sidle/PACKAGE`: one receipt per installed release.
    pub fn receipts(&self, package: &PackageName) -> PathBuf {
        self.state().join(package.as_str())
    }

    /// `/var/lib/sidle/instances`: all instances.
    pub fn instances(&self) -> PathBuf {
        self.state().join("instances")
    }

    /// `/var/lib/sidle/instances/INSTANCE`: its journal and history.
    pub fn instance(&self, instance: &InstanceName) -> PathBuf {
        self.instances().join(instance.as_str())
    }

    /// `/var/lib/sidle/trust`: trusted metadata.
    pub fn trust(&self) -> PathBuf {
        self.state().join("trust")
    }

    /// `/var/lib/sidle/adopt/INSTANCE`: the record of an adoption.
    pub fn adoption(&self, instance: &InstanceName) -> PathBuf {
        self.state().join("adopt").join(instance.as_str())
    }

    /// `/run/sidle`: volatile state of all instances.
    pub fn runs(&self) -> PathBuf {
        self.root.join("run/sidle")
    }

    /// `/run/sidle/INSTANCE`: control socket and volatile state.
    pub fn run(&self, instance: &InstanceName) -> PathBuf {
        self.runs().join(instance.as_str())
    }

    /// `/var/cache/sidle`: fetched files.
    pub fn cache(&self) -> PathBuf {
        self.root.join("var/cache/sidle")
    }

    /// `/etc/sidle`: settings.
    pub fn settings(&self) -> PathBuf {
        self.root.join("etc/sidle")
    }

    /// `/etc/sidle/sidle.toml`: the settings that are read first.
    pub fn main_settings(&self) -> PathBuf {
        self.settings().join("sidle.toml")
    }

    /// The directories of further settings: `/usr/lib/sidle/conf.d` of packages, then `/etc/sidle/conf.d` of the administrator, whose files mask
    /// those of the same name.
    pub fn fragments(&self) -> [PathBuf; 2] {
        [self.root.join("usr/lib/sidle/conf.d"), self.settings().join("conf.d")]
    }

    /// The file that `--config` names instead of all of them.
    pub fn settings_file(&self) -> Option<&Path> {
        self.settings_file.as_deref()
    }

    /// A path of the host, such as an agent's configuration directory, below the root.
    pub fn on_host(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The name of an instance's link in its package's directory.
    pub fn link_name(package: &PackageName, instance: &InstanceName) -> String {
        if package.as_str() == instance.as_str() { CURRENT.to_owned() } else { format!("{CURRENT}-{instance}") }
    }
}
