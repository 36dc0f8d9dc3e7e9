//! `sidle history --id N`: the story of one switch, which may be under way.

use crate::cli::follow::words;
use crate::cli::status::{downtime, result};
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report, moment};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::{Entry, History, Journal, Story, StoryStep, Switch};
use crate::version::Release;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Prints the story of the switch with this number.
pub(in crate::cli) fn story(context: &Context, files: &InstanceFiles, id: u64) -> Result<Ended, Report> {
    // In this order: a switch that ends meanwhile leaves the journal only after it is in the history.
    let journal = files.journal()?;
    let history = files.history()?;
    let live = journal.live.as_ref().filter(|live| live.id == id);
    let (text, value) = match (history.find(id), live) {
        (Some(entry), _) => (of_entry(entry), json!({"live": false, "switch": entry})),
        (None, Some(live)) => (of_live(live), json!({"live": true, "switch": live})),
        (None, None) => return Err(unknown(files, id, &history, &journal)),
    };
    context.output.result(text, with_instance(value, files));
    Ok(Ended::Well)
}

fn with_instance(mut value: Value, files: &InstanceFiles) -> Value {
    value["instance"] = json!(files.instance());
    value
}

fn unknown(files: &InstanceFiles, id: u64, history: &History, journal: &Journal) -> Report {
    let live = journal.live.as_ref().map(|live| live.id);
    let there = ranges(history.entries().iter().map(|entry| entry.id).chain(live));
    let (instance, package) = (files.instance(), files.package());
    let there = if there.is_empty() { "it was never switched".to_owned() } else { format!("known switches: {there}") };
    let named = if instance.as_str() == package.as_str() { String::new() } else { format!(" --instance {instance}") };
    Report::of(Class::Failed, format!("cannot show switch {id} of {instance}: {there}"))
        .hint(format!("`sidle history {package}{named}` lists the switches with their numbers"))
}

/// Shortens ascending numbers: `1 to 37, 39`.
fn ranges(numbers: impl Iterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last == number => {}
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let words = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") });
    words.collect::<Vec<_>>().join(", ")
}

fn of_entry(entry: &Entry) -> Vec<String> {
    let from = entry.from.as_ref().map_or_else(|| "nothing".to_owned(), Release::to_string);
    let mut lines = vec![
        format!(
            "switch {} of {}: {} from {from} to {} ({})",
            entry.id, entry.instance, entry.request.purpose, entry.request.to, entry.mode
        ),
        asked(entry.requested_at, &entry.request.by, entry.request.origin.as_ref().map(ToString::to_string)),
        format!("  result     {} at {}", result(entry.result), moment(entry.ended_at)),
        format!("  downtime   {}", downtime(entry.downtime_milliseconds)),
    ];
    about(&mut lines, &entry.request.reason, entry.failure.as_ref().map(|failure| failure.text.as_str()), &entry.notes);
    steps(&mut lines, &entry.story, entry.requested_at);
    lines
}

fn of_live(live: &Switch) -> Vec<String> {
    let from = live.from.as_ref().map_or_else(|| "nothing".to_owned(), Release::to_string);
    let mut lines = vec![
        format!(
            "switch {} of {}: {} from {from} to {} ({})",
            live.id, live.instance, live.request.purpose, live.request.to, live.mode
        ),
        asked(live.requested_at, &live.request.by, live.request.origin.as_ref().map(ToString::to_string)),
        format!("  under way  {}", words(live)),
        format!("  downtime   {}", downtime(live.downtime_milliseconds)),
    ];
    about(&mut lines, &live.request.reason, live.failure.as_ref().map(|failure| failure.text.as_str()), &live.notes);
    steps(&mut lines, &live.story, live.requested_at);
    lines
}

fn asked(at: Timestamp, by: &str, origin: Option<String>) -> String {
    let origin = origin.map_or_else(String::new, |origin| format!(", in {origin}"));
    format!("  asked for  {} by {by}{origin}", moment(at))
}

fn about(lines: &mut Vec<String>, reason: &str, failure: Option<&str>, notes: &[String]) {
    if !reason.is_empty() {
        lines.push(format!("  reason     {reason}"));
    }
    lines.extend(failure.map(|text| format!("  because    {text}")));
    lines.extend(notes.iter().map(|note| format!("  note       {note}")));
}

fn steps(lines: &mut Vec<String>, story: &Story, began: Timestamp) {
    if story.steps().is_empty() {
        lines.push("  (its steps are no longer kept)".to_owned());
    }
    let mut last = 0;
    for step in story.steps() {
        let left_out = step.number.saturating_sub(last + 1);
        if left_out > 0 {
            lines.push(format!("  ({left_out} steps are not kept)"));
        }
        last = step.number;
        lines.push(line(step, began));
    }
}

/// `  2026-11-23T03:17:18Z  +   4.2 s  proving -> stopping-new      lost after 0.4 s: the process of 1.1-1 exited with code 1`
fn line(step: &StoryStep, began: Timestamp) -> String {
    let elapsed = step.at.duration_since(began).as_secs_f64();
    let phases = format!("{} -> {}", step.from, step.to);
    let why = step.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    format!(
        "  {}  +{elapsed:.1} s  {phases}  {} after {:.1} s{why}",
        moment(step.at),
        step.outcome,
        step.took().as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_are_shortened_to_ranges() {
        assert_eq!(ranges([].into_iter()), "");
        assert_eq!(ranges([3].into_iter()), "3");
        assert_eq!(ranges([1, 2, 3, 5, 7, 8, 8].into_iter()), "1 to 3, 5, 7 to 8");
    }
}
