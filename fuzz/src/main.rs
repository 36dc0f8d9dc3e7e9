//! What strangers or crashes may write, given to what reads it: `scripts/fuzz TARGET`. A target fails where its reader panics, hangs or takes more
//! memory than libFuzzer allows; what it accepts and what it refuses is up to the tests.

#![no_main]

mod http;

use libfuzzer_sys::fuzz_target;
use sidle::agent::gate::GuardReport;
use sidle::bundle::compression::{self, Expected};
use sidle::bundle::file::BundleReader;
use sidle::bundle::manifest::Manifest;
use sidle::bundle::recipe::Recipe;
use sidle::salt::entry;
use sidle::salt::title::Title;
use sidle::salt::yaml::Value;
use sidle::store::index::Index;
use sidle::supervise::control;
use sidle::saved::Saved as _;
use sidle::switch::journal::verdicts::Verdicts;
use sidle::switch::{History, Journal};
use sidle::trust::canonical::Json;
use sidle::trust::metadata::{Root, Signed, Snapshot, Targets, Timestamp};
use sidle::trust::minisign::Minisig;
use std::path::Path;
use std::sync::OnceLock;

/// Reads `data` once, whatever comes of it.
type Reader = fn(&[u8]);

fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}

/// As text, and compressed as it comes.
fn manifest(data: &[u8]) {
    let _ = Manifest::parse(data);
    let _ = Manifest::decompressed(data);
}

fn bundle(data: &[u8]) {
    let _ = BundleReader::open(data);
}

fn metadata(data: &[u8]) {
    let _ = Signed::<Root>::parse("root.json", data);
    let _ = Signed::<Timestamp>::parse("timestamp.json", data);
    let _ = Signed::<Snapshot>::parse("snapshot.json", data);
    let _ = Signed::<Targets>::parse("targets.json", data);
}

/// What signatures are over. Canonical JSON writes control characters as they are, so that it does not always read what it has written.
fn canonical(data: &[u8]) {
    if let Ok(json) = Json::parse(data) {
        let _ = json.canonical();
    }
}

/// A frame: the first two bytes say how much it is said to hold.
fn frame(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let length = u64::from(u16::from_le_bytes(*length));
    let _ = compression::decompress(rest, Expected::Exactly(length));
    let _ = compression::decompress_after(b"what was there before", rest, Expected::Exactly(length));
}

const TARGETS: [(&str, Reader); 18] = [
    ("bundle", bundle),
    ("manifest", manifest),
    ("frame", frame),
    ("metadata", metadata),
    ("canonical", canonical),
    ("minisign", |data| drop(Minisig::parse(data))),
    ("recipe", |data| drop(Recipe::parse(text(data)))),
    ("journal", |data| drop(Journal::parse(data))),
    ("history", |data| drop(History::parse(data))),
    ("verdicts", |data| drop(Verdicts::parse(data))),
    ("index", |data| drop(Index::parse(data.to_vec(), Path::new("index")))),
    ("yaml", |data| drop(Value::parse(text(data)))),
    ("entry", |data| drop(entry::parse("20260101000000000000", data, 0))),
    ("title", |data| drop(Title::parse(text(data)))),
    ("report", |data| drop(GuardReport::parse(data))),
    ("request", |data| drop(control::parse(text(data)))),
    ("answer", |data| drop(control::answered(text(data), Path::new("control")))),
    ("http", http::reply),
];

fn reader() -> Reader {
    static CHOSEN: OnceLock<Reader> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("SIDLE_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(target, _)| *target == name).map(|(_, reader)| *reader);
        found.unwrap_or_else(|| panic!("SIDLE_FUZZ_TARGET is none of {:?}", TARGETS.map(|(target, _)| target)))
    })
}

fuzz_target!(|data: &[u8]| reader()(data));
