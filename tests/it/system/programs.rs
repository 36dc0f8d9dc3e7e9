//! Every program that a real run starts as root, by the kernel's own record, and who gets root's rights from an adoption.

use crate::plain::programs::{HOSTILE, may_pass};
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use crate::support::{eventually, leftovers, pretended};
use serde_json::json;
use sidle::os::process::{Identity, SignalNumber};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NOBODY: &str = "65534";

/// Starts a supervisor, changes releases, and ends it; `$1` is sidle, `$2` the root. Shell builtins only, besides.
const SESSION: &str = r#"
sidle() { "$program" --root "$root" "$@" || echo "exit $?: $*"; }
program=$1 root=$2
"$program" --root "$root" supervise demo-agent &
supervisor=$!
tries=0
until [ -S "$root/run/sidle/demo-agent/control" ] || [ $tries -gt 600 ]; do /bin/sleep 0.1; tries=$((tries + 1)); done
sidle switch demo-agent 1.0-1
sidle switch demo-agent 1.1-1
sidle restart demo-agent
sidle rollback demo-agent
sidle doctor >/dev/null
kill -TERM $supervisor
wait $supervisor
"#;

/// A line of a process's record.
enum Event {
    Started { path: String, words: Vec<String>, variables: Vec<String> },
    Moved(String),
    Forked(u32),
}

