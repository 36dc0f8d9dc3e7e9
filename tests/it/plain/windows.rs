//! Maintenance windows beside a clock on the wall that is looked at each minute, in zones whose clocks jump.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use proptest::prelude::*;
use sidle::switch::schedule::When;
use sidle::switch::schedule::windows::{Window, Windows};
use std::fs;
use std::path::Path;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Half an hour at Lord Howe; a whole day that never was in Apia; twice a year, by the moon, in Casablanca.
const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "UTC",
];

fn windows(texts: &[&str], zone: &str) -> Windows {
    let windows = texts.iter().map(|text| text.parse::<Window>().unwrap()).collect();
    Windows::new(windows, TimeZone::get(zone).unwrap())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[track_caller]
fn opens(windows: &Windows, from: &str, opening: &str, closing: &str) {
    let found = windows.opening(at(from)).unwrap();
    assert_eq!((found, windows.closing(found)), (at(opening), Some(at(closing))), "{windows} from {from}");
}

#[test]
fn windows_open_by_the_clock_on_the_wall() {
    let week = windows(&["Sat 22:00-04:00", "mon..FRI 01:00-03:00", "wednesday,Sun 12:30-13:00"], "Europe/Berlin");
    opens(&week, "2026-11-28T20:59Z", "2026-11-28T21:00Z", "2026-11-29T03:00Z");
    opens(&week, "2026-11-29T02:59Z", "2026-11-29T02:59Z", "2026-11-29T03:00Z");
    opens(&week, "2026-11-29T03:00Z", "2026-11-29T11:30Z", "2026-11-29T12:00Z");
    opens(&week, "2026-11-29T12:00Z", "2026-11-30T00:00Z", "2026-11-30T02:00Z");
    // Windows that meet are one; a day's end is one.
    opens(
        &windows(&["10:00-11:00", "11:00-24:00"], "UTC"),
        "2026-01-01T00:00Z",
        "2026-01-01T10:00Z",
        "2026-01-02T00:00Z",
    );
    opens(&windows(&["Fri..Mon 00:00-24:00"], "UTC"), "2026-01-01T00:00Z", "2026-01-02T00:00Z", "2026-01-06T00:00Z");
    assert_eq!(windows(&["00:00-24:00"], "UTC").closing(at("2026-01-01T00:00Z")), None);
    let always = windows(&[], "UTC");
    assert!(always.is_open(at("2026-01-01T00:00Z")) && always.closing(at("2026-01-01T00:00Z")).is_none());
    assert_eq!(week.shown(at("2026-11-28T21:00Z")), "Sat 2026-11-28 22:00 +01:00 Europe/Berlin");
    assert_eq!(
        windows(&["mon  1:00-3:00".replace("1:00-3:00", "01:00-03:00").as_str()], "UTC").to_string(),
        "mon 01:00-03:00 (UTC)"
    );
}

#[test]
fn windows_in_the_hour_that_is_skipped_do_not_open_and_in_the_repeated_one_open_twice() {
    // 2026-03-29 02:00 is 03:00, 2026-10-25 03:00 is 02:00.
    opens(
        &windows(&["Sun 02:10-02:50"], "Europe/Berlin"),
        "2026-03-28T00:00Z",
        "2026-04-05T00:10Z",
        "2026-04-05T00:50Z",
    );
    opens(
        &windows(&["Sun 02:30-03:30"], "Europe/Berlin"),
        "2026-03-28T00:00Z",
        "2026-03-29T01:00Z",
        "2026-03-29T01:30Z",
    );
    opens(
        &windows(&["Sat 23:00-02:30"], "Europe/Berlin"),
        "2026-03-28T00:00Z",
        "2026-03-28T22:00Z",
        "2026-03-29T01:00Z",
    );
    let short = windows(&["Sun 02:10-02:50"], "Europe/Berlin");
    opens(&short, "2026-10-24T00:00Z", "2026-10-25T00:10Z", "2026-10-25T00:50Z");
    opens(&short, "2026-10-25T00:50Z", "2026-10-25T01:10Z", "2026-10-25T01:50Z");
    opens(
        &windows(&["Sun 01:00-03:00"], "Europe/Berlin"),
        "2026-10-24T00:00Z",
        "2026-10-24T23:00Z",
        "2026-10-25T02:00Z",
    );
    // A clock that is set back into a window opens it again.
    let early = windows(&["Sun 01:00-02:30"], "Europe/Berlin");
    opens(&early, "2026-10-25T00:30Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z");
}

#[test]
fn windows_that_cannot_be_read_say_why() {
    for (text, why) in [
        ("", "two times joined by a hyphen"),
        ("Sat", "not joined by a hyphen"),
        ("Sat 22:00", "not joined by a hyphen"),
        ("Sat 22:00 - 04:00", "two times joined"),
        ("Caturday 22:00-23:00", "\"Caturday\" is no day"),
        ("Mon.Fri 22:00-23:00", "\"Mon.Fri\" is no day"),
        ("Mon,,Fri 22:00-23:00", "\"\" is no day"),
        ("22:60-23:00", "\"22:60\" is no time"),
        ("24:01-23:00", "\"24:01\" is no time"),
        ("1:00-3:00", "\"1:00\" is no time"),
        ("+1:00-03:00", "\"+1:00\" is no time"),
        ("22:00-22:00", "00:00-24:00"),
        ("24:00-01:00", "24:00 is an end"),
    ] {
        let error = text.parse::<Window>().unwrap_err();
        assert!(error.contains(why) && error.contains("write it as"), "{text}: {error}");
    }
}

#[test]
fn windows_bound_the_splay_and_the_deadline() {
    let now = at("2026-01-01T00:00Z");
    let never = |_: u64| -> Result<u64, ()> { panic!("nothing is drawn") };
    assert_eq!(When::default().drawn(now, never), Ok(None));
    let all = |limit: u64| Ok::<u64, ()>(limit);
    let splay = When { splay_seconds: 600, ..When::default() }.drawn(now, all).unwrap().unwrap();
    assert_eq!((splay.begins, splay.deadline(60)), (now + 600.seconds(), now + 660.seconds()));
    let (opens, closes) = (Some(now + 2.hours()), Some(now + 3.hours()));
    let waits = When { opens, closes, splay_seconds: 7_200 }.drawn(now, all).unwrap().unwrap();
    assert_eq!((waits.begins, waits.splay_seconds), (now + 2.hours() + 3_300.seconds(), 3_300));
    assert_eq!(Some(waits.deadline(1_800)), closes, "it ends with its window");
    let rest = When { opens: None, closes: Some(now + 100.seconds()), splay_seconds: 60 }.drawn(now, all).unwrap();
    assert_eq!(rest.unwrap().splay_seconds, 50, "half of a rest shorter than ten minutes stays for the switch");
    let open = When { opens: None, closes, splay_seconds: 0 }.drawn(now, never).unwrap().unwrap();
    assert_eq!((open.begins, open.deadline(1_800), Some(open.deadline(99_999))), (now, now + 30.minutes(), closes));
    let most = When { splay_seconds: u64::MAX, ..When::default() }.drawn(now, all).unwrap().unwrap();
    assert_eq!(most.deadline(u64::MAX), Timestamp::MAX);
}

/// What a window means, minute by minute of a week.
fn table(days: &[usize], opens: usize, closes: usize) -> Vec<bool> {
    let mut week = vec![false; 7 * 1440];
    for day in days {
        let mut minute = day * 1440 + opens;
        let end = day * 1440 + if closes > opens { closes } else { closes + 1440 };
        while minute < end {
            week[minute % (7 * 1440)] = true;
            minute += 1;
        }
    }
    week
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn windows_agree_with_a_clock_that_is_looked_at_each_minute(
        zone in 0..ZONES.len(),
        transition in 0..60_usize,
        before in 0..4_320_i64,
        drawn in prop::collection::vec((prop::collection::btree_set(0..7_usize, 1..7), 0..288_usize, 1..=288_usize), 1..4),
    ) {
        let zone = TimeZone::get(ZONES[zone]).unwrap();
        let epoch = at("2006-01-01T00:00Z");
        let near = zone.following(epoch).nth(transition).map_or(epoch, |transition| transition.timestamp());
        // Databases hold a transition at the end of 32-bit time, which is no whole minute.
        let from = Timestamp::from_second(near.as_second().div_euclid(60) * 60).unwrap() - before.minutes();
        let drawn: Vec<_> = drawn.into_iter().filter(|(_, opens, closes)| opens != closes).collect();
        prop_assume!(!drawn.is_empty());
        let time = |five: usize| format!("{:02}:{:02}", five * 5 / 60, five * 5 % 60);
        let texts = drawn.iter().map(|(days, opens, closes)| {
            let days: Vec<&str> = days.iter().map(|day| DAYS[*day]).collect();
            format!("{} {}-{}", days.join(","), time(*opens), time(*closes))
        });
        let windows = Windows::new(texts.map(|text| text.parse().unwrap()).collect(), zone.clone());
        let tables: Vec<Vec<bool>> = drawn
            .iter()
            .map(|(days, opens, closes)| table(&days.iter().copied().collect::<Vec<_>>(), opens * 5, closes * 5))
            .collect();
        let shown = |time: Timestamp| {
            let text = zone.to_datetime(time).strftime("%a %H %M").to_string();
            let day = DAYS.iter().position(|day| text.starts_with(day)).unwrap();
            let minute = day * 1440 + text[4..6].parse::<usize>().unwrap() * 60 + text[7..9].parse::<usize>().unwrap();
            tables.iter().any(|table| table[minute])
        };
        let scan = |from: Timestamp, wanted: bool| (0..9 * 1440).map(|minute| from + minute.minutes()).find(|time| shown(*time) == wanted);
        prop_assert_eq!(windows.is_open(from), shown(from));
        if let Some(opening) = scan(from, true) {
            prop_assert_eq!(windows.opening(from), Some(opening), "{} from {}", windows, from);
            if let Some(closing) = scan(opening, false) {
                prop_assert_eq!(windows.closing(opening), Some(closing), "{} from {}", windows, opening);
            }
        }
    }
}

/// The rows of the guide: a window, and when it opens next and closes, from the noon before the clock changes.
#[test]
fn the_windows_of_the_guide_open_and_close_as_it_says_when_the_clock_changes() {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hosts.md")).unwrap();
    let (_, table) = guide.split_once("| window | opens | closes | open for |").unwrap();
    let mut rows = 0;
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [window, opens, closes, length] = cells[..] else { panic!("{row}") };
        let berlin = windows(&[window.trim_matches('`')], "Europe/Berlin");
        let noon = if row.contains("2026-10") { "2026-10-24T10:00Z" } else { "2026-03-28T11:00Z" };
        let shown = |time| berlin.shown(time).replace(" Europe/Berlin", "");
        let opening = berlin.opening(at(noon)).unwrap();
        let closing = berlin.closing(opening).unwrap();
        assert_eq!((shown(opening).as_str(), shown(closing).as_str()), (opens, closes), "{row}");
        let minutes = closing.duration_since(opening).as_mins();
        let hours = [("0.5 h", 30), ("5 h", 300), ("7 h", 420), ("2 h", 120), ("40 minutes", 40), ("not on", 60)];
        let (_, written) = hours.iter().find(|(text, _)| length.starts_with(text)).unwrap_or_else(|| panic!("{row}"));
        assert_eq!(minutes, *written, "{row}");
        rows += 1;
    }
    assert!(rows >= 6, "{rows}");
    let twice = windows(&["Sun 02:10-02:50"], "Europe/Berlin");
    let again = twice.opening(at("2026-10-25T00:55Z")).unwrap();
    assert_eq!(twice.shown(again), "Sun 2026-10-25 02:10 +01:00 Europe/Berlin");
}
