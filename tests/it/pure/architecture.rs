//! The floors, as the header of `src/lib.rs` has them: no module names one above itself, siblings on floor 3 don't know each other, effects stay
//! on floor 1, and files stay small.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, its unit tests left out. A longer one has more than one job.
const LINES_MAXIMUM: usize = 400;
/// The floor whose modules meet only through floor 2.
const SIBLINGS: u32 = 3;
/// Macros are exported at the crate's root; they belong to these modules.
const MACROS: [(&str, &str); 4] =
    [("as_text", "name"), ("crash_point", "os"), ("effect", "os"), ("reports", "failure")];

pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The floor of each module, from the header: `3  store salt …   what they do`.
fn floors(header: &str) -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    for line in header.lines().filter_map(|line| line.strip_prefix("//! ")) {
        let Some((floor, rest)) = line.split_once("  ") else { continue };
        let Ok(floor) = floor.parse::<u32>() else { continue };
        let names = rest.trim_start().split("  ").next().unwrap().replace(['(', ')'], "").replace(" and ", " ");
        for name in names.split_whitespace() {
            assert!(floors.insert(name.to_owned(), floor).is_none(), "{name} is on two floors");
        }
    }
    floors
}

/// The module that a file belongs to: its first folder, or its own name.
fn module(path: &Path) -> String {
    let relative = path.strip_prefix(source()).unwrap();
    let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// The code of a file: unit tests and comments left out.
pub fn code(text: &str) -> String {
    let end = text.find("\nmod tests {").unwrap_or(text.len());
    let plain = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    plain.collect::<Vec<_>>().join("\n")
}

/// The modules that code names as `crate::x`, also in groups: `crate::{a, b::c}`.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    for (place, word) in code.match_indices("crate::") {
        let rest = &code[place + word.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(identifier(rest));
            continue;
        };
        let (mut depth, mut item) = (0, String::new());
        for character in group.chars() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    names.insert(identifier(item.trim()));
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(character);
        }
        names.insert(identifier(item.trim()));
    }
    names.remove("");
    let module = |name: String| {
        let owner = MACROS.iter().find(|(macro_name, _)| *macro_name == name);
        owner.map_or(name, |(_, module)| (*module).to_owned())
    };
    names.into_iter().map(module).collect()
}

/// What is wrong with what each module names.
fn trespasses(floors: &BTreeMap<String, u32>, uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (module, named) in uses {
        let Some(floor) = floors.get(module) else {
            found.push(format!("{module} is on no floor in the header of lib.rs"));
            continue;
        };
        for other in named.iter().filter(|other| *other != module) {
            match floors.get(other) {
                None => found.push(format!("{module} names {other}, which is on no floor")),
                Some(above) if above > floor => {
                    found.push(format!("{module} (floor {floor}) names {other} (floor {above})"));
                }
                Some(same) if same == floor && *floor == SIBLINGS => {
                    found.push(format!("{module} names its sibling {other}"));
                }
                Some(same) if same == floor && uses.get(other).is_some_and(|back| back.contains(module)) => {
                    found.push(format!("{module} and {other} name each other"));
                }
                Some(_) => {}
            }
        }
    }
    found
}

#[test]
fn architecture_no_module_names_one_above_itself() {
    let header = fs::read_to_string(source().join("lib.rs")).unwrap();
    let floors = floors(&header);
    assert!(floors.len() > 15 && floors["cli"] > floors["os"], "the header was not understood: {floors:?}");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files(&source())
        .into_iter()
        .filter(|path| !["lib.rs", "main.rs"].iter().any(|top| path.ends_with(Path::new("src").join(top))))
    {
        uses.entry(module(&path)).or_default().extend(named(&code(&fs::read_to_string(&path).unwrap())));
    }
    assert_eq!(trespasses(&floors, &uses), Vec::<String>::new());
    let gone: Vec<_> = floors.keys().filter(|name| *name != "main" && !uses.contains_key(*name)).collect();
    assert!(gone.is_empty(), "the header names modules that are not there: {gone:?}");
}

