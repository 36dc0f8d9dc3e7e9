//! A person's will: holds, windows, splay. What was asked for happens then, and what was forbidden doesn't.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, text, two_releases};
use std::fs;

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(10), "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is not in {:?}", ran.stderr);
    }
}

#[test]
fn a_held_instance_stays_as_it_is_and_a_rollback_stays_possible() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.sidle(&["unhold", DEMO]).code, Some(3));
    host.sidle(&["hold", DEMO, "--reason", "the audit", "--for", "7d"]).ok();
    let words = ["held by", "the audit", "until 20", "sidle unhold demo-agent", "a rollback is possible"];
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), &words);
    refused(&host.sidle(&["restart", DEMO]), &words);
    let told = host.sidle(&["status", DEMO]).ok();
    assert!(told.contains("held       by ") && told.contains("the audit"), "{told}");
    assert_eq!(host.status()["hold"]["reason"], "the audit");
    let list = host.sidle(&["list"]).ok();
    assert!(list.contains("demo-agent is held by") && list.contains("the audit"), "{list}");
    assert_eq!(host.sidle(&["--json", "list"]).json()["holds"][0]["hold"]["scope"], "upgrades");
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    host.sidle(&["hold", DEMO, "--all"]).ok();
    let all = host.sidle(&["rollback", DEMO, "1.1-1"]);
    refused(&all, &["rollbacks are held, too", "until it is lifted"]);
    assert!(!all.stderr.contains("possible during the hold"), "{all:?}");
    host.sidle(&["unhold", DEMO]).ok();
    host.sidle(&["restart", DEMO]).ok();
    assert_eq!(host.status()["hold"], serde_json::Value::Null);
}

#[test]
fn a_hold_counts_without_a_supervisor_and_ends_by_itself() {
    let (host, _author) = two_releases();
    let refused_at = |arguments: &[&str], words: &str| {
        let ran = host.sidle(&[&["hold", DEMO], arguments].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(words), "{ran:?}");
    };
    refused_at(&["--until", "yesterday"], "cannot read \"yesterday\" as a time");
    refused_at(&["--until", "2026-12-24T07:00+99:00"], "as a time");
    refused_at(&["--until", "2001-01-01"], "that time is past");
    refused_at(&["--for", "7 days"], "expected a whole number");
    assert_eq!(host.sidle(&["hold", "demo-agnet"]).code, Some(1), "a slip of the pen protects nothing");
    host.sidle(&["hold", DEMO, "--until", "2999-12-24 08:00"]).ok();
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), &["held"]);
    host.sidle(&["hold", DEMO, "--for", "1ms"]).ok();
    assert_eq!(host.status()["hold"], serde_json::Value::Null, "an expired hold is none");
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
}

#[test]
fn a_corrupt_hold_is_an_error_and_never_none() {
    let (host, _author) = two_releases();
    host.sidle(&["hold", DEMO]).ok();
    let path = host.path("var/lib/sidle/instances/demo-agent/hold");
    for content in [
        "",
        "{}",
        "nonsense",
        "{\"schema\":2,\"at\":\"2026-01-01T00:00:00Z\",\"by\":\"x\",\"reason\":\"\",\"until\":null,\"scope\":\"upgrades\"}",
    ] {
        fs::write(&path, content).unwrap();
        // What a newer program wrote is not to be thrown away.
        let remedy = if content.contains(":2") { "the version of sidle that wrote it" } else { "sidle unhold" };
        let told = host.sidle(&["status", DEMO]).ok();
        assert!(told.contains("instances/demo-agent/hold") && told.contains(remedy), "{told}");
        for arguments in [&["switch", DEMO, "1.0-1"][..], &["list"]] {
            let ran = host.sidle(arguments);
            assert_eq!(ran.code, Some(1), "{content:?}: {ran:?}");
            assert!(ran.stderr.contains("instances/demo-agent/hold") && ran.stderr.contains(remedy), "{ran:?}");
        }
    }
    host.sidle(&["unhold", DEMO]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
}

const JOURNAL: &str = "var/lib/sidle/instances/demo-agent/journal";

/// A window of an hour that opens the day after tomorrow.
fn set_windows(host: &Host) -> String {
    let day = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(48)).to_zoned(jiff::tz::TimeZone::UTC);
    let window = day.strftime("%a 01:00-02:00").to_string();
    fs::write(host.path("etc/sidle/conf.d/windows.toml"), format!("windows = [\"{window}\"]\ntimezone = \"UTC\"\n"))
        .unwrap();
    day.strftime("%Y-%m-%d").to_string()
}

