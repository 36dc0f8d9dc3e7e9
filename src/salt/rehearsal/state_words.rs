//! Words for what differs between two highstates.

use super::words::{counted, listed};
use crate::rehearsal::states::{Difference, What};

const HOUR_SECONDS: u64 = 3600;
const DAY_HOURS: u64 = 24;

/// How many states differ.
pub(super) fn differ(count: usize) -> String {
    match count {
        0 => "no state of the highstate differs".to_owned(),
        1 => "1 state of the highstate differs".to_owned(),
        _ => format!("{count} states of the highstate differ"),
    }
}

/// An age, in hours or days.
pub(super) fn span(seconds: u64) -> String {
    match seconds / HOUR_SECONDS {
        0 => "less than an hour".to_owned(),
        hours if hours < 2 * DAY_HOURS => counted(usize::try_from(hours).unwrap_or_default(), "hour"),
        hours => counted(usize::try_from(hours / DAY_HOURS).unwrap_or_default(), "day"),
    }
}

/// One state in words.
pub(super) fn told(difference: &Difference) -> String {
    let what = difference.what.iter().map(|what| match what {
        What::Missing => "only the running release has it".to_owned(),
        What::New => "only the new release has it".to_owned(),
        What::Function => "it cannot be applied".to_owned(),
        What::Arguments if difference.arguments.is_empty() => "other arguments".to_owned(),
        What::Arguments => {
            format!("other arguments: {}", listed(difference.arguments.clone().into_iter()))
        }
        What::Result => "another result".to_owned(),
        What::Changes => "other changes".to_owned(),
        What::Text => "another text".to_owned(),
        What::Run => "the run ends there".to_owned(),
    });
    let causes =
        if difference.causes.is_empty() { String::new() } else { format!(" ({})", difference.causes.join("; ")) };
    let Difference { id, function, sls, .. } = difference;
    format!("{id}, {function} in {sls}: {}{causes}", what.collect::<Vec<_>>().join(", "))
}
