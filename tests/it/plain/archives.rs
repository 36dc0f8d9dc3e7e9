//! Hostile archives: whatever a tar says of itself, by whatever way it comes, it is refused, and nothing is written but below staging, which is empty
//! again.

#![expect(clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::inside::{Inside, is_untouched};
use crate::support::repositories::RepoBuilder;
use crate::support::stage::{Host, text};
use jiff::Timestamp;
use sidle::bundle::manifest::{self, Manifest, Payload};
use sidle::bundle::ustar;
use sidle::digest::Digest;
use sidle::failure::Class;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A place outside that many of them aim at.
const OUTSIDE: &str = "/tmp/sidle-escaped";
/// Every n-th attempt is made again through the program.
const THROUGH_THE_PROGRAM: usize = 40;

/// One member of a tar as it is written, whether it makes sense or not.
#[derive(Clone)]
struct Member {
    name: Vec<u8>,
    kind: u8,
    link: Vec<u8>,
    mode: Vec<u8>,
    size: Option<Vec<u8>>,
    owner: &'static [u8],
    magic: &'static [u8; 8],
    content: Vec<u8>,
    checksum: bool,
}

impl Member {
    fn file(name: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            kind: b'0',
            link: Vec::new(),
            mode: b"0000755\0".to_vec(),
            size: None,
            owner: b"0000000\0",
            magic: b"ustar\x0000",
            content: b"#!/bin/sh\ntouch /tmp/sidle-escaped\n".to_vec(),
            checksum: true,
        }
    }

    fn link(kind: u8, name: impl Into<Vec<u8>>, link: impl Into<Vec<u8>>) -> Self {
        Self { kind, link: link.into(), content: Vec::new(), ..Self::file(name) }
    }

    /// Its header alone.
    fn header(&self) -> [u8; 512] {
        let mut block = [0; 512];
        let mut put = |at: usize, room: usize, bytes: &[u8]| {
            let length = bytes.len().min(room);
            block[at..at + length].copy_from_slice(&bytes[..length]);
        };
        put(0, 100, &self.name);
        put(100, 8, &self.mode);
        put(108, 8, self.owner);
        put(116, 8, self.owner);
        let size = format!("{:011o}\0", self.content.len()).into_bytes();
        put(124, 12, self.size.as_ref().unwrap_or(&size));
        put(136, 12, b"00000000000\0");
        put(148, 8, b"        ");
        put(156, 1, &[self.kind]);
        put(157, 100, &self.link);
        put(257, 8, self.magic);
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let sum = if self.checksum { sum } else { sum + 1 };
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.header());
        into.extend_from_slice(&self.content);
        into.resize(into.len().next_multiple_of(512), 0);
    }
}

fn tar(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        member.write(&mut bytes);
    }
    bytes.extend_from_slice(&ustar::END);
    bytes
}

/// A record of a PAX header: its length in front of it.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let length = (rest.len()..rest.len() + 10).find(|length| length.to_string().len() + rest.len() == *length).unwrap();
    format!("{length}{rest}").into_bytes()
}

/// As long as the field holds, and as deep.
const LONG: &[u8] = &[b'x'; 100];
const DEEP: &[u8] =
    b"a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/";

const NAMES: [&[u8]; 34] = [
    b"../escape",
    b"../../../../../../../../../../tmp/sidle-escaped",
    OUTSIDE.as_bytes(),
    b"//tmp/sidle-escaped",
    b"bin/../../escape",
    b"./../escape",
    b"bin/./agent2",
    b"bin//agent2",
    b"bin/agent2/",
    b"",
    b".",
    b"..",
    b"/",
    b"bin/..",
    b"bin/.",
    b"bin/new\nline",
    b"bin/\x1b[2Jclear",
    b"bin/\xff\xfe",
    b"bin/back\\slash",
    b"C:\\windows",
    b"bin/ agent",
    b"bin/agent ",
    b"BIN/AGENT",
    b"bin/caf\xc3\xa9",
    b"bin/cafe\xcc\x81",
    LONG,
    DEEP,
    b"-rf",
    b"--checkpoint-action=exec=sh",
    b"bin/agent:stream",
    b"lib/data/below-a-file",
    b".sidle-lock",
    b"staging/other",
    b"versions/2.0-1/bin/agent",
];

