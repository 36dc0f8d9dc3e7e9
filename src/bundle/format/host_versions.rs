//! What a release needs of a host beside its C library, for people; and the symbol versions of libraries: one that is there may be too old.

use crate::bundle::limits::LIST_MAXIMUM;
use crate::bundle::wire;
use crate::version::KernelVersion;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The names of symbol versions, sorted: `CXXABI_1.3.9`, `GLIBCXX_3.4.21`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SymbolVersions(#[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")] pub Vec<String>);

impl SymbolVersions {
    /// The newest of each kind: a library that defines it defines the older ones, too.
    fn newest(&self) -> Vec<&str> {
        let kind = |name: &str| name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        let numbers = |name: &str| -> Vec<u64> {
            name[kind(name)..].split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0)).collect()
        };
        let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
        for name in &self.0 {
            let found = newest.entry(&name[..kind(name)]).or_insert(name);
            if numbers(name) > numbers(found) {
                *found = name;
            }
        }
        newest.into_values().collect()
    }
}

/// Libraries, each with the newest symbol versions that it must define: `libstdc++.so.6 (GLIBCXX_3.4.21)`.
pub fn in_words(libraries: &[String], versions: &BTreeMap<String, SymbolVersions>) -> String {
    let words = |library: &String| {
        let versions = versions.get(library).map_or_else(Vec::new, SymbolVersions::newest);
        if versions.is_empty() { library.clone() } else { format!("{library} ({})", versions.join(", ")) }
    };
    libraries.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// What is asked of the kernel and of an x86-64 processor, each with a heading.
pub fn of_machine(kernel: Option<KernelVersion>, level: Option<u8>) -> Vec<(&'static str, String)> {
    let kernel = kernel.map(|floor| ("needs Linux", format!("{floor} or newer")));
    let level = level.map(|level| ("needs processor", format!("x86-64-v{level} or better")));
    kernel.into_iter().chain(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_newest_version_of_each_kind() {
        let all = ["CXXABI_1.3", "CXXABI_1.3.9", "GLIBCXX_3.4", "GLIBCXX_3.4.21", "GLIBCXX_3.4.9", "PRIVATE"];
        let versions = SymbolVersions(all.map(str::to_owned).to_vec());
        assert_eq!(versions.newest(), ["CXXABI_1.3.9", "GLIBCXX_3.4.21", "PRIVATE"]);
    }
}
