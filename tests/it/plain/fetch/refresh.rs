//! Metadata and small targets: which mirror is believed, which waits, and how much is read.

use super::*;
use crate::support::mirrors::Handmade;
use sidle::failure::Class;
use sidle::trust::{Expiry, Floor, by_hand};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn floor(release: &Release) -> Floor {
    Floor::new(release.repo.root())
}

/// A mirror whose answers to some requests are others than the repository's: the status line and body by path, how often.
fn spoiled(release: &Release, path: &'static str, head: &'static str, body: &'static [u8], times: usize) -> Handmade {
    let root = release.repo.path();
    let count = AtomicUsize::new(0);
    Handmade::new(move |asked, line| {
        if asked.path.ends_with(path) && count.fetch_add(1, Ordering::SeqCst) < times {
            line.answer(head, body);
        } else {
            line.serve(asked, fs::read(root.join(&asked.path[1..])).ok().as_deref());
        }
    })
}

#[test]
fn fetch_brings_what_a_trust_store_judges_and_the_manifest_it_lists() {
    let release = Release::new(1);
    let settings = settings(vec![release.directory()]);
    let package = "demo".parse().unwrap();
    Client::new().run(&settings, |fetcher| {
        let floor = floor(&release);
        let refreshed = fetcher.refresh(&floor, Some(&package), release.repo.now, Expiry::Strict);
        assert!(refreshed.outcome.unwrap().consistent_snapshot);
        let verification = by_hand::verify(&floor, &refreshed.files, release.repo.now, Expiry::Strict);
        let targets = verification.targets.unwrap();
        let (name, signed) = targets.listed().find(|(name, _)| *name == release.manifest_name).unwrap();
        assert_eq!(Digest::of(&fetcher.target(name, signed).unwrap()), release.manifest_target.hashes.sha256.unwrap());
        // From there on only what is newer is brought.
        let again = fetcher.refresh(&verification.floor, Some(&package), release.repo.now, Expiry::Strict);
        assert!(again.outcome.is_ok());
        assert_eq!(again.files.keys().collect::<Vec<_>>(), ["timestamp.json"]);
    });
}

#[test]
fn fetch_takes_no_server_error_for_no_newer_root() {
    let release = Release::new(1);
    let refresh = |mirrors: Vec<Mirror>| {
        let client = Client::new();
        let mut settings = settings(mirrors);
        settings.patience.attempts = 2;
        let outcome = client.run(&settings, |fetcher| {
            fetcher.refresh(&floor(&release), None, release.repo.now, Expiry::Strict).outcome
        });
        outcome.map_err(|error| error.to_string())
    };
    for head in ["500 Internal Server Error", "503 Service Unavailable", "401 Unauthorized", "204 No Content"] {
        let mirror_of = spoiled(&release, "2.root.json", head, b"", usize::MAX);
        let error = refresh(vec![mirror(&mirror_of.url())]).unwrap_err();
        assert!(error.contains(&head[..3]), "{error}");
        assert!(
            !mirror_of.heads().iter().any(|head| head.contains("timestamp")),
            "{head} was taken for: there is none"
        );
    }
    for head in ["404 Not Found", "403 Forbidden"] {
        let mirror_of = spoiled(&release, "2.root.json", head, b"", usize::MAX);
        assert!(refresh(vec![mirror(&mirror_of.url())]).is_ok(), "{head}");
    }
}

