//! What 3007 and 3008 brought: websockets, TLS that asks for certificates, resources that a minion answers for. Each under a switch in overlap.

use super::{AROUND_SECONDS, NEW, OLD, overlap};
use crate::support::mirrors::Certificates;
use crate::support::scene::{Scene, Wanted};
use crate::support::stream::Plan;
use serde_json::Value;
use std::process::{Command, Stdio};

/// Publishes to the resources, with and without their minion, and prints `{jid: {resource: returns}}`: CONFIGURATION SECONDS.
const RESOURCES: &str = include_str!("resources.py");

/// Lines for master and minion: both show a certificate, and want one of the other.
fn tls(transport: &str, certificates: &Certificates) -> String {
    let [key, certificate, authority] =
        ["server.key", "server.pem", "ca.pem"].map(|name| certificates.file(name).display().to_string());
    // A master of 3008.5 has TLS to its own pools of workers, which have none: no sign-in is answered with them.
    format!(
        "worker_pools_enabled: False\ntransport: {transport}\nssl: {{keyfile: {key}, certfile: {certificate}, ca_certs: {authority}, cert_reqs: CERT_REQUIRED}}\n"
    )
}

/// From the first of these releases to each of the others in turn, under a stream.
fn is_lossless(what: &str, transport: &str, releases: &[&str], ways: &[&str]) {
    let scene = Scene::with(&Wanted { transport, ..Wanted::of(releases) });
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    for version in ways {
        if releases.len() == 1 {
            overlap(&scene, "restart", &[]);
        } else {
            overlap(&scene, "switch", &[&format!("{version}-1")]);
        }
        stream.run(AROUND_SECONDS);
    }
    let report = stream.end();
    report.assert_lossless(what);
    report.assert_watched();
    assert_eq!(report.starts.len(), ways.len(), "{what}: one start event per switch: {:?}", report.starts);
}

#[test]
#[ignore = "`scripts/test --long`: `kinds` shows the same without certificates"]
fn a_minion_on_tcp_whose_connections_ask_for_certificates_is_switched_without_losing_a_job() {
    is_lossless("tcp, TLS", &tls("tcp", &Certificates::new()), &[OLD, NEW], &[NEW, OLD]);
}

#[test]
#[ignore = "`scripts/test --long`: the guard's tests show what it sees of a websocket"]
fn a_minion_on_websockets_is_switched_without_losing_a_job() {
    // 3006 knows no websockets, and speaks ZeroMQ without a word.
    is_lossless("ws", "transport: ws\n", &["3007.17", NEW], &[NEW, "3007.17"]);
}

#[test]
#[ignore = "`scripts/test --long`: the guard's tests show what it sees of a websocket"]
fn a_minion_on_websockets_that_ask_for_certificates_is_restarted_without_losing_a_job() {
    // 3007.17 cannot: it sets the protocol of an SSLContext, which has no setter.
    is_lossless("ws, TLS", &tls("ws", &Certificates::new()), &[NEW], &[NEW, NEW]);
}

#[test]
#[ignore = "`scripts/test --long`: the guard's tests show that the jobs of resources share the fate of their job"]
fn jobs_of_resources_are_run_once_each_across_a_switch() {
    let pillar = tempfile::tempdir().unwrap();
    std::fs::write(pillar.path().join("top.sls"), "base: {'*': [resources]}\n").unwrap();
    let names = ["dummy-01", "dummy-02", "dummy-03"];
    std::fs::write(pillar.path().join("resources.sls"), format!("resources: {{dummy: {{resource_ids: {names:?}}}}}\n"))
        .unwrap();
    let roots = format!("pillar_roots: {{base: [{}]}}\n", pillar.path().display());
    let scene = Scene::with(&Wanted { transport: &roots, ..Wanted::of(&[NEW]) });
    let place = scene.master().place();
    let asking = Command::new(&place.python)
        .args(["-E", "-s", "-B", "-c", RESOURCES])
        .arg(&place.configuration)
        .arg("25")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(AROUND_SECONDS));
    for _ in 0..2 {
        overlap(&scene, "restart", &[]);
    }
    let answered: Value = serde_json::from_slice(&asking.wait_with_output().unwrap().stdout).unwrap();
    let jobs = answered.as_object().unwrap();
    assert!(jobs.len() >= 20, "{answered}");
    for (jid, returns) in jobs {
        for name in names {
            assert_eq!(returns[name], 1, "{jid}: {name} of {returns}\n{}", scene.logs());
        }
    }
}
