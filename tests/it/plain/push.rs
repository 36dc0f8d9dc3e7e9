//! `sidle push` and hosts that mean harm, behind a program that stands for ssh.

use crate::support::mirrors::Handmade;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, text};
use sidle::os::dir::Dir;
use sidle::os::lock::LockFile;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// ssh, as far as `sidle push` uses it: a host behaves as its name says.
const SSH: &str = r#"#!/bin/sh
# No variable of the test comes through to a program that sidle starts.
STAGE=${0%/bin/ssh}
case " $* " in
*" -G "*)
    for host; do :; done
    [ "$host" = loose ] && strict=false || strict=true
    printf 'host %s\nstricthostkeychecking %s\n' "$host" "$strict"
    exit
    ;;
esac
while [ "$1" != -- ]; do
    case $1 in -oControlPath=*) echo "$2 ${1#*=}" >>"$STAGE/sockets" ;; esac
    shift
done
case "$3" in
'sh -s')
    echo "$2" >>"$STAGE/entered"
    case $2 in
    old)
        libc='glibc 2.17'
        printf 'sidle-push: %s\n' 'machine x86_64' 'user 0' "libc $libc" 'end ok'
        exec cat >/dev/null
        ;;
    elsewhere)
        printf 'sidle-push: %s\n' 'machine x86_64' 'user 0' 'program /usr/local/bin/sidle' 'version sidle 0.0.1' 'elsewhere yes' 'end ok'
        exec cat >/dev/null
        ;;
    esac
    printf 'sidle-push: %s\n' 'machine x86_64' 'user 0' 'program /usr/bin/sidle' 'version sidle 99.0.0' 'end ok'
    exec cat >/dev/null
    ;;
esac
echo "$2 $3" >>"$STAGE/commands"
result='{"schema":1,"release":"1.0-1","steps":[{"changed":true,"text":"installed 1.0-1"}]}'
case $2 in
good*) echo "$result" ;;
adopted)
    echo '{"schema":1,"release":"1.0-1","steps":[{"changed":true,"text":"would take over the running agent"}],
        "adoption":{"steps":["switch to 1.0-1"],"rehearsed":true,"notes":["functions that would vanish: boto.exists"],
        "warnings":["not copied: MemoryMax"],"changes":[{"path":"/etc/a","what":"the unit"}],"unchanged":["the cache"]}}' | tr -d '\n'
    echo
    ;;
slow) read -r _ <"$STAGE/go"; echo "$result" ;;
endless) echo "$result"; exec yes ;;
drip) while :; do echo x; sleep 0.05; done ;;
garbage) head -c 200000 /dev/zero | tr '\0' x ;;
esac
"#;

struct Pusher {
    host: Host,
    author: Author,
    stage: PathBuf,
    path: String,
}

impl Pusher {
    fn new() -> Self {
        let (host, author) = (Host::bare(), Author::new());
        let stage = host.path("stage");
        fs::create_dir_all(stage.join("bin")).unwrap();
        fs::write(stage.join("bin/ssh"), SSH).unwrap();
        fs::set_permissions(stage.join("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", text(&stage.join("bin")), std::env::var("PATH").unwrap());
        Self { host, author, stage, path }
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        let repository = self.author.repository();
        let own = ["push", "--repository", text(&repository), "--fingerprint", &self.author.fingerprint()];
        own.iter().chain(words).map(|word| (*word).to_owned()).collect()
    }

    fn push(&self, words: &[&str], runtime: Option<&str>) -> Ran {
        let words = self.words(words);
        let words: Vec<&str> = ["--json"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let variables = [("PATH", self.path.as_str()), ("XDG_RUNTIME_DIR", runtime.unwrap_or(""))];
        self.host.sidle_with(&words, &variables)
    }

    /// Why the one host of a push failed.
    fn failure(&self, words: &[&str]) -> (Option<i32>, String) {
        let ran = self.push(words, None);
        (ran.code, ran.json()["hosts"][0]["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    fn noted(&self, name: &str) -> String {
        fs::read_to_string(self.stage.join(name)).unwrap_or_default()
    }
}

#[test]
fn the_result_of_a_host_is_printed_while_another_one_still_works() {
    let pusher = Pusher::new();
    let go = pusher.stage.join("go");
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let root = pusher.host.root();
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&root)]).args(pusher.words(&["slow", "good"])).env("PATH", &pusher.path);
    command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut push = command.spawn().unwrap();
    let mut lines = BufReader::new(push.stdout.take().unwrap()).lines().map_while(Result::ok);
    let good = lines.by_ref().find(|line| line.starts_with("good  done")).expect("printed while `slow` waits");
    assert!(good.ends_with("installed 1.0-1"), "{good}");
    fs::write(&go, "\n").unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.starts_with("slow  done")), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("2 hosts, 0 failed"));
    assert_eq!(push.wait().unwrap().code(), Some(0));
}

