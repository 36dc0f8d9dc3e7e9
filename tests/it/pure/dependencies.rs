//! What is built into the program besides Rust. SECURITY.md says which bytes reach which code; a new library in C would make that untrue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates that build code of another language do it with one of these.
const COMPILERS: [&str; 7] = ["cc", "cmake", "bindgen", "pkg-config", "nasm-rs", "vcpkg", "cxx-build"];

/// ring: TLS and signatures. zstd-sys: frames and manifests, after their digests were compared.
const FOREIGN: [&str; 2] = ["ring", "zstd-sys"];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let of = package.get("dependencies").and_then(toml::Value::as_array);
        let names = of.into_iter().flatten().filter_map(|name| name.as_str()?.split(' ').next());
        let entry = found.entry(package["name"].as_str().unwrap().to_owned()).or_default();
        entry.extend(names.map(str::to_owned));
    }
    found
}

fn foreign(dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<&str> {
    let compiles = |names: &BTreeSet<String>| COMPILERS.iter().any(|compiler| names.contains(*compiler));
    dependencies.iter().filter(|(_, names)| compiles(names)).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn no_library_in_c_is_built_in_but_those_that_are_named() {
    let mut found = dependencies();
    assert!(found["sidle"].contains("zstd"), "{:?}", found["sidle"]);
    assert_eq!(foreign(&found), FOREIGN);
    found.insert("libz-sys".to_owned(), BTreeSet::from(["cc".to_owned()]));
    assert_eq!(foreign(&found).len(), FOREIGN.len() + 1, "another one would be seen");
}
