//! The command that lists, on a master, what was published while a minion could not hear.

use super::kept;
use crate::agent::missed::Unheard;
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::path::Path;

/// A job that was published so shortly before may have been on its way.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(5);

/// Stands for a minion's id that is not known.
const UNKNOWN: &str = "MINION";

/// Names the command, with the minion's id and the time.
pub fn missed(unheard: Unheard<'_>) -> String {
    let id = id(unheard.options, unheard.state).unwrap_or_else(|| UNKNOWN.to_owned());
    let from = unheard
        .from
        .checked_sub(ON_ITS_WAY)
        .unwrap_or(unheard.from)
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    format!("salt-run sidle.missed {id} since={from}")
}

/// The minion's id: what its process reports, else what a release made of the configuration. An id is a word of a command line here.
fn id(options: Option<&Value>, state: &Path) -> Option<String> {
    let reported = options.and_then(|options| options["id"].as_str()).map(str::to_owned);
    let loaded = || kept::read(state).into_iter().find_map(|kept| kept.loaded)?.options.map(|options| options.id);
    let is_plain = |id: &String| {
        !id.is_empty()
            && !id.starts_with('-')
            && id.chars().all(|each| each.is_ascii_alphanumeric() || "._-".contains(each))
    };
    reported.or_else(loaded).filter(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_command_names_the_minion_and_a_second_that_leaves_nothing_out() {
        let from = "2026-11-24T09:12:05.9Z".parse().unwrap();
        let of = |options: Option<&Value>| missed(Unheard { from, options, state: Path::new("/nowhere") });
        let told = "salt-run sidle.missed web17.example since=2026-11-24T09:12:00Z";
        assert_eq!(of(Some(&json!({"id": "web17.example"}))), told);
        for unusable in [json!({"id": "a; reboot"}), json!({"id": "-x"}), json!({})] {
            assert_eq!(of(Some(&unusable)), told.replace("web17.example", "MINION"), "{unusable}");
        }
        assert_eq!(of(None), told.replace("web17.example", "MINION"));
    }
}
