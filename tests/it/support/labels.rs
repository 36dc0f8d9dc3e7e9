//! SELinux labels as a real policy gives them: Debian's, judged by libselinux's own program.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use super::stage::text;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a file has its label.
pub const ATTRIBUTE: &str = "security.selinux";

/// Debian's policy, compiled below the cache; a host that has it installed would have it in /etc.
pub fn policy() -> PathBuf {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/selinux-policy"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "scripts/selinux-policy failed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Makes a host whose SELinux has this policy and this mode.
pub fn give(root: &Path, policy: &Path, mode: &str) {
    let to = root.join("etc/selinux/default/contexts");
    fs::create_dir_all(&to).unwrap();
    assert!(Command::new("cp").arg("-r").arg(policy).arg(to.join("files")).status().unwrap().success());
    fs::write(root.join("etc/selinux/config"), format!("# a comment\nSELINUX={mode}\nSELINUXTYPE=default\n")).unwrap();
}

/// The label that a file has.
pub fn label(path: &Path) -> Option<String> {
    let mut value = [0_u8; 256];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value[..]).ok()?;
    let text = value[..length].strip_suffix(b"\0").expect("with its zero byte, as libselinux writes it");
    Some(String::from_utf8_lossy(text).into_owned())
}

/// What libselinux says: path on the host → label.
pub fn told(policy: &Path, paths: &BTreeMap<String, &str>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for mode in ["file", "dir", "symlink"] {
        let of: Vec<&String> = paths.iter().filter(|(_, kind)| **kind == mode).map(|(path, _)| path).collect();
        for some in of.chunks(500) {
            let mut command = Command::new("matchpathcon");
            command.arg("-f").arg(policy.join("file_contexts")).args(["-m", mode]).args(some);
            let output = command.output().expect("this test needs selinux-utils");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let (path, label) = line.split_once('\t').unwrap();
                found.insert(path.to_owned(), label.to_owned());
            }
        }
    }
    found
}

/// Everything below a directory, and what it is.
pub fn walk(tree: &Path, relative: &Path, found: &mut BTreeMap<String, &str>) {
    for entry in fs::read_dir(tree.join(relative)).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (relative.join(entry.file_name()), entry.file_type().unwrap());
        let kind = if kind.is_symlink() {
            "symlink"
        } else if kind.is_dir() {
            "dir"
        } else {
            "file"
        };
        found.insert(text(&path).to_owned(), kind);
        if kind == "dir" {
            walk(tree, &path, found);
        }
    }
}
