//! Times and rates as the settings have them.

use serde::Deserialize;
use std::ops::Deref;
use std::time::Duration;

/// A duration as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Time(pub(super) Duration);

impl Deref for Time {
    type Target = Duration;
    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        duration(&text).map(Self)
    }
}

/// Reads a duration: a whole number and a unit, `90s`, `30m`, `2h`, `90d`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds));
    total.filter(|_| milliseconds > 0).map(Duration::from_millis).ok_or_else(|| {
        format!("cannot read {text:?} as a time: expected a whole number and ms, s, m, h or d, as in 30m")
    })
}

/// A number of bytes as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bytes(pub u64);

impl TryFrom<String> for Bytes {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let shift = match unit.trim_start() {
            "B" => Some(0),
            "KiB" => Some(10),
            "MiB" => Some(20),
            "GiB" => Some(30),
            _ => None,
        };
        let total = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
        total.filter(|total| *total > 0).map(Self).ok_or_else(|| {
            format!(
                "cannot read {text:?} as bytes a second: expected a whole number and B, KiB, MiB or GiB, as in 2MiB"
            )
        })
    }
}
