//! What of `plain::messages` needs root or a package: see there.

use crate::plain::messages::*;
use crate::support::mounts::Mounted;
use crate::support::stage::{Author, text};
use crate::support::trees;
use std::fs;

#[test]
fn messages_of_a_mount_that_is_read_only() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let mount = Mounted::tmpfs("size=4m");
    pin(&mount.path(), &author).ok();
    mount.make_read_only();
    let ran = on(&mount.path(), &["install", text(&bundle)]);
    refused(&ran, 1, &["Read-only file system"], &["mounted read-only", "--root"]);
}

#[test]
fn messages_of_a_mount_without_space_or_inodes() {
    let author = Author::new();
    let bundle = large(&author);
    let small = Mounted::tmpfs("size=2m");
    pin(&small.path(), &author).ok();
    let ran = on(&small.path(), &["install", text(&bundle)]);
    refused(&ran, 8, &["MiB of space", "MiB are free"], &["sidle collect"]);
    nothing_was_left(&small.path());
    let few = Mounted::ext4(32, 128);
    pin(&few.path(), &author).ok();
    let ran = on(&few.path(), &["install", text(&bundle)]);
    refused(&ran, 8, &["inodes", "are free"], &["sidle collect"]);
    nothing_was_left(&few.path());
}

#[test]
fn messages_of_a_mount_that_fills_up_while_it_is_installed_into() {
    let author = Author::new();
    let bundle = large(&author);
    let mount = Mounted::tmpfs("size=12m");
    pin(&mount.path(), &author).ok();
    let waiting = waiting(&mount.path(), &bundle);
    let filled = fs::write(mount.path().join("other"), trees::noise(1, 16 << 20));
    assert!(filled.is_err(), "the file system was not filled");
    refused(&waiting.end(), 8, &["No space left"], &["sidle collect"]);
    nothing_was_left(&mount.path());
    fs::remove_file(mount.path().join("other")).unwrap();
    on(&mount.path(), &["install", text(&bundle)]).ok();
}