/// The floor of each module, from the table of a page: ``| 6 | `cli`, `main` | what they do |``.
fn floors_of_page(page: &str) -> BTreeMap<String, u32> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let rows = rows.filter_map(|(floor, rest)| Some((floor.parse::<u32>().ok()?, rest.split(" | ").next()?)));
    rows.flat_map(|(floor, names)| names.split(", ").map(move |name| (name.trim_matches('`').to_owned(), floor)))
        .collect()
}

#[test]
fn architecture_the_page_has_the_floors_of_the_header() {
    let header = fs::read_to_string(source().join("lib.rs")).unwrap();
    let page = fs::read_to_string(source().parent().unwrap().join("docs/architecture.md")).unwrap();
    assert_eq!(floors_of_page(&page), floors(&header));
}

#[test]
fn architecture_the_rules_catch_what_they_must() {
    let floors = floors(
        "//! 6  cli (and main)   prints\n//! 3  store salt     no siblings\n//! 2  a b    formats\n//! 1  os     effects",
    );
    let uses = |module: &str, code: &str| BTreeMap::from([(module.to_owned(), named(code))]);
    for (module, code) in [
        ("store", "use crate::salt::Jobs;"),
        ("os", "use crate::{os::dir, store::Store};"),
        ("a", "fn x() { crate::cli::print() }"),
        ("a", "use crate::{b::{c, d},\n    os, cli};"),
        ("os", "$crate::store::x()"),
        ("store", "use crate::elsewhere;"),
        ("stranger", ""),
    ] {
        assert_eq!(trespasses(&floors, &uses(module, code)).len(), 1, "{module}: {code}");
    }
    for (module, code) in [
        ("store", "use crate::{a::X, os};\nuse crate::crash_point;"),
        ("a", "use crate::b;"),
        ("cli", "use crate::salt;"),
    ] {
        assert_eq!(trespasses(&floors, &uses(module, code)), Vec::<String>::new());
    }
    let both = BTreeMap::from([("a".to_owned(), named("crate::b")), ("b".to_owned(), named("crate::a"))]);
    assert_eq!(trespasses(&floors, &both).len(), 2);
}