const LINKS: [&[u8]; 16] = [
    b"/etc/passwd",
    b"../../../../../../etc/passwd",
    b"..",
    b"../..",
    b".",
    b"",
    b"/",
    b"bin/link",
    b"missing",
    b"/proc/self/root",
    b"/proc/self/fd/0",
    b"new\nline",
    LONG,
    b"x/../../../y",
    b"//etc",
    b"\xff\xfe",
];

/// Single members that nobody should write.
fn members() -> Vec<(String, Member)> {
    let mut all: Vec<(String, Member)> = Vec::new();
    all.extend(NAMES.iter().map(|name| (format!("the name {}", name.escape_ascii()), Member::file(*name))));
    for (kind, what) in [(b'1', "a hard link"), (b'2', "a link")] {
        all.extend(
            LINKS.iter().map(|to| (format!("{what} to {}", to.escape_ascii()), Member::link(kind, "bin/link", *to))),
        );
    }
    for kind in *b"\x00346789ADEIKLMNSVXgxsZ!\xff" {
        let what = format!("the type {}", [kind].escape_ascii());
        all.push((what, Member { kind, ..Member::file("bin/agent2") }));
    }
    for mode in [
        &b"0004755\0"[..],
        b"0002755\0",
        b"0001777\0",
        b"0000000\0",
        b"7777777\0",
        b"0100755\0",
        b"xyz\0",
        b"-000755\0",
        b"",
        b"\x80\0\0\0\0\0\x01\xed",
    ] {
        all.push((
            format!("the mode {}", mode.escape_ascii()),
            Member { mode: mode.to_vec(), ..Member::file("bin/agent2") },
        ));
    }
    for size in [
        &b"77777777777\0"[..],
        b"-0000000001\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\0\0\0\0\0\0\0\0\0\0\x08",
        b"\x80\x7f\0\0\0\0\0\0\0\0\0\x08",
        b"            ",
        b"00000000999\0",
        b"0x10\0",
        b"1e3\0",
        b"",
    ] {
        all.push((
            format!("the size {}", size.escape_ascii()),
            Member { size: Some(size.to_vec()), ..Member::file("bin/agent2") },
        ));
    }
    for owner in [&b"7777777\0"[..], b"0001750\0", b"-000001\0", b"root\0\0\0\0"] {
        all.push((format!("the owner {}", owner.escape_ascii()), Member { owner, ..Member::file("bin/agent2") }));
    }
    for magic in [b"ustar  \0", b"\0\0\0\0\0\0\0\0", b"USTAR\x0000", b"ustar\x0099"] {
        all.push((format!("the magic {}", magic.escape_ascii()), Member { magic, ..Member::file("bin/agent2") }));
    }
    all.push(("a wrong checksum".to_owned(), Member { checksum: false, ..Member::file("bin/agent2") }));
    all
}

