//! Three people who sign, two of whom are needed, and an online key; their repository; and clients of it.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use super::repositories::{RepoBuilder, day, one_key};
use jiff::Timestamp;
use sidle::bundle::member::ReleaseId;
use sidle::digest::Digest;
use sidle::os::place::Effect;
use sidle::repository::{Added, Publication, Repository, RepositoryError};
use sidle::signer::{FileSigner, public_pem};
use sidle::trust::publish::{Lifetimes, RoleKeys};
use sidle::trust::{Answer, DelegatedFiles, Expiry, Floor, MetadataFiles, Refresh, Role, Signer, TrustError, target};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The people, their keys in files, and their repository.
pub struct Team {
    /// Packs releases, and holds the directory of everything.
    pub builder: RepoBuilder,
    /// Of root and targets: two of the three are needed.
    pub people: Vec<FileSigner>,
    /// Of snapshot and timestamp.
    pub online: FileSigner,
    /// When it is.
    pub now: Timestamp,
}

impl Team {
    /// A repository that nothing but its root is published of, made on `now` and signed by the first two.
    pub fn new(now: Timestamp) -> Self {
        let builder = RepoBuilder::new(day(0));
        let key = |name: &str| key(builder.directory.path(), name);
        let people: Vec<FileSigner> = ["anna", "bert", "carl"].map(key).into();
        let online = key("timer");
        let team = Self { builder, people, online, now };
        let offline = RoleKeys { keys: team.people.iter().map(Signer::public).collect(), threshold: 2 };
        let online = one_key(team.online.public());
        let roles = BTreeMap::from([
            (Role::Root, offline.clone()),
            (Role::Targets, offline),
            (Role::Snapshot, online.clone()),
            (Role::Timestamp, online),
        ]);
        let signers: Vec<&dyn Signer> = team.people[..2].iter().map(|key| key as &dyn Signer).collect();
        Repository::init(&team.path(), &roles, &signers, (&Lifetimes::default(), now), Effect::Apply)
            .unwrap()
            .1
            .unwrap();
        team
    }

    /// The repository directory.
    pub fn path(&self) -> PathBuf {
        self.builder.directory.path().join("team")
    }

    /// The repository, locked.
    pub fn open(&self) -> Repository {
        Repository::open(&self.path()).unwrap()
    }

    /// Takes a release in.
    pub fn add(&self, version: &str) -> ReleaseId {
        let (packed, payload) = self.builder.pack(version, version);
        match self.open().add(&packed.manifest_bytes, &mut fs::File::open(payload).unwrap()).unwrap() {
            Added::Staged(id) | Added::Already(id) => id,
        }
    }

    /// Publishes with these people's signatures.
    pub fn try_publish(&self, people: &[&dyn Signer]) -> Result<Publication, RepositoryError> {
        self.open().publish_with(people, &[&self.online], &Lifetimes::default(), self.now)
    }

    /// Publishes what the first two sign.
    pub fn publish(&self) -> Publication {
        let publication = self.try_publish(&[&self.people[0], &self.people[1]]).unwrap();
        assert_eq!(publication.waiting, [], "everything is published");
        publication
    }

    /// What lies in `metadata/`.
    pub fn files(&self) -> MetadataFiles {
        metadata(&self.path())
    }

    /// A host that pinned the first root.
    pub fn host(&self) -> Floor {
        Floor::new(self.files()["1.root.json"].clone())
    }
}

/// A new key in a file of this name, its public half beside it.
pub fn key(directory: &Path, name: &str) -> FileSigner {
    let key = FileSigner::create(&directory.join(format!("{name}.pem")), None).unwrap();
    fs::write(directory.join(format!("{name}.pub")), public_pem(&key.public())).unwrap();
    key
}

/// The metadata that a repository directory serves.
pub fn metadata(repository: &Path) -> MetadataFiles {
    let entries = fs::read_dir(repository.join("metadata")).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let files = entries.filter(|path| !name(path).starts_with('.'));
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

/// What an online client comes to trust, as strict as over a network; and why it stopped, if it did.
pub fn refresh(floor: &Floor, files: &MetadataFiles, now: Timestamp) -> (Refresh, Result<(), TrustError>) {
    let mut refresh = Refresh::start(floor, now, Expiry::Strict).unwrap();
    while let Some(request) = refresh.request() {
        let answer = files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
        if let Err(error) = refresh.answer(answer) {
            return (refresh, Err(error));
        }
    }
    (refresh, Ok(()))
}

/// True when an online client finds both files of the release.
pub fn finds(refresh: &Refresh, files: &MetadataFiles, id: &ReleaseId, digest: Option<Digest>) -> bool {
    [target::manifest(id), target::payload(id)].iter().all(|name| {
        let mut delegated = DelegatedFiles::new();
        let mut search = refresh.search(name, &mut delegated).unwrap();
        while let Some(request) = search.request() {
            let answer = files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
            search.answer(answer).unwrap();
        }
        let listed = search.listed().map(|listed| listed.target.hashes.sha256);
        listed.is_some() && digest.is_none_or(|digest| listed == Some(Some(digest)))
    })
}