/// Moves what the journal says of the schedule, while no supervisor lives.
fn move_schedule(host: &Host, change: impl FnOnce(&mut serde_json::Value)) {
    let mut journal: serde_json::Value = serde_json::from_slice(&fs::read(host.path(JOURNAL)).unwrap()).unwrap();
    change(&mut journal["live"]);
    fs::write(host.path(JOURNAL), journal.to_string()).unwrap();
}

#[test]
fn outside_its_windows_nothing_begins_unless_a_person_says_so() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let date = set_windows(&host);
    let opening = format!("{date} 01:00 +00:00 UTC");
    for arguments in [&["switch", DEMO, "1.1-1"][..], &["restart", DEMO], &["rollback", DEMO, "1.1-1"]] {
        refused(
            &host.sidle(arguments),
            &["cannot ", "outside its maintenance windows", &opening, "--at-window", "--outside-window"],
        );
    }
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--at-window", "--outside-window"]).code, Some(2));
    host.sidle(&["switch", DEMO, "1.1-1", "--outside-window"]).ok();
    // Accepted, and waiting: nobody waits at the terminal.
    let waits = host.sidle(&["rollback", DEMO, "--at-window", "--deadline", "2h"]);
    assert_eq!(waits.code, Some(4), "{waits:?}");
    let opens = format!("{date}T01:00:00Z");
    assert!(waits.stdout.contains("scheduled") && waits.stdout.contains(&opens), "{waits:?}");
    let status = host.sidle(&["status", DEMO]);
    let deadline = format!("deadline {date}T02:00:00Z");
    assert!(
        status.code == Some(4) && status.stdout.contains(&opens) && status.stdout.contains(&deadline),
        "{status:?}"
    );
    assert_eq!(host.status()["switch"]["phase"], "scheduled");
    assert_eq!(host.answering("meanwhile"), "1.1");
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1", "--outside-window"]).code, Some(12));
    assert_eq!(host.sidle(&["cancel", DEMO]).code, Some(0));
    // Another instance's word counts before the host's, and no windows are no restriction.
    fs::write(host.path("etc/sidle/conf.d/z.toml"), "[instances.demo-agent]\nwindows = []\n").unwrap();
    assert_eq!(host.sidle(&["restart", DEMO, "--at-window"]).code, Some(2));
    host.sidle(&["restart", DEMO]).ok();
}

#[test]
fn settings_of_windows_that_make_no_sense_are_refused_by_name() {
    let (host, _author) = two_releases();
    let settings = host.path("etc/sidle/conf.d/windows.toml");
    fs::write(&settings, "windows = [\"Sat 22-04\"]\n").unwrap();
    let ran = host.sidle(&["switch", DEMO, "1.0-1"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("windows.toml") && ran.stderr.contains("Sat 22-04"), "{ran:?}");
    fs::write(&settings, "windows = [\"Sat 22:00-04:00\"]\ntimezone = \"Europe/Bertin\"\n").unwrap();
    let ran = host.sidle(&["switch", DEMO, "1.0-1"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("Europe/Bertin") && ran.stderr.contains("tzdata"), "{ran:?}");
    // A host that lost its time zones still starts its agent.
    drop(host.supervise());
}

#[test]
fn a_window_is_waited_for_without_a_supervisor_and_one_that_was_slept_through_is_missed() {
    let (host, _author) = two_releases();
    set_windows(&host);
    let far = ("2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1", "--at-window"]).code, Some(4));
    move_schedule(&host, |live| {
        live["schedule"]["begins"] = far.0.into();
        live["deadline"] = far.0.into();
    });
    let supervisor = host.supervise();
    let history = || host.sidle(&["--json", "history", DEMO]).json()["switches"].clone();
    eventually(10, "it ends", || {
        history().as_array().filter(|ended| ended.len() == 1).map(drop).ok_or_else(String::new)
    });
    assert_eq!((history()[0]["result"].as_str(), host.current()), (Some("expired"), None));
    assert_eq!(supervisor.end(), Some(0));
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1", "--at-window"]).code, Some(4));
    move_schedule(&host, |live| {
        live["schedule"]["begins"] = far.0.into();
        live["deadline"] = far.1.into();
    });
    let supervisor = host.supervise();
    eventually(10, "it is done", || host.current().ok_or_else(|| "no current yet".to_owned()));
    assert_eq!(supervisor.end(), Some(0));
    // A hold that came meanwhile counts.
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--at-window"]).code, Some(4));
    host.sidle(&["hold", DEMO, "--reason", "frost"]).ok();
    move_schedule(&host, |live| {
        live["schedule"]["begins"] = far.0.into();
        live["deadline"] = far.1.into();
    });
    let _supervisor = host.supervise();
    eventually(10, "it ends", || {
        history().as_array().filter(|ended| ended.len() == 3).map(drop).ok_or_else(String::new)
    });
    let last = history()[2].clone();
    assert_eq!(last["result"], "refused");
    assert!(last["failure"]["text"].as_str().unwrap().contains("frost"), "{last}");
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
}

