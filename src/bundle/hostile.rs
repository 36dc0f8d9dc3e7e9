//! Manifests that someone with a signing key, and bad intent, might write. None of them becomes a [`Manifest`].

use super::limits::{ENTRIES_MAXIMUM, PROBLEMS_MAXIMUM};
use super::manifest::{Head, Manifest, ManifestError, compress, decompress};
use proptest::prelude::*;
use serde_json::{Value, json};

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A manifest that is accepted: two directories, three files, one link.
fn good() -> Value {
    let frame = |offset: u64, content: u64| json!({"offset": offset, "length": 100, "sha256": HASH, "content_length": content, "generation": 0});
    json!({
        "schema": 1, "package": "demo", "version": "1.0", "revision": 1, "platform": "linux-any", "agent": "demo", "libc_floor": null,
        "host_libraries": ["libz.so.1"], "host_versions": {"libz.so.1": ["ZLIB_1.2.9"]}, "kernel_floor": "3.2", "x86_64_level": 3, "masters": null, "source_date_epoch": 1_700_000_000,
        "space": {"content_bytes": 1010, "allocated_bytes": 16384, "inodes": 6, "overlap_memory_bytes": 0},
        "commands": {"agent": "bin/agent"},
        "service": {"command": ["agent"], "config": "/etc/demo", "environment": {"A": "1"}},
        "guard": null, "extras": [], "kept": [], "sbom": null,
        "payload": {"length": 400, "sha256": HASH},
        "generations": ["1.0-1"],
        "frames": [frame(0, 1024), frame(100, 512 + 512 + 512 + 512 + 1024), frame(200, 512), frame(300, 1024)],
        "entries": [
            ["bin", "d", 493], ["lib", "d", 493],
            ["bin/agent", "f", 493, 10, HASH, 1], ["lib/data", "f", 420, 1000, HASH, 1], ["lib/empty", "f", 420, 0, HASH, 1],
            ["bin/link", "l", "agent"],
        ],
    })
}

fn parse(value: &Value) -> Result<Manifest, ManifestError> {
    Manifest::parse(&serde_json::to_vec(value).unwrap())
}

/// The problems of the good manifest after `change`.
fn refused(change: impl Fn(&mut Value)) -> String {
    let mut value = good();
    change(&mut value);
    parse(&value).expect_err("it was accepted").to_string()
}

fn with_entry(entry: &Value) -> String {
    refused(|value| value["entries"].as_array_mut().unwrap().push(entry.clone()))
}

#[test]
fn the_manifest_that_is_changed_here_is_accepted_itself() {
    // 512 + 512 bytes for 10; 512 + 1024 for 1000; 512 for none: the second frame.
    let mut value = good();
    value["frames"][1]["content_length"] = json!(1024 + 1536 + 512);
    let manifest = parse(&value).unwrap();
    assert_eq!(manifest.to_json().unwrap().len(), serde_json::to_vec(&value).unwrap().len());
    assert_eq!(parse(&good()).unwrap(), manifest);
    assert_eq!(
        Manifest::parse(&decompress(&compress(&manifest.to_json().unwrap()).unwrap()).unwrap()).unwrap(),
        manifest
    );
}

#[test]
fn an_extra_cannot_speak_to_a_terminal() {
    let extra =
        json!({"name": "a", "version": "1", "sha256": HASH, "licence": "\u{1b}[2J", "requested": true, "provides": {}});
    assert!(refused(|value| value["extras"] = json!([extra])).contains("control characters"));
    let component = json!({"type": "library", "name": "a\nb", "version": "1"});
    let bill = json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": [component]});
    assert!(refused(|value| value["sbom"] = bill.clone()).contains("sbom"));
    let mut older = good();
    older["frames"][1]["content_length"] = json!(1024 + 1536 + 512);
    older["extras"] = json!(null);
    older.as_object_mut().unwrap().remove("kept");
    assert!(parse(&older).unwrap().extras.is_empty());
}

#[test]
fn the_head_that_is_read_alone_is_the_whole_manifest_s_and_no_later_schema_s() {
    let read = |value: &Value| Head::decompressed(&compress(&serde_json::to_vec(value).unwrap()).unwrap());
    assert_eq!(read(&good()).unwrap(), parse(&good()).unwrap().head);
    let mut before = good();
    let entries = before.as_object_mut().unwrap().remove("entries").unwrap();
    let read_text = |behind: &str, entries: &Value| {
        let text = before.to_string();
        let text = format!("{},\"entries\":{entries}{behind}}}", text.strip_suffix('}').unwrap());
        Head::decompressed(&compress(text.as_bytes()).unwrap())
    };
    assert_eq!(read_text("", &entries).unwrap(), parse(&good()).unwrap().head);
    // What comes behind the entries counts, and entries are passed over whatever their paths are.
    assert!(matches!(read_text(",\"schema\":1", &entries), Err(ManifestError::Json(_))), "a key that is there twice");
    for path in ["a]],", "]]}", ",\"entries\":[[\"x\""] {
        assert_eq!(
            read_text("", &json!([["a", "d", 493], [path, "d", 493]])).unwrap(),
            read(&good()).unwrap(),
            "{path}"
        );
    }
    let mut later = good();
    later["schema"] = json!(2);
    assert!(matches!(read(&later), Err(ManifestError::Schema(2))));
    let mut incomplete = good();
    incomplete.as_object_mut().unwrap().remove("commands");
    assert!(matches!(read(&incomplete), Err(ManifestError::Json(_))));
}

