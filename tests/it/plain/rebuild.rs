//! The next release is rebuilt out of what the host has and the frames that hold the rest: it ends exactly as signed, whatever became of what
//! the host had.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::inside::Inside;
use crate::support::repositories::RepoBuilder;
use crate::support::trees;
use sidle::bundle::contents::Contents;
use sidle::bundle::manifest::{self, Frame};
use sidle::bundle::member::ReleaseId;
use sidle::bundle::pack::{PAYLOAD_NAME, PackInput, Packed, pack};
use sidle::bundle::recipe::Recipe;
use sidle::bundle::unpack::{FrameSource, PayloadSource, SourceError};
use sidle::digest::Digest;
use sidle::failure::{Class, Report};
use sidle::os::dir::Dir;
use sidle::repository::Added;
use sidle::store::install::Installed;
use sidle::trust::target;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file bigger than a frame.
pub(crate) const BIG_BYTES: usize = 9 << 20;

/// Empty files: more of one content than anybody remembers the places of.
pub(crate) const EMPTY: u64 = 20;

/// Frames out of a payload's file, and which were asked for.
pub(crate) struct Counted {
    payload: fs::File,
    pub(crate) asked: Vec<Frame>,
}

struct Asked<'a>(&'a fs::File);

impl PayloadSource for Counted {
    fn frames<'a>(&'a mut self, wanted: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        self.asked.extend(wanted);
        Ok(Box::new(Asked(&self.payload)))
    }
}