/// What a takeover finds on a host stayed there: a push said only that it would take over.
#[test]
fn the_findings_of_a_takeover_stand_below_the_host() {
    let pusher = Pusher::new();
    let words = ["adopted", "--action", "adopt", "--dry-run"];
    let all = pusher.push(&words, None).json();
    let adoption = &all["hosts"][0]["adoption"];
    assert_eq!(adoption["notes"][0], "functions that would vanish: boto.exists", "{all}");
    assert_eq!((&adoption["warnings"][0], &adoption["rehearsed"]), (&"not copied: MemoryMax".into(), &true.into()));
    let words = pusher.words(&words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shown = pusher.host.sidle_with(&words, &[("PATH", &pusher.path), ("XDG_RUNTIME_DIR", "")]).ok();
    for line in [
        "    warning: not copied: MemoryMax",
        "    the rehearsal found:",
        "      functions that would vanish: boto.exists",
        "    would change:",
        "      /etc/a: the unit",
        "    would not change:",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in {shown}");
    }
    let none = pusher.push(&["good"], None).json();
    assert!(none["hosts"][0]["adoption"].is_null(), "{none}");
}

/// The program and its units were on the host before its C library was looked at.
#[test]
fn nothing_is_brought_to_a_host_whose_c_library_is_too_old() {
    let pusher = Pusher::new();
    pusher.author.needing_glibc("1.0", "2.34");
    let refused = |more: &[&str]| {
        let (code, message) = pusher.failure(&[&["old", "--package", DEMO], more].concat());
        let expected =
            "cannot install demo-agent 1.0-1 on old: the release needs glibc 2.34 or newer, this host has 2.17";
        assert!(code == Some(1) && message.starts_with(expected), "{code:?} {message}");
    };
    refused(&[]);
    refused(&["--dry-run"]);
    refused(&["--release", "1.0-1"]);
    // An older release fits, but not the named one.
    pusher.author.needing_glibc("0.9", "2.17");
    refused(&["--release", "1.0-1"]);
    let (_, message) = pusher.failure(&["old", "--package", DEMO]);
    assert!(message.starts_with("cannot bring"), "the test's program is not static: {message}");
    assert_eq!(pusher.noted("commands"), "", "nothing ran on the host");
}

#[test]
fn no_host_goes_on_for_ever_and_none_is_misjudged() {
    let pusher = Pusher::new();
    let (code, message) = pusher.failure(&["endless", "--patience", "3s"]);
    assert!(code == Some(1) && message.contains("did not end within 3 s"), "{code:?} {message}");
    let (code, message) = pusher.failure(&["drip", "--total-timeout", "2s"]);
    assert!(code == Some(1) && message.contains("not done after 2 s"), "{code:?} {message}");
    let (code, message) = pusher.failure(&["elsewhere"]);
    assert!(
        code == Some(12) && message.contains("/usr/local/bin/sidle is older, and would be found before"),
        "{message}"
    );
    let (code, message) = pusher.failure(&["garbage"]);
    assert!(code == Some(1) && message.contains("200001 bytes") && message.len() < 500, "{code:?} {message}");
}

/// One renamed the other's half file to the signed name.
#[test]
fn two_pushes_do_not_copy_one_repository_at_once() {
    let pusher = Pusher::new();
    pusher.author.release("1.0", "good");
    let repository = pusher.author.repository();
    let server = Handmade::new(move |asked, line| {
        line.serve(asked, fs::read(repository.join(&asked.path[1..])).ok().as_deref());
    });
    let copy = format!("var/cache/sidle/push/{}/repository", pusher.author.fingerprint());
    let copy = Dir::open_or_create(&pusher.host.path(&copy), 0o755).unwrap();
    let held = LockFile::new(&copy, ".sidle-lock").try_exclusive().unwrap().expect("nobody has it");
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&pusher.host.root()), "push", "--repository", &server.url()]);
    command.args(["--fingerprint", &pusher.author.fingerprint(), "--package", DEMO, "good"]).env("PATH", &pusher.path);
    command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut push = command.spawn().unwrap();
    let mut lines = BufReader::new(push.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    assert!(first.contains("waiting: another push copies http"), "{first}");
    assert!(server.heads().is_empty(), "nothing is fetched meanwhile");
    drop(held);
    let rest: Vec<String> = lines.collect();
    assert_eq!(push.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(!server.heads().is_empty());
}

/// Without a descriptor a host failed at once, and the next one after it: with 200 at a time of 10,000 nearly all did, untouched.
#[test]
fn no_more_hosts_at_a_time_than_open_files_allow() {
    let pusher = Pusher::new();
    let hosts: Vec<String> = (0..60).map(|number| format!("good{number}")).collect();
    let mut words = pusher.words(&["--parallel", "60"]);
    words.extend(hosts);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\"", SIDLE, "--root", text(&pusher.host.root())]).args(words);
    let output = command.env("PATH", &pusher.path).env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.ends_with("60 hosts, 0 failed\n"), "{told}\n{errors}");
    assert!(errors.contains("8 hosts at a time, and not 60"), "{errors}");
}

