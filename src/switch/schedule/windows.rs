//! Maintenance windows: when a person lets switches begin. Pure over a time and a time zone.
//!
//! ```text
//! windows = ["Sat 22:00-04:00", "Mon..Fri 01:00-03:00", "Sun,Wed 12:30-13:00", "04:00-05:00"]
//!
//! window  = [ days " " ] time "-" time       without days: every day
//! days    = part { "," part }                part = day [ ".." day ], Fri..Mon goes over the weekend
//! day     = Mon Tue Wed Thu Fri Sat Sun      or the whole English name, in any case
//! time    = HH:MM                            00:00 to 23:59, and 24:00 as an end
//! ```
//!
//! A window whose end is not after its start ends on the next day; its days are those on which it starts. It is open while the local time is at
//! or after its start and before its end. When the clock jumps forward, a window inside the gap does not open that day; when the clock is set
//! back, a window in the repeated hour opens twice.

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// How far ahead to search for an opening: each window opens every week, unless a jump of the clock skips it.
const HORIZON_DAYS: i32 = 40;
const MINUTES_OF_DAY: u16 = 24 * 60;

/// One window.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Window {
    /// The days on which it starts; Monday first.
    days: [bool; 7],
    /// Minutes since midnight.
    opens: u16,
    /// Minutes since midnight; not after `opens`: on the next day.
    closes: u16,
    text: String,
}

impl TryFrom<String> for Window {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Window {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            format!(
                "cannot read {text:?} as a window: {why}; write it as \"Sat 22:00-04:00\" or \"Mon..Fri 01:00-03:00\""
            )
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (days, times) = match words[..] {
            [times] => ([true; 7], times),
            [named, times] => (days(named).map_err(|why| refused(&why))?, times),
            _ => return Err(refused("it is not days, a space, and two times joined by a hyphen")),
        };
        let Some((opens, closes)) = times.split_once('-') else {
            return Err(refused("its times are not joined by a hyphen"));
        };
        let (opens, closes) = (
            minutes(opens).ok_or_else(|| refused(&format!("{opens:?} is no time of day")))?,
            minutes(closes).ok_or_else(|| refused(&format!("{closes:?} is no time of day")))?,
        );
        if opens == MINUTES_OF_DAY {
            return Err(refused("24:00 is an end and no start: write 00:00 and the next day"));
        }
        if opens == closes {
            return Err(refused("it ends where it starts: a whole day is 00:00-24:00"));
        }
        Ok(Self { days, opens, closes, text: words.join(" ") })
    }
}

fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (hours, minutes): (u16, u16) =
        if digits(hours) && digits(minutes) { (hours.parse().ok()?, minutes.parse().ok()?) } else { return None };
    (minutes < 60).then_some(hours * 60 + minutes).filter(|total| *total <= MINUTES_OF_DAY)
}

fn days(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let mut at = first;
        days[at] = true;
        while at != last {
            at = (at + 1) % 7;
            days[at] = true;
        }
    }
    Ok(days)
}

fn day(text: &str) -> Result<usize, String> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let lower = text.to_ascii_lowercase();
    let found = NAMES.iter().position(|name| *name == lower || name[..3] == lower);
    found.ok_or_else(|| format!("{text:?} is no day of the week"))
}

fn number(weekday: Weekday) -> usize {
    usize::from(weekday.to_monday_zero_offset().unsigned_abs())
}

impl Window {
    /// True if it is open at the local time `local`.
    fn holds(&self, local: DateTime) -> bool {
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let today = number(local.weekday());
        if self.opens < self.closes {
            return self.days[today] && (self.opens..self.closes).contains(&minute);
        }
        let yesterday = (today + 6) % 7;
        (self.days[today] && minute >= self.opens) || (self.days[yesterday] && minute < self.closes)
    }
}

/// The windows of an instance, in their time zone.
#[derive(Debug, Clone)]
pub struct Windows {
    windows: Vec<Window>,
    zone: TimeZone,
}

impl Windows {
    /// Makes windows in local time of `zone`. Without any window every time is open.
    pub fn new(windows: Vec<Window>, zone: TimeZone) -> Self {
        Self { windows, zone }
    }

    /// True if there are no windows, so that every time is open.
    pub fn is_always(&self) -> bool {
        self.windows.is_empty()
    }

    /// True if a window is open at `now`.
    pub fn is_open(&self, now: Timestamp) -> bool {
        let local = self.zone.to_datetime(now);
        self.is_always() || self.windows.iter().any(|window| window.holds(local))
    }

    /// The next opening; `now` if a window is open. None: not within weeks.
    pub fn opening(&self, now: Timestamp) -> Option<Timestamp> {
        std::iter::once(now).chain(self.borders(now)).find(|time| self.is_open(*time))
    }

    /// The end of the window that is open at `now`; adjoining windows count as one. None: not within weeks.
    pub fn closing(&self, now: Timestamp) -> Option<Timestamp> {
        self.borders(now).into_iter().find(|time| !self.is_open(*time))
    }

    /// The times after `now` at which [`Self::is_open`] may change: starts and ends of windows, and jumps of the clock.
    fn borders(&self, now: Timestamp) -> Vec<Timestamp> {
        if self.is_always() {
            return Vec::new();
        }
        let today = self.zone.to_datetime(now).date();
        let end = now.saturating_add((HORIZON_DAYS * 24).hours()).unwrap_or(Timestamp::MAX);
        let mut borders: Vec<Timestamp> =
            self.zone.following(now).map(|transition| transition.timestamp()).take_while(|time| *time < end).collect();
        for offset in -1..=HORIZON_DAYS {
            let Ok(date) = today.checked_add(offset.days()) else { continue };
            for minute in self.windows.iter().flat_map(|window| [window.opens, window.closes]) {
                let Ok(civil) =
                    date.to_datetime(jiff::civil::Time::midnight()).checked_add(i64::from(minute).minutes())
                else {
                    continue;
                };
                let instants = self.zone.to_ambiguous_timestamp(civil);
                borders.extend([instants.earlier(), instants.later()].into_iter().flatten());
            }
        }
        borders.retain(|time| *time > now);
        borders.sort_unstable();
        borders.dedup();
        borders
    }

    /// Formats a time as local time, with the zone.
    pub fn shown(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        let name = self.zone.iana_name().map_or_else(String::new, |name| format!(" {name}"));
        format!("{}{name}", zoned.strftime("%a %Y-%m-%d %H:%M %:z"))
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.windows.iter().map(|window| window.text.as_str()).collect();
        formatter.write_str(&texts.join(", "))?;
        self.zone.iana_name().map_or(Ok(()), |name| write!(formatter, " ({name})"))
    }
}
