//! Pack, carry, unpack: what comes out is what went in, or nothing does.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files, and run tar")]

use crate::support::trees;
use sidle::bundle::contents::Contents;
use sidle::bundle::file::{BundleReader, BundleWriter};
use sidle::bundle::manifest::{self, EntryKind, Frame, Manifest};
use sidle::bundle::member::{MemberName, MetadataName, ReleaseFile, checksums};
use sidle::bundle::pack::{PAYLOAD_NAME, PackInput, Packed, pack};
use sidle::bundle::recipe::Recipe;
use sidle::bundle::unpack::{FrameSource, SourceError, unpack};
use sidle::digest::Digest;
use sidle::failure::Class;
use sidle::os::dir::Dir;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

pub const EPOCH: u64 = 1_700_000_000;

pub fn recipe() -> Recipe {
    let text = "schema = 1\npackage = \"demo\"\nagent = \"demo\"\n[build]\ntree = \"tree\"\n[commands]\nagent = \"bin/agent\"\n\
                [service]\ncommand = [\"agent\"]\nconfig = \"/etc/demo\"\n";
    Recipe::parse(text).unwrap()
}

pub fn pack_as(tree: &Path, output: &Path, version: &str, previous: &[Manifest], threads: usize) -> Packed {
    let input = PackInput {
        tree: &Dir::open(tree).unwrap(),
        recipe: &recipe(),
        version: version.parse().unwrap(),
        revision: 1,
        previous,
        source_date_epoch: EPOCH,
        level: 3,
        threads,
        progress: &|_, _| {},
        contents: Contents::default(),
        output: &Dir::open(output).unwrap(),
    };
    pack(&input).unwrap()
}

/// A packed tree in a directory of its own.
pub struct Sample {
    pub directory: TempDir,
    pub packed: Packed,
}

