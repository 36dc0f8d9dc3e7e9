//! Promise 1 on real Salt: the running minion never sees another release's files, neither when one is installed nor when `current` moves. The
//! control, a minion started through `current`, does.

use crate::support::salt::{Master, SHORT_KEY, tree, tree_of_python};
use crate::support::stage::{Author, Host, SALT};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const OLD: &str = "3006.30";
const NEW: &str = "3007.17";
const PATIENCE_SECONDS: u32 = 15;

/// Twenty execution modules that nothing has used yet, each with something of its own in the answer.
const CALLS: [(&[&str], &str); 20] = [
    (&["hashutil.sha256_digest", "abc"], "ba7816bf"),
    (&["random.hash", "abc", "algorithm=md5"], "900150983cd2"),
    (&["network.is_loopback", "127.0.0.1"], "True"),
    (&["file.basename", "/a/needle"], "needle"),
    (&["environ.item", "HOME"], "HOME"),
    (&["user.info", "root"], "/root"),
    (&["group.info", "root"], "root"),
    (&["disk.usage"], "capacity"),
    (&["status.loadavg"], "1-min"),
    (&["config.get", "id"], "lazy"),
    (&["slsutil.merge", "{a: 1}", "{b: 2}"], "b"),
    (&["slsutil.renderer", "string={{ 40 + 2 }}", "default_renderer=jinja|yaml"], "42"),
    (&["match.glob", "la*"], "True"),
    (&["schedule.list", "return_yaml=False"], "{}"),
    (&["beacons.list", "return_yaml=False"], "{}"),
    (&["sqlite3.sqlite_version"], "3."),
    (&["cmd.run", "echo needle"], "needle"),
    (&["sys.list_modules", "hashutil"], "hashutil"),
    (&["key.finger"], ":"),
    (&["ps.boot_time", "time_format=needle"], "needle"),
];

fn host(author: &Author, master: &Master) -> Host {
    let host = Host::new(author);
    fs::create_dir_all(host.path("etc/salt")).unwrap();
    fs::write(
        host.path("etc/sidle/conf.d/salt.toml"),
        "start_timeout = \"90s\"\nstop_timeout = \"30s\"\nprobation = \"1s\"\n",
    )
    .unwrap();
    let configuration = format!(
        "id: lazy\nmaster: 127.0.0.1\nmaster_port: {}\nuser: root\nmine_enabled: False\n{SHORT_KEY}root_dir: {}\n",
        master.request_port(),
        host.path("").display()
    );
    fs::write(host.path("etc/salt/minion"), configuration).unwrap();
    host
}

/// The calls that were not answered as they should be.
fn wrong(master: &Master, calls: &[(&[&str], &str)]) -> Vec<String> {
    let words: Vec<&[&str]> = calls.iter().map(|(call, _)| *call).collect();
    let answers = master.calls(PATIENCE_SECONDS, "lazy", &words).into_iter().zip(calls);
    answers
        .filter(|(answer, (_, needle))| !answer.contains(needle))
        .map(|(answer, (call, _))| format!("{call:?}: {answer}"))
        .collect()
}

/// A process that finds its files through `current` loads half of itself from another release.
#[test]
fn modules_never_used_before_load_from_the_old_release_after_an_install_and_after_current_moved() {
    let author = Author::new();
    // Of two Pythons: what the control looks for is not there any more.
    let (old, new) = (author.salt_from(OLD, &tree_of_python(OLD, "3.10")), author.salt(NEW));
    let master = Master::start(&tree(NEW), true);
    let host = host(&author, &master);
    host.install(&old).ok();
    let supervisor = host.supervise_instance(SALT);
    host.sidle(&["switch", SALT]).ok();
    master.hears(&["lazy"]);

    host.install(&new).ok();
    assert_eq!(wrong(&master, &CALLS[..10]), Vec::<String>::new(), "after the install");
    host.sidle(&["test-flip", SALT, &format!("{NEW}-1")]).ok();
    assert_eq!(wrong(&master, &CALLS[10..]), Vec::<String>::new(), "after current moved");
    assert!(master.call("lazy", &["test.version"]).contains(OLD));
    host.sidle(&["test-flip", SALT, &format!("{OLD}-1")]).ok();
    supervisor.end();

    // The control.
    let current = host.path("opt/sidle/salt-minion/current");
    let mut control = Command::new(current.join("bin/python3"));
    control.arg(current.join("bin/salt-minion")).arg("-c").arg(host.path("etc/salt"));
    control.env("SIDLE_ROOT", host.path("").to_str().unwrap().trim_end_matches('/')); // ended with the host
    let log = fs::File::create(host.path("control.log")).unwrap();
    control.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
    let mut control = control.spawn().unwrap();
    master.hears(&["lazy"]);
    host.sidle(&["test-flip", SALT, &format!("{NEW}-1")]).ok();
    // One unanswered call is enough; each takes its whole patience.
    let failed = wrong(&master, &CALLS[..2]);
    host.sidle(&["test-flip", SALT, &format!("{OLD}-1")]).ok();
    for process in sidle::os::proc_fs::descendants(control.id()).unwrap() {
        let identity = sidle::os::process::Identity::of(process.pid).unwrap();
        identity.map(|identity| identity.signal(sidle::os::process::SignalNumber::KILL).unwrap());
    }
    control.kill().unwrap();
    control.wait().unwrap();
    assert!(!failed.is_empty(), "the control was not hurt: then this test shows nothing");
    println!("the control, started through `current`, failed {} of 2 calls", failed.len());
}
