//! What of `plain::formats` needs root or a package: see there.

use crate::plain::formats::*;
use crate::support::stage::{Author, sidle, text};
use crate::support::trees;
use std::fs;
use std::process::Command;

#[test]
fn formats_are_read_by_tar_sha256sum_and_minisign() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path();
    let listed = tool("tar", &["-tf", text(&bundle)], out);
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names[0], "sidle-bundle");
    assert_eq!(names[1], "metadata/1.root.json");
    assert!(names.last().unwrap().ends_with(".payload.tar.zst"), "{names:?}");
    tool("tar", &["-xf", text(&bundle)], out);
    let hint = fs::read_to_string(out.join("sidle-bundle")).unwrap();
    assert!(hint.contains("demo-agent 1.0-1 linux-any") && hint.contains("sidle install FILE"), "{hint}");

    let targets = out.join("targets/demo-agent/1.0-1/linux-any");
    let checked = tool("sha256sum", &["-c", "SHA256SUMS"], &targets);
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), 2, "{checked}");
    let key = sidle(&["--json", "key", "show", text(&author.key())], &[]).json();
    let key = key["minisign"].as_str().unwrap().to_owned();
    let verified = tool("minisign", &["-V", "-m", "SHA256SUMS", "-P", &key], &targets);
    assert!(verified.contains("Signature and comment signature verified"), "{verified}");

    // As the author's guide has it.
    let pem = sidle(&["key", "show", "--pem", text(&author.key())], &[]).ok();
    fs::write(out.join("metadata/author.pub"), pem).unwrap();
    let verify = "jq -cjS .signed 1.root.json >signed; jq -r '.signatures[0].sig' 1.root.json | xxd -r -p >signature\n\
                  openssl pkeyutl -verify -pubin -inkey author.pub -rawin -in signed -sigfile signature";
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/authors.md")).unwrap();
    assert!(verify.lines().all(|line| guide.contains(line.trim())), "the author's guide says something else");
    let verified = tool("sh", &["-c", verify], &out.join("metadata"));
    assert!(verified.contains("Verified Successfully"), "{verified}");

    let payload = names.last().unwrap();
    fs::create_dir(out.join("tree")).unwrap();
    tool("tar", &["--zstd", "-xpf", text(&out.join(payload)), "-C", "tree"], out);
    let source = author.repository().parent().unwrap().join("tree-1.0");
    assert_eq!(trees::contents(&out.join("tree")), trees::contents(&source));

    // The controls: another byte, and neither tool agrees.
    let sums = targets.join("SHA256SUMS");
    fs::write(&sums, fs::read_to_string(&sums).unwrap().replacen('a', "b", 1)).unwrap();
    let fails = |program: &str, arguments: &[&str]| {
        !Command::new(program).args(arguments).current_dir(&targets).output().unwrap().status.success()
    };
    assert!(fails("sha256sum", &["-c", "SHA256SUMS"]));
    assert!(fails("minisign", &["-V", "-m", "SHA256SUMS", "-P", &key]));

    // Signed anew, it is theirs again.
    sidle(&["key", "sign", text(&author.key()), text(&sums)], &[]).ok();
    let verified = tool("minisign", &["-V", "-m", "SHA256SUMS", "-P", &key], &targets);
    assert!(verified.contains("Signature and comment signature verified"), "{verified}");
}
