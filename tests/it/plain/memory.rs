//! However large or hostile what it is given, an install takes less than 64 MB of memory.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::repositories::RepoBuilder;
use crate::support::stage::{Host, SIDLE, text};
use crate::support::trees::noise;
use jiff::Timestamp;
use sidle::bundle::file::BundleWriter;
use sidle::bundle::member::{MemberName, MetadataName, ReleaseFile, ReleaseId, checksums};
use sidle::digest::Digest;
use sidle::trust::canonical::Json;
use sidle::trust::metadata::Target;
use sidle::trust::publish::{self, Signer as _};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// What an install may take, bytes resident.
const MEMORY_BYTES: u64 = 64_000_000;

/// Runs `sidle` and tells its exit code, the most memory that it took, bytes, and what it said.
fn measured(host: &Host, arguments: &[&str]) -> (i32, u64, String) {
    let script = "import os,sys\npid=os.posix_spawn(sys.argv[1],sys.argv[1:],os.environ)\n_,status,used=os.wait4(pid,0)\n\
                  print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1, used.ru_maxrss)";
    let root = host.root();
    let output = Command::new("python3")
        .args(["-c", script, SIDLE, "--root", text(&root), "--quiet"])
        .args(arguments)
        .output()
        .unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let mut numbers = told.lines().last().unwrap().split(' ').map(|number| number.parse::<u64>().unwrap());
    let (code, kib) = (numbers.next().unwrap(), numbers.next().unwrap());
    (i32::try_from(code).unwrap(), kib * 1024, said.into_owned())
}

#[track_caller]
fn install(host: &Host, bundle: &Path, code: i32) {
    let (found, bytes, said) = measured(host, &["install", text(bundle)]);
    println!("install took {bytes} bytes: exit code {found}, {said}");
    assert_eq!(found, code, "{said}");
    assert!(bytes < MEMORY_BYTES, "it took {bytes} bytes: {said}");
    if code != 0 {
        // Who looks at a stranger's file is no better off than who installs it.
        let (_, bytes, said) = measured(host, &["inspect", text(bundle)]);
        assert!(bytes < MEMORY_BYTES, "inspect took {bytes} bytes: {said}");
    }
}

fn host_of(builder: &RepoBuilder) -> Host {
    Host::trusting(&builder.path().join("metadata/1.root.json"), &builder.fingerprint.to_string())
}

fn id() -> ReleaseId {
    "demo/1.0-1/linux-any".parse().unwrap()
}

/// A bundle of one release whose manifest has this text, signed by the author: nothing but its content is wrong.
fn signed(builder: &RepoBuilder, manifest_text: &[u8]) -> std::path::PathBuf {
    let manifest = zstd::bulk::compress(manifest_text, 1).unwrap();
    bundle_of(builder, &manifest, &BTreeMap::new())
}

/// The same with more targets than these.
fn bundle_of(builder: &RepoBuilder, manifest: &[u8], more: &BTreeMap<String, Target>) -> std::path::PathBuf {
    let path = builder.directory.path().join("signed.bundle");
    std::fs::write(&path, builder.vouch(&id(), manifest, b"none", more)).unwrap();
    path
}

#[test]
fn unsigned_metadata_is_refused_by_its_size_before_it_is_in_memory() {
    let builder = RepoBuilder::new(Timestamp::now());
    let host = host_of(&builder);
    let path = builder.directory.path().join("unsigned.bundle");
    let mut bundle = BundleWriter::new(File::create(&path).unwrap(), &[id()]).unwrap();
    let bytes = noise(1, 16 << 20);
    for number in 0..15 {
        let name = MetadataName::Delegated(format!("role{number:02}"), 1);
        bundle.small(&MemberName::Metadata(name), &bytes).unwrap();
    }
    drop(bundle);
    install(&host, &path, 6);
}

#[test]
fn a_signed_manifest_of_millions_of_things_is_refused_while_it_is_read() {
    let builder = RepoBuilder::new(Timestamp::now());
    let many = |item: &str, count: usize| vec![item; count].join(",");
    for (what, text) in [
        ("entries", format!("{{\"entries\":[{}]}}", many("[\"\",\"d\",0]", 5_000_000))),
        ("fewer entries", format!("{{\"entries\":[{}]}}", many("[\"\",\"d\",0]", 1_000_000))),
        ("libraries", format!("{{\"host_libraries\":[{}]}}", many("\"\"", 3_400_000))),
        (
            "commands",
            format!("{{\"commands\":{{{}}}}}", {
                let names: Vec<String> = (0..800_000).map(|number| format!("\"{number:x}\":\"a\"")).collect();
                names.join(",")
            }),
        ),
        ("nested fields", format!("{{\"new\":{}1{}}}", "[".repeat(100), "]".repeat(100))),
        ("versions", format!("{{\"host_versions\":{{\"a\":[{}]}}}}", many("\"\"", 3_400_000))),
        ("one long text", format!("{{\"host_libraries\":[\"{}\"]}}", "x".repeat(9 << 20))),
        ("tried", format!("{{\"guard\":{{\"tried\":[{}]}}}}", many("\"\"", 3_400_000))),
    ] {
        println!("{what}");
        install(&host_of(&builder), &signed(&builder, text.as_bytes()), 7);
    }
}