/// Whole archives that nobody should write: each member above, and what several of them make together.
fn archives() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = members().into_iter().map(|(what, member)| (what, tar(&[member]))).collect();
    let mut add = |what: &str, members: &[Member]| all.push((what.to_owned(), tar(members)));
    let pax = |kind: u8, records: Vec<u8>| Member { kind, content: records, ..Member::file("PaxHeader") };
    let gnu = |kind: u8, name: &str| Member {
        kind,
        content: [name.as_bytes(), b"\0"].concat(),
        ..Member::file("././@LongLink")
    };
    let directory = |name: &str| Member { kind: b'5', content: Vec::new(), ..Member::file(name) };
    let good = Member::file("bin/agent");
    add("a file through a link", &[Member::link(b'2', "bin", "/tmp"), Member::file("bin/sidle-escaped")]);
    add(
        "a file through two links",
        &[Member::link(b'2', "a", "b"), Member::link(b'2', "b", "../../.."), Member::file("a/x")],
    );
    add("a file through a hard link", &[Member::link(b'1', "x", OUTSIDE), Member::file("x")]);
    add(
        "a link that replaces a directory",
        &[directory("bin"), Member::link(b'2', "bin", "/tmp"), Member::file("bin/x")],
    );
    add("the same file twice", &[good.clone(), good.clone()]);
    add("a directory and a file of one name", &[directory("bin/agent"), good.clone()]);
    add("a file and a directory of one name", &[good.clone(), directory("bin/agent")]);
    add("a directory with content", &[Member { content: vec![7; 700], ..directory("bin") }]);
    add("a link with content", &[Member { content: vec![7; 700], ..Member::link(b'2', "bin/link", "agent") }]);
    add("a path in a record", &[pax(b'x', record("path", OUTSIDE)), good.clone()]);
    add("a path in a record for all", &[pax(b'g', record("path", "../escape")), good.clone()]);
    add("a size in a record", &[pax(b'x', record("size", "8589934592")), good.clone()]);
    add("a target in a record", &[pax(b'x', record("linkpath", OUTSIDE)), Member::link(b'2', "bin/link", "agent")]);
    add("a record without an end", &[pax(b'x', b"999 path=x".to_vec()), good.clone()]);
    add("a record that is too short", &[pax(b'x', b"3 path=../escape\n".to_vec()), good.clone()]);
    add("a sparse file by records", &[pax(b'x', record("GNU.sparse.name", OUTSIDE)), good.clone()]);
    add("a long name", &[gnu(b'L', OUTSIDE), good.clone()]);
    add("a long target", &[gnu(b'K', OUTSIDE), Member::link(b'2', "bin/link", "agent")]);
    add("a long name of long names", &[gnu(b'L', "x"), gnu(b'L', "../escape"), good.clone()]);
    let whole = tar(std::slice::from_ref(&good));
    let mut add = |what: &str, bytes: Vec<u8>| all.push((what.to_owned(), bytes));
    add("no end", whole[..whole.len() - 1024].to_vec());
    add("half an end", whole[..whole.len() - 512].to_vec());
    add("something behind its end", [whole.as_slice(), b"behind"].concat());
    add("two archives", [whole.as_slice(), &whole].concat());
    add("half a header", whole[..300].to_vec());
    add("a header without its content", whole[..512].to_vec());
    add("nothing", Vec::new());
    add("zeros", vec![0; 10_240]);
    add("many zeros", vec![0; 1 << 20]);
    add("a zip", b"PK\x03\x04\x14\0\0\0\0\0".repeat(100));
    add("an ar archive", b"!<arch>\ndebian-binary   0           0     0     100644  4         `\n2.0\n".to_vec());
    add("a cpio archive", b"070701000000000000000000000000".repeat(40));
    all
}

/// An author who signs whatever there is.
struct Stage {
    builder: RepoBuilder,
    manifest: Manifest,
    /// The tar bytes of each frame of the good payload: directories, files, the end.
    good: Vec<Vec<u8>>,
    root: Vec<u8>,
    place: tempfile::TempDir,
}

/// The frame that holds the files.
const FILES: usize = 1;

impl Stage {
    fn new() -> Self {
        let builder = RepoBuilder::new(Timestamp::now());
        let (packed, payload) = builder.pack("1.0", "content");
        let whole = zstd::stream::decode_all(fs::File::open(payload).unwrap()).unwrap();
        let mut good = Vec::new();
        let mut rest = whole.as_slice();
        for frame in &packed.manifest.frames {
            let (content, more) = rest.split_at(usize::try_from(frame.content_length).unwrap());
            good.push(content.to_vec());
            rest = more;
        }
        assert!(rest.is_empty() && good.len() == 3, "{}", good.len());
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { manifest: packed.manifest, good, root: builder.root(), builder, place }
    }

