//! The fingerprint of a host for a release: its C library and the libraries that the release takes from it. An upgrade of the distribution
//! changes them under proven releases.

use super::preflight::{Host, needs, of_libraries};
use crate::bundle::manifest::Head;
use crate::os::{file, host};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The host libraries of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFingerprint {
    /// The version of glibc; None: another C library, or none found.
    pub libc: Option<String>,
    /// The files behind the host libraries that the release needs, links resolved: their names carry the version.
    pub libraries: BTreeMap<String, Option<String>>,
}

impl HostFingerprint {
    /// The present fingerprint for `manifest`'s release.
    pub fn read(manifest: &Head) -> Self {
        Self::of(libc(), &manifest.host_libraries)
    }

    /// The present fingerprint for these host libraries and the C library `libc`.
    pub fn of(libc: Option<String>, libraries: &[String]) -> Self {
        let resolved = |name: &String| {
            let path = host::library(Path::new("/"), name).and_then(|path| file::canonical(&path).ok());
            (name.clone(), path.map(|path| path.to_string_lossy().into_owned()))
        };
        Self { libc, libraries: libraries.iter().map(resolved).collect() }
    }

    /// The C library, in words: `glibc 2.41`.
    pub fn libc_words(&self) -> String {
        self.libc.as_ref().map_or_else(|| "another C library".to_owned(), |libc| format!("glibc {libc}"))
    }

    /// The changes since `before`, in words.
    pub fn changes(&self, before: &Self) -> Vec<String> {
        let shown = |value: Option<&String>| value.map_or_else(|| "none".to_owned(), String::clone);
        let mut changes = Vec::new();
        if self.libc != before.libc {
            changes.push(format!("glibc was {} and is {}", shown(before.libc.as_ref()), shown(self.libc.as_ref())));
        }
        for (name, was) in &before.libraries {
            let is = self.libraries.get(name).unwrap_or(&None);
            if is != was {
                changes.push(format!("{name} was {} and is {}", shown(was.as_ref()), shown(is.as_ref())));
            }
        }
        changes
    }
}

/// The version of the host's glibc; None: another C library, or none found.
pub fn libc() -> Option<String> {
    Host::read().libc.map(|libc| libc.to_string())
}

/// The obstacles to running `manifest`'s release on `host`, in words.
pub fn lacks(manifest: &Head, host: &Host) -> Vec<String> {
    needs(manifest, host, of_libraries(manifest, &host.system)).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_each_library() {
        let fingerprint = |libc: &str, file: Option<&str>| HostFingerprint {
            libc: Some(libc.to_owned()),
            libraries: BTreeMap::from([("libssl.so.3".to_owned(), file.map(str::to_owned))]),
        };
        let before = fingerprint("2.36", Some("/lib/libssl.so.3.0"));
        assert!(before.changes(&before).is_empty());
        let found = fingerprint("2.41", None).changes(&before);
        assert_eq!(found, ["glibc was 2.36 and is 2.41", "libssl.so.3 was /lib/libssl.so.3.0 and is none"]);
        assert_eq!(HostFingerprint::default().changes(&before).len(), 2);
    }
}
