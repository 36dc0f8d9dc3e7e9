//! The result of a push: each host's as soon as it is there, then the sum.

use crate::agent::findings::Findings;
use crate::cli::Context;
use crate::cli::facts::{count, size};
use crate::cli::output::Lines;
use crate::cli::plain::line;
use crate::cli::terminal::exit;
use crate::cli::tone::{Place, Tone, Toned};
use crate::failure::Reason;
use crate::push::{Destination, Outcome};
use serde_json::{Value, json};

const WORDS: &[Toned] = &[Toned("done", Place::Last, Tone::Good), Toned("failed", Place::Last, Tone::Bad)];

/// Columns of the states and of the bytes.
const STATE_WIDTH: usize = 9;
const BYTES_WIDTH: usize = 10;

/// Columns of the longest name.
pub(super) fn width(hosts: &[Destination]) -> usize {
    hosts.iter().map(|host| columns(&host.name)).max().unwrap_or(0)
}

/// The lines of a host: its row, its hint, the findings of a takeover, and what its command printed. They are printed as soon as the host is done.
pub(super) fn host(host: &Destination, outcome: &Outcome, width: usize) -> Lines {
    let (state, bytes) = (state(outcome), size(outcome.bytes_sent));
    let mut rows =
        vec![vec![wide(&host.name, width), wide(state, STATE_WIDTH), wide(&bytes, BYTES_WIDTH), words(outcome)]];
    if let Some(hint) = outcome.failure.as_ref().and_then(|failure| failure.hint.clone()) {
        rows.push(vec![String::new(), String::new(), "hint".to_owned(), hint]);
    }
    let findings = outcome.adoption.as_ref().map(Findings::lines).unwrap_or_default();
    let output = outcome.output.iter().flat_map(|output| output.lines().map(str::to_owned));
    let below = findings.into_iter().chain(output).map(|line| format!("    {line}"));
    Lines::table(&rows).and(below.collect::<Vec<String>>()).toned(WORDS)
}

/// Prints the sum for people, and all hosts in one document for programs.
pub(super) fn sum(context: &Context, hosts: &[Destination], outcomes: &[Outcome]) {
    let of = |word: &str| outcomes.iter().filter(|outcome| state(outcome) == word).count();
    let (failed, pending) = (of("failed"), of("pending"));
    let pending = if pending > 0 { format!(", {pending} pending") } else { String::new() };
    let sum = format!("{}, {failed} failed{pending}", count(outcomes.len(), "host"));
    let all: Vec<Value> = hosts.iter().zip(outcomes).map(|(host, outcome)| value(host, outcome)).collect();
    context.output.result(sum, json!({"hosts": all}));
}

/// The columns of a text as it is printed.
fn columns(text: &str) -> usize {
    line(text).chars().count()
}

/// `text`, and blanks up to so many columns.
fn wide(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome { failure: Some(failure), .. } if failure.reason == Some(Reason::KeyNotAccepted) => "pending",
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
    let error = outcome.failure.as_ref().map(exit::error);
    json!({
        "host": host.name, "state": state(outcome), "step": outcome.step.name(), "bytes_sent": outcome.bytes_sent,
        "did": outcome.did, "release": outcome.release, "adoption": outcome.adoption, "output": outcome.output, "error": error,
    })
}