#[test]
fn signed_metadata_of_millions_of_small_things_is_refused_while_it_is_read() {
    let builder = RepoBuilder::new(Timestamp::now());
    let host = host_of(&builder);
    let path = builder.directory.path().join("small.bundle");
    for role in ["snapshot", "root"] {
        let name = if role == "root" { MetadataName::Root(2) } else { MetadataName::Timestamp };
        let room = if role == "root" { 500 << 10 } else { 15 << 10 };
        let bytes = format!("[{}]", vec!["{\"\":0}"; room / 7].join(","));
        let mut bundle = BundleWriter::new(File::create(&path).unwrap(), &[id()]).unwrap();
        bundle.small(&MemberName::Metadata(MetadataName::Root(1)), &builder.root()).unwrap();
        bundle.small(&MemberName::Metadata(name), bytes.as_bytes()).unwrap();
        let sums = checksums(&Digest::of(b"m"), &Digest::of(b"p"));
        for (file, bytes) in [
            (ReleaseFile::Manifest(Digest::of(b"m")), b"m".as_slice()),
            (ReleaseFile::Checksums, sums.as_bytes()),
            (ReleaseFile::Signature, b"s"),
        ] {
            bundle.small(&MemberName::Small(id(), file), bytes).unwrap();
        }
        bundle.payload(&id(), Digest::of(b"p"), 1, &mut &b"p"[..]).unwrap();
        bundle.finish().unwrap();
        install(&host, &path, 7);
    }
}

#[test]
fn the_largest_lists_that_are_accepted_fit() {
    let builder = RepoBuilder::new(Timestamp::now());
    let host = host_of(&builder);
    let entry = publish::target(1, Digest::of(b"x"));
    // As near as it gets to the largest targets file.
    let more: BTreeMap<_, _> = (0..7_500)
        .map(|number| {
            (format!("demo/{number:08}-1/linux-x86_64-glibc2.28/{number:064x}.payload.tar.zst"), entry.clone())
        })
        .collect();
    let entries: Vec<String> = (0..49_000)
        .map(|number| format!("[\"directory/of/some/depth/{number:0100}\",\"f\",420,1,\"{number:064x}\",0]"))
        .collect();
    let text = format!("{{\"entries\":[{}]}}", entries.join(","));
    let manifest = zstd::bulk::compress(text.as_bytes(), 3).unwrap();
    println!("manifest {} of {}", manifest.len(), text.len());
    install(&host, &bundle_of(&builder, &manifest, &more), 7);
}

#[test]
fn a_chain_of_large_roots_is_refused_before_it_fills_memory() {
    let builder = RepoBuilder::new(Timestamp::now());
    builder.add("1.0", "content");
    builder.publish();
    let host = host_of(&builder);
    let first: serde_json::Value = serde_json::from_slice(&builder.root()).unwrap();
    let key = first["signatures"][0]["keyid"].clone();
    for version in 2..=120 {
        let mut signed = first["signed"].clone();
        (signed["version"], signed["padding"]) = (version.into(), "x".repeat(500 << 10).into());
        let canonical = Json::parse(signed.to_string().as_bytes()).unwrap().canonical();
        let mut signature = String::new();
        for byte in builder.offline.sign(&canonical).unwrap() {
            write!(signature, "{byte:02x}").unwrap();
        }
        let root = serde_json::json!({"signed": signed, "signatures": [{"keyid": key, "sig": signature}]});
        let path = builder.path().join(format!("metadata/{version}.root.json"));
        std::fs::write(path, root.to_string()).unwrap();
    }
    let url = format!("file://{}", builder.path().display());
    let (code, bytes, said) = measured(&host, &["install", "demo", "--repository", &url]);
    println!("{code}, {bytes} bytes: {said}");
    assert!(code == 7 && said.contains("its metadata takes more than 6 MiB in all"), "{code}: {said}");
    assert!(bytes < MEMORY_BYTES, "it took {bytes} bytes: {said}");
}

#[test]
fn large_files_are_installed_in_little_memory() {
    for (version, content) in [("1.0", vec![0; 320 << 20]), ("2.0", noise(7, 96 << 20))] {
        let builder = RepoBuilder::new(Timestamp::now());
        let host = host_of(&builder);
        let id = builder.add(version, &content);
        drop(content);
        builder.publish();
        install(&host, &builder.export(&[id], "large.bundle"), 0);
    }
}