#[test]
fn a_splay_is_drawn_once_and_outlives_the_supervisor() {
    let (host, _author) = two_releases();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1", "--splay", "1s"]).ok();
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    // One chance in ten million that it begins before the look.
    assert_eq!(host.sidle(&["rollback", DEMO, "--splay", "365d", "--no-wait"]).code, Some(4));
    let drawn = host.status()["switch"]["schedule"].clone();
    let splay = drawn["splay_seconds"].as_u64().unwrap();
    assert!(splay <= 365 * 86_400 && drawn["opens"].is_null(), "{drawn}");
    let told = host.sidle(&["status", DEMO]).stdout;
    assert!(told.contains(&format!("{splay} s of splay")), "{told}");
    supervisor.kill();
    let _next = host.supervise();
    assert_eq!(host.status()["switch"]["schedule"], drawn);
    assert_eq!(host.answering("meanwhile"), "1.1");
    assert_eq!(host.sidle(&["cancel", DEMO]).code, Some(0));
}

/// Has the agent run `sidle VERB …` in a job; gives its exit code and what it printed.
fn from_within(host: &Host, name: &str, arguments: &str) -> (String, String) {
    let (root, out) = (host.path(""), host.path(name));
    host.job(name, &format!("{SIDLE} --root {} {arguments} >{} 2>&1", text(&root), text(&out)));
    let done = host.done(name);
    (done["exit"].clone(), fs::read_to_string(out).unwrap())
}

#[test]
fn a_job_of_the_agent_itself_that_asks_for_a_switch_does_not_wait_for_its_own_end() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let ended = |count: usize| {
        eventually(20, "the switch has ended", || {
            let history = host.sidle(&["--json", "history", DEMO]).json();
            let switches = history["switches"].as_array().unwrap().clone();
            if switches.len() == count { Ok(switches[count - 1].clone()) } else { Err(history.to_string()) }
        })
    };
    let (code, told) = from_within(&host, "idle", "switch demo-agent 1.1-1 --mode idle");
    assert!(
        code == "4" && told.contains("continues without this command") && told.contains("this job has to end first"),
        "{code}: {told}"
    );
    assert_eq!(ended(2)["result"], "committed");
    let (code, told) = from_within(&host, "overlap", "restart demo-agent --mode overlap");
    assert!(code == "0" && told.contains("the new release is current"), "{code}: {told}");
    let last = ended(3);
    assert_eq!((last["mode"].as_str(), last["result"].as_str()), (Some("overlap"), Some("committed")));
    assert_eq!(last["origin"], serde_json::Value::Null, "no job of Salt");
    assert_eq!(host.answering("after"), "1.1");
}

#[test]
fn extras_that_would_vanish_refuse_a_switch_or_are_told_as_the_settings_say() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.refused("1.1", "extra: 2 packages would vanish: a, b")).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let ran = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert!(ran.code == Some(1) && ran.stdout.contains("2 packages would vanish: a, b"), "{ran:?}");
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    assert_eq!(supervisor.end(), Some(0));
    fs::write(host.path("etc/sidle/conf.d/will.toml"), "extras = \"report\"\n").unwrap();
    let _supervisor = host.supervise();
    let told = host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert!(told.contains("note: 2 packages would vanish: a, b"), "{told}");
}

#[test]
fn a_host_that_changes_under_a_proven_release_is_told() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.status()["host_changes"], serde_json::json!([]));
    let path = host.path("var/lib/sidle/instances/demo-agent/host-fingerprints");
    let mut fingerprints: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fingerprints["releases"]["1.0-1"]["libc"] = "1.9".into();
    fingerprints["releases"]["1.0-1"]["libraries"]["libold.so.1"] = "/lib/libold.so.1.2".into();
    fs::write(&path, fingerprints.to_string()).unwrap();
    let told = host.sidle(&["status", DEMO]).ok();
    assert!(told.contains("  host       has changed since 1.0-1 was proven: glibc was 1.9 and is 2."), "{told}");
    assert!(told.contains("libold.so.1 was /lib/libold.so.1.2 and is none"), "{told}");
    assert!(!told.contains("since 1.1-1"), "{told}");
    fs::write(&path, "{}").unwrap();
    let ran = host.sidle(&["status", DEMO]);
    assert!(ran.code == Some(1) && ran.stderr.contains("demo-agent/host-fingerprints"), "{ran:?}");
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"), "a note is no reason");
}
