//! The Prometheus text format, version 0.0.4: the metrics of sidle, and how a sample is written.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The metrics, all gauges, and their help texts. Operators' dashboards know the names: a name never changes its meaning.
const METRICS: [(&str, &str); 21] = [
    ("sidle_build_info", "The version of sidle; always 1."),
    ("sidle_state_readable", "Whether journal, history, hold and verdicts of the instance can be read."),
    ("sidle_release_info", "The release that a boot starts, and the release that runs; always 1."),
    ("sidle_supervised", "Whether a supervisor runs."),
    ("sidle_healthy", "Whether the agent is healthy."),
    ("sidle_second_agents", "Number of agents on this host that do every job of this one a second time."),
    ("sidle_instance_held", "Whether a hold is on."),
    ("sidle_instance_bad_releases", "Number of releases that failed on this host."),
    ("sidle_last_switch_result", "How the last switch ended, in the label; always 1."),
    ("sidle_last_switch_timestamp_seconds", "When the last switch ended, seconds since 1970."),
    ("sidle_last_switch_downtime_seconds", "The downtime of the last switch."),
    ("sidle_switch_live", "Whether a switch is under way."),
    ("sidle_switch_phase", "The phase of the switch under way, in the label; always 1."),
    ("sidle_switch_phase_age_seconds", "How long the switch under way has been in its phase."),
    ("sidle_finishing_processes", "Number of old processes that finish their last jobs after their switch."),
    ("sidle_finishing_process_age_seconds", "How long ago the newest of the old processes was replaced."),
    ("sidle_tree_problems", "Entries of an installed release that are not as they were signed."),
    ("sidle_tree_incidents", "Number of times that damage was found; at most 200 are remembered."),
    ("sidle_scrub_ended_seconds", "When the last full check of a release ended, seconds since 1970."),
    ("sidle_scrub_problems", "Problems that the last full check of a release found, before the repair."),
    ("sidle_metadata_expires_timestamp_seconds", "When the metadata of a role expires, seconds since 1970."),
];

/// The value of a sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// A count, a time or a truth.
    Whole(i64),
    /// Seconds with their fraction.
    Fraction(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(formatter),
            Self::Fraction(value) => value.fmt(formatter),
        }
    }
}

/// One sample of a metric.
#[derive(Debug, Serialize)]
pub struct Sample {
    name: &'static str,
    labels: String,
    value: Number,
}

impl Sample {
    /// A sample of the metric `name`, which must be in [`METRICS`], with what [`labels`] made.
    pub fn new(name: &'static str, labels: &str, value: impl TryInto<i64>) -> Self {
        Self { name, labels: labels.to_owned(), value: Number::Whole(value.try_into().unwrap_or(i64::MAX)) }
    }

    /// A sample of a metric of seconds.
    pub fn lasting(name: &'static str, labels: &str, duration: Duration) -> Self {
        Self { name, labels: labels.to_owned(), value: Number::Fraction(duration.as_secs_f64()) }
    }
}

/// Labels as they stand between the braces: a backslash, a quotation mark and the end of a line are escaped.
pub fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    labels.join(",")
}

/// The text: each metric once with its help and type, then its samples.
pub fn text(samples: &[Sample]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, help) in METRICS {
        let mut own = samples.iter().filter(|sample| sample.name == name).peekable();
        if own.peek().is_some() {
            lines.extend([format!("# HELP {name} {help}"), format!("# TYPE {name} gauge")]);
        }
        lines.extend(own.map(|sample| format!("{name}{{{}}} {}", sample.labels, sample.value)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped_as_the_format_demands() {
        let labels = labels(&[("a", "x\"y\\z\nw"), ("b", "plain")]);
        assert_eq!(labels, r#"a="x\"y\\z\nw",b="plain""#);
        let samples = [Sample::lasting("sidle_last_switch_downtime_seconds", &labels, Duration::from_millis(1500))];
        let text = text(&samples);
        assert_eq!(text.len(), 3, "{text:?}");
        assert!(text[2].ends_with("} 1.5") && text[1] == "# TYPE sidle_last_switch_downtime_seconds gauge", "{text:?}");
    }
}
