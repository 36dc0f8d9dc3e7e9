//! What goes wrong is told with its cause and its remedy, under its exit code.

use crate::plain::formats::demo;
use crate::support::eventually;
use crate::support::inside::bytes;
use crate::support::releases::release_of;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, sidle, text};
use crate::support::trees;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A refusal: its exit code, words of its message, and words of its hint. In JSON it says the same.
#[track_caller]
pub fn refused(ran: &Ran, code: i32, message: &[&str], hint: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let (told, advised) = ran.stderr.split_once("\n  hint: ").unwrap_or_else(|| panic!("no hint: {ran:?}"));
    assert!(told.starts_with("sidle: cannot "), "{told}");
    for word in message {
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }
    for word in hint {
        assert!(advised.contains(word), "{word:?} is not in {advised:?}");
    }
    assert!(!ran.stderr.contains("os error") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
}

pub fn on(root: &Path, arguments: &[&str]) -> Ran {
    sidle(&[&["--root", text(root)], arguments].concat(), &[])
}

/// Pins the author's root in a root of the test's.
pub fn pin(root: &Path, author: &Author) -> Ran {
    let metadata = author.repository().join("metadata/1.root.json");
    on(root, &["trust", "pin", text(&metadata), "--fingerprint", &author.fingerprint()])
}

#[test]
fn messages_about_files_that_are_not_bundles() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    let missing = host.path("nowhere.sidle");
    refused(&host.install(&missing), 1, &["nowhere.sidle", "No such file"], &["check the path", "bundle file"]);
    refused(&host.install(&host.path("")), 1, &["it is a directory"], &["name a bundle file", "sidle export"]);
    let other = host.path("other");
    fs::write(&other, "hello").unwrap();
    refused(&host.install(&other), 6, &["it is not a sidle bundle"], &["sidle export"]);
    let json = host.sidle(&["--json", "install", text(&missing)]);
    assert_eq!((json.code, json.json()["error"]["code"].as_i64()), (Some(1), Some(1)));
    assert!(json.json()["error"]["hint"].as_str().unwrap().contains("check the path"));
    host.install(&bundle).ok();
}

