//! A local user without rights, and what a host's administrator does meanwhile: nothing of it comes out another way.

use crate::support::stage::{Author, DEMO, Host, text};
use crate::support::strangers::Stranger;
use crate::support::{eventually, leftovers};
use std::fs;

#[test]
fn a_local_user_keeps_no_administrator_and_no_agent_from_anything() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let stranger = Stranger::at(&host, DEMO, supervisor.pid(), ["1.0-1", "1.1-1"], DEMO);
    // He has what any user can have, and nothing else.
    let locks = stranger.came_of("flock -x on all that opens");
    let got: usize = locks.strip_prefix("done ").unwrap().strip_suffix(" locks").unwrap().parse().unwrap();
    assert!(got >= 10, "{locks}");
    for act in ["install", "switch", "rollback", "repair", "remove", "hold", "cancel", "supervise"] {
        let came = stranger.came_of(&format!("sidle {act}"));
        assert!(came.starts_with("done exit ") && came != "done exit 0", "{act}: {came}");
    }

    let installed = author.release("1.1", "good");
    host.install(&installed).ok();
    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]).ok();
    assert_eq!(host.answering("forth"), "1.1");
    host.sidle(&["restart", DEMO]).ok();
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!((host.answering("back"), host.current().as_deref()), ("1.0".to_owned(), Some("1.0-1")));
    let damaged = host.path("opt/sidle/demo-agent/versions/1.1-1/bin/demo-agent");
    fs::write(&damaged, "exit 1\n").unwrap();
    host.sidle(&["repair", DEMO, "1.1-1", "--from", text(&installed)]).ok();
    // A boot: all of it is locked already when the agent is started.
    assert_eq!(supervisor.end(), Some(0));
    let again = host.supervise();
    eventually(20, "the agent is there", || match host.status()["supervisor"]["agent"].as_object() {
        Some(_) if host.agents().len() == 1 => Ok(()),
        _ => Err(host.status().to_string()),
    });
    assert_eq!(host.answering("boot"), "1.0");
    host.sidle(&["trust", "reset-clock"]).ok();
    host.sidle(&["hold", DEMO, "--reason", "audit"]).ok();
    host.sidle(&["unhold", DEMO]).ok();
    assert_eq!(again.end(), Some(0));
    let history = host.sidle(&["--json", "history", DEMO]).json();
    let ended: Vec<&str> =
        history["switches"].as_array().unwrap().iter().filter_map(|switch| switch["result"].as_str()).collect();
    assert_eq!(ended, ["committed"; 4], "{history}");
    for act in ["open the package's lock", "open a lease", "open the instance's lock", "open the trust's lock"] {
        assert_eq!(stranger.came_of(act), "Permission denied", "{act}");
    }
    drop(stranger);
    leftovers::kill(&host.root());
}