#[test]
fn a_host_whose_key_ssh_would_not_check_is_not_entered() {
    let pusher = Pusher::new();
    let (code, message) = pusher.failure(&["loose"]);
    assert!(code == Some(7) && message.contains("StrictHostKeyChecking false"), "{code:?} {message}");
    assert_eq!(pusher.noted("entered"), "");
    for option in ["=StrictHostKeyChecking=no", "\"StrictHostKeyChecking\" no", "KnownHostsCommand=/bin/echo"] {
        assert_eq!(pusher.push(&["good", "-o", option], None).code, Some(2), "{option}");
    }
    assert_eq!(pusher.noted("entered"), "");
}

#[test]
fn the_sockets_of_ssh_lie_where_nobody_else_can_put_his_own() {
    let pusher = Pusher::new();
    let usual = pusher.host.path("run/sidle");
    let make = |name: &str, mode: u32| {
        let path = pusher.host.path(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let (own, open) = (make("own", 0o700), make("open", 0o777));
    let below_open = make("open/below", 0o700);
    let with_open = make("with-open", 0o700);
    make("with-open/sidle", 0o777);
    let cases: [(&str, &Path); 6] = [
        (text(&own), &own.join("sidle")),
        (text(&open), &usual),
        (text(&below_open), &usual),
        (text(&with_open), &usual),
        ("relative", &usual),
        ("", &usual),
    ];
    for (runtime, expected) in cases {
        let ran = pusher.push(&["good"], Some(runtime));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let socket = pusher.noted("sockets").lines().last().unwrap_or_default().to_owned();
        assert!(
            socket.contains(&format!(" {}/push-", text(expected))) || socket.contains(text(expected)),
            "{runtime}: {socket}"
        );
        assert_eq!(
            ran.stderr.contains("is not used for ssh's sockets"),
            expected == usual && !runtime.is_empty(),
            "{ran:?}"
        );
    }
}
