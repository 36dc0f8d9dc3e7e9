//! SELinux labels as a real policy gives them: Debian's, judged by libselinux's own program.

use crate::support::labels::{ATTRIBUTE, give, label, policy, told, walk};
use crate::support::release::selinux_package;
use crate::support::stage::{Author, DEMO, Host, text};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Names that policies tell apart: programs, libraries, scripts, logs, keys, in directories that have rules.
fn more_names(tree: &Path) {
    for directory in [
        "bin",
        "sbin",
        "lib",
        "lib64",
        "libexec",
        "etc",
        "var/log",
        "man/man1",
        "www",
        "share/bin",
        "lib/jre/lib/i386",
        "Acrobat/Reader/intellinux/nppdf",
    ] {
        let place = tree.join(directory);
        fs::create_dir_all(&place).unwrap();
        for number in 0..24 {
            for name in ["tool", "libx.so", "libx.so.1", "a.pl", "sh", "x.jar", "w.py", "cgi-bin"] {
                let mut file = fs::File::create(place.join(format!("{number}{name}"))).unwrap();
                writeln!(file, "{directory} {number} {name}").unwrap();
            }
        }
        std::os::unix::fs::symlink("0libx.so.1", place.join("libl.so")).unwrap();
    }
}

#[test]
fn a_tree_has_the_labels_that_libselinux_would_give_it() {
    let policy = policy();
    let author = Author::new();
    let bundle = author.release_with("1.0", more_names);
    let host = Host::new(&author);
    give(&host.root(), &policy, "enforcing");
    host.install(&bundle).ok();
    let tree = host.path("opt/sidle/demo-agent/versions/1.0-1");
    let mut inside = BTreeMap::new();
    walk(&tree, Path::new(""), &mut inside);
    assert!(inside.len() > 2000, "{}", inside.len());
    let on_host = |path: &str| format!("/opt/sidle/demo-agent/versions/1.0-1/{path}");
    let paths = inside.iter().map(|(path, kind)| (on_host(path), *kind)).collect();
    let told = told(&policy, &paths);
    let own: BTreeMap<String, String> =
        inside.keys().filter_map(|path| Some((on_host(path), label(&tree.join(path))?))).collect();
    assert!(told.values().collect::<std::collections::BTreeSet<_>>().len() > 2, "the policy tells them apart");
    let differ: Vec<_> = told.iter().filter(|(path, label)| own.get(*path) != Some(label)).take(20).collect();
    assert!(differ.is_empty() && own.len() == told.len(), "{} {}: {differ:?}", own.len(), told.len());
    assert_eq!(label(&tree).as_deref(), Some("system_u:object_r:usr_t:s0"));

    host.sidle(&["verify", DEMO, "1.0-1", "--full"]).ok();
    host.sidle(&["test-flip", DEMO, "1.0-1"]).ok();
    let doctor = || host.sidle(&["doctor"]).stdout;
    assert!(!doctor().contains("SELinux label system_u:object_r:tmp_t:s0"));
    let set = |label: &[u8]| rustix::fs::lsetxattr(&tree, ATTRIBUTE, label, rustix::fs::XattrFlags::empty()).unwrap();
    set(b"system_u:object_r:tmp_t:s0\0");
    let said = doctor();
    assert!(said.contains("SELinux label system_u:object_r:tmp_t:s0") && said.contains("restorecon"), "{said}");
    set(b"system_u:object_r:usr_t:s0\0");
    let program = tree.join("bin/demo-agent");
    let right = label(&program);
    fs::write(&program, "damaged\n").unwrap();
    rustix::fs::lsetxattr(&program, ATTRIBUTE, b"system_u:object_r:tmp_t:s0\0", rustix::fs::XattrFlags::empty())
        .unwrap();
    host.sidle(&["repair", DEMO, "1.0-1", "--from", text(&bundle)]).ok();
    assert_eq!(label(&program), right, "a repaired file, too");
}

/// The package `sidle-selinux`, in Debian's policy, from which a site has taken what it says of `/opt`.
#[test]
fn the_packaged_contexts_label_what_is_sidles_where_the_policy_of_a_site_does_not() {
    let known = policy();
    let cached = known.ancestors().nth(5).expect("it lies in etc/selinux/default/contexts/files of a root");
    let directory = tempfile::tempdir().unwrap();
    let done = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    done(Command::new("cp").arg("-a").arg(cached).arg(directory.path().join("root")));
    let root = directory.path().join("root");
    let files = root.join("etc/selinux/default/contexts/files");
    let semodule = |words: &[&str]| {
        done(Command::new("semodule").args(["-p", text(&root), "-s", "default", "-n", "-X", "200"]).args(words));
    };
    let own: &[(&str, &str, &str)] = &[
        ("/usr/bin/sidle", "file", "bin_t"),
        ("/opt/sidle/salt-minion/versions/3007.17-1/bin/python3.10", "file", "bin_t"),
        ("/opt/sidle/salt-minion/versions/3007.17-1/lib/libpython3.so.1", "file", "lib_t"),
        ("/opt/sidle/salt-minion/versions/3007.17-1/lib/python3.10/os.py", "file", "lib_t"),
        ("/opt/sidle/salt-minion/versions/3007.17-1/salt/x.so", "file", "lib_t"),
        ("/opt/sidle/salt-minion/versions/3007.17-1/README", "file", "usr_t"),
        ("/opt/sidle/salt-minion/staging", "dir", "usr_t"),
        ("/var/lib/sidle/trust/root.json", "file", "var_lib_t"),
    ];
    let paths = own.iter().map(|(path, kind, _)| ((*path).to_owned(), *kind)).collect();
    let of_site = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("/opt/(") && !line.starts_with("/opt/.*"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let wrong = |files: &Path| {
        // What semodule compiled in the same second would be taken for newer than what is written here.
        for entry in fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_some_and(|extension| extension == "bin") {
                fs::remove_file(entry).unwrap();
            }
        }
        let contexts = files.join("file_contexts");
        let without = of_site(&contexts);
        fs::write(&contexts, without + "\n").unwrap();
        let told = told(files, &paths);
        let is_wrong = |(path, _, kind): &&(&str, &str, &str)| told[*path] != format!("system_u:object_r:{kind}:s0");
        own.iter().filter(is_wrong).map(|(path, ..)| (*path).to_owned()).collect::<Vec<_>>()
    };
    assert!(!wrong(&files).is_empty(), "the policy alone is enough");
    semodule(&["-i", text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/selinux/sidle.cil"))]);
    assert_eq!(wrong(&files), [""; 0]);
    semodule(&["-r", "sidle"]);
    assert!(!wrong(&files).is_empty(), "it is gone");

    let said =
        Command::new("rpm").args(["-qp", "--requires", "--scripts", "--list"]).arg(selinux_package()).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    for word in
        ["policycoreutils", "semodule --noreload --priority 200 --install", "/usr/share/selinux/packages/sidle.cil"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn a_policy_that_is_off_labels_nothing() {
    let policy = policy();
    let author = Author::new();
    let host = Host::new(&author);
    give(&host.root(), &policy, "disabled");
    host.install(&author.release("1.0", "good")).ok();
    let tree = host.path("opt/sidle/demo-agent/versions/1.0-1");
    assert_eq!(label(&tree), label(&host.path("etc")), "only the kernel labels it");
}
