//! What of `plain::overlap` needs root or a package: see there.

use crate::plain::overlap::*;
use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host};
use std::fs;

#[test]
fn what_comes_up_gives_way_for_half_of_its_time_and_not_until_it_is_starved() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.release("1.1", "hang")).ok();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "start_timeout = \"10s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let old = host.agents()[0];
    let own = nice(old).unwrap();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap", "--no-wait"]).code, Some(4));
    let trial =
        eventually(10, "it comes up and gives way", || match host.agents().into_iter().find(|pid| *pid != old) {
            Some(trial) if nice(trial)? > own => Ok(trial),
            _ => Err(host.status().to_string()),
        });
    eventually(10, "it gives way no more", || match nice(trial)? {
        nice if nice == own => Ok(()),
        nice => Err(nice.to_string()),
    });
}