#[test]
fn fetch_names_a_mirror_whose_metadata_is_refused_and_goes_to_the_next() {
    let release = Release::new(1);
    let evil = spoiled(&release, "/1.snapshot.json", "200 OK", b"{}", usize::MAX);
    let empty = Handmade::new(|_, line| line.answer("404 Not Found", b""));
    let refresh = |mirrors: Vec<Mirror>| {
        let client = Client::new();
        let refreshed = client.run(&settings(mirrors), |fetcher| {
            fetcher.refresh(&floor(&release), None, release.repo.now, Expiry::Strict)
        });
        (client.evil(), refreshed)
    };
    let (named, refreshed) = refresh(vec![mirror(&empty.url()), mirror(&evil.url()), release.directory()]);
    // Which of the versions the snapshot has does not matter here: the one that is published.
    let fresh = refreshed.outcome.unwrap();
    assert_eq!((named, fresh.mirror), (vec![evil.url()], release.directory().location.to_string()));
    let (_, refreshed) = refresh(vec![mirror(&evil.url()), mirror(&empty.url())]);
    let error = refreshed.outcome.unwrap_err();
    assert_eq!(error.class(), Class::NotTrusted);
    assert!(error.to_string().contains(&evil.url()) && error.to_string().contains(&empty.url()), "{error}");
    assert!(refreshed.files.contains_key("timestamp.json"), "what is valid is adopted all the same");
}

#[test]
fn fetch_asks_a_mirror_that_refused_or_gave_other_bytes_for_nothing_more_in_this_run() {
    let release = Release::new(1);
    let evil = [
        spoiled(&release, ".manifest.json.zst", "401 Unauthorized", b"", usize::MAX),
        spoiled(&release, ".manifest.json.zst", "200 OK", b"other bytes", usize::MAX),
        spoiled(&release, "timestamp.json", "200 OK", b"{}", usize::MAX),
        // Longer than signed, and told so before the first byte.
        spoiled(&release, ".manifest.json.zst", "200 OK", &[b' '; 16 << 10], usize::MAX),
    ];
    let mirrors = evil.iter().map(|evil| mirror(&evil.url())).chain([release.directory()]).collect();
    let client = Client::new();
    client.run(&settings(mirrors), |fetcher| {
        fetcher.target(&release.manifest_name, &release.manifest_target).unwrap();
        for _ in 0..2 {
            fetcher.refresh(&floor(&release), None, release.repo.now, Expiry::Strict).outcome.unwrap();
            fetcher.target(&release.manifest_name, &release.manifest_target).unwrap();
        }
    });
    // The third gave its manifest, and the fourth its metadata, before they gave what they may not.
    assert_eq!(evil.each_ref().map(|evil| evil.heads().len()), [1, 1, 3, 5]);
    assert_eq!(client.evil(), evil.each_ref().map(Handmade::url)[1..], "who lets nobody in is not evil");
}

#[test]
fn fetch_waits_as_long_as_a_busy_mirror_asks_and_then_goes_on() {
    let release = Release::new(1);
    for head in ["429 Too Many Requests\nRetry-After: 1", "503 Service Unavailable\nRetry-After: 1"] {
        let busy = spoiled(&release, ".manifest.json.zst", head, b"", 1);
        let client = Client::new();
        assert!(target_of(&client, &settings(vec![mirror(&busy.url())]), &release).is_ok());
        assert_eq!(busy.heads().len(), 2);
        let asked =
            |notice: &Notice| matches!(notice, Notice::Failed { pause, .. } if *pause == Duration::from_secs(1));
        assert!(client.was_told(asked), "{:?}", client.notices.borrow());
    }
    let busy = spoiled(&release, ".manifest.json.zst", "500 Internal Server Error", b"", 2);
    assert!(target_of(&Client::new(), &settings(vec![mirror(&busy.url())]), &release).is_ok());
    let busy = spoiled(&release, ".manifest.json.zst", "500 Internal Server Error", b"", usize::MAX);
    assert!(target_of(&Client::new(), &settings(vec![mirror(&busy.url())]), &release).is_err());
    assert_eq!(busy.heads().len(), 5, "not as often as the settings say");
}