impl FrameSource for Asked<'_> {
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        let mut bytes = vec![0; usize::try_from(frame.length).unwrap()];
        self.0.read_exact_at(&mut bytes, frame.offset).unwrap();
        Ok(bytes)
    }

    fn end(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Two releases of one package: the second has one file more than the first, one changed, one gone.
pub(crate) struct Pair {
    pub(crate) repo: RepoBuilder,
    pub(crate) first: (ReleaseId, PathBuf),
    pub(crate) second: (ReleaseId, PathBuf, Packed),
}

impl Pair {
    pub(crate) fn new() -> Self {
        let repo = RepoBuilder::new(sidle::os::clock::now());
        let tree = repo.directory.path().join("tree");
        for number in 0..40 {
            trees::put(&tree, &format!("lib/same{number}"), &trees::noise(number, 3000), 0o644);
        }
        for number in 0..EMPTY {
            trees::put(&tree, &format!("lib/empty{number}"), b"", 0o644);
        }
        trees::put(&tree, "bin/agent", b"#!/bin/sh\nexit 0\n", 0o755);
        trees::put(&tree, "lib/big", &trees::noise(77, BIG_BYTES), 0o644);
        trees::put(&tree, "lib/changes", b"old", 0o644);
        trees::put(&tree, "lib/goes", b"gone soon", 0o644);
        let packed = packed(&repo, &tree, "1.0", &[]);
        let first = add(&repo, &packed);
        fs::remove_file(tree.join("lib/goes")).unwrap();
        trees::put(&tree, "lib/changes", b"new", 0o644);
        trees::put(&tree, "lib/more/added", b"added", 0o755);
        std::os::unix::fs::symlink("../same1", tree.join("lib/more/link")).unwrap();
        let next = self::packed(&repo, &tree, "2.0", &[packed.0.manifest]);
        let second = add(&repo, &next);
        repo.publish();
        let first_bundle = repo.export(std::slice::from_ref(&first), "first.sidle");
        let second_bundle = repo.export(std::slice::from_ref(&second), "second.sidle");
        Self { repo, first: (first, first_bundle), second: (second, second_bundle, next.0) }
    }

    /// A host that has the first release.
    pub(crate) fn host(&self) -> Inside {
        let host = Inside::new(&self.repo.root());
        host.install(&fs::read(&self.first.1).unwrap()).unwrap();
        host
    }

    /// What a host has that installed both from bundles.
    pub(crate) fn expected(&self) -> crate::support::inside::Contents {
        let host = self.host();
        host.install(&fs::read(&self.second.1).unwrap()).unwrap();
        host.store()
    }

    /// Both releases in one bundle file.
    pub(crate) fn both(&self) -> PathBuf {
        self.repo.export(&[self.first.0.clone(), self.second.0.clone()], "both.sidle")
    }

    pub(crate) fn payload(&self) -> Counted {
        let (id, _, packed) = &self.second;
        let name = format!("{}.payload.tar.zst", packed.manifest.payload.sha256);
        let path = self.repo.path().join("targets").join(id.to_string()).join(name);
        Counted { payload: fs::File::open(path).unwrap(), asked: Vec::new() }
    }

    pub(crate) fn rebuild(&self, host: &Inside, payload: &mut Counted) -> Result<Installed, Report> {
        let (id, bundle, packed) = &self.second;
        host.rebuild(bundle, id, &packed.manifest_bytes, payload)
    }
}

fn packed(
    repo: &RepoBuilder,
    tree: &Path,
    version: &str,
    previous: &[sidle::bundle::manifest::Manifest],
) -> (Packed, PathBuf) {
    for directory in ["", "bin", "lib"] {
        fs::set_permissions(tree.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let work = tempfile::tempdir_in(repo.directory.path()).unwrap().keep();
    let text = "schema = 1\npackage = \"demo\"\nagent = \"demo\"\n[build]\ntree = \"tree\"\n[commands]\nagent = \"bin/agent\"\n\
                [service]\ncommand = [\"agent\"]\nconfig = \"/etc/demo\"\n";
    let input = PackInput {
        tree: &Dir::open(tree).unwrap(),
        recipe: &Recipe::parse(text).unwrap(),
        version: version.parse().unwrap(),
        revision: 1,
        previous,
        source_date_epoch: 1_700_000_000,
        level: 3,
        threads: 2,
        progress: &|_, _| {},
        contents: Contents::default(),
        output: &Dir::open(&work).unwrap(),
    };
    (pack(&input).unwrap(), work.join(PAYLOAD_NAME))
}

fn add(repo: &RepoBuilder, (packed, payload): &(Packed, PathBuf)) -> ReleaseId {
    match repo.open().add(&packed.manifest_bytes, &mut fs::File::open(payload).unwrap()).unwrap() {
        Added::Staged(id) => id,
        Added::Already(id) => panic!("{id} is there already"),
    }
}

fn bytes(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| frame.length).sum()
}

#[test]
fn only_the_frames_of_what_the_host_lacks_are_asked_for() {
    let pair = Pair::new();
    let (host, mut payload) = (pair.host(), pair.payload());
    assert!(pair.rebuild(&host, &mut payload).unwrap().fresh);
    assert_eq!(host.store(), pair.expected());
    let manifest = &pair.second.2.manifest;
    let own = manifest.generations.iter().position(|release| *release == manifest.release()).unwrap();
    assert!(payload.asked.iter().all(|frame| frame.generation as usize == own), "{:?}", payload.asked);
    assert!(bytes(&payload.asked) < 4096, "{:?}", payload.asked);
    // Again: there is nothing to do, and nothing is asked for.
    let mut again = pair.payload();
    assert!(!pair.rebuild(&host, &mut again).unwrap().fresh && again.asked.is_empty());
}

#[test]
fn a_host_that_has_nothing_asks_for_every_frame_with_a_file() {
    let pair = Pair::new();
    let (host, mut payload) = (Inside::new(&pair.repo.root()), pair.payload());
    pair.rebuild(&host, &mut payload).unwrap();
    assert!(bytes(&payload.asked) > BIG_BYTES as u64 / 2);
    let other = Inside::new(&pair.repo.root());
    other.install(&fs::read(&pair.second.1).unwrap()).unwrap();
    assert_eq!(host.store(), other.store());
}

#[test]
fn held_files_that_are_damaged_gone_or_links_are_fetched_and_nothing_of_them_gets_in() {
    let pair = Pair::new();
    let expected = pair.expected();
    let new = |store: crate::support::inside::Contents| -> Vec<_> {
        store.into_iter().filter(|(path, _)| path.contains("versions/2.0-1")).collect()
    };
    for damage in ["flipped", "short", "long", "gone", "link", "big"] {
        let (host, mut payload) = (pair.host(), pair.payload());
        let lib = host.path("opt/sidle/demo/versions/1.0-1/lib");
        let same = lib.join("same7");
        match damage {
            "flipped" => fs::File::options().write(true).open(&same).unwrap().write_all_at(b"?", 1500).unwrap(),
            "short" => fs::write(&same, &trees::noise(7, 3000)[..2999]).unwrap(),
            "long" => fs::write(&same, [trees::noise(7, 3000), vec![0]].concat()).unwrap(),
            "gone" => fs::remove_file(&same).unwrap(),
            "link" => {
                fs::rename(&same, lib.join("elsewhere")).unwrap();
                std::os::unix::fs::symlink("elsewhere", &same).unwrap();
            }
            _ => {
                let big = fs::File::options().write(true).open(lib.join("big")).unwrap();
                big.write_all_at(b"?", BIG_BYTES as u64 - 1).unwrap();
            }
        }
        pair.rebuild(&host, &mut payload).unwrap();
        assert_eq!(new(host.store()), new(expected.clone()), "{damage}");
        assert!(bytes(&payload.asked) > 4096, "{damage}: {:?}", payload.asked);
    }
}

#[test]
fn frames_with_other_bytes_leave_nothing_behind() {
    let pair = Pair::new();
    let (host, mut payload) = (pair.host(), pair.payload());
    let before = host.store();
    let spoiled = tempfile::NamedTempFile::new().unwrap();
    let manifest = &pair.second.2.manifest;
    fs::write(spoiled.path(), vec![0; usize::try_from(manifest.payload.length).unwrap()]).unwrap();
    payload.payload = fs::File::open(spoiled.path()).unwrap();
    let refused = pair.rebuild(&host, &mut payload).unwrap_err();
    assert_eq!(refused.class, Class::Integrity, "{refused:?}");
    assert_eq!(host.store(), before);
}

#[test]
fn a_manifest_is_made_out_of_the_older_one_that_the_host_has() {
    let pair = Pair::new();
    let directory = pair.repo.path().join("targets").join(pair.second.0.to_string());
    let older = fs::read(stored(&pair.repo.path().join("targets").join(pair.first.0.to_string()), "manifest.json.zst"));
    let older = older.unwrap();
    let patch = fs::read(stored(&directory, &format!("manifest.from-{}.patch.zst", Digest::of(&older)))).unwrap();
    let newer = &pair.second.2.manifest_bytes;
    assert!(patch.len() * 4 < newer.len(), "{} of {}", patch.len(), newer.len());
    assert_eq!(manifest::apply(&manifest::decompress(&older).unwrap(), &patch).unwrap(), *newer);
    assert!(manifest::apply(&manifest::decompress(newer).unwrap(), &patch).is_err());
    // It is signed as every file that a host decompresses.
    let host = Inside::new(&pair.repo.root());
    let targets = host.targets(&pair.second.1);
    targets.require(&target::manifest_patch(&pair.second.0, &Digest::of(&older)), &Digest::of(&patch)).unwrap();
}

/// The file that a repository stores under this name.
fn stored(directory: &Path, name: &str) -> PathBuf {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found = names.filter(|path| path.file_name().unwrap().to_str().unwrap().ends_with(&format!(".{name}")));
    found.next().unwrap_or_else(|| panic!("no {name} in {}", directory.display()))
}

#[test]
fn frame_files_are_the_payload_s_frames_by_digest() {
    let pair = Pair::new();
    let (id, _, packed) = &pair.second;
    let repository = pair.repo.open();
    assert_eq!(repository.write_frame_files(id).unwrap(), packed.manifest.frames.len());
    assert_eq!(repository.write_frame_files(id).unwrap(), 0);
    let directory = pair.repo.path().join("targets").join(id.to_string());
    for frame in &packed.manifest.frames {
        let bytes = fs::read(directory.join("frames").join(format!("{}.zst", frame.sha256))).unwrap();
        assert_eq!(Digest::of(&bytes), frame.sha256);
    }
    let payload = stored(&directory, "payload.tar.zst");
    let length = packed.manifest.payload.length;
    fs::File::options().write(true).open(payload).unwrap().write_all_at(b"spoiled", length / 2).unwrap();
    fs::remove_dir_all(directory.join("frames")).unwrap();
    assert_eq!(repository.write_frame_files(id).unwrap_err().class(), Class::Integrity);
}