#[test]
fn architecture_only_os_makes_raw_effects() {
    const RAW: [&str; 7] = [
        "std::fs",
        "File::open(",
        "File::create(",
        "OpenOptions",
        "std::process::Command",
        "std::net::Tcp",
        "rustix::",
    ];
    let mut found = Vec::new();
    for path in files(&source()).into_iter().filter(|path| module(path) != "os") {
        let code = code(&fs::read_to_string(&path).unwrap());
        // An open file is a value: floors above read and write through it.
        let code = code.replace("std::fs::File;", "").replace("std::fs::File>", "").replace("std::fs::File)", "");
        for (number, line) in code.lines().enumerate() {
            found.extend(
                RAW.iter()
                    .filter(|raw| line.contains(**raw))
                    .map(|raw| format!("{}: {raw} in {:?} ({number})", path.display(), line.trim())),
            );
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn architecture_files_have_one_job_and_say_it() {
    let mut found = Vec::new();
    for path in files(&source()) {
        let text = fs::read_to_string(&path).unwrap();
        let end = text.find("\nmod tests {").unwrap_or(text.len());
        let lines = text[..end].lines().count();
        if lines > LINES_MAXIMUM {
            found.push(format!("{} has {lines} lines", path.display()));
        }
        if !text.starts_with("//! ") {
            found.push(format!("{} does not begin with what it is for", path.display()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// The names right below a path that code has, also in groups: `way::x`, `way::{x, y::z}`.
fn named_below(way: &str, code: &str) -> Vec<String> {
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = Vec::new();
    for (at, _) in code.match_indices(&format!("{way}::")) {
        let rest = &code[at + way.len() + 2..];
        match rest.strip_prefix('{').and_then(|group| group.split_once("};")) {
            Some((group, _)) => names.extend(group.split(',').map(|item| identifier(item.trim()))),
            None => names.push(identifier(rest)),
        }
    }
    names
}

/// The files of each folder, without its `mod.rs`, and which of their siblings each one names.
fn siblings() -> BTreeMap<PathBuf, BTreeMap<String, BTreeSet<String>>> {
    let mut folders: BTreeMap<PathBuf, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    let all = files(&source());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    for path in all.iter().filter(|path| !path.ends_with("mod.rs")) {
        let folder = path.parent().unwrap().to_owned();
        let code = code(&fs::read_to_string(path).unwrap());
        let beside: BTreeSet<String> =
            all.iter().filter(|other| other.parent() == path.parent()).map(|path| name(path)).collect();
        // Folders may show their files as their parent's: `crate::trust::key` is `trust/format/key.rs`.
        let inside = folder.strip_prefix(source()).unwrap().to_str().unwrap().replace('/', "::");
        let shown = inside.rsplit_once("::").map_or("", |(parent, _)| parent);
        let ways = ["super".to_owned(), format!("crate::{inside}"), format!("crate::{shown}")];
        let named = ways.iter().flat_map(|way| named_below(way, &code));
        let own = name(path);
        let named = named.filter(|sibling| *sibling != own && beside.contains(sibling)).collect();
        folders.entry(folder).or_default().insert(own, named);
    }
    folders
}

/// Whether a file is named by what it names, directly or round a ring.
fn is_in_a_circle(file: &str, named: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&String> = named[file].iter().collect();
    while let Some(next) = open.pop() {
        if next == file {
            return true;
        }
        if seen.insert(next) {
            open.extend(named.get(next).into_iter().flatten());
        }
    }
    false
}

#[test]
fn architecture_folders_have_no_circles_and_sixteen_files_at_most() {
    let folders = siblings();
    assert!(folders.values().any(|named| named.values().any(|siblings| !siblings.is_empty())), "no file names another");
    let mut found = Vec::new();
    for (folder, named) in &folders {
        found.extend(
            named
                .keys()
                .filter(|file| is_in_a_circle(file, named))
                .map(|file| format!("{}/{file}.rs is in a circle", folder.display())),
        );
        if named.len() > 16 {
            found.push(format!("{} has {} files", folder.display(), named.len()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
    let ring = BTreeMap::from(
        [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
            .map(|(file, named)| (file.to_owned(), BTreeSet::from([named.to_owned()]))),
    );
    assert!(is_in_a_circle("b", &ring) && !is_in_a_circle("d", &ring));
}

/// A bundle carries the metadata of a repository: what one accepts the other can't refuse. Neither format knows the other's module.
#[test]
fn metadata_has_the_same_limits_in_a_bundle_and_in_a_repository() {
    use sidle::{bundle::limits as bundle, trust::limits as trust};
    let bundle = [
        bundle::ROOT_MAXIMUM_BYTES,
        bundle::TIMESTAMP_MAXIMUM_BYTES,
        bundle::SNAPSHOT_MAXIMUM_BYTES,
        bundle::TARGETS_MAXIMUM_BYTES,
    ];
    let trust = [
        trust::ROOT_BYTES_MAXIMUM,
        trust::TIMESTAMP_BYTES_MAXIMUM,
        trust::SNAPSHOT_BYTES_MAXIMUM,
        trust::TARGETS_BYTES_MAXIMUM,
    ];
    assert_eq!(bundle, trust.map(|bytes| bytes as u64));
}

/// The tables of attacks and of inputs name files that there are.
#[test]
fn every_file_that_the_security_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let named: Vec<&str> =
        page.split('`').filter(|word| word.starts_with("src/") || word.starts_with("tests/")).collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(root.join(name).exists(), "SECURITY.md names {name}");
    }
}

/// Tables that name tests name those that there are.
#[test]
fn every_test_that_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (page, least) in [("tests/README.md", 50), ("docs/pythons.md", 6)] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let named: Vec<&str> = text.split('`').filter(|word| word.contains("::")).collect();
        assert!(named.len() > least, "{page}: {named:?}");
        for name in named {
            let file = root.join("tests/it").join(name.replace("::", "/")).with_extension("rs");
            assert!(file.is_file(), "{page} names {name}, and there is no {}", file.display());
        }
    }
}
