//! Damaged and tampered bundles: whatever byte is another one, nothing is installed (or exactly what was signed is), and the exit code says why.

use crate::support::inside::{Inside, bytes, is_untouched};
use crate::support::releases::{Member, members};
use crate::support::stage::{Author, Host, text};
use serde_json::Value;
use sidle::failure::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const TRUNCATIONS: usize = 50;
const REGIONS: usize = 10;
/// Every n-th attempt is made again through the program.
const THROUGH_THE_PROGRAM: usize = 25;

/// Whose bytes they are: what a refusal must be called depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Region {
    Header,
    Padding,
    End,
    Hint,
    /// The first root, which the host has already: it is parsed, and no more.
    KnownRoot,
    Metadata,
    Manifest,
    Checksums,
    Minisig,
    Payload,
}

fn region(members: &[Member], place: usize) -> Region {
    let of = |member: &Member| match member.name.as_str() {
        "sidle-bundle" => Region::Hint,
        "metadata/1.root.json" => Region::KnownRoot,
        name if name.starts_with("metadata/") => Region::Metadata,
        name if name.ends_with(".minisig") => Region::Minisig,
        name if name.ends_with("SHA256SUMS") => Region::Checksums,
        name if name.ends_with(".manifest.json.zst") => Region::Manifest,
        _ => Region::Payload,
    };
    for member in members {
        if member.header.contains(&place) {
            return Region::Header;
        } else if member.content.contains(&place) {
            return of(member);
        } else if member.padding.contains(&place) {
            return Region::Padding;
        }
    }
    Region::End
}

/// The author, an untouched bundle, the first root, and what an untouched install leaves.
struct Sample {
    author: Author,
    bundle: Vec<u8>,
    root: Vec<u8>,
    store: crate::support::inside::Contents,
    signed: BTreeMap<String, Value>,
}

impl Sample {
    fn new() -> Self {
        let author = Author::new();
        let bundle = bytes(&author.release("1.0", "good"));
        let root = bytes(&author.repository().join("metadata/1.root.json"));
        let host = Inside::new(&root);
        host.install(&bundle).unwrap();
        let (store, signed) = (host.store(), host.signed());
        assert!(!is_untouched(&store) && signed.len() >= 8, "{signed:?}");
        Self { author, bundle, root, store, signed }
    }

    /// The class of the refusal, nothing left behind; None: installed, and what was signed is what is there.
    fn attempt(&self, bundle: &[u8], what: &str) -> Option<Class> {
        let host = Inside::new(&self.root);
        match host.install(bundle) {
            Ok(_) => {
                assert_eq!(host.store(), self.store, "{what}: another tree");
                assert_eq!(host.signed(), self.signed, "{what}: other signed content");
                None
            }
            Err(report) => {
                assert!(is_untouched(&host.store()), "{what}: {report} left {:?}", host.store().keys());
                Some(report.class)
            }
        }
    }
}

/// The same through the program: its exit code.
fn through_the_program(host: &Host, bundle: &[u8]) -> Option<i32> {
    let path = host.path("attempt.sidle");
    fs::write(&path, bundle).unwrap();
    host.sidle(&["install", text(&path)]).code
}

fn code(class: Option<Class>) -> i32 {
    class.map_or(0, |class| i32::from(sidle::cli::exit::number(class)))
}

/// Places spread evenly over each region, so that small ones are met as often as large ones.
fn places(bundle: &[u8], flips: usize) -> Vec<(usize, Region)> {
    let members = members(bundle);
    let mut by_region: BTreeMap<Region, Vec<usize>> = BTreeMap::new();
    for place in 0..bundle.len() {
        by_region.entry(region(&members, place)).or_default().push(place);
    }
    assert_eq!(by_region.len(), REGIONS, "a region is missing");
    let share = flips.div_ceil(by_region.len());
    let mut chosen = BTreeSet::new();
    for (region, places) in &by_region {
        let step = places.len().div_ceil(share).max(1);
        chosen.extend(places.iter().step_by(step).map(|place| (*place, *region)));
    }
    // What small regions couldn't fill is spread over the whole file.
    for place in (0..bundle.len()).step_by(7).take(bundle.len()) {
        if chosen.len() >= flips {
            break;
        }
        chosen.insert((place, region(&members, place)));
    }
    chosen.into_iter().collect()
}

