//! Times for people: in the host's own time zone, with the offset. JSON, files and logs keep UTC.

use crate::os::clock;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::LazyLock;

/// A time in UTC begins so, digits as `0`.
const FORM: &[u8] = b"0000-00-00T00:00:00";

/// The host's zone (TZ, else /etc/localtime); UTC where it cannot be read: a status must not fail for it.
static ZONE: LazyLock<TimeZone> = LazyLock::new(|| clock::zone(None).unwrap_or(TimeZone::UTC));

/// `text` with each time in UTC (`2026-01-02T03:04:05Z`) in the host's zone (`2026-01-02T04:04:05+01:00`).
pub(super) fn local(text: &str) -> String {
    in_zone(text, &ZONE)
}

fn in_zone(text: &str, zone: &TimeZone) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_in_word = false;
    while let Some(first) = rest.chars().next() {
        let length = if is_in_word { None } else { length(rest) };
        if let Some((length, time)) =
            length.and_then(|length| Some((length, rest[..length].parse::<Timestamp>().ok()?)))
        {
            out.push_str(&written(&rest[..length], time, zone));
            rest = &rest[length..];
            is_in_word = true;
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            // After these a time is part of a name or a path.
            is_in_word = first.is_ascii_alphanumeric() || "/-_.='".contains(first);
        }
    }
    out
}

fn written(text: &str, time: Timestamp, zone: &TimeZone) -> String {
    let time = time.to_zoned(zone.clone());
    if time.offset().is_zero() { text.to_owned() } else { time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string() }
}

/// How many bytes at the beginning of `text` are a time in UTC; its fraction of a second counts.
fn length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits = |byte: &u8| if byte.is_ascii_digit() { b'0' } else { *byte };
    if !bytes.get(..FORM.len())?.iter().map(digits).eq(FORM.iter().copied()) {
        return None;
    }
    let fraction = match bytes.get(FORM.len()) {
        Some(b'.') => 1 + bytes[FORM.len() + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    let end = FORM.len() + fraction;
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_'".contains(byte);
    let is_file = bytes.get(end + 1) == Some(&b'.') && bytes.get(end + 2).is_some_and(u8::is_ascii_alphanumeric);
    let is_whole = bytes.get(end) == Some(&b'Z') && !bytes.get(end + 1).is_some_and(goes_on) && !is_file;
    is_whole.then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_the_same_instant_in_the_hosts_zone_and_nothing_else_changes() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (text, expected) in [
            ("2026-01-02T23:04:05Z", "2026-01-03T00:04:05+01:00"),
            ("(2026-07-02T03:04:05.123456Z)", "(2026-07-02T05:04:05+02:00)"),
            (
                "a 2026-01-02T03:04:05Z, b 2026-01-02T03:04:06Z.",
                "a 2026-01-02T04:04:05+01:00, b 2026-01-02T04:04:06+01:00.",
            ),
            ("2026-13-02T03:04:05Z", "2026-13-02T03:04:05Z"),
            ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05+00:00"),
            ("x2026-01-02T03:04:05Z", "x2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Zulu", "2026-01-02T03:04:05Zulu"),
            ("für 3007.17-1 2026", "für 3007.17-1 2026"),
            ("/srv/2026-01-02T03:04:05Z", "/srv/2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Z/x", "2026-01-02T03:04:05Z/x"),
            ("2026-01-02T03:04:05Z.tar", "2026-01-02T03:04:05Z.tar"),
        ] {
            assert_eq!(in_zone(text, &berlin), expected);
            assert_eq!(in_zone(text, &TimeZone::UTC), text);
        }
    }
}
