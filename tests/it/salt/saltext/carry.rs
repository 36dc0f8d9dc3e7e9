//! Bundles over Salt's own file server: a real master and minion, and a wire between them that counts.

use crate::support::eventually;
use crate::support::extension::copy_into;
use crate::support::salt::{Master, Minion, START_SECONDS, tree};
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use serde_json::{Value, json};
use sidle::os::proc_fs::{self, Process};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const ID: &str = "carried";
const MIB: u64 = 1 << 20;

/// Leads connections to the master's request port, and counts what the master sends.
struct Wire {
    port: u16,
    sent: Arc<AtomicU64>,
}

impl Wire {
    fn to(address: &'static str, port: u16) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let wire = Self { port: listener.local_addr().unwrap().port(), sent: Arc::default() };
        let counter = Arc::clone(&wire.sent);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect((address, port)) else { continue };
                let (up, down) = ((near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near));
                let counter = Arc::clone(&counter);
                thread::spawn(move || pass(up, &AtomicU64::new(0)));
                thread::spawn(move || pass(down, &counter));
            }
        });
        wire
    }

    /// What the master has sent since the last question.
    fn taken(&self) -> u64 {
        self.sent.swap(0, Ordering::SeqCst)
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), counter: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        counter.fetch_add(count as u64, Ordering::SeqCst);
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Three files of 9 MiB that no compressor makes smaller.
fn heavy(tree: &Path) {
    let mut state = 1_u64;
    for number in 0..3 {
        let byte = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        };
        let bytes: Vec<u8> = (0..9 * MIB).map(byte).collect();
        fs::write(tree.join(format!("share/large{number}")), bytes).unwrap();
    }
}

/// Processes of sidle for this host.
fn programs(host: &Host) -> Vec<Process> {
    let root = format!("--root={}", text(&host.root()));
    let is_ours = |process: &Process| {
        let words = proc_fs::command_line(process.pid).ok().flatten().unwrap_or_default();
        process.is_alive() && words.first().is_some_and(|word| word == SIDLE) && words.contains(&root)
    };
    proc_fs::all().unwrap().into_iter().filter(is_ours).collect()
}

/// A minion whose master's file server has a repository of two releases, behind a wire that counts.
struct Carried {
    host: Host,
    master: Master,
    minion: Minion,
    wire: Wire,
    _author: Author,
}

const INSTALL: [&str; 3] = ["sidle.install", "demo-agent@1.0-1", "repository=salt://repo"];
const UPGRADE: [&str; 3] = ["sidle.upgrade", "demo-agent@1.1-1", "repository=salt://repo"];

impl Carried {
    fn new() -> Self {
        let author = Author::new();
        author.release_with("1.0", heavy);
        author.release_with("1.1", heavy);
        let host = Host::new(&author);
        let tree = tree("3007.17");
        let master = Master::start_with(&tree, true, "");
        copy_into(&master.files());
        let mut copy = std::process::Command::new("cp");
        let copied = copy.arg("-a").arg(author.repository()).arg(master.files().join("repo")).status();
        assert!(copied.unwrap().success());
        let wire = Wire::to(master.address, master.request_port());
        let own = format!(
            "master: {}\nmaster_port: {}\npublish_port: {}\nsidle:\n  program: {SIDLE}\n  root: {}\n  package: {DEMO}\n",
            master.address,
            wire.port,
            master.publish_port(),
            text(&host.root())
        );
        let minion = Minion::start(&tree, ID, &own);
        master.hears(&[ID]);
        eventually(START_SECONDS, "the minion has the modules", || {
            let said = master.call_within("10", ID, &["saltutil.sync_all"]);
            if said.contains("modules.sidle") || master.call(ID, &["sidle.version"]).contains("0.") {
                Ok(())
            } else {
                Err(said)
            }
        });
        Self { host, master, minion, wire, _author: author }
    }

    fn call(&self, words: &[&str]) -> Value {
        let said = self.master.call(ID, &[words, &["--out=json", "--static"]].concat());
        let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        told[ID].clone()
    }

