//! `sidle history --id N`: the story of one switch, which may be under way.

use crate::cli::follow::words;
use crate::cli::status::{downtime, result};
use crate::cli::{Context, Ended, missed};
use crate::failure::{Class, Report, moment};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::journal::head::Head;
use crate::switch::{Entry, History, Journal, Request, Story, StoryStep};
use crate::version::Release;
use jiff::Timestamp;
use serde_json::json;

/// Prints the story of the switch with this number.
pub(in crate::cli) fn story(context: &Context, files: &InstanceFiles, id: u64) -> Result<Ended, Report> {
    // In this order: a switch that ends meanwhile leaves the journal only after it is in the history.
    let journal = files.journal()?;
    let history = files.history()?;
    let live = journal.live.as_ref().filter(|live| live.id == id);
    let (text, mut value) = match (history.find(id), live) {
        (Some(entry), _) => {
            let state = format!("  result     {} at {}", result(entry.result), moment(entry.ended_at));
            (with_hint(files, entry, lines(entry, state)), json!({"live": false, "switch": entry}))
        }
        (None, Some(live)) => {
            (lines(live, format!("  under way  {}", words(live))), json!({"live": true, "switch": live}))
        }
        (None, None) => return Err(unknown(files, id, &history, &journal)),
    };
    value["instance"] = json!(files.instance());
    context.output.result(text, value);
    Ok(Ended::Well)
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

/// Adds how to list what was published in the downtime, after the line that tells its length.
fn with_hint(files: &InstanceFiles, entry: &Entry, mut lines: Vec<String>) -> Vec<String> {
    let after = lines.iter().position(|line| line.starts_with("  downtime ")).map_or(lines.len(), |index| index + 1);
    lines.splice(after..after, missed::hint(files, entry).map(|hint| format!("  missed     {hint}")));
    lines
}

/// The lines of a switch; `state`: its result, or its present phase.
fn lines(switch: &Head, state: String) -> Vec<String> {
    let from = switch.from.as_ref().map_or_else(|| "nothing".to_owned(), Release::to_string);
    let Request { purpose, to, by, origin, reason, .. } = &switch.request;
    let origin = origin.as_ref().map_or_else(String::new, |origin| format!(", in {origin}"));
    let mut lines = vec![
        format!("switch {} of {}: {purpose} from {from} to {to} ({})", switch.id, switch.instance, switch.mode),
        format!("  asked for  {} by {by}{origin}", moment(switch.requested_at)),
        state,
        format!("  downtime   {}", downtime(switch.downtime_milliseconds)),
    ];
    if !reason.is_empty() {
        lines.push(format!("  reason     {reason}"));
    }
    lines.extend(switch.failure.as_ref().map(|failure| format!("  because    {}", failure.text)));
    lines.extend(switch.notes.iter().map(|note| format!("  note       {note}")));
    steps(&mut lines, &switch.story, switch.requested_at);
    lines
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