#[test]
fn paths_that_leave_or_repeat_are_refused() {
    for (entry, reason) in [
        (json!(["../x", "f", 420, 0, HASH, 1]), "'..'"),
        (json!(["lib/../../x", "f", 420, 0, HASH, 1]), "'..'"),
        (json!(["/etc/cron.d/x", "f", 420, 0, HASH, 1]), "absolute"),
        (json!(["", "d", 493]), "empty"),
        (json!(["lib/a\u{0}b", "f", 420, 0, HASH, 1]), "control"),
        (json!(["lib/data", "f", 420, 0, HASH, 1]), "twice"),
        (json!(["lib", "l", "bin"]), "twice"),
        (json!(["none/x", "f", 420, 0, HASH, 1]), "not declared"),
        (json!(["lib/data/x", "f", 420, 0, HASH, 1]), "parent is a file"),
        (json!(["bin/link/x", "f", 420, 0, HASH, 1]), "parent is a link"),
        (json!(["lib/fifo", "p", 420]), "neither file"),
        (json!(["lib/hard", "h", "lib/data"]), "neither file"),
        (json!(["lib/x", "f", 0o4755, 0, HASH, 1]), "mode 4755"),
        (json!(["lib/x", "f", 0o775, 0, HASH, 1]), "mode 0775"),
        (json!(["lib/x", "d", 0o1755]), "mode 1755"),
        (json!(["lib/x", "d", 0o555]), "does not include"),
        (json!(["lib/x", "f", 0, 0, HASH, 1]), "does not include"),
        (json!(["lib/x", "f", 420, u64::MAX, HASH, 1]), "bytes"),
        (json!(["lib/x", "f", 420, 0, HASH.to_uppercase(), 1]), "SHA-256"),
        (json!(["lib/x", "f", -1, 0, HASH, 1]), "cannot read the manifest"),
        (json!(["lib/x", "f", 420, 0, HASH]), "cannot read the manifest"),
        (json!(["lib/x", "d", 493, 0]), "cannot read the manifest"),
        (json!({"path": "x"}), "cannot read the manifest"),
    ] {
        let message = with_entry(&entry);
        assert!(message.contains(reason), "{entry}: {message}");
    }
}

#[test]
fn links_that_leave_are_refused() {
    for (path, target) in [
        ("lib/l", "/etc/passwd"),
        ("lib/l", "../../x"),
        ("l", ".."),
        ("lib/l", "../lib/../.."),
        ("lib/l", "a/../../../x"),
        ("lib/l", "data/../x"),
        ("lib/l", "../bin/link/../../x"),
        ("lib/l", ""),
        ("lib/l", "a\nb"),
    ] {
        let message = with_entry(&json!([path, "l", target]));
        assert!(message.contains("its target"), "{target}: {message}");
    }
    // A link to the tree's root, and one that goes up behind it: each looks harmless by its text.
    let both = refused(|value| {
        let entries = value["entries"].as_array_mut().unwrap();
        entries.push(json!(["lib/root", "l", ".."]));
        entries.push(json!(["lib/through", "l", "root/../etc"]));
    });
    assert!(both.contains("lib/through: its target leads through a link"), "{both}");
}

