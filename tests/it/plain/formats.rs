//! The formats serve people without sidle: the same input gives the same bytes, and tar, zstd, sha256sum and minisign agree with what sidle says.

use crate::support::inside::bytes;
use crate::support::stage::{Author, SIDLE, sidle, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn demo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent").join(name)
}

/// What a program prints; it must succeed and complain of nothing.
pub fn tool(program: &str, arguments: &[&str], directory: &Path) -> String {
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

/// A file that the author named from where he was could not be found: the build runs in the recipe's directory.
#[test]
fn formats_a_source_is_found_from_where_the_author_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["recipe", "here/below"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::write(path("here/salt.deb"), "").unwrap();
    let build = format!("#!/bin/sh\necho \"$SIDLE_SOURCE\" >>told\ncp -r {}/. \"$SIDLE_TREE\"\n", text(&demo("tree")));
    fs::write(path("recipe/build"), build).unwrap();
    fs::set_permissions(path("recipe/build"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let recipe = fs::read_to_string(demo("demo-agent.toml")).unwrap();
    fs::write(path("recipe/own.toml"), recipe.replace("tree = \"tree\"", "command = [\"./build\"]")).unwrap();
    let sources = ["salt.deb", "./below", "pypi", "below", "/no/such"];
    for source in sources {
        let words = ["pack", "../recipe/own.toml", "--version", "1.0", "--output", "out", "--source", source];
        let ran = Command::new(SIDLE).args(words).current_dir(path("here")).output().unwrap();
        assert!(ran.status.success(), "{source}: {ran:?}");
    }
    let here = directory.path().canonicalize().unwrap().join("here");
    let [deb, below] = ["salt.deb", "below"].map(|name| text(&here.join(name)).to_owned());
    let told = fs::read_to_string(path("recipe/told")).unwrap();
    assert_eq!(told.lines().collect::<Vec<_>>(), [&deb, &below, "pypi", "below", "/no/such"]);
}

/// An author heard of a glibc that was too new from the hosts that refused the release.
#[test]
fn formats_a_tree_that_needs_a_newer_glibc_than_the_recipe_states_is_refused_by_the_names_of_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    assert!(Command::new("cp").arg("-r").arg(demo("tree")).arg(path("tree")).status().unwrap().success());
    fs::copy("/bin/ls", path("tree/bin/ls")).unwrap();
    let own = fs::read_to_string(demo("demo-agent.toml")).unwrap();
    let (recipe, output) = (path("recipe.toml"), path("out"));
    let pack = |glibc: &str, more: &[&str]| {
        let stated = own.replace("[requires]\n", &format!("[requires]\nglibc = \"{glibc}\"\n"));
        fs::write(&recipe, stated).unwrap();
        let arguments = ["pack", text(&recipe), "--version", "1.0", "--output", text(&output)];
        sidle(&[&arguments[..], more].concat(), &[])
    };
    for more in [&["--dry-run"][..], &[]] {
        let refused = pack("2.2", more);
        assert!(refused.code == Some(1) && !output.join("manifest.json.zst").exists(), "{refused:?}");
        assert!(refused.stderr.contains("bin/ls") && refused.stderr.contains("the recipe states 2.2:"), "{refused:?}");
    }
    let packed = pack("2.99", &[]).ok();
    assert!(packed.contains("-glibc2.99") && packed.contains("starts on"), "{packed}");
    let inspected = sidle(&["inspect", text(&path("out/manifest.json.zst"))], &[]).ok();
    assert!(inspected.contains("not RHEL"), "{inspected}");
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
