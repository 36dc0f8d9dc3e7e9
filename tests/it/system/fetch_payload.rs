//! What of `plain::fetch::payload` needs root or a package: see there.

use crate::plain::fetch::*;
use crate::support::mirrors::{Certificates, Cutter, Nginx};

#[test]
fn fetch_goes_on_at_the_exact_byte_after_twenty_cuts() {
    let release = Release::new(24);
    let certificates = Certificates::new();
    let nginx = Nginx::start(&release.repo.path(), &certificates, "");
    // Inside the handshake, inside heads, and far into bodies.
    let places = [0, 700, 2_500, 3_000, 5_000, 70_000, 99_991, 123_457, 200_000, 262_144, 333_333, 400_000];
    let places: Vec<usize> = places.into_iter().chain((1..=8).map(|n| n * 450_001)).collect();
    let cutter = Cutter::new(nginx.port(), places.clone());
    let mut settings =
        settings(vec![mirror_with_ca(&format!("https://127.0.0.1:{}", cutter.port()), &certificates.file("ca.pem"))]);
    settings.patience.attempts = 8;
    let client = Client::new();
    let wire = client.frames(&settings, &release, release.frames()).unwrap();
    assert_eq!(cutter.cuts(), places.len() as u64);
    assert_eq!(wire, release.payload.length, "bytes that were there were fetched again");
    let ranges: Vec<String> =
        nginx.seen(10).iter().filter_map(|line| line.split('|').nth(2).map(str::to_owned)).collect();
    let starts = ranges.iter().filter_map(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
    let starts: Vec<u64> = starts.collect();
    assert!(starts.len() >= 10 && starts.is_sorted(), "{ranges:?}");
}

#[test]
fn fetch_asks_for_neighbours_at_once_and_for_nothing_else() {
    let release = Release::new(24);
    let certificates = Certificates::new();
    let nginx = Nginx::start(&release.repo.path(), &certificates, "");
    let settings = settings(vec![mirror_with_ca(&nginx.url(), &certificates.file("ca.pem"))]);
    let all = release.frames();
    let (first, second, last) = (release.large()[0], release.large()[1], *all.last().unwrap());
    let wanted = [first, second, last];
    let wire = Client::new().frames(&settings, &release, &wanted).unwrap();
    assert_eq!(wire, wanted.iter().map(|frame| frame.length).sum::<u64>());
    let asked = |start: u64, end: u64| format!("bytes={start}-{}", end - 1);
    let ranges: Vec<String> = nginx.seen(2).iter().map(|line| line.split('|').nth(2).unwrap().to_owned()).collect();
    assert_eq!(
        ranges,
        [asked(first.offset, second.offset + second.length), asked(last.offset, last.offset + last.length)]
    );
}
