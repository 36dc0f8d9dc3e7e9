//! The formats serve people without sidle: the same input gives the same bytes, and tar, zstd, sha256sum and minisign agree with what sidle says.

use crate::support::inside::bytes;
use crate::support::stage::{Author, sidle, text};
use crate::support::trees;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn demo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent").join(name)
}

/// What a program prints; it must succeed and complain of nothing.
fn tool(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn formats_packing_twice_in_two_places_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let pack = |source: &Path, more: &[&str], epoch: &str, output: &Path| {
        let arguments = ["pack", text(source), "--version", "1.0", "--output", text(output)];
        sidle(&[&arguments[..], more].concat(), &[("SOURCE_DATE_EPOCH", epoch)]).ok();
        ["manifest.json.zst", "payload.tar.zst"].map(|name| bytes(&output.join(name)))
    };
    let recipe = demo("demo-agent.toml");
    let first = pack(&recipe, &[], "1700000000", &path("one"));
    assert_eq!(pack(&recipe, &[], "1700000000", &path("deeper/two")), first);
    // The same tree elsewhere, its files written now.
    assert!(Command::new("cp").arg("-r").arg(demo("tree")).arg(path("tree")).status().unwrap().success());
    assert_eq!(pack(&recipe, &["--tree", text(&path("tree"))], "1700000000", &path("three")), first);
    assert_ne!(pack(&recipe, &[], "1700000001", &path("four")), first);
    // A build by a command gets its own directory each time, and leaves none.
    let built = path("recipe.toml");
    let command = format!("command = [\"cp\", \"-r\", \"{}/.\"", text(&demo("tree")));
    let recipe = fs::read_to_string(&recipe).unwrap();
    fs::write(&built, recipe.replace("tree = \"tree\"", &format!("{command}, \".\"]"))).unwrap();
    let refused = sidle(&["pack", text(&built), "--version", "1.0", "--output", text(&path("five"))], &[]);
    assert_eq!(refused.code, Some(1), "an empty tree was packed: {refused:?}");
    fs::write(
        path("build"),
        format!(
            "#!/bin/sh\n[ \"$SIDLE_VERSION $SIDLE_SOURCE\" = '1.0 here' ] && cp -r {}/. \"$SIDLE_TREE\"\n",
            text(&demo("tree"))
        ),
    )
    .unwrap();
    fs::set_permissions(path("build"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(&built, recipe.replace("tree = \"tree\"", "command = [\"./build\"]")).unwrap();
    assert_eq!(pack(&built, &["--source", "here"], "1700000000", &path("six")), first);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !text(Path::new(name)).starts_with('.')), "{left:?}");
}

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

    // As the README has it.
    let pem = sidle(&["key", "show", "--pem", text(&author.key())], &[]).ok();
    fs::write(out.join("metadata/author.pub"), pem).unwrap();
    let verify = "jq -cjS .signed 1.root.json >signed; jq -r '.signatures[0].sig' 1.root.json | xxd -r -p >signature\n\
                  openssl pkeyutl -verify -pubin -inkey author.pub -rawin -in signed -sigfile signature";
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    assert!(verify.lines().all(|line| readme.contains(line.trim())), "the README says something else");
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
}

#[test]
fn formats_hold_what_is_unchanged_since_an_earlier_release_in_parts_of_its_own() {
    let author = Author::new();
    author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("next");
    let tree = author.repository().parent().unwrap().join("tree-1.0");
    fs::write(tree.join("share/demo-agent/release"), "1.1\n").unwrap();
    let (recipe, repository) = (demo("demo-agent.toml"), author.repository());
    let arguments = ["pack", text(&recipe), "--version", "1.1", "--tree", text(&tree)];
    let more = ["--previous", text(&repository), "--output", text(&output)];
    sidle(&[&arguments[..], &more].concat(), &[]).ok();
    let inspected = sidle(&["--json", "inspect", text(&output.join("manifest.json.zst"))], &[]).json();
    assert_eq!(inspected["manifest"]["generations"], serde_json::json!(["1.0-1", "1.1-1"]));
}