#[test]
fn messages_about_a_host_that_does_not_fit() {
    let author = Author::new();
    // A program of another architecture: a header says it all.
    let mut elf = [0_u8; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let machine: u8 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    for (place, value) in [(16, 3), (18, machine), (20, 1), (52, 64), (54, 56), (58, 64)] {
        elf[place] = value;
    }
    let foreign = release_of(&author, "1.0", "", |tree| trees::put(tree, "bin/program", &elf, 0o755));
    let newer = release_of(&author, "1.1", "glibc = \"9.99\"", |_| {});
    let lacking = release_of(&author, "1.2", "libraries = [\"libnowhere.so.7\", \"libc.so.6\"]", |_| {});
    let host = Host::new(&author);
    let own = std::env::consts::ARCH;
    let theirs = if own == "aarch64" { "x86_64" } else { "aarch64" };
    refused(&host.install(&foreign), 1, &[theirs, own, "opt/sidle/demo-agent"], &["this host's architecture"]);
    refused(&host.install(&newer), 1, &["needs glibc 9.99 or newer, this host has 2."], &["older C library"]);
    refused(&host.install(&lacking), 1, &["are missing on this host", "libnowhere.so.7"], &["distribution's packages"]);
    assert!(!host.path("opt").exists(), "a refusal made directories");
}

/// What was installed into an image was compared with the system that prepared it.
#[test]
fn messages_about_an_image_name_its_own_system() {
    let author = Author::new();
    let release = release_of(&author, "1.0", "glibc = \"2.17\"", |_| {});
    let host = Host::new(&author);
    host.install(&release).ok();
    let listed = || host.sidle(&["--json", "list"]).json()["releases"][0]["lacks"].clone();
    assert_eq!(listed(), serde_json::json!([]), "a directory that is no system is a part of this one");
    let told = host.sidle(&["list"]).ok();
    assert!(!told.contains("cannot start"), "{told}");
    fs::write(host.path("etc/os-release"), "PRETTY_NAME=\"Old Linux 7\"\n").unwrap();
    let lacks = "the release needs glibc 2.17 or newer, this host has none (Old Linux 7): it starts on ";
    assert!(listed()[0].as_str().unwrap().starts_with(lacks), "{}", listed());
    let told = host.sidle(&["list"]).ok();
    assert!(told.contains(&format!("\ndemo-agent 1.0-1 cannot start here: {lacks}")), "{told}");
    let another = release_of(&author, "1.1", "glibc = \"2.17\"", |_| {});
    refused(&host.install(&another), 1, &["this host has none (Old Linux 7)"], &["older C library"]);
    let doctor = host.sidle(&["doctor"]);
    assert!(doctor.stdout.contains("1.0-1 cannot start on this host"), "{doctor:?}");
}

/// Compiles a library that defines this version of a symbol, and a program that asks for it; gives the program.
fn program_asking(place: &Path, library: &str, version: &str) -> PathBuf {
    let path = |name: &str| place.join(name);
    fs::create_dir(place).unwrap();
    fs::write(path("map"), format!("{version} {{ global: asked; local: *; }};\n")).unwrap();
    fs::write(path("library.c"), "int asked(void) { return 0; }\n").unwrap();
    fs::write(path("program.c"), "int asked(void);\nint main(void) { return asked(); }\n").unwrap();
    let (soname, map) = (format!("-Wl,-soname,{library}"), format!("-Wl,--version-script={}", text(&path("map"))));
    for arguments in
        [&["-shared", "-fPIC", &soname, &map, "library.c", "-o", library][..], &["program.c", library, "-o", "program"]]
    {
        let output = Command::new("cc").args(arguments).current_dir(place).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    path("program")
}

/// A release installed on RHEL 7, and died there at `import zmq`: its libstdc++ was the host's, which was too old.
#[test]
fn messages_about_a_host_library_that_is_too_old_or_not_there() {
    let (author, place) = (Author::new(), tempfile::tempdir().unwrap());
    let host = Host::new(&author);
    let release = |version: &str, library: &str, asked: &str| {
        let program = fs::read(program_asking(&place.path().join(version), library, asked)).unwrap();
        release_of(&author, version, "", |tree| trees::put(tree, "bin/program", &program, 0o755))
    };
    let newer = release("1.0", "libstdc++.so.6", "GLIBCXX_9.9.9");
    let inspected = host.sidle(&["inspect", text(&newer)]).ok();
    assert!(inspected.contains("libstdc++.so.6 (GLIBCXX_9.9.9)"), "{inspected}");
    let words = ["libstdc++.so.6 of this host is too old", "needs GLIBCXX_9.9.9 of it"];
    refused(&host.install(&newer), 1, &words, &["brings the library itself"]);
    let absent = release("1.1", "libnowhere.so.7", "NOWHERE_1");
    refused(&host.install(&absent), 1, &["are missing on this host", "libnowhere.so.7"], &["distribution's packages"]);
    // What a host has is no obstacle.
    host.install(&release("1.2", "libstdc++.so.6", "GLIBCXX_3.4")).ok();
}

/// A program with a note of GNU tools, or with the option `-shared` a library: the note's section, the kind, the numbers in it.
fn noting(place: &Path, options: &[&str], (section, kind): (&str, u32), numbers: &str) -> Vec<u8> {
    fs::write(place.join("program.c"), "int main(void) { return 0; }\n").unwrap();
    let note = format!(
        ".section {section}, \"a\", @note\n.p2align 3\n.long 4, 16, {kind}\n.asciz \"GNU\"\n.long {numbers}\n\
         .section .note.GNU-stack, \"\", @progbits\n"
    );
    fs::write(place.join("note.s"), note).unwrap();
    let words = [&["program.c", "note.s", "-o", "program"], options].concat();
    let output = Command::new("cc").args(words).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::read(place.join("program")).unwrap()
}

/// A tree of a Python for newer processors was installed, and died at its start.
#[test]
fn messages_about_a_processor_or_a_kernel_that_is_too_old() {
    let (author, place) = (Author::new(), tempfile::tempdir().unwrap());
    let host = Host::new(&author);
    let release = |version: &str, options: &[&str], note: (&str, u32), numbers: &str| {
        let program = noting(place.path(), options, note, numbers);
        release_of(&author, version, "", |tree| trees::put(tree, "bin/program", &program, 0o755))
    };
    let said = |bundle: &Path| host.sidle(&["inspect", text(bundle)]).ok();
    // What `-mneeded` of a compiler writes: a bit for each level of x86-64.
    let property = (".note.gnu.property", 5);
    let first = release("1.0", &[], property, "0xc0008002, 4, 1, 0");
    assert!(!said(&first).contains("needs Linux") && !said(&first).contains("needs processor"), "{}", said(&first));
    host.install(&first).ok();
    let fourth = release("1.1", &[], property, "0xc0008002, 4, 15, 0");
    assert!(said(&fourth).contains("x86-64-v4 or better"), "{}", said(&fourth));
    let ran = host.install(&fourth);
    match sidle::os::host::x86_64_level() {
        Some(4) => drop(ran.ok()),
        _ => refused(&ran, 1, &["a processor of level x86-64-v4", "this host's has x86-64-v"], &["older processors"]),
    }
    let mark = (".note.ABI-tag", 1);
    let library = release("1.2", &["-shared", "-fPIC"], mark, "0, 99, 7, 3");
    assert!(said(&library).contains("99.7 or newer"), "{}", said(&library));
    refused(&host.install(&library), 1, &["needs Linux 99.7 or newer, this host has"], &["an older system"]);
    // A program starts all the same. A portable Python bears the version of its compiler's headers, which is later than the kernels of its hosts.
    let program = release("1.3", &[], mark, "0, 99, 7, 3");
    assert!(Command::new(place.path().join("program")).status().unwrap().success());
    assert!(!said(&program).contains("needs Linux"), "{}", said(&program));
    host.install(&program).ok();
}

/// patchelf 0.18 wrote such libraries: they load where they were built, and not with the older loader of the hosts.
#[test]
fn messages_about_a_library_that_older_loaders_refuse() {
    let place = tempfile::tempdir().unwrap();
    let program = program_asking(&place.path().join("1.0"), "libown.so.1", "OWN_1");
    let mut library = fs::read(program.with_file_name("libown.so.1")).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = usize::try_from(number(&library, 32)).unwrap();
    let count = usize::from(u16::from_le_bytes([library[56], library[57]]));
    for at in (0..count)
        .map(|index| headers + 56 * index)
        .filter(|at| library[*at..at + 4] == [1, 0, 0, 0])
        .collect::<Vec<_>>()
    {
        // More than a page, where other segments are a page away from their place in the file.
        library[at + 48..at + 56].copy_from_slice(&0x20_0000_u64.to_le_bytes());
    }
    let ran = packed_with(place.path(), &[("lib/libown.so.1", &library)]);
    assert!(ran.code == Some(1) && ran.stderr.contains("lib/libown.so.1: its segments are not aligned"), "{ran:?}");
}

/// The demonstration agent's tree with more files, packed; a refusal writes nothing.
fn packed_with(place: &Path, files: &[(&str, &[u8])]) -> Ran {
    let (tree, output, recipe) = (place.join("tree"), place.join("out"), demo("demo-agent.toml"));
    if !tree.exists() {
        assert!(Command::new("cp").arg("-r").arg(demo("tree")).arg(&tree).status().unwrap().success());
    }
    for (path, bytes) in files {
        trees::put(&tree, path, bytes, 0o644);
    }
    let arguments = ["pack", text(&recipe), "--version", "1.0", "--tree", text(&tree), "--output", text(&output)];
    let ran = sidle(&arguments, &[]);
    assert_eq!(ran.code == Some(0), output.join("manifest.json.zst").exists(), "{ran:?}");
    ran
}

/// A package that was made for a newer libstdc++ than the one beside the tree's Python was packed, and could not be imported on any host.
#[test]
fn messages_about_a_library_of_the_tree_that_is_too_old_for_another_file() {
    let place = tempfile::tempdir().unwrap();
    let made = |name: &str, version: &str| {
        let program = program_asking(&place.path().join(name), "libown.so.1", version);
        [fs::read(&program).unwrap(), fs::read(program.with_file_name("libown.so.1")).unwrap()]
    };
    let ([_, older], [newer_program, newer]) = (made("older", "OWN_1"), made("newer", "OWN_2"));
    let ran = packed_with(place.path(), &[("bin/program", &newer_program), ("lib/libown.so.1", &older)]);
    let words = ["bin/program: it needs OWN_2 of libown.so.1", "the tree's own does not define"];
    assert!(ran.code == Some(1) && words.iter().all(|word| ran.stderr.contains(word)), "{ran:?}");
    packed_with(place.path(), &[("lib/other/libown.so.1", &newer)]).ok();
}

#[test]
fn messages_about_what_is_not_there() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    for arguments in [&["list", "nope"][..], &["verify", "nope"], &["collect", "nope"], &["run", "nope"]] {
        refused(&host.sidle(arguments), 1, &["package nope", "nothing is installed"], &["sidle install FILE"]);
    }
    refused(
        &host.sidle(&["install", text(&bundle), "--release", "9.9-1"]),
        1,
        &["9.9-1", "demo-agent/1.0-1/linux-any"],
        &["sidle inspect FILE"],
    );
    host.install(&bundle).ok();
    refused(&host.sidle(&["verify", DEMO, "9.9-1"]), 1, &["release 9.9-1", "releases are 1.0-1"], &["sidle list"]);
    refused(&host.sidle(&["run", DEMO]), 1, &["no current release"], &["sidle switch demo-agent", "--release"]);
    let ran = host.sidle(&["run", DEMO, "nope", "--release", "1.0-1"]);
    refused(&ran, 2, &["nope", "1.0-1 offers demo-agent"], &["sidle run PACKAGE"]);
    let (repository, output) = (author.repository(), host.path("out.sidle"));
    let ran = sidle(&["export", text(&repository), "demo-agent@9.9-1", "-o", text(&output)], &[]);
    refused(&ran, 1, &["9.9-1", "it has 1.0-1"], &["sidle repo add"]);
    assert_eq!(host.sidle(&["verify", DEMO, "not-a-release"]).code, Some(2));
}

#[test]
fn messages_about_trust() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = tempfile::tempdir().unwrap();
    let unpinned = on(host.path(), &["install", text(&bundle)]);
    refused(&unpinned, 7, &["no root is pinned", "var/lib/sidle/trust"], &["sidle trust pin FILE --fingerprint"]);
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0, "a refusal made directories");
    let wrong = "0".repeat(64);
    let ran = on(host.path(), &["trust", "pin", text(&bundle), "--fingerprint", &wrong]);
    refused(&ran, 7, &[&wrong, &author.fingerprint()], &["repository's owner", "sha256sum"]);
    let ran = on(host.path(), &["trust", "pin", text(&bundle), "--fingerprint", "abc"]);
    refused(&ran, 2, &["abc", "64 hexadecimal digits"], &["sha256sum"]);
    pin(host.path(), &author).ok();
    assert_eq!(pin(host.path(), &author).code, Some(3));
    let other = Author::new();
    refused(&pin(host.path(), &other), 12, &[&other.fingerprint(), &author.fingerprint()], &["sidle trust show"]);
    let strange = other.release("1.0", "good");
    let ran = on(host.path(), &["install", text(&strange)]);
    refused(&ran, 7, &["cannot trust"], &["sidle trust show"]);
}