/// A hexadecimal signature has the same value with letters of another case.
fn is_case_of_hex(was: u8, is: u8) -> bool {
    was.is_ascii_hexdigit() && was.eq_ignore_ascii_case(&is)
}

/// An unknown key's number on a list of checksums is a warning: trust rests on the metadata. It is in the second line of the file: in base64, after two bytes
/// and before the signature.
fn is_key_number(bundle: &[u8], place: usize) -> bool {
    let line = bundle[..place].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    bundle[..line].ends_with(b"targets key\n") && (2..14).contains(&(place - line))
}

#[test]
fn tamper_with_any_byte_and_nothing_but_what_was_signed_is_installed() {
    tamper_with(500);
}

/// Flips so many bytes, one at a time.
pub fn tamper_with(flips: usize) {
    let sample = Sample::new();
    let places = places(&sample.bundle, flips);
    assert!(places.len() >= flips, "{}", places.len());
    let (mut tried, mut harmless) = (BTreeMap::<Region, usize>::new(), 0);
    for (number, (place, region)) in places.iter().enumerate() {
        let mut damaged = sample.bundle.clone();
        damaged[*place] ^= 1 << (number % 8);
        let what = format!("byte {place} ({region:?})");
        let class = sample.attempt(&damaged, &what);
        match (region, class) {
            (Region::Metadata | Region::Minisig | Region::KnownRoot, Some(Class::NotTrusted))
            | (Region::KnownRoot, None) => {}
            (Region::Metadata, None) => {
                assert!(is_case_of_hex(sample.bundle[*place], damaged[*place]), "{what} was not noticed");
                harmless += 1;
            }
            (Region::Minisig, None) => {
                assert!(is_key_number(&sample.bundle, *place), "{what} was not noticed");
                harmless += 1;
            }
            (Region::Metadata | Region::Minisig, other) => panic!("{what}: {other:?}"),
            (_, other) => assert_eq!(other, Some(Class::Integrity), "{what}"),
        }
        *tried.entry(*region).or_default() += 1;
        if number % THROUGH_THE_PROGRAM == 0 {
            let host = Host::new(&sample.author);
            assert_eq!(through_the_program(&host, &damaged), Some(code(class)), "{what}");
        }
    }
    assert_eq!(tried.len(), REGIONS, "{tried:?}");
    eprintln!("harmless flips: {harmless} of {tried:?}");
}

#[test]
fn tamper_by_cutting_off_or_adding_bytes_is_refused() {
    let sample = Sample::new();
    let length = sample.bundle.len();
    let host = Host::new(&sample.author);
    for number in 0..TRUNCATIONS {
        let cut = number * (length - 1) / (TRUNCATIONS - 1);
        let class = sample.attempt(&sample.bundle[..cut], &format!("the first {cut} bytes"));
        assert_eq!(class, Some(Class::Integrity), "the first {cut} bytes of {length}");
        if number % THROUGH_THE_PROGRAM == 0 {
            assert_eq!(through_the_program(&host, &sample.bundle[..cut]), Some(6));
        }
    }
    for tail in [&[0][..], b"x", &[0; 512], &[0; 10240], &sample.bundle] {
        let longer = [sample.bundle.as_slice(), tail].concat();
        assert_eq!(sample.attempt(&longer, "appended"), Some(Class::Integrity), "{} bytes appended", tail.len());
        assert_eq!(through_the_program(&host, &longer), Some(6));
    }
    assert_eq!(through_the_program(&host, &sample.bundle), Some(0));
}