#[test]
fn fetch_tells_not_there_from_not_to_be_had() {
    let release = Release::new(1);
    let empty = Handmade::new(|_, line| line.answer("404 Not Found", b""));
    let error = |mirrors| target_of(&Client::new(), &settings(mirrors), &release).unwrap_err();
    assert!(matches!(error(vec![mirror(&empty.url())]), FetchError::NotFound { .. }));
    // Where 403 means "not there" only the repository's owner knows: of a root that is believed, of nothing else.
    let closed = Handmade::new(|_, line| line.answer("403 Forbidden", b""));
    let refused = error(vec![mirror(&closed.url())]);
    assert!(matches!(refused, FetchError::Mirrors { .. }) && refused.to_string().contains("403"), "{refused}");
    let closed = spoiled(&release, "timestamp.json", "403 Forbidden", b"", usize::MAX);
    let refreshed = Client::new().run(&settings(vec![mirror(&closed.url())]), |fetcher| {
        fetcher.refresh(&floor(&release), None, release.repo.now, Expiry::Strict).outcome.unwrap_err()
    });
    assert!(refreshed.to_string().contains("403"), "{refreshed}");
    let down = mirror("http://127.0.0.1:9");
    assert!(matches!(error(vec![mirror(&empty.url()), down]), FetchError::Mirrors { .. }));
    assert!(target_of(&Client::new(), &settings(vec![mirror(&empty.url()), release.directory()]), &release).is_ok());
}

#[test]
fn fetch_reads_no_more_than_may_be() {
    let release = Release::new(1);
    let endless = Handmade::new(|_, line| {
        let _ = line.head("200 OK") && (0..4096).all(|_| line.send(&[b' '; 16 << 10]));
    });
    let client = Client::new();
    let mut settings = settings(vec![mirror(&endless.url())]);
    let outcome = client.run(&settings, |fetcher| {
        let outcome = fetcher.refresh(&floor(&release), None, release.repo.now, Expiry::Strict).outcome;
        assert!(fetcher.wire_bytes() < 2 << 20, "{} bytes were read", fetcher.wire_bytes());
        outcome
    });
    assert!(outcome.unwrap_err().to_string().contains("more than"));
    assert!(endless.sent() < 32 << 20, "{} bytes were taken", endless.sent());
    assert_eq!(client.evil(), [endless.url()]);
    let announced = Handmade::new(|_, line| {
        let _ = line.head("200 OK\nContent-Length: 99999999999");
        line.hold();
    });
    settings.mirrors = vec![mirror(&announced.url())];
    (settings.patience.stall, settings.patience.attempts) = (Duration::from_secs(2), 1);
    let error = target_of(&client, &settings, &release).unwrap_err();
    assert!(error.to_string().contains("announces"), "{error}");
    // One byte more than signed, and one less.
    for cut in [false, true] {
        let bytes = fs::read(release.stored(&release.manifest_name, &release.manifest_target)).unwrap();
        let other = if cut { bytes[1..].to_vec() } else { [&bytes[..], b"x"].concat() };
        let liar = Handmade::new(move |_, line| {
            let _ = line.head("200 OK") && line.send(&other);
        });
        settings.mirrors = vec![mirror(&liar.url()), release.directory()];
        let client = Client::new();
        assert!(target_of(&client, &settings, &release).is_ok());
        assert_eq!(client.evil(), [liar.url()]);
    }
}

#[test]
fn fetch_ends_when_its_time_is_over() {
    let release = Release::new(1);
    let silent = Handmade::new(|_, line| line.hold());
    let mut settings = settings(vec![mirror(&silent.url())]);
    settings.patience.total = Duration::from_millis(300);
    settings.patience.stall = Duration::from_secs(15);
    let begun = Instant::now();
    let error = target_of(&Client::new(), &settings, &release).unwrap_err();
    assert!(matches!(error, FetchError::OutOfTime { .. }), "{error}");
    assert!(begun.elapsed() < settings.patience.stall, "it waited for the mirror, and not for the end of its time");
}

#[test]
fn fetch_from_a_directory_follows_no_links_and_no_names_out_of_it() {
    let release = Release::new(1);
    let path = release.stored(&release.manifest_name, &release.manifest_target);
    let settings = settings(vec![release.directory()]);
    assert!(target_of(&Client::new(), &settings, &release).is_ok());
    let elsewhere = release.repo.directory.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(target_of(&Client::new(), &settings, &release).is_err());
    Client::new().run(&settings, |fetcher| {
        let error = fetcher.target("../../etc/passwd", &release.manifest_target).unwrap_err();
        assert!(matches!(error, FetchError::UnsafeName { .. }), "{error}");
    });
}
