//! The result of a push, for each host.

use crate::cli::Context;
use crate::cli::facts::{count, size};
use crate::cli::output::Lines;
use crate::cli::terminal::exit;
use crate::cli::tone::{Place, Tone, Toned};
use crate::push::{Destination, Outcome};
use serde_json::{Value, json};

const WORDS: &[Toned] = &[Toned("done", Place::Last, Tone::Good), Toned("failed", Place::Last, Tone::Bad)];

/// Prints the table of hosts, and what commands printed.
pub(super) fn tell(context: &Context, hosts: &[Destination], outcomes: &[Outcome]) {
    let mut rows = Vec::new();
    for (host, outcome) in hosts.iter().zip(outcomes) {
        rows.push(vec![host.name.clone(), state(outcome).to_owned(), size(outcome.bytes_sent), words(outcome)]);
        if let Some(hint) = outcome.failure.as_ref().and_then(|failure| failure.hint.clone()) {
            rows.push(vec![String::new(), String::new(), "hint".to_owned(), hint]);
        }
    }
    let mut lines = Lines::table(&rows);
    for (host, outcome) in hosts.iter().zip(outcomes) {
        if let Some(output) = &outcome.output {
            lines = lines.and(format!("{}:", host.name));
            lines = lines.and(output.lines().map(|line| format!("    {line}")).collect::<Vec<String>>());
        }
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let sum = format!("{}, {failed} failed", count(outcomes.len(), "host"));
    let all: Vec<Value> = hosts.iter().zip(outcomes).map(|(host, outcome)| value(host, outcome)).collect();
    context.output.result(lines.and(sum).toned(WORDS), json!({"hosts": all}));
}

fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome { failure: Some(_), .. } => "failed",
        Outcome { did, output: None, .. } if did.is_empty() => "unchanged",
        Outcome { .. } => "done",
    }
}

fn words(outcome: &Outcome) -> String {
    let did = outcome.did.join("; ");
    match &outcome.failure {
        Some(failure) => failure.to_string(),
        None if did.is_empty() => "nothing to do".to_owned(),
        None => did,
    }
}

fn value(host: &Destination, outcome: &Outcome) -> Value {
    let error = outcome.failure.as_ref().map(|report| {
        json!({"class": exit::word(report.class), "code": exit::number(report.class), "message": report.to_string(), "hint": report.hint})
    });
    json!({
        "host": host.name, "state": state(outcome), "step": outcome.step.name(), "bytes_sent": outcome.bytes_sent,
        "did": outcome.did, "release": outcome.release, "output": outcome.output, "error": error,
    })
}
