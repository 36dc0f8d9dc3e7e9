//! What of `plain::bundle` needs root or a package: see there.

use crate::plain::bundle::*;
use crate::support::trees;
use sidle::bundle::pack::PAYLOAD_NAME;
use std::fs;
use std::process::Command;

#[test]
fn gnu_tar_agrees() {
    let sample = Sample::new(trees::varied);
    let out = sample.path("out");
    fs::create_dir(&out).unwrap();
    let payload = sample.path(PAYLOAD_NAME);
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").args(arguments).env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    tar(&["--zstd", "-xpf", payload.to_str().unwrap(), "-C", out.to_str().unwrap()]);
    assert_eq!(trees::contents(&out), trees::contents(&sample.path("tree")));
    let bundle = sample.path("bundle.tar");
    fs::write(&bundle, sample.bundle()).unwrap();
    let listed = tar(&["-tf", bundle.to_str().unwrap()]);
    assert_eq!(listed.lines().next(), Some("sidle-bundle"));
    assert_eq!(listed.lines().count(), 9);
    assert!(listed.lines().last().unwrap().ends_with(".payload.tar.zst"));
}
