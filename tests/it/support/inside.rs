//! Installs inside the test's own process, each into a root of its own in memory: for hundreds of attempts.

use super::trees;
use serde_json::Value;
use sidle::digest::Digest;
use sidle::failure::Report;
use sidle::keyring::{Adoption, Judge, Keyring};
use sidle::layout::Layout;
use sidle::store::collect::Effect;
use sidle::store::install::{InstallRequest, Installed, install};
use sidle::store::preflight::Host as Fitness;
use sidle::trust::Expiry;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A root in memory that trusts one repository.
pub struct Inside {
    directory: TempDir,
    layout: Layout,
}

/// Everything in a tree: kind, mode, content.
pub type Contents = BTreeMap<String, (char, u32, Vec<u8>)>;

impl Inside {
    pub fn new(root: &[u8]) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let layout = Layout::new(directory.path());
        let keyring = Keyring::open_or_create(&layout.trust()).unwrap();
        keyring.lock().unwrap().pin(root, &Digest::of(root)).unwrap();
        Self { directory, layout }
    }

    pub fn install(&self, bundle: &[u8]) -> Result<Installed, Report> {
        let keyring = Keyring::open(&self.layout.trust())?;
        let authority = Judge {
            keyring: &keyring,
            now: sidle::os::clock::now(),
            expiry: Expiry::BY_HAND,
            adoption: Adoption::Store,
        };
        let request = InstallRequest {
            layout: &self.layout,
            authority: &authority,
            host: &Fitness::look(),
            release: None,
            effect: Effect::Apply,
            progress: &|_, _| {},
        };
        Ok(install(bundle, &request)?)
    }

    /// All below `opt`: releases, links, staging.
    pub fn store(&self) -> Contents {
        let path = self.directory.path().join("opt");
        if path.exists() { trees::contents(&path) } else { Contents::new() }
    }

    /// The signed parts of the metadata that is trusted now, and of the receipts', by path; other bytes around them don't matter.
    pub fn signed(&self) -> BTreeMap<String, Value> {
        let state = trees::contents(&self.directory.path().join("var/lib/sidle"));
        let json = state
            .into_iter()
            .filter(|(path, _)| path.rsplit('.').next() == Some("json") && !path.ends_with("floor.json"));
        // The trust store names files by digest: the role alone stays.
        let role = |path: &str| {
            let (directory, name) = path.rsplit_once('/').unwrap();
            let parts: Vec<&str> = name.split('.').collect();
            format!("{directory}/{}", parts[parts.len() - 2])
        };
        let signed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["signed"].clone();
        json.map(|(path, (_, _, bytes))| (role(&path), signed(&bytes))).collect()
    }
}

/// True when nothing is installed and nothing lies in staging.
pub fn is_untouched(store: &Contents) -> bool {
    store.keys().all(|path| path.split('/').count() <= 3)
}

/// The bytes of a file.
pub fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