/// The texts of a list as strace prints them: `["a", "b"]`.
fn texts(list: &str) -> Vec<String> {
    let (mut found, mut current, mut escaped) = (Vec::new(), None::<String>, false);
    for character in list.chars() {
        match (&mut current, character) {
            (Some(text), _) if escaped => {
                text.push(character);
                escaped = false;
            }
            (Some(_), '\\') => escaped = true,
            (Some(_), '"') => found.extend(current.take()),
            (Some(text), _) => text.push(character),
            (None, '"') => current = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

fn event(line: &str) -> Option<Event> {
    let (call, result) = line.rsplit_once(" = ")?;
    if let Some(rest) = call.strip_prefix("execve(") {
        let (path, rest) = rest.split_once(", [")?;
        let (words, variables) = rest.split_once("], [").unwrap_or((rest, ""));
        let path = texts(path).pop()?;
        return (result.trim() == "0").then(|| Event::Started {
            path,
            words: texts(words),
            variables: texts(variables),
        });
    }
    if call.starts_with("chdir(") {
        return texts(call).pop().filter(|_| result.trim() == "0").map(Event::Moved);
    }
    result.trim().parse().ok().map(Event::Forked)
}

/// A program that sidle started: its words, its variables, and where it works.
struct Start {
    words: Vec<String>,
    variables: Vec<String>,
    directory: String,
}

/// What the record of a session tells. A process without a program of its own, or a thread, has those of its parent at its birth.
struct Record {
    events: BTreeMap<u32, Vec<Event>>,
    /// The parent, and the number of the parent's event.
    births: BTreeMap<u32, (u32, usize)>,
}

impl Record {
    fn read(directory: &Path) -> Self {
        let (mut events, mut births) = (BTreeMap::new(), BTreeMap::new());
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let pid: u32 = path.extension().unwrap().to_str().unwrap().parse().unwrap();
            let told: Vec<Event> = fs::read_to_string(&path).unwrap().lines().filter_map(event).collect();
            for (number, one) in told.iter().enumerate() {
                if let Event::Forked(child) = one {
                    births.insert(*child, (pid, number));
                }
            }
            events.insert(pid, told);
        }
        Self { events, births }
    }

    /// The program of a process before one of its events.
    fn program(&self, pid: u32, before: usize) -> Option<&str> {
        let own = self.events.get(&pid)?[..before].iter().rev();
        let own =
            own.filter_map(|event| if let Event::Started { path, .. } = event { Some(path.as_str()) } else { None });
        own.into_iter().next().or_else(|| self.births.get(&pid).and_then(|(parent, at)| self.program(*parent, *at)))
    }

    fn directory(&self, pid: u32, before: usize) -> Option<&str> {
        let own = self.events.get(&pid)?[..before].iter().rev();
        let mut own = own.filter_map(|event| if let Event::Moved(path) = event { Some(path.as_str()) } else { None });
        own.next().or_else(|| self.births.get(&pid).and_then(|(parent, at)| self.directory(*parent, *at)))
    }

    fn starts(&self) -> Vec<Start> {
        let mut starts = Vec::new();
        for (pid, events) in &self.events {
            for (number, event) in events.iter().enumerate() {
                let Event::Started { words, variables, .. } = event else { continue };
                if self.program(*pid, number) == Some(SIDLE) {
                    let directory = self.directory(*pid, number).unwrap_or("the caller's").to_owned();
                    starts.push(Start { words: words.clone(), variables: variables.clone(), directory });
                }
            }
        }
        starts
    }
}

/// A directory that every user may fill, and in it programs and modules of a stranger that leave a mark.
fn trap(place: &Path) -> PathBuf {
    let trap = place.join("trap");
    fs::create_dir(&trap).unwrap();
    for name in ["systemctl", "rpm", "dpkg-query", "sh", "sleep", "python3", "getpass.py", "os.py"] {
        fs::write(trap.join(name), format!("#!/bin/sh\necho {name} >>{}\n", text(&place.join("mark")))).unwrap();
        fs::set_permissions(trap.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).unwrap();
    trap
}

#[test]
fn every_program_of_a_real_run_works_in_the_root_directory_and_knows_what_the_list_has() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.refused("1.1", "note: fine")).ok();
    let place = tempfile::tempdir().unwrap();
    let (trap, traces) = (trap(place.path()), place.path().join("traces"));
    fs::create_dir(&traces).unwrap();
    let mut command = Command::new("strace");
    command.args(["-ff", "-qq", "-v", "-s", "65536", "-e", "trace=execve,chdir,fork,vfork,clone,clone3", "-o"]);
    command.arg(traces.join("of")).args(["/bin/sh", "-c", SESSION, "sh", SIDLE]).arg(host.root()).current_dir(&trap);
    command.envs(HOSTILE.iter().filter(|name| **name != "IFS").map(|name| (*name, "() { touch /nowhere; }")));
    let path = format!("{}:.:{}", text(&trap), std::env::var("PATH").unwrap());
    let output = command.env("PATH", path).env("HOME", &trap).stdin(Stdio::null()).output().unwrap();
    leftovers::kill(&host.root());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(host.sidle(&["--json", "history", DEMO]).json()["switches"].as_array().unwrap().len(), 4, "{said}");
    let starts = Record::read(&traces).starts();
    let is = |word: &str| starts.iter().filter(|start| start.words.iter().any(|found| found.contains(word))).count();
    // Four processes of the agent, each by `run`, and the rehearsal of a release.
    assert!(is("--await-start") >= 4 && is("bin/demo-agent") >= 4 && is("share/demo-agent/rehearsal") >= 1, "{said}");
    for Start { words, variables, directory } in &starts {
        assert_eq!(directory, "/", "{words:?}");
        for variable in variables {
            let (name, value) = variable.split_once('=').unwrap();
            assert!(may_pass(name) && !value.contains("/nowhere"), "{words:?}: {variable}");
            assert!(!value.contains(text(&trap)), "{words:?}: {variable}");
        }
        if words[0].contains("python") {
            assert_eq!(words[1], "-I", "{words:?}");
        }
    }
    assert!(!place.path().join("mark").exists(), "{:?}", fs::read_to_string(place.path().join("mark")));
}

/// What says that it is a minion.
struct Impostor {
    child: Child,
    place: tempfile::TempDir,
}

impl Impostor {
    /// Runs as `user`, from a script that only `user` can write, and writes its number into the minion's pid file.
    fn start(host: &Host, user: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let script = place.path().join("pwn");
        let told = place.path().join("told");
        let text_of = format!("id -u >>{}\nwhile :; do sleep 1; done\n", text(&told));
        fs::write(&script, text_of).unwrap();
        fs::write(&told, "").unwrap();
        for path in [&script, &told] {
            std::os::unix::fs::chown(path, Some(NOBODY.parse().unwrap()), None).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "/bin/sh"]).arg(&script);
        command.args(["salt-minion", "-c"]).arg(host.path("etc/demo-agent"));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        fs::create_dir_all(host.path("var/run")).unwrap();
        fs::write(host.path("var/run/salt-minion.pid"), child.id().to_string()).unwrap();
        let impostor = Self { child, place };
        eventually(20, "it runs", || if impostor.users().len() == 1 { Ok(()) } else { Err(String::new()) });
        impostor
    }

    /// The users that it ran as.
    fn users(&self) -> Vec<String> {
        let told = fs::read_to_string(self.place.path().join("told")).unwrap_or_default();
        told.lines().map(str::to_owned).collect()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in sidle::os::proc_fs::all().unwrap() {
            let command = sidle::os::proc_fs::command_line(process.pid).ok().flatten().unwrap_or_default();
            if command.iter().any(|word| word.contains(text(self.place.path()))) {
                if let Ok(Some(identity)) = Identity::of(process.pid) {
                    let _ = identity.signal(SignalNumber::KILL);
                }
            }
        }
    }
}