#[test]
fn messages_about_roots_that_cannot_be_written() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("root");
    refused(&pin(&below, &author), 1, &["file", "Not a directory"], &["a part of the path is a file", "--root"]);
    refused(&on(&below, &["install", text(&bundle)]), 1, &["file", "Not a directory"], &["--root"]);
}

pub fn large(author: &Author) -> std::path::PathBuf {
    release_of(author, "2.0", "", |tree| {
        trees::put(tree, "lib/data", &trees::noise(9, 3 << 20), 0o644);
        for number in 0..300 {
            trees::put(tree, &format!("lib/many/{number}"), b"", 0o644);
        }
    })
}

pub fn nothing_was_left(root: &Path) {
    for relative in ["opt/sidle/demo-agent/staging", "opt/sidle/demo-agent/versions"] {
        let left = fs::read_dir(root.join(relative)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{relative}");
    }
}

/// An install that has read most of its bundle and waits for the rest, the package's lock in its hand.
pub struct Waiting {
    pub child: Child,
    pub writer: fs::File,
    pub rest: Vec<u8>,
}

pub fn waiting(root: &Path, bundle: &Path) -> Waiting {
    let directory = bundle.parent().unwrap();
    let pipe = directory.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = Command::new(SIDLE)
        .args(["--root", text(root), "install", text(&pipe)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let content = bytes(bundle);
    // The head and the start of the payload: enough for the lock, not for the first large frame.
    let (start, rest) = content.split_at(content.len() - (2 << 20));
    writer.write_all(start).unwrap();
    let staged = root.join("opt/sidle/demo-agent/staging/2.0-1");
    eventually(20, "it unpacks", || if staged.exists() { Ok(()) } else { Err("nothing is staged".to_owned()) });
    Waiting { child, writer, rest: rest.to_vec() }
}

impl Waiting {
    pub fn end(mut self) -> Ran {
        // The program may refuse before it has read all.
        let _ = self.writer.write_all(&self.rest);
        drop(self.writer);
        let output = self.child.wait_with_output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

#[test]
fn messages_about_a_second_command_at_the_same_time() {
    let author = Author::new();
    let bundle = large(&author);
    let host = Host::new(&author);
    let waiting = waiting(&host.path(""), &bundle);
    let pid = waiting.child.id().to_string();
    for arguments in [&["install", text(&bundle)][..], &["test-flip", DEMO, "2.0-1"]] {
        let ran = host.sidle(arguments);
        refused(&ran, 9, &["another command is at work", &format!("process {pid}"), "install"], &["wait"]);
    }
    assert_eq!(waiting.end().code, Some(0));
    host.sidle(&["test-flip", DEMO, "2.0-1"]).ok();
}

#[test]
fn messages_are_not_needed_below_a_root_of_ninety_characters() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let directory = tempfile::tempdir().unwrap();
    let length = directory.path().as_os_str().len();
    let root = directory.path().join("r".repeat(90 - length - 1));
    assert_eq!(root.as_os_str().len(), 90);
    fs::create_dir_all(root.join("etc/demo-agent")).unwrap();
    fs::create_dir_all(root.join("etc/sidle")).unwrap();
    fs::write(root.join("etc/sidle/sidle.toml"), "probation = \"300ms\"\n").unwrap();
    pin(&root, &author).ok();
    on(&root, &["install", text(&bundle)]).ok();
    let mut supervisor = Command::new(SIDLE)
        .args(["--root", text(&root), "supervise", DEMO])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let control = root.join("run/sidle/demo-agent/control");
    eventually(20, "the supervisor listens", || if control.exists() { Ok(()) } else { Err("no socket".to_owned()) });
    let switched = on(&root, &["switch", DEMO, "1.0-1"]);
    let identity = sidle::os::process::Identity::of(supervisor.id()).unwrap().unwrap();
    identity.signal(sidle::os::process::SignalNumber::TERM).unwrap();
    supervisor.wait().unwrap();
    switched.ok();
}
