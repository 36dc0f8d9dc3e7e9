//! What an agent uses on this host, as its guard has counted it: names, days and numbers. docs/formats.md has the file.

use crate::rehearsal::lost::Lost;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The form of the file.
const SCHEMA: u32 = 1;
/// A file with 20,000 names and days, the guard's own bound, has less than a megabyte: a longer one is not the guard's.
pub const LENGTH_MAX: u64 = 4 << 20;
/// A guard counts no longer names: whoever prints them may rely on it.
const NAME_BYTES_MAX: usize = 120;
/// A count of so many days tells that a function which it does not have is not used: a job that runs once a month is in it.
pub const ENOUGH_DAYS: usize = 30;
/// Execution functions that modules of the agent itself have called.
const BY_SALT: &str = "module-by-salt";
const SECONDS_PER_DAY: i64 = 86_400;

/// A day in UTC, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Day(u32);

impl Day {
    fn date(self) -> Date {
        let at = Timestamp::from_second(i64::from(self.0) * SECONDS_PER_DAY).unwrap_or(Timestamp::MAX);
        at.to_zoned(TimeZone::UTC).date()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.date().fmt(formatter)
    }
}

impl Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The count of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Uses {
    schema: u32,
    /// The days on which it was counted.
    days: BTreeSet<Day>,
    /// A day on which more names were used than the count holds.
    cut: Option<Day>,
    #[serde(rename = "uses")]
    kinds: BTreeMap<String, BTreeMap<String, Vec<(Day, u64)>>>,
}

/// How often something was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Use {
    /// The kind of module, as the agent's loaders call it.
    pub kind: String,
    /// The function: `vault.read_secret`.
    pub name: String,
    /// Calls.
    pub times: u64,
    /// Days with a call.
    pub days: usize,
    /// The last of these days.
    pub last: Day,
}

/// What an agent's configuration, its states or its log name, where nobody has counted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Need {
    /// The kind of module, as the agent's loaders call it.
    pub kind: String,
    /// The function.
    pub name: String,
    /// What names it: `schedule nap`, `log`.
    #[serde(rename = "where")]
    pub place: String,
    /// The last day, in UTC, where that is known.
    pub last: Option<String>,
}

impl Need {
    /// Whether it is one of the functions of a module that is lost.
    pub fn is_of(&self, lost: &Lost) -> bool {
        is_use_of(lost, &self.kind, &self.name)
    }
}

impl Use {
    /// For programs: the kind, the function and the last day. No name has a space.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.kind, self.name, self.last)
    }
}

/// What is known of the uses on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// They were counted.
    Counted(Uses),
    /// They were not, because of this.
    NotCounted(String),
}

impl Uses {
    /// Reads a guard's file. An error says what is wrong with it: no count is taken for an empty one.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let uses: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if uses.schema != SCHEMA {
            return Err(format!("it has schema {}, this sidle reads {SCHEMA}", uses.schema));
        }
        let sane = |name: &String| name.len() <= NAME_BYTES_MAX && name.chars().all(|each| each.is_ascii_graphic());
        for name in uses.kinds.iter().flat_map(|(kind, names)| names.keys().chain([kind])) {
            if !sane(name) {
                return Err(format!("it has the name {}, which no guard writes", name.escape_debug()));
            }
        }
        Ok(uses)
    }

    /// Everything that was used; the kinds in their order, in each the names.
    pub fn all(&self) -> Vec<Use> {
        self.those(|_, _| true)
    }

    /// The uses of these kinds and names.
    fn those(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<Use> {
        let all = self.kinds.iter().flat_map(|(kind, names)| names.iter().map(move |(name, days)| (kind, name, days)));
        // Names first: a release loses hundreds of modules, and a count has thousands of names.
        let wanted = all.filter(|(kind, name, _)| is_wanted(kind, name));
        wanted.filter_map(|(kind, name, days)| summed(kind, name, days)).collect()
    }

    /// The used functions of what is lost.
    pub fn of(&self, lost: &Lost) -> Vec<Use> {
        self.those(|kind, name| is_use_of(lost, kind, name))
    }

    /// On how many days it was counted.
    pub fn days(&self) -> usize {
        self.days.len()
    }

    /// The first and the last of these days; None: it was never counted.
    pub fn span(&self) -> Option<(Day, Day)> {
        Some((*self.days.first()?, *self.days.last()?))
    }

    /// Whether what it does not have was not used.
    pub fn is_enough(&self) -> bool {
        self.days() >= ENOUGH_DAYS && self.cut.is_none()
    }

    /// A day on which more names were used than the count holds.
    pub fn cut(&self) -> Option<Day> {
        self.cut
    }

    /// For people: which days it covers.
    pub fn covers(&self) -> String {
        let Some((first, last)) = self.span() else { return "no day is counted yet".to_owned() };
        let days = if self.days() == 1 { "1 day".to_owned() } else { format!("{} days", self.days()) };
        let cut = self.cut.map(|day| format!("; not all names of {day} are in it")).unwrap_or_default();
        format!("counted on {days}, {first} to {last}{cut}")
    }
}