#[test]
fn an_adoption_never_starts_as_root_what_the_minions_user_wrote() {
    let author = Author::new();
    let host = Host::new(&author);
    fs::set_permissions(host.root(), fs::Permissions::from_mode(0o755)).unwrap();
    host.install(&author.posing_as_minion("1.0")).ok();
    fs::write(host.path("etc/sidle/conf.d/off.toml"), "rehearsal = \"off\"\n").unwrap();
    let supervisor = host.supervise();
    let configure = |user: &str| {
        let root = host.root();
        let master = json!({"name": "127.0.0.1", "host": "127.0.0.1", "request_port": 1, "publish_port": null});
        let mut options = json!({"id": "a", "user": user, "masters": [master]});
        for (name, path) in [
            ("cachedir", "var/cache/salt/minion"),
            ("extension_modules", "var/cache/salt/minion/extmods"),
            ("pki_dir", "etc/salt/pki/minion"),
            ("sock_dir", "var/run/salt/minion"),
            ("pidfile", "var/run/salt-minion.pid"),
        ] {
            options[name] = json!(root.join(path));
        }
        fs::write(host.path("etc/demo-agent/answer"), pretended::answer(options).to_string()).unwrap();
    };
    // Root's own process, of a file that another user can write: nothing is begun.
    configure("root");
    let impostor = Impostor::start(&host, "0");
    let refused = host.sidle(&["adopt", DEMO, "--mode", "now"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("other users can change"), "{refused:?}");
    drop(impostor);

    // The minion's own user's: where the release does not come up, it is started again, and as that user.
    configure("nobody");
    let impostor = Impostor::start(&host, NOBODY);
    // It is no minion, so that sidle tries again and again: the command does not end by itself.
    let mut adopting = Command::new(SIDLE);
    adopting.arg("--root").arg(host.root()).args(["adopt", DEMO, "--mode", "now"]);
    let mut adopting = adopting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(60, "it runs again", || match impostor.users() {
        users if users.len() > 1 => Ok(()),
        _ => Err(supervisor.log()),
    });
    adopting.kill().unwrap();
    adopting.wait().unwrap();
    assert!(impostor.users().iter().all(|user| user == NOBODY), "{:?}", impostor.users());
    assert_eq!(supervisor.end(), Some(0));
    drop(impostor);
    leftovers::kill(&host.root());
}
