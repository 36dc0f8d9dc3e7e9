//! Installs inside the test's own process, each into a root of its own in memory: for hundreds of attempts.

use super::repositories::metadata_of;
use super::trees;
use jiff::Timestamp;
use serde_json::Value;
use sidle::bundle::member::ReleaseId;
use sidle::bundle::unpack::PayloadSource;
use sidle::digest::Digest;
use sidle::failure::Report;
use sidle::layout::Layout;
use sidle::store::Store;
use sidle::store::collect::Effect;
use sidle::store::install::{Approved, Installed, Placement, install, install_fetched, preflight};
use sidle::store::preflight::{Hazards, Host as Fitness};
use sidle::trust::{Expiry, TrustedTargets};
use sidle::trust_store::{Judge, Persist, TrustStore};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
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
        Self::below(Path::new("/dev/shm"), root)
    }

    /// The same in a directory of this one.
    pub fn below(place: &Path, root: &[u8]) -> Self {
        let directory = tempfile::tempdir_in(place).unwrap();
        let layout = Layout::new(directory.path());
        let trust_store = TrustStore::open_or_create(&layout.trust()).unwrap();
        trust_store.lock().unwrap().pin(root, &Digest::of(root)).unwrap();
        Self { directory, layout }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn placement<'a>(&'a self, host: &'a Fitness) -> Placement<'a> {
        let (hazards, effect) = (Hazards::Refuse, Effect::Apply);
        Placement { layout: &self.layout, host, hazards, effect, progress: &|_, _| {} }
    }

    pub fn install(&self, bundle: &[u8]) -> Result<Installed, Report> {
        self.install_on(sidle::os::clock::now(), bundle)
    }

    /// The same at another time.
    pub fn install_on(&self, now: Timestamp, bundle: &[u8]) -> Result<Installed, Report> {
        let trust_store = TrustStore::open(&self.layout.trust())?;
        let authority = Judge { trust_store: &trust_store, now, expiry: Expiry::BY_HAND, persist: Persist::Store };
        let host = Fitness::read();
        let place = self.placement(&host);
        Ok(install(bundle, &authority, None, &place)?)
    }

    /// Installs the release `id` out of what is there and what `payload` brings; `bundle` has the metadata.
    pub fn rebuild(
        &self,
        bundle: &Path,
        id: &ReleaseId,
        manifest: &[u8],
        payload: &mut dyn PayloadSource,
    ) -> Result<Installed, Report> {
        let approved = Approved::new(&self.targets(bundle), id, manifest.to_vec(), Vec::new())?;
        let host = Fitness::read();
        let place = self.placement(&host);
        let accepted = preflight(&approved, &place)?;
        Ok(install_fetched(approved, accepted, None, payload, &place)?)
    }

    /// The targets that the metadata in `bundle` leads to.
    pub fn targets(&self, bundle: &Path) -> TrustedTargets {
        let trust_store = TrustStore::open(&self.layout.trust()).unwrap();
        let verified = trust_store.verify(&metadata_of(bundle), sidle::os::clock::now(), Expiry::Strict).unwrap();
        verified.targets.unwrap()
    }

    /// A package's part of the store.
    pub fn store_of(&self, package: &str) -> Store {
        Store::new(&self.layout, &package.parse().unwrap())
    }

    /// A path below its root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
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
