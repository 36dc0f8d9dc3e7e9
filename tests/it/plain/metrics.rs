//! What Prometheus reads of a host: values that are true, and none for what is not known.

use crate::support::stage::{DEMO, text, two_releases};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// The samples of a text, by name and labels. Each metric has its help and its type before its samples.
#[track_caller]
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut known) = (BTreeMap::new(), "");
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")) {
            known = described.split(' ').next().unwrap();
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(sample.split('{').next().unwrap(), known, "{line}");
        assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn metrics_tell_of_switches_holds_and_expiry_and_leave_out_what_is_not_known() {
    let (host, _author) = two_releases();
    let own = format!("{{instance=\"{DEMO}\",package=\"{DEMO}\"}}");
    let before = parsed(&host.sidle(&["metrics"]).ok());
    assert!(before[&format!("sidle_supervised{own}")] < 0.5);
    for unknown in ["sidle_healthy", "sidle_last_switch", "sidle_release_info", "sidle_scrub", "sidle_switch_phase"] {
        assert!(before.keys().all(|key| !key.starts_with(unknown)), "{unknown}: {before:?}");
    }
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    host.sidle(&["hold", DEMO]).ok();
    let file = host.path("sidle.prom");
    host.sidle(&["metrics", "--output", text(&file)]).ok();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.ends_with('\n'), "the collector refuses a last line without an end");
    let after = parsed(&written);
    let with = |name: &str, more: &str| format!("{name}{{instance=\"{DEMO}\",package=\"{DEMO}\",{more}}}");
    let tree = |name: &str| format!("{name}{{package=\"{DEMO}\",release=\"1.1-1\"}}");
    for (key, value) in [
        (format!("sidle_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0),
        (with("sidle_release_info", "current=\"1.1-1\",running=\"1.1-1\""), 1.0),
        (with("sidle_last_switch_result", "result=\"committed\""), 1.0),
        (format!("sidle_instance_held{own}"), 1.0),
        (format!("sidle_instance_bad_releases{own}"), 0.0),
        (format!("sidle_healthy{own}"), 1.0),
        (format!("sidle_switch_live{own}"), 0.0),
        (format!("sidle_state_readable{own}"), 1.0),
        (tree("sidle_tree_problems"), 0.0),
    ] {
        assert_eq!(after.get(&key), Some(&value), "{key}: {written}");
    }
    let last = host.last();
    let downtime = last["downtime_milliseconds"].as_f64().unwrap() / 1000.0;
    assert!((after[&format!("sidle_last_switch_downtime_seconds{own}")] - downtime).abs() < 0.000_001, "{written}");
    let ended: jiff::Timestamp = last["ended_at"].as_str().unwrap().parse().unwrap();
    let seen = after[&format!("sidle_last_switch_timestamp_seconds{own}")];
    assert!((seen - ended.as_duration().as_secs_f64()).abs() < 2.0, "{written}");
    for role in ["root", "targets", "snapshot", "timestamp"] {
        let expires = after[&format!("sidle_metadata_expires_timestamp_seconds{{role=\"{role}\"}}")];
        assert!(expires > seen, "{role}: {expires}");
    }
    supervisor.end();
    fs::write(host.path("var/lib/sidle/instances/demo-agent/hold"), "nonsense").unwrap();
    let damaged = parsed(&host.sidle(&["metrics"]).ok());
    assert!(damaged[&format!("sidle_state_readable{own}")] < 0.5);
    assert!(!damaged.contains_key(&format!("sidle_instance_held{own}")), "{damaged:?}");
    assert!(!damaged.contains_key(&format!("sidle_healthy{own}")), "{damaged:?}");
}
