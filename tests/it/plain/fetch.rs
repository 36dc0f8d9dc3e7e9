//! What is fetched is what was signed, whatever mirrors and networks do. Needs nginx and openssl.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

pub mod access;
pub mod compressed;
pub mod payload;
pub mod refresh;

use crate::support::repositories::RepoBuilder;
use crate::support::trees::noise;
use sidle::bundle::manifest::{Frame, Manifest};
use sidle::bundle::unpack::FrameSource as _;
use sidle::digest::Digest;
use sidle::fetch::settings::{Access, Authorities, Mirror, Patience, Proxy};
use sidle::fetch::{DownloadSettings, FetchError, Fetcher, Notice};
use sidle::os::place::{Effect, Place};
use sidle::trust::metadata::Hashes;
use sidle::trust::{Target, target};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A published release whose payload has several frames of noise.
pub struct Release {
    pub repo: RepoBuilder,
    pub manifest: Manifest,
    /// The payload's bytes.
    pub bytes: Vec<u8>,
    /// Its target name.
    pub name: String,
    pub payload: Target,
    /// The manifest's target name, and it.
    pub manifest_name: String,
    pub manifest_target: Target,
}

pub fn signed(bytes: &[u8]) -> Target {
    Target { length: bytes.len() as u64, hashes: Hashes { sha256: Some(Digest::of(bytes)), sha512: None } }
}

impl Release {
    /// About so many MiB.
    pub fn new(mebibytes: usize) -> Self {
        let repo = RepoBuilder::new(jiff::Timestamp::now());
        let content = noise(7, mebibytes << 20);
        let (packed, path) = repo.pack("1.0", &content);
        let bytes = fs::read(path).unwrap();
        let id = repo.add("1.0", &content);
        repo.publish();
        let (payload, manifest_target) = (signed(&bytes), signed(&packed.manifest_bytes));
        let (name, manifest_name) = (target::payload(&id), target::manifest(&id));
        Self { repo, manifest: packed.manifest, bytes, name, payload, manifest_name, manifest_target }
    }

    pub fn frames(&self) -> &[Frame] {
        &self.manifest.frames
    }

    /// The part of the payload that is this frame.
    pub fn bytes_of(&self, frame: &Frame) -> &[u8] {
        let start = usize::try_from(frame.offset).unwrap();
        &self.bytes[start..start + usize::try_from(frame.length).unwrap()]
    }

    /// Where a target lies in the repository.
    pub fn stored(&self, name: &str, signed: &Target) -> PathBuf {
        self.repo.path().join("targets").join(target::stored(name, &signed.hashes, true))
    }

    /// A directory mirror of it.
    pub fn directory(&self) -> Mirror {
        mirror(&format!("file://{}", self.repo.path().display()))
    }

    /// Puts every frame into a file of its own beside the payload in `root`.
    pub fn publish_frames(&self) {
        let directory = self.stored(&self.name, &self.payload).parent().unwrap().join("frames");
        fs::create_dir(&directory).unwrap();
        for frame in self.frames() {
            fs::write(directory.join(format!("{}.zst", frame.sha256)), self.bytes_of(frame)).unwrap();
        }
    }

    /// A frame that is large.
    pub fn large(&self) -> Vec<Frame> {
        self.frames().iter().copied().filter(|frame| frame.length > 1 << 20).collect()
    }
}

pub fn mirror(url: &str) -> Mirror {
    Mirror { location: url.parse().unwrap(), access: Access::default() }
}

pub fn mirror_with_ca(url: &str, ca: &Path) -> Mirror {
    let access = Access { ca_files: vec![ca.to_owned()], authorities: Authorities::None, ..Access::default() };
    Mirror { location: url.parse().unwrap(), access }
}

/// Settings with short pauses.
pub fn settings(mirrors: Vec<Mirror>) -> DownloadSettings {
    let patience = Patience { pause: Duration::from_millis(10), total: Duration::from_secs(60), ..Patience::default() };
    DownloadSettings { mirrors, proxy: Proxy::None, rate_limit: None, splay: Duration::ZERO, patience }
}

/// A host that fetches: its cache, and what it was told.
pub struct Client {
    pub cache: TempDir,
    pub notices: RefCell<Vec<Notice>>,
}

impl Client {
    pub fn new() -> Self {
        Self { cache: tempfile::tempdir().unwrap(), notices: RefCell::default() }
    }

    /// One run.
    pub fn run<T>(&self, settings: &DownloadSettings, what: impl FnOnce(&mut Fetcher<'_>) -> T) -> T {
        let tell = |notice: &Notice| self.notices.borrow_mut().push(notice.clone());
        let cache = Place::open(self.cache.path(), Effect::Apply).unwrap().unwrap();
        what(&mut Fetcher::new(settings, &cache, &tell).unwrap())
    }

    /// Fetches frames; gives the bytes that came over the wire.
    pub fn frames(&self, settings: &DownloadSettings, release: &Release, wanted: &[Frame]) -> Result<u64, String> {
        self.run(settings, |fetcher| {
            let mut frames =
                fetcher.frames(&release.name, &release.payload, wanted).map_err(|error| error.to_string())?;
            for frame in wanted {
                let bytes = frames.next(frame).map_err(|error| error.to_string())?;
                assert!(bytes == release.bytes_of(frame), "the frame at {} is another", frame.offset);
            }
            frames.end().unwrap();
            Ok(fetcher.wire_bytes())
        })
    }

    /// The mirrors that were called evil.
    pub fn evil(&self) -> Vec<String> {
        let evil = |notice: &Notice| match notice {
            Notice::Evil { mirror, .. } => Some(mirror.clone()),
            _ => None,
        };
        self.notices.borrow().iter().filter_map(evil).collect()
    }

    pub fn was_told(&self, what: impl Fn(&Notice) -> bool) -> bool {
        self.notices.borrow().iter().any(what)
    }
}

pub fn target_of(client: &Client, settings: &DownloadSettings, release: &Release) -> Result<Vec<u8>, FetchError> {
    client.run(settings, |fetcher| fetcher.target(&release.manifest_name, &release.manifest_target))
}
