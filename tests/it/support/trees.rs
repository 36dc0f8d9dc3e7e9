//! Small trees that have everything a release may have, and ways to compare trees.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Bytes that hardly compress, the same ones for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; length];
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// A file with its mode; parents are made.
pub fn put(root: &Path, path: &str, content: &[u8], mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree with a command, empty files and directories, links, names that need PAX records, and a file of several frames.
pub fn varied(root: &Path) {
    put(root, "bin/agent", b"#!/bin/sh\nexit 0\n", 0o755);
    put(root, "empty", b"", 0o644);
    put(root, "lib/private", b"secret", 0o400);
    put(root, "lib/big", &noise(1, 20 << 20), 0o644);
    put(root, "lib/block", &noise(2, 512), 0o640);
    let long = "n".repeat(120);
    let deep = format!("lib/{}/{}/{long}", "d".repeat(100), "e".repeat(100));
    put(root, &deep, b"long name", 0o644);
    put(root, "lib/ünïcode/…", b"text", 0o644);
    fs::create_dir_all(root.join("var/none")).unwrap();
    symlink("agent", root.join("bin/link")).unwrap();
    symlink("../lib", root.join("bin/library")).unwrap();
    symlink(format!("d/{long}"), root.join("lib/dangling")).unwrap();
    for number in 0..300 {
        put(root, &format!("lib/many/{number:03}.py"), format!("x = {number}\n").repeat(number).as_bytes(), 0o644);
    }
    for directory in ["", "bin", "lib", "lib/many", "lib/ünïcode", "var"] {
        fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(root.join("var/none"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// When each part of a tree was last changed in anything, and what it is now: its number, and the seconds and nanoseconds. A tree of Salt is read for a
/// quarter of a second; this takes no time.
pub fn last_changes(root: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (stat.ino(), stat.ctime(), stat.ctime_nsec()));
    }
    found
}

/// Everything in a tree, which is there: what it is, its mode, its content or target. What goes while this looks is not in it.
pub fn contents(root: &Path) -> BTreeMap<String, (char, u32, Vec<u8>)> {
    assert!(root.is_dir(), "there is no tree in {}", root.display());
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Some(entries) = unless_gone(fs::read_dir(directory)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let Some(stat) = unless_gone(fs::symlink_metadata(&path)) else { continue };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let mode = stat.mode() & 0o7777;
            let what = if stat.is_dir() {
                directories.push(path);
                ('d', mode, Vec::new())
            } else if stat.is_symlink() {
                let Some(target) = unless_gone(fs::read_link(&path)) else { continue };
                ('l', 0, target.into_os_string().into_encoded_bytes())
            } else if stat.is_file() {
                let Some(bytes) = unless_gone(fs::read(&path)) else { continue };
                ('f', mode, bytes)
            } else {
                ('?', mode, Vec::new())
            };
            found.insert(name, what);
        }
    }
    found
}

fn unless_gone<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}