    /// A release whose files' frame holds this, and is said to hold so many bytes.
    fn signed(&self, files: &[u8], content_length: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut frames = self.manifest.frames.clone();
        for (number, frame) in frames.iter_mut().enumerate() {
            let content = if number == FILES { files } else { &self.good[number] };
            let bytes = zstd::bulk::compress(content, 1).unwrap();
            (frame.offset, frame.length, frame.sha256) = (payload.len() as u64, bytes.len() as u64, Digest::of(&bytes));
            payload.extend(bytes);
        }
        frames[FILES].content_length = content_length as u64;
        let whole = Payload { length: payload.len() as u64, sha256: Digest::of(&payload) };
        let mut manifest = self.manifest.clone();
        (manifest.head.payload, manifest.head.frames) = (whole, frames);
        let text = manifest.to_json().unwrap();
        self.builder.vouch(&manifest.id(), &manifest::compress(&text).unwrap(), &payload, &BTreeMap::new())
    }

    /// The good release, as this author signs it.
    fn good(&self) -> Vec<u8> {
        self.signed(&self.good[FILES], self.good[FILES].len())
    }

    /// The ways by which an archive may come.
    fn wrapped(&self, archive: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let (files, length) = (&self.good[FILES], self.good[FILES].len());
        let members = archive.strip_suffix(&ustar::END[..]).unwrap_or(archive);
        let good = self.good();
        let mut ways = vec![
            ("as it is", archive.to_vec()),
            ("compressed", zstd::bulk::compress(archive, 1).unwrap()),
            ("before a good bundle", [archive, &good].concat()),
            ("behind a good bundle", [good.as_slice(), archive].concat()),
            ("in a signed payload", self.signed(members, length)),
            ("in a signed payload that says how long it is", self.signed(members, members.len())),
            ("before the good members of a signed payload", self.signed(&[members, files].concat(), length)),
            ("behind the good members of a signed payload", self.signed(&[files, members].concat(), length)),
        ];
        if archive.len() >= 512 {
            let first_replaced = [&archive[..512], &files[512..]].concat();
            ways.push(("as a header in a signed payload", self.signed(&first_replaced, length)));
        }
        ways
    }

    fn attempt(&self, bundle: &[u8], what: &str) -> Option<Class> {
        let host = Inside::below(self.place.path(), &self.root);
        let refused = host.install(bundle).err().map(|report| {
            println!("{what}: {report}");
            report.class
        });
        if refused.is_some() {
            assert!(is_untouched(&host.store()), "{what}: it left {:?}", host.store().keys());
        }
        refused
    }
}

#[test]
fn hostile_archives_are_refused_by_whatever_way_they_come_and_write_nothing() {
    let stage = Stage::new();
    let fingerprint = stage.builder.fingerprint.to_string();
    let root = stage.builder.path().join("metadata/1.root.json");
    let good = stage.good();
    assert_eq!(stage.attempt(&good, "the good one"), None);
    let _ = fs::remove_file(OUTSIDE);
    let archives = archives();
    assert!(archives.len() > 100, "only {}", archives.len());
    let mut attempts = 0;
    for (what, archive) in &archives {
        for (way, bundle) in stage.wrapped(archive) {
            // An empty archive in front of or behind a good bundle is that bundle.
            if bundle == good {
                continue;
            }
            attempts += 1;
            let told = format!("{what}, {way}");
            let class = stage.attempt(&bundle, &told);
            assert!(matches!(class, Some(Class::Integrity | Class::NotTrusted)), "{told}: {class:?}");
            if attempts % THROUGH_THE_PROGRAM == 0 {
                let host = Host::trusting(&root, &fingerprint);
                let path = host.path("attempt.sidle");
                fs::write(&path, &bundle).unwrap();
                let ran = host.sidle(&["install", text(&path)]);
                assert!(matches!(ran.code, Some(6 | 7)), "{told}: {ran:?}");
            }
        }
    }
    println!("{} archives in {attempts} wrappings", archives.len());
    assert!(attempts > 900, "only {attempts}");
    let left: Vec<_> = fs::read_dir(stage.place.path()).unwrap().collect();
    assert!(left.is_empty() && !Path::new(OUTSIDE).exists(), "{left:?}");
}
