//! What sidle takes for the glibc of a Debian is the one that its package has, and the table of systems says the same of it. A host whose C library
//! has no symbol of its own version (2.31, 2.41) once counted as older than it is, and refused releases that fit.

use crate::support::boot::archive;
use crate::support::stage::text;
use sidle::bundle::elf::glibc_of;
use sidle::bundle::systems::Systems;
use sidle::version::LibcVersion;
use std::fs;
use std::process::Command;

/// The C library of a suite's root: the only file of these names that is no link.
fn c_library(suite: &str) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--zstd", "-xf", text(&archive(suite)), "-C", text(place.path()), "--wildcards", "--no-anchored"]);
    let unpacked = tar.args(["x86_64-linux-gnu/libc.so.6", "x86_64-linux-gnu/libc-2*.so"]).output().unwrap();
    let mut found = Vec::new();
    for directory in ["lib", "usr/lib"].map(|lib| place.path().join(lib).join("x86_64-linux-gnu")) {
        let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap());
        found.extend(entries.filter(|entry| entry.file_type().unwrap().is_file()).map(|entry| entry.path()));
    }
    assert_eq!(found.len(), 1, "{suite}: {found:?}: {unpacked:?}");
    fs::read(&found[0]).unwrap()
}

#[test]
fn the_table_of_systems_has_the_c_library_that_each_debian_has() {
    for (suite, release, packaged) in [("bullseye", "11", "2.31"), ("bookworm", "12", "2.36"), ("trixie", "13", "2.41")]
    {
        let found = glibc_of(&c_library(suite)).unwrap().unwrap();
        assert_eq!(found.to_string(), packaged, "{suite}");
        let name = format!("Debian {release}");
        assert!(Systems::with(found).oldest_that_fit.contains(&name), "{suite}: {:?}", Systems::with(found));
        let newer = Systems::with(LibcVersion { minor: found.minor + 1, ..found });
        assert!(newer.newest_that_do_not.contains(&name), "{suite}: {newer:?}");
    }
}
