//! The fingerprint that a release stands on: the host's C library and the libraries that the release takes from the host. An upgrade of the
//! distribution changes them under releases that were proven before.

use super::preflight::{Host, needs};
use crate::bundle::manifest::Manifest;
use crate::os::{file, host};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a release stands on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFingerprint {
    /// The host's glibc; None: another C library, or none that was found.
    pub libc: Option<String>,
    /// The files behind the host libraries that the release needs, links resolved: their names carry the version.
    pub libraries: BTreeMap<String, Option<String>>,
}

impl HostFingerprint {
    /// What `manifest`'s release stands on now.
    pub fn read(manifest: &Manifest) -> Self {
        Self::of(libc(), &manifest.host_libraries)
    }

    /// What a release that needs these host libraries stands on now, the C library being `libc`.
    pub fn of(libc: Option<String>, libraries: &[String]) -> Self {
        let resolved = |name: &String| {
            let path = host::library(name).and_then(|path| file::canonical(&path).ok());
            (name.clone(), path.map(|path| path.to_string_lossy().into_owned()))
        };
        Self { libc, libraries: libraries.iter().map(resolved).collect() }
    }

    /// The C library, in words: `glibc 2.41`.
    pub fn libc_words(&self) -> String {
        self.libc.as_ref().map_or_else(|| "another C library".to_owned(), |libc| format!("glibc {libc}"))
    }

    /// What has changed since `before`, in the operator's words.
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

/// The version of the host's glibc; None: another C library, or none that was found.
pub fn libc() -> Option<String> {
    Host::read().libc.map(|libc| libc.to_string())
}

/// What this host lacks to run `manifest`'s release, in the operator's words.
pub fn lacks(manifest: &Manifest) -> Vec<String> {
    needs(manifest, &Host::read()).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_ground_is_told_by_what_changed() {
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
