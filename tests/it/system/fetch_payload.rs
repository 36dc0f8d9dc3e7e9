//! What of `plain::fetch::payload` needs root or a package: see there.

use crate::plain::fetch::*;
use crate::support::inside::Inside;
use crate::support::mirrors::{Certificates, Cutter, Handmade, Nginx};
use crate::support::mounts::Mounted;
use sidle::acquire::{Acquired, Request, acquire};
use sidle::failure::{Class, Report};
use sidle::fetch::Notice;
use sidle::store::collect::Effect as Doing;
use sidle::store::preflight::Hazards;
use std::fs;

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

/// Fetches and installs the only release onto a disk of so many MiB; gives the bytes that the mirror sent, too.
fn acquired_on(disk_mebibytes: u32, release: &Release) -> (Result<Acquired, Report>, u64, Client) {
    let disk = Mounted::tmpfs(&format!("size={disk_mebibytes}m"));
    let host = Inside::below(&disk.path(), &release.repo.root());
    let directory = release.repo.path();
    let mirror_process = Handmade::new(move |asked, line| {
        let file = fs::read(directory.join(asked.path.trim_start_matches('/'))).ok();
        line.serve(asked, file.as_deref());
    });
    let client = Client { cache: tempfile::tempdir_in(disk.path()).unwrap(), ..Client::new() };
    let package = "demo".parse().unwrap();
    let request = Request {
        package: &package,
        release: None,
        may_be: &|_| true,
        patterns: &[],
        unattended: false,
        refetch: false,
        effect: Doing::Apply,
        root: None,
        hazards: Hazards::Refuse,
        expiry_by_hand: sidle::trust::Expiry::BY_HAND,
        fetching: &|_, _| {},
        installing: &|_, _| {},
    };
    let settings = settings(vec![mirror(&mirror_process.url())]);
    let acquired = client.run(&settings, |fetcher| acquire(fetcher, host.layout(), &request));
    let sent = mirror_process.sent();
    // The disk goes with the host's files.
    let client = Client { cache: tempfile::tempdir().unwrap(), notices: client.notices };
    (acquired, sent, client)
}

/// The frames filled the disk on which the release was to be unpacked, and with a little more room all was fetched twice.
#[test]
fn on_a_small_disk_a_release_is_fetched_once_and_what_comes_is_not_kept() {
    const MEBIBYTES: usize = 80;
    let release = Release::new(MEBIBYTES);
    let not_kept = |notice: &Notice| matches!(notice, Notice::NotKept { .. });
    for (disk_mebibytes, keeps) in [(100, false), (160, false), (200, false), (300, true)] {
        let (acquired, sent, client) = acquired_on(disk_mebibytes, &release);
        acquired.unwrap_or_else(|report| panic!("{disk_mebibytes} MiB: {report:?}"));
        assert!(sent < release.payload.length * 5 / 4, "{disk_mebibytes} MiB: {sent} bytes were sent");
        assert_eq!(client.was_told(not_kept), !keeps, "{disk_mebibytes} MiB");
    }
    let (acquired, ..) = acquired_on(60, &release);
    assert_eq!(acquired.unwrap_err().class, Class::NoSpace);
}
