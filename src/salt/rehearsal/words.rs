//! Words for a rehearsal's findings, fit for one line of a terminal.

use super::report::{Failure, How, LoadError};

/// Names that one message lists; the others are counted.
const NAMES_MAX: usize = 8;
/// A custom module's exception may be a document.
pub(super) const MESSAGE_CHARACTERS_MAX: usize = 500;

/// What keeps the minion from coming up.
pub(super) fn said(failure: &Failure) -> String {
    let what = match failure.stage.as_str() {
        "configuration" => "cannot load the configuration",
        "user" => "cannot run as the minion's user",
        "grains" => "cannot read the grains",
        _ => "cannot load the modules",
    };
    format!("{what}: {}", failure.reason)
}

/// The name of a kind of module; loaders have their own words.
pub(super) fn called(kind: &str) -> String {
    match kind {
        "module" => "execution module",
        "states" => "state module",
        "returner" => "returner",
        "beacons" => "beacon",
        "engines" => "engine",
        "executor" | "executors" => "executor",
        "render" => "renderer",
        "output" => "outputter",
        "matchers" => "matcher",
        "utils" => "utility module",
        "provider" => "provider",
        other => return format!("{other} module"),
    }
    .to_owned()
}

/// A custom module that does not load.
pub(super) fn broken(error: &LoadError) -> String {
    let how = match error.how {
        How::Import => "cannot be imported",
        How::Failed if error.kind == "grains" => "fails when its grains are read",
        How::Failed => "fails when it is loaded",
        How::Declined => "is no longer for this host (__virtual__)",
    };
    let reason = if error.reason.is_empty() { String::new() } else { format!(": {}", error.reason) };
    format!("the custom {} {} ({}) {how}{reason}", called(&error.kind), error.name, error.file)
}

/// `1 grain`, `2 grains`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The first names, and how many more there are.
pub(super) fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let told: Vec<String> = names.take(NAMES_MAX).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", told.join(", "))
}

/// Text of custom modules without control characters, cut to a sane length.
pub(super) fn plain(text: &str) -> String {
    let one_line = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let mut short: String = one_line.take(MESSAGE_CHARACTERS_MAX).collect();
    if text.chars().nth(MESSAGE_CHARACTERS_MAX).is_some() {
        short.push('…');
    }
    short
}