impl Sample {
    pub fn new(fill: impl Fn(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fill(&tree);
        let packed = pack_as(&tree, directory.path(), "1.0", &[], 2);
        Self { directory, packed }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn payload(&self) -> Vec<u8> {
        fs::read(self.path(PAYLOAD_NAME)).unwrap()
    }

    pub fn bundle(&self) -> Vec<u8> {
        let (manifest, id) = (&self.packed.manifest, self.packed.manifest.id());
        let digest = Digest::of(&self.packed.manifest_bytes);
        let mut writer = BundleWriter::new(Vec::new(), std::slice::from_ref(&id)).unwrap();
        let metadata =
            [MetadataName::Root(1), MetadataName::Timestamp, MetadataName::Snapshot(1), MetadataName::Targets(1)];
        for name in metadata {
            writer.small(&MemberName::Metadata(name), b"{}").unwrap();
        }
        let sums = checksums(&digest, &manifest.payload.sha256);
        for (file, bytes) in [
            (ReleaseFile::Manifest(digest), self.packed.manifest_bytes.as_slice()),
            (ReleaseFile::Checksums, sums.as_bytes()),
            (ReleaseFile::Signature, b"signature\n"),
        ] {
            writer.small(&MemberName::Small(id.clone(), file), bytes).unwrap();
        }
        let payload = self.payload();
        writer.payload(&id, manifest.payload.sha256, manifest.payload.length, &mut payload.as_slice()).unwrap();
        writer.finish().unwrap()
    }
}

pub fn small_tree(root: &Path) {
    trees::put(root, "bin/agent", b"#!/bin/sh\n", 0o755);
    trees::put(root, "lib/data", &trees::noise(7, 5000), 0o644);
    std::os::unix::fs::symlink("agent", root.join("bin/link")).unwrap();
    for directory in ["bin", "lib"] {
        fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Installs a bundle as the store does, trust left out; the class of the first refusal.
pub fn take(bundle: &[u8], into: &Path) -> Result<(), Class> {
    let (head, mut reader) = BundleReader::open(bundle).map_err(|error| error.class())?;
    let manifest = manifest::decompress(&head.releases[0].manifest).map_err(|error| error.class())?;
    let manifest = Manifest::parse(&manifest).map_err(|error| error.class())?;
    let payload = reader.next_payload().map_err(|error| error.class())?.ok_or(Class::Integrity)?;
    payload.check(&manifest).map_err(|error| error.class())?;
    fs::create_dir(into).unwrap();
    let unpacked = unpack(&manifest, &mut reader, &Dir::open(into).unwrap(), 2, &|_, _| {});
    unpacked.map_err(|error| error.class())?;
    reader.finish().map_err(|error| error.class())
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    let sample = Sample::new(trees::varied);
    let again = tempfile::tempdir().unwrap();
    let packed = pack_as(&sample.path("tree"), again.path(), "1.0", &[], 5);
    assert_eq!(packed.manifest_bytes, sample.packed.manifest_bytes);
    assert_eq!(fs::read(again.path().join(PAYLOAD_NAME)).unwrap(), sample.payload());
    assert_eq!(packed.manifest, sample.packed.manifest);
}

#[test]
fn what_was_packed_comes_out_of_the_bundle() {
    let sample = Sample::new(trees::varied);
    let out = sample.path("out");
    assert_eq!(take(&sample.bundle(), &out), Ok(()));
    assert_eq!(trees::contents(&out), trees::contents(&sample.path("tree")));
}

#[test]
fn every_damage_is_refused() {
    let sample = Sample::new(small_tree);
    let bundle = sample.bundle();
    let whole = sample.path("whole");
    assert_eq!(take(&bundle, &whole), Ok(()));
    let expected = trees::contents(&whole);
    let out = sample.path("out");
    let mut refused = 0;
    for place in 0..bundle.len().min(3000) {
        // Every place of the last and first kilobytes is tried, and 3,000 in all.
        let place = if place % 2 == 0 { place * bundle.len() / 3000 } else { bundle.len() - 1 - place };
        let mut damaged = bundle.clone();
        damaged[place] ^= 1 << (place % 8);
        match take(&damaged, &out) {
            Err(class) => {
                assert_eq!(class, Class::Integrity, "{place}");
                refused += 1;
            }
            // Metadata and signature are trust's to judge: all that may come out is the same tree.
            Ok(()) => assert_eq!(trees::contents(&out), expected, "{place}"),
        }
        let _ = fs::remove_dir_all(&out);
    }
    assert!(refused > 2900, "{refused}");
    for length in (0..50).map(|step| step * bundle.len() / 50).chain(bundle.len() - 1500..bundle.len()) {
        assert_eq!(take(&bundle[..length], &out), Err(Class::Integrity), "{length}");
        let _ = fs::remove_dir_all(&out);
    }
    for tail in [&[0][..], &[0; 512], &[0; 10240], b"x"] {
        let longer = [&bundle, tail].concat();
        assert_eq!(take(&longer, &out), Err(Class::Integrity));
        let _ = fs::remove_dir_all(&out);
    }
}

/// The frames of a payload alone.
struct Payload<'a>(&'a [u8]);

impl FrameSource for Payload<'_> {
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        let length = usize::try_from(frame.length).unwrap();
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(|| refused("it ends too early"))?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    fn end(&mut self) -> Result<(), SourceError> {
        if self.0.is_empty() { Ok(()) } else { Err(refused("bytes follow it")) }
    }
}

fn refused(reason: &str) -> SourceError {
    SourceError { class: Class::Integrity, error: reason.into() }
}

#[test]
fn a_damaged_payload_alone_is_refused() {
    let sample = Sample::new(small_tree);
    let payload = sample.payload();
    let out = sample.path("out");
    let attempt = |bytes: &[u8]| {
        fs::create_dir(&out).unwrap();
        let result = unpack(&sample.packed.manifest, &mut Payload(bytes), &Dir::open(&out).unwrap(), 2, &|_, _| {});
        fs::remove_dir_all(&out).unwrap();
        result.map_err(|error| error.to_string())
    };
    assert_eq!(attempt(&payload), Ok(()));
    for place in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[place] ^= 0x10;
        if place % 8 == 0 {
            let message = attempt(&damaged).unwrap_err();
            // Not the decompressor's words: no unverified byte reaches it.
            assert!(message.ends_with("its bytes differ from the signed manifest"), "{place}: {message}");
        }
    }
    for length in (0..payload.len()).step_by(97) {
        assert!(attempt(&payload[..length]).unwrap_err().contains("ends too early"), "{length}");
    }
    assert!(attempt(&[payload.as_slice(), b"\0"].concat()).unwrap_err().contains("bytes follow"));
}

#[test]
fn a_patch_release_keeps_old_contents_in_frames_of_their_own() {
    let sample = Sample::new(trees::varied);
    let tree = sample.path("tree");
    trees::put(&tree, "lib/many/200.py", b"changed", 0o644);
    fs::create_dir(sample.path("next")).unwrap();
    let next = pack_as(&tree, &sample.path("next"), "1.1", std::slice::from_ref(&sample.packed.manifest), 2);
    let manifest = &next.manifest;
    assert_eq!(manifest.generations.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1.0-1", "1.1-1"]);
    let layout = manifest.layout();
    let new: Vec<&str> = manifest
        .frames
        .iter()
        .zip(&layout)
        .filter(|(frame, _)| frame.generation == 1)
        .flat_map(|(_, holds)| match holds {
            sidle::bundle::frames::Holds::Members(range) => &manifest.entries[range.clone()],
            _ => &[],
        })
        .filter(|entry| matches!(entry.kind, EntryKind::File { .. }))
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(new, ["lib/many/200.py"]);
}

#[test]
fn unsafe_trees_are_not_packed_and_every_problem_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    trees::put(&tree, "bin/agent", b"", 0o4755);
    trees::put(&tree, "group", b"", 0o664);
    let built_in = format!("\0{}/x.py\0", tree.canonicalize().unwrap().display());
    trees::put(&tree, "lib/x.pyc", built_in.as_bytes(), 0o644);
    trees::put(&tree, "lib/broken.so", b"\x7fELF and nothing", 0o644);
    trees::put(&tree, "lib/new\nline", b"", 0o644);
    std::os::unix::fs::symlink("/etc/passwd", tree.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../../x", tree.join("lib/out")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    let input = PackInput {
        tree: &Dir::open(&tree).unwrap(),
        recipe: &recipe(),
        version: "1.0".parse().unwrap(),
        revision: 1,
        previous: &[],
        source_date_epoch: EPOCH,
        level: 3,
        threads: 2,
        progress: &|_, _| {},
        contents: Contents::default(),
        output: &Dir::open(directory.path()).unwrap(),
    };
    let message = pack(&input).unwrap_err().to_string();
    for part in [
        "bin/agent: its mode 4755",
        "group: its mode 0664",
        "lib/x.pyc: it contains the path of its build directory",
        "lib/broken.so: cannot read it",
        "lib/new\\nline: the path has a control",
        "absolute: its target is absolute",
        "lib/out: its target leads out",
        "socket: it is neither",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    assert!(!directory.path().join(PAYLOAD_NAME).exists());
}

#[test]
fn what_is_no_bundle_is_called_so() {
    for bytes in [&b""[..], b"hello", &[0; 2048], &[0x28; 4096]] {
        let Err(error) = BundleReader::open(bytes) else { panic!("it was taken") };
        assert!(error.to_string().ends_with("it is not a sidle bundle"), "{error}");
    }
}

/// A manifest that was signed, and lies about the payload that was signed with it.
#[test]
fn a_payload_that_its_manifest_does_not_describe_is_refused() {
    let sample = Sample::new(|root| {
        small_tree(root);
        trees::put(root, "lib/big", &trees::noise(3, 9 << 20), 0o644);
    });
    let payload = sample.payload();
    let out = sample.path("out");
    let attempt = |manifest: &Manifest| {
        fs::create_dir(&out).unwrap();
        let result = unpack(manifest, &mut Payload(&payload), &Dir::open(&out).unwrap(), 2, &|_, _| {});
        fs::remove_dir_all(&out).unwrap();
        result.map_err(|error| error.to_string())
    };
    assert_eq!(attempt(&sample.packed.manifest), Ok(()));
    let lie = |path: &str, change: &dyn Fn(&mut EntryKind)| {
        let mut manifest = sample.packed.manifest.clone();
        let entry = manifest.entries.iter_mut().find(|entry| entry.path.as_str() == path).unwrap();
        change(&mut entry.kind);
        let manifest = Manifest::parse(&manifest.to_json().unwrap()).unwrap();
        attempt(&manifest).expect_err("it was unpacked")
    };
    let other_digest = |kind: &mut EntryKind| {
        if let EntryKind::File { sha256, .. } = kind {
            *sha256 = Digest::of(b"other");
        }
    };
    let other_mode = |kind: &mut EntryKind| {
        if let EntryKind::File { mode, .. } | EntryKind::Directory { mode } = kind {
            *mode = 0o711;
        }
    };
    let other_target = |kind: &mut EntryKind| *kind = EntryKind::Link { target: "other".to_owned() };
    assert!(lie("lib/data", &other_digest).contains("lib/data: its content differs from the manifest"));
    assert!(lie("lib/big", &other_digest).contains("lib/big: its content differs from the manifest"));
    assert!(lie("lib/data", &other_mode).contains("lib/data: its header differs from the manifest"));
    assert!(lie("lib/big", &other_mode).contains("lib/big: its header differs from the manifest"));
    assert!(lie("lib", &other_mode).contains("lib: its header differs from the manifest"));
    assert!(lie("bin/link", &other_target).contains("bin/link: its header differs from the manifest"));
}

#[test]
fn what_is_there_already_is_neither_followed_nor_overwritten() {
    let sample = Sample::new(small_tree);
    let out = sample.path("out");
    let payload = sample.payload();
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink(sample.path("elsewhere"), out.join("lib")).unwrap();
    fs::create_dir(sample.path("elsewhere")).unwrap();
    let mut source = Payload(&payload);
    let error = unpack(&sample.packed.manifest, &mut source, &Dir::open(&out).unwrap(), 2, &|_, _| {}).unwrap_err();
    assert_eq!(error.class(), Class::Failed, "{error}");
    assert_eq!(fs::read_dir(sample.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_payload_that_is_skipped_is_compared_all_the_same() {
    let sample = Sample::new(small_tree);
    let bundle = sample.bundle();
    let (_, reader) = BundleReader::open(bundle.as_slice()).unwrap();
    reader.finish().unwrap();
    let mut damaged = bundle.clone();
    let inside = bundle.len() - 1024 - 512 - 100;
    damaged[inside] ^= 1;
    let (_, reader) = BundleReader::open(damaged.as_slice()).unwrap();
    assert_eq!(reader.finish().map_err(|error| error.class()), Err(Class::Integrity));
}

#[test]
fn a_bundle_carries_several_releases_in_one_order_only() {
    let sample = Sample::new(small_tree);
    fs::create_dir(sample.path("next")).unwrap();
    let next = pack_as(&sample.path("tree"), &sample.path("next"), "1.1", &[], 1);
    let payloads = [sample.payload(), fs::read(sample.path("next").join(PAYLOAD_NAME)).unwrap()];
    let ids = [sample.packed.manifest.id(), next.manifest.id()];
    let mut writer = BundleWriter::new(Vec::new(), &ids).unwrap();
    for packed in [&sample.packed, &next] {
        let digest = Digest::of(&packed.manifest_bytes);
        let sums = checksums(&digest, &packed.manifest.payload.sha256);
        for (file, bytes) in [
            (ReleaseFile::Manifest(digest), packed.manifest_bytes.as_slice()),
            (ReleaseFile::Checksums, sums.as_bytes()),
            (ReleaseFile::Signature, b"signature\n"),
        ] {
            writer.small(&MemberName::Small(packed.manifest.id(), file), bytes).unwrap();
        }
    }
    assert!(writer.small(&MemberName::Metadata(MetadataName::Root(1)), b"{}").is_err());
    for (packed, payload) in [&sample.packed, &next].into_iter().zip(&payloads) {
        let described = packed.manifest.payload;
        writer.payload(&packed.manifest.id(), described.sha256, described.length, &mut payload.as_slice()).unwrap();
    }
    let bundle = writer.finish().unwrap();
    let (head, mut reader) = BundleReader::open(bundle.as_slice()).unwrap();
    assert_eq!(head.releases.iter().map(|release| release.id.clone()).collect::<Vec<_>>(), ids);
    // The first one is passed over, the second one unpacked.
    reader.next_payload().unwrap().unwrap().check(&sample.packed.manifest).unwrap();
    let header = reader.next_payload().unwrap().unwrap();
    assert!(header.check(&sample.packed.manifest).is_err());
    header.check(&next.manifest).unwrap();
    fs::create_dir(sample.path("out")).unwrap();
    unpack(&next.manifest, &mut reader, &Dir::open(&sample.path("out")).unwrap(), 2, &|_, _| {}).unwrap();
    reader.finish().unwrap();
    assert_eq!(trees::contents(&sample.path("out")), trees::contents(&sample.path("tree")));
}