    /// A budget; and the job is killed while parts of the payload are there: a small frame, then a large one.
    fn is_killed_while_it_takes(&self) {
        let Self { host, master, minion, wire, .. } = self;
        master.publish(ID, &[&INSTALL[..], &["rate=4M"]].concat());
        let partial = host.path("var/cache/sidle/partial");
        let are_there = |frames: usize| {
            eventually(60, &format!("{frames} frames are there"), || {
                match fs::read_dir(&partial).map_or(0, Iterator::count) {
                    count if count >= frames => Ok(()),
                    count => Err(format!("{count}: {}", minion.log())),
                }
            });
        };
        are_there(1);
        let begun = Instant::now();
        wire.taken();
        are_there(2);
        let (taken, milliseconds) = (u128::from(wire.taken()), begun.elapsed().as_millis());
        let (enough, most) = (u128::from(4 * MIB), milliseconds * u128::from(4 * MIB + MIB / 2) / 1000);
        assert!(taken > enough && taken < most, "{taken} bytes in {milliseconds} ms");
        let job = programs(host).first().expect("it is under way").parent;
        let job = rustix::process::Pid::from_raw(i32::try_from(job).unwrap()).unwrap();
        rustix::process::kill_process(job, rustix::process::Signal::KILL).unwrap();
        eventually(20, "sidle has ended with the job", || match programs(host) {
            none if none.is_empty() => Ok(()),
            some => Err(format!("{some:?}")),
        });
    }

    /// Of the next release only what changed comes; what both have lost comes again, and nothing else.
    fn takes_what_changed_and_what_was_lost(&self) {
        let Self { host, wire, .. } = self;
        // The first of these repositories is nowhere; of the next release only what changed comes.
        let said = self.call(&["sidle.install", "demo-agent", "repository=['file:///nowhere', 'salt://repo']"]);
        let more = wire.taken();
        assert_eq!((&said["code"], &said["release"]), (&json!(0), &json!("1.1-1")), "{said}");
        assert!(more < MIB / 2, "{more} bytes came for {said}");

        // What both releases have lost comes from there again, and nothing else.
        for version in ["1.0-1", "1.1-1"] {
            fs::write(host.path("opt/sidle/demo-agent/versions").join(version).join("share/large1"), "damaged")
                .unwrap();
        }
        wire.taken();
        let repaired = self.call(&["sidle.repair", "full=True", "repository=salt://repo"]);
        let again = wire.taken();
        assert_eq!(repaired["code"], 0, "{repaired}");
        assert!(again > 9 * MIB && again < 20 * MIB, "{again} bytes came for {repaired}");
        assert_eq!(self.call(&["sidle.verify", "full=True"])["code"], 0);
    }
}

#[test]
fn a_minion_takes_only_what_it_lacks_from_the_file_server_and_keeps_nothing_in_its_cache() {
    let carried = Carried::new();
    let call = |words: &[&str]| carried.call(words);
    let Carried { host, minion, wire, .. } = &carried;
    carried.is_killed_while_it_takes();

    wire.taken();
    let installed = call(&INSTALL);
    let again = wire.taken();
    assert_eq!((&installed["code"], &installed["fresh"]), (&json!(0), &json!(true)), "{installed}");
    let lacked = installed["lacking_bytes"].as_u64().unwrap();
    assert!(lacked > 27 * MIB && again < 20 * MIB, "{again} bytes came again of {lacked}");

    // What a plan asks takes metadata alone.
    let _supervisor = host.supervise();
    let shown = call(&[&UPGRADE[..], &["test=True"]].concat());
    let metadata = wire.taken();
    assert_eq!((&shown["code"], &shown["dry_run"]), (&json!(0), &json!(true)), "{shown}");
    assert!(metadata < MIB / 2 && !host.path("opt/sidle/demo-agent/versions/1.1-1").exists(), "{metadata}: {shown}");

    carried.takes_what_changed_and_what_was_lost();

    let said = call(&["sidle.install", "demo-agent", "repository=salt://nothing"]);
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains("salt://nothing: cannot find timestamp.json"), "{said}");
    let said = call(&["sidle.install", "demo-agent", "repository=salt://repo", "rate=fast"]);
    assert_eq!(said["code"], 2, "{said}");
    let upgraded = call(&[&UPGRADE[..], &["splay=0s", "wait=True"]].concat());
    assert_eq!((&upgraded["code"], &upgraded["to"]), (&json!(0), &json!("1.1-1")), "{upgraded}");
    let state = ["state.single", "sidle.installed", "name=demo-agent", "release=1.0-1", "repository=salt://repo"];
    assert!(call(&state).to_string().contains("1.0-1 is installed"));
    let cached = crate::support::repositories::snapshot_of(&minion.path("var/cache/salt/minion"));
    let cached: Vec<String> = cached.into_iter().map(|(path, _)| path.display().to_string()).collect();
    let of_repository: Vec<&String> = cached.iter().filter(|path| path.contains("repo")).collect();
    assert!(!cached.is_empty() && of_repository.is_empty(), "{of_repository:?}");
}
