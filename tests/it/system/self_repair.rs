//! What of `plain::self_repair` needs root or a package: see there.

use crate::plain::self_repair::*;
use crate::support::eventually;
use crate::support::stage::{DEMO, SIDLE};
use std::fs;
use std::process::Stdio;

#[test]
fn where_watches_run_out_status_says_that_the_tree_is_polled() {
    let site = Site::new("");
    let root = site.host.path("");
    let log = fs::File::create(site.host.path("supervisor.log")).unwrap();
    let mut command = with_watches(3, SIDLE);
    command.arg("--root").arg(&root).args(["supervise", DEMO]);
    let mut supervisor = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    eventually(20, "the supervisor listens", || {
        if site.host.path("run/sidle").join(DEMO).join("control").exists() { Ok(()) } else { Err(String::new()) }
    });
    site.switch("1.1-1");
    eventually(20, "status says so", || match site.host.sidle(&["status", DEMO]).stdout {
        told if told.contains("checked every 60 s, since they can't be watched") => Ok(()),
        told => Err(told),
    });
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
}
