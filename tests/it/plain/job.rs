//! `sidle job`: what a host knows of one job, from the files of its agent, the claims and the history.

use crate::support::stage::{DEMO, Host, two_releases};
use serde_json::{Value, json};
use std::fs;

/// Published when the tests run, as far as claims are concerned.
fn a_job_of_now() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d%H%M%S000000").to_string()
}

/// The claim of a job that came through any master, as `sidle_guard/claims.py` names it.
fn claim(host: &Host, job: &str) {
    let claims = host.path("run/sidle/salt-minion/gate/claims");
    fs::create_dir_all(&claims).unwrap();
    let digest = sidle::digest::Digest::of(format!("any\n{job}").as_bytes()).to_string();
    fs::write(claims.join(&digest[..32]), "").unwrap();
}

/// What a minion passes that asks about itself.
fn asked(host: &Host, job: &str) -> Value {
    let options = json!({"cachedir": host.path("cache"), "log_file": host.path("log"), "log_level": "info", "master_uri": "tcp://m:4506"});
    host.sidle(&["--json", "job", job, "--package", "salt-minion", "--options", &options.to_string()]).json()
}

#[test]
fn a_minion_that_no_release_runs_is_told_what_its_files_say_of_a_job() {
    let host = Host::bare();
    let job = a_job_of_now();
    let unknown = asked(&host, &job);
    assert_eq!(
        (&unknown["claimed"], &unknown["cached"], &unknown["switches"]),
        (&json!(null), &json!(false), &json!([]))
    );
    claim(&host, &job);
    fs::create_dir_all(host.path("cache/minion_jobs").join(&job)).unwrap();
    fs::write(host.path("cache/minion_jobs").join(&job).join("return.p"), "").unwrap();
    let line = format!("2026-11-24 09:12:00,123 [salt.minion][INFO] Returning information for job: {job}\n");
    fs::write(host.path("log"), line.repeat(7)).unwrap();
    let known = asked(&host, &job);
    assert_eq!(
        (&known["claimed"], &known["cached"], &known["log_is_detailed"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!(
        (known["log"].as_array().unwrap().len(), known["returned_at"] == known["log_since"]),
        (5, true),
        "{known}"
    );
    assert!(known["now"].as_f64().unwrap() > 1.7e9, "{known}");
    let options = |level: &str| {
        json!({"cachedir": host.path("cache"), "log_file": host.path("log"), "log_level": level}).to_string()
    };
    let shown = |level: &str| host.sidle(&["job", "1", "--package", "salt-minion", "--options", &options(level)]).ok();
    assert!(
        shown("info").contains("process    none runs the job\n  returned   not known"),
        "the log names no time of job 1"
    );
    let later = "20991124091200123456";
    let no_return = host.sidle(&["job", later, "--package", "salt-minion", "--options", &options("info")]).ok();
    assert!(no_return.contains("returned   no, by its log"), "{no_return}");
    let unknown = host.sidle(&["job", later, "--package", "salt-minion", "--options", "{}"]).ok();
    assert!(unknown.contains("process    not known") && unknown.contains("returned   not known"), "{unknown}");
    let refused = host.sidle(&["job", &job]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot tell whose job it is: the installed packages are none"), "{refused:?}");
    let refused = host.sidle(&["job", &job, "--options", "[]"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("it is no JSON object"), "{refused:?}");
}

#[test]
fn the_switches_since_then_are_told_with_their_downtimes() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "now"]).ok();
    let known = host.sidle(&["--json", "job"]).json();
    assert_eq!((&known["job"], &known["instance"]), (&json!(null), &json!(DEMO)), "{known}");
    let last = known["switches"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["mode"], &last["to"], &last["result"]), (&json!("now"), &json!("1.1-1"), &json!("committed")));
    let [begun, down, up, ended] = ["begun", "down", "up", "ended"].map(|name| last[name].as_f64().unwrap_or(-1.0));
    assert!(begun <= down && down < up && up <= ended, "{last}");
    let shown = host.sidle(&["job", "20261124091200123456", "--package", DEMO]).ok();
    assert!(shown.contains("#2 to 1.1-1 (now), done; downtime") && shown.contains("claimed    not known"), "{shown}");
}
