//! What of `plain::survival` needs root or a package: see there.

use crate::support::eventually;
use crate::support::stage::{DEMO, SIDLE, command_of, text, two_releases};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn as_the_first_process_of_a_container_it_reaps_orphans_and_ends_in_order() {
    let (host, _author) = two_releases();
    let settled = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(settled.end(), Some(0));
    let root = host.path("");
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", SIDLE, "--root", text(&root)]);
    let mut container = container.args(["supervise", DEMO]).stdin(Stdio::null()).spawn().unwrap();
    let first = eventually(10, "the first process is the supervisor", || {
        let children = proc_fs::children(container.id()).unwrap();
        let child = children.first().filter(|child| command_of(child.pid).contains("supervise"));
        child.map(|child| child.pid).ok_or_else(|| "not yet".to_owned())
    });
    assert_eq!(host.answering("one"), "1.0");
    // What a job leaves in the background loses its parent.
    let enough = host.path("enough");
    host.job("orphan", &format!("sh -c 'until [ -e {} ]; do sleep 0.1; done' orphan & :", enough.display()));
    host.done("orphan");
    let ended = |pid| proc_fs::children(pid).unwrap().into_iter().filter(|child| !child.is_alive()).count();
    let waits = || {
        let children = proc_fs::children(first).unwrap();
        children.iter().filter(|child| command_of(child.pid).ends_with(" orphan")).count()
    };
    eventually(20, "the orphan is its child", || if waits() == 1 { Ok(()) } else { Err(waits().to_string()) });
    fs::write(enough, "").unwrap();
    eventually(20, "the orphan is waited for", || match (waits(), ended(first)) {
        (0, 0) => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    let supervisor = Identity::of(first).unwrap().unwrap();
    assert!(supervisor.signal(SignalNumber::TERM).unwrap());
    let code = eventually(10, "it ends", || match container.try_wait().unwrap() {
        Some(status) => Ok(status.code()),
        None => Err("it lives".to_owned()),
    });
    assert_eq!(code, Some(0));
}