#[test]
fn frames_and_sums_that_do_not_agree_are_refused() {
    let set = |pointer: &'static str, to: Value| refused(|value| *value.pointer_mut(pointer).unwrap() = to.clone());
    for (pointer, to) in [
        ("/frames/1/offset", json!(99)),
        ("/frames/1/offset", json!(101)),
        ("/frames/1/length", json!(0)),
        ("/frames/1/length", json!(u64::MAX)),
        ("/frames/0/content_length", json!(1023)),
        ("/frames/0/content_length", json!(1024 + 512)),
        ("/frames/3/content_length", json!(512)),
        ("/frames/1/content_length", json!(1_u64 << 40)),
        ("/frames/1/generation", json!(1)),
        ("/payload/length", json!(401)),
        ("/space/content_bytes", json!(1)),
        ("/space/allocated_bytes", json!(0)),
        ("/space/inodes", json!(5)),
        ("/generations", json!([])),
        ("/generations", json!(["0.9-1"])),
        ("/generations", json!(["1.0-1", "1.0-1"])),
        ("/generations", json!(["1.1-1", "1.0-1"])),
        ("/revision", json!(0)),
        ("/libc_floor", json!("2.28")),
        ("/platform", json!("linux-x86_64-glibc2.028")),
        ("/platform", json!("linux-x86_64-glibc2.28")),
        ("/package", json!("../x")),
        ("/version", json!("1.0/../..")),
        ("/host_libraries", json!(["b", "a"])),
        ("/host_libraries", json!(["../a"])),
        ("/kernel_floor", json!("3")),
        ("/x86_64_level", json!(1)),
        ("/x86_64_level", json!(5)),
        ("/host_versions", json!({"libother.so.1": ["A_1"]})),
        ("/host_versions", json!({"libz.so.1": []})),
        ("/host_versions", json!({"libz.so.1": ["B_1", "A_1"]})),
        ("/host_versions", json!({"libz.so.1": ["A 1"]})),
        ("/commands", json!({"agent": "lib/data"})),
        ("/commands", json!({"agent": "bin"})),
        ("/commands", json!({"agent": "../x"})),
        ("/commands", json!({"agent": "bin/agent", "a/b": "bin/agent"})),
        ("/service/command", json!([])),
        ("/service/command", json!(["sh"])),
        ("/service/config", json!("etc")),
        ("/service/environment", json!({"A=B": "1"})),
        ("/source_date_epoch", json!(u64::MAX)),
        ("/entries/2/5", json!(0)),
        ("/entries/0/0", json!("lib")),
        ("/entries", json!([])),
    ] {
        let message = set(pointer, to.clone());
        assert!(message.starts_with("cannot "), "{pointer} {to}: {message}");
    }
    assert!(set("/schema", json!(2)).contains("schema 2"));
    assert!(refused(|value| *value = json!({"schema": 9, "shape": "new"})).contains("schema 9"));
    assert!(refused(|value| value["entries"].as_array_mut().unwrap().swap(3, 4)).contains("out of order"));
    assert!(refused(|value| value["frames"].as_array_mut().unwrap().truncate(3)).contains("frame"));
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let text = serde_json::to_string(&good()).unwrap();
    for (once, twice) in [
        (r#""revision":1"#, r#""revision":1,"revision":2"#),
        (r#""agent":"bin/agent""#, r#""agent":"bin/agent","agent":"bin/link""#),
        (r#""A":"1""#, r#""A":"1","A":"2""#),
    ] {
        let text = text.replacen(once, twice, 1);
        let message = Manifest::parse(text.as_bytes()).expect_err("it was accepted").to_string();
        assert!(message.contains("duplicate"), "{message}");
    }
    assert!(Manifest::parse(format!("{text} x").as_bytes()).is_err());
    assert!(Manifest::parse(text.replacen(r#""guard":null"#, r#""guard":{"a":1},"new":[1]"#, 1).as_bytes()).is_ok());
}

#[test]
fn huge_counts_are_refused_quickly_and_all_problems_are_counted() {
    let message = refused(|value| value["entries"] = vec![json!(["x", "d", 493]); ENTRIES_MAXIMUM + 1].into());
    assert!(message.contains("at most"), "{message}");
    let message = refused(|value| value["entries"] = vec![json!(["../x", "d", 493]); 1000].into());
    assert!(message.matches("../x: ").count() <= PROBLEMS_MAXIMUM, "{message}");
    assert!(message.contains(&format!("problems, of which the first {PROBLEMS_MAXIMUM} are: ")), "{message}");
    let bomb = zstd::bulk::compress(&vec![b' '; 65 << 20], 3).unwrap();
    assert!(decompress(&bomb).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut text = serde_json::to_vec(&good()).unwrap();
        for (place, byte) in flips {
            let place = place.index(text.len());
            text[place] = byte;
        }
        if let Ok(manifest) = Manifest::parse(&text) {
            // What is accepted can be laid out, and is the same after a round trip.
            prop_assert_eq!(manifest.layout().len(), manifest.frames.len());
            prop_assert_eq!(Manifest::parse(&manifest.to_json().unwrap()).unwrap(), manifest);
        }
    }

    #[test]
    fn accepted_links_stay_inside(components in prop::collection::vec(prop_oneof![Just(".."), Just("lib"), Just("bin"), Just("link"), Just("."), Just("")], 1..7)) {
        let target = components.join("/");
        let mut value = good();
        value["entries"].as_array_mut().unwrap().push(json!(["lib/zz", "l", target]));
        value["space"]["inodes"] = json!(7);
        value["frames"][2]["content_length"] = json!(1024);
        if parse(&value).is_ok() {
            let mut depth = 1_i32;
            for component in &components {
                depth += match *component { ".." => -1, "" | "." => 0, _ => 1 };
                prop_assert!(depth >= 0, "{}", target);
            }
        }
    }
}