impl Use {
    /// For people: `12 times on 3 days, last on 2026-11-20`.
    pub fn told(&self) -> String {
        let times = if self.times == 1 { "once".to_owned() } else { format!("{} times", self.times) };
        let days = if self.days == 1 { String::new() } else { format!(" on {} days", self.days) };
        let by_salt = if self.kind == BY_SALT { ", by Salt's own modules" } else { "" };
        format!("{times}{days}, last on {}{by_salt}", self.last)
    }
}

/// Whether a function that was called is one of those that are lost. Salt's own modules may call less in another release: their calls count where the
/// whole module is lost.
pub fn is_use_of(lost: &Lost, kind: &str, name: &str) -> bool {
    // Lists of older releases have another name for this kind.
    let of_lost = if lost.kind == "executors" { "executor" } else { &lost.kind };
    let (module, function) = name.split_once('.').unwrap_or((name, ""));
    // Renderers and outputters are listed by their module alone.
    let whole = lost.whole || lost.functions.iter().any(String::is_empty);
    let is_kind = kind == of_lost || (kind == BY_SALT && of_lost == "module" && lost.whole);
    is_kind && module == lost.module && (whole || lost.functions.iter().any(|lost| lost == function))
}

fn summed(kind: &str, name: &str, days: &[(Day, u64)]) -> Option<Use> {
    let last = days.iter().map(|(day, _)| *day).max()?;
    let times = days.iter().fold(0_u64, |sum, (_, times)| sum.saturating_add(*times));
    Some(Use { kind: kind.to_owned(), name: name.to_owned(), times, days: days.len(), last })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: &str = r#"{"schema":1,"days":[20000,20001,20060],"cut":null,"uses":{
        "module-by-salt":{"pkg.install":[[20001,1]]},"module":{"vault.read_secret":[[20000,7],[20060,5]],"test.ping":[[20001,1]]},"render":{"mako.render":[[20001,2]]}}}"#;

    fn lost(kind: &str, module: &str, functions: &[&str], whole: bool) -> Lost {
        let functions = functions.iter().map(ToString::to_string).collect();
        Lost { kind: kind.to_owned(), module: module.to_owned(), functions, whole }
    }

    #[test]
    fn what_is_lost_is_found_among_the_uses_by_function_and_by_module() {
        let uses = Uses::parse(COUNT.as_bytes()).unwrap();
        let vault = uses.of(&lost("module", "vault", &["read_secret", "list_secrets"], false));
        assert_eq!(vault.len(), 1);
        assert_eq!(vault[0].told(), "12 times on 2 days, last on 2024-12-03");
        assert!(uses.of(&lost("module", "vault", &["list_secrets"], false)).is_empty(), "another function of it");
        assert_eq!(uses.of(&lost("module", "vault", &["list_secrets"], true)).len(), 1);
        assert_eq!(uses.of(&lost("render", "mako", &[""], true))[0].times, 2);
        assert!(uses.of(&lost("states", "vault", &["read_secret"], true)).is_empty(), "of another kind");
        assert_eq!(uses.all().len(), 4);
        assert!(
            uses.of(&lost("module", "pkg", &["install"], false)).is_empty(),
            "the newer callers call what is there"
        );
        let provider = uses.of(&lost("module", "pkg", &["install"], true));
        assert_eq!(provider[0].told(), "once, last on 2024-10-05, by Salt's own modules");
        assert_eq!(uses.covers(), "counted on 3 days, 2024-10-04 to 2024-12-03");
        assert!(!uses.is_enough());
    }

    #[test]
    fn a_count_that_is_not_a_guards_is_an_error_and_no_empty_count() {
        for (from, to) in
            [("\"schema\":1", "\"schema\":2"), ("vault", "va\\u001b[2Jult"), ("[20001,2]", "[-1,2]"), ("{", "")]
        {
            assert!(Uses::parse(COUNT.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn a_count_of_many_days_is_enough_unless_it_was_cut() {
        let days: Vec<u32> = (20_000..20_030).collect();
        let count = |cut: &str| {
            let text = format!(r#"{{"schema":1,"days":{days:?},"cut":{cut},"uses":{{}}}}"#);
            Uses::parse(text.as_bytes()).unwrap()
        };
        assert!(count("null").is_enough());
        assert!(!count("20029").is_enough());
        assert!(
            count("20029").covers().ends_with("not all names of 2024-11-02 are in it"),
            "{}",
            count("20029").covers()
        );
    }
}
