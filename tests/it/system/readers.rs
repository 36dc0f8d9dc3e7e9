//! What of `plain::readers` needs root or a package: see there.

use crate::plain::readers::*;
use crate::support::mounts::Mounted;
use std::fs;

#[test]
fn readers_always_find_a_release_behind_current_on_a_mount_of_ext4() {
    let mount = Mounted::ext4(16, 256);
    fs::create_dir(mount.path().join("package")).unwrap();
    flip_under_readers(&mount.path().join("package"));
}
