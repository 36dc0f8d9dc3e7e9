//! Frames of a payload over ways that break, lie, stall and strip.

use super::*;
use crate::support::mirrors::{Asked, Handmade, Line};
use sidle::failure::Class;
use sidle::fetch::{Instead, Origin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub type Lie = Box<dyn Fn(&Asked, &mut Line, &[u8]) + Send + Sync>;

/// A frame of the middle, wanted from a mirror that answers so and from a good directory; gives what was told.
pub fn from_a_liar(
    release: &Release,
    lie: impl Fn(&Asked, &mut Line, &[u8]) + Send + Sync + 'static,
) -> (Client, Handmade, u64) {
    let file = release.bytes.clone();
    let liar = Handmade::new(move |asked, line| lie(asked, line, &file));
    let mut settings = settings(vec![mirror(&liar.url()), release.directory()]);
    settings.patience.stall = Duration::from_secs(2);
    let client = Client::new();
    let wire = client.frames(&settings, release, &release.large()[1..2]).unwrap();
    (client, liar, wire)
}

/// Sends bytes as the part `start..end` of a file of `total` bytes, and announces `length` bytes.
fn part(line: &mut Line, (start, end): (usize, usize), total: usize, length: usize, body: &[u8]) {
    let head =
        format!("206 Partial Content\nContent-Range: bytes {start}-{}/{total}\nContent-Length: {length}", end - 1);
    let _ = line.head(&head) && line.send(body);
}

/// Lies about ranges, and other bytes; each with what is said of it.
fn lies() -> Vec<(&'static str, Lie)> {
    vec![
        (
            "asked for",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                part(line, (start - 1, end - 1), file.len(), end - start, &file[start - 1..end - 1]);
            }),
        ),
        (
            "where the file has",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                part(line, (start, end), file.len() + 1, end - start, &file[start..end]);
            }),
        ),
        (
            "announces",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                part(line, (start, end), file.len(), end - start + 7, &file[start..end]);
            }),
        ),
        (
            "doesn't say which",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                line.answer("206 Partial Content", &file[start..end]);
            }),
        ),
        ("416", Box::new(|_, line, _| line.answer("416 Range Not Satisfiable", b""))),
        (
            "isn't what was signed",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                let mut body = file[start..end].to_vec();
                *body.last_mut().unwrap() ^= 1;
                part(line, (start, end), file.len(), end - start, &body);
            }),
        ),
        (
            "encoding",
            Box::new(|asked, line, file| {
                let (start, end) = asked.range().unwrap();
                let head = format!(
                    "206 Partial Content\nContent-Encoding: gzip\nContent-Range: bytes {start}-{}/{}",
                    end - 1,
                    file.len()
                );
                line.answer(&head, &file[start..end]);
            }),
        ),
    ]
}

#[test]
fn fetch_names_a_mirror_that_lies_about_ranges_or_gives_other_bytes() {
    let release = Release::new(24);
    for (reason, lie) in lies() {
        let (client, liar, _) = from_a_liar(&release, lie);
        assert_eq!(client.evil(), [liar.url()], "{reason}");
        let said = |notice: &Notice| matches!(notice, Notice::Evil { reason: said, .. } if said.contains(reason));
        assert!(client.was_told(said), "{reason}: {:?}", client.notices.borrow());
        assert_eq!(liar.heads().len(), 1, "{reason}: it was asked again");
    }
}

#[test]
fn fetch_of_two_mirrors_blames_the_one_whose_bytes_are_wrong() {
    let release = Release::new(16);
    let file = release.bytes.clone();
    // Wrong from the first byte on, and cut before the frame is whole, again and again: the good mirror must not be blamed for the sum.
    let liar = Handmade::new(move |asked, line| {
        let (start, end) = asked.range().unwrap();
        let range = format!("Content-Range: bytes {start}-{}/{}", end - 1, file.len());
        let head = format!("206 Partial Content\n{range}\nContent-Length: {}", end - start);
        let _ = line.head(&head) && line.send(&vec![0; 100_000.min(end - start - 1)]);
    });
    let file = release.bytes.clone();
    // So slow that the other one may be asked again each time.
    let good = Handmade::new(move |asked, line| {
        std::thread::sleep(Duration::from_millis(50));
        line.serve(asked, Some(&file));
    });
    let mut settings = settings(vec![mirror(&liar.url()), mirror(&good.url())]);
    settings.patience.total = Duration::from_secs(15);
    let client = Client::new();
    client.frames(&settings, &release, &release.large()[1..2]).unwrap();
    assert_eq!(client.evil(), [""; 0]);
    assert_eq!((liar.heads().len(), good.heads().len()), (2, 2), "once together, then each for itself");
}

#[test]
fn fetch_stops_reading_a_whole_where_a_part_was_asked_for() {
    let release = Release::new(24);
    let whole = |_: &Asked, line: &mut Line, file: &[u8]| line.answer("200 OK", file);
    // With a mirror that keeps ranges beside it, the one that doesn't is left at its first answer.
    let (client, stripper, wire) = from_a_liar(&release, whole);
    assert_eq!((client.evil().len(), stripper.heads().len()), (0, 1));
    assert!(client.was_told(|notice| matches!(notice, Notice::NoRanges { instead: Instead::FrameFiles, .. })));
    assert_eq!(wire, release.large()[1].length, "bytes of the whole were read");
    // Nothing waits for the rest of it: what went out is what sockets hold.
    assert!(stripper.sent() < release.payload.length / 2, "{} bytes were taken", stripper.sent());
}

#[test]
fn fetch_falls_back_to_the_frames_own_files_and_then_to_the_whole() {
    let release = Release::new(24);
    let root = release.repo.path();
    let serve = move |asked: &Asked, line: &mut Line| match fs::read(root.join(&asked.path[1..])) {
        Ok(file) => line.answer("200 OK", &file),
        Err(_) => line.answer("404 Not Found", b""),
    };
    let stripper = Handmade::new(serve);
    let settings = settings(vec![mirror(&stripper.url())]);
    let wanted = [release.large()[0], release.large()[2]];
    let paths = |from: usize| -> Vec<String> {
        stripper.heads()[from..]
            .iter()
            .map(|head| head.split(' ').nth(1).unwrap().rsplit('/').next().unwrap().to_owned())
            .collect()
    };
    let whole = format!("{}.payload.tar.zst", release.payload.hashes.sha256.unwrap());
    let file = |frame: &Frame| format!("{}.zst", frame.sha256);

    let client = Client::new();
    let wire = client.frames(&settings, &release, &wanted).unwrap();
    assert_eq!(paths(0), [whole.clone(), file(&wanted[0]), whole.clone()], "a range, a frame's file, the whole once");
    assert!(wire <= release.payload.length && wire >= wanted[1].offset + wanted[1].length);
    assert!(client.was_told(|notice| matches!(notice, Notice::NoRanges { instead: Instead::WholePayload, .. })));

    release.publish_frames();
    let asked = stripper.heads().len();
    let wire = Client::new().frames(&settings, &release, &wanted).unwrap();
    assert_eq!(paths(asked), [whole, file(&wanted[0]), file(&wanted[1])]);
    assert_eq!(wire, wanted[0].length + wanted[1].length);
}

#[test]
fn fetch_of_a_file_that_seems_to_change_goes_on_without_validators() {
    let release = Release::new(24);
    let count = AtomicUsize::new(0);
    let file = release.bytes.clone();
    // Several servers behind one name, each with tags of its own.
    let server = Handmade::new(move |asked, line| {
        let tag = format!("\"{}\"", count.fetch_add(1, Ordering::SeqCst));
        let range = asked.range().filter(|_| asked.header("if-range").is_none_or(|wanted| wanted == tag));
        let head = match range {
            Some((start, end)) => {
                format!("206 Partial Content\nContent-Range: bytes {start}-{}/{}\nETag: {tag}", end - 1, file.len())
            }
            None => format!("200 OK\nETag: {tag}"),
        };
        let (start, end) = range.unwrap_or((0, file.len()));
        line.answer(&head, &file[start..end]);
    });
    let wanted = [release.large()[0], release.large()[2]];
    let client = Client::new();
    let wire = client.frames(&settings(vec![mirror(&server.url())]), &release, &wanted).unwrap();
    assert_eq!(wire, wanted[0].length + wanted[1].length);
    let sent: Vec<bool> = server.heads().iter().map(|head| head.to_lowercase().contains("if-range: \"0\"")).collect();
    assert_eq!(sent, [false, true, false]);
}

#[test]
fn fetch_takes_the_third_mirror_where_one_is_evil_and_one_stalls() {
    let release = Release::new(16);
    let total = release.bytes.len();
    let evil = Handmade::new(move |asked, line| {
        let (start, end) = asked.range().unwrap();
        let head = format!("206 Partial Content\nContent-Range: bytes {start}-{}/{total}", end - 1);
        line.answer(&head, &vec![0; end - start]);
    });
    let file = release.bytes.clone();
    let stalled = Handmade::new(move |asked, line| {
        let (start, end) = asked.range().unwrap();
        let head = format!(
            "206 Partial Content\nContent-Range: bytes {start}-{}/{}\nContent-Length: {}",
            end - 1,
            file.len(),
            end - start
        );
        let _ = line.head(&head) && line.send(&file[start..start + 1000]);
        line.hold();
    });
    let mut settings = settings(vec![mirror(&evil.url()), mirror(&stalled.url()), release.directory()]);
    settings.patience.stall = Duration::from_millis(500);
    let client = Client::new();
    client.frames(&settings, &release, &release.large()[..1]).unwrap();
    assert_eq!(client.evil(), [evil.url()]);
    let stall = stalled.url();
    assert!(client.was_told(|notice| matches!(notice, Notice::Failed { mirror, reason, .. } if *mirror == stall && reason.contains("silent"))));
}

#[test]
fn fetch_leaves_a_mirror_that_trickles() {
    let release = Release::new(16);
    let file = release.bytes.clone();
    let slow = Handmade::new(move |asked, line| {
        let (start, end) = asked.range().unwrap();
        let head = format!(
            "206 Partial Content\nContent-Range: bytes {start}-{}/{}\nContent-Length: {}",
            end - 1,
            file.len(),
            end - start
        );
        let _ = line.head(&head);
        for byte in &file[start..end] {
            std::thread::sleep(Duration::from_millis(50));
            if !line.send(&[*byte]) {
                return;
            }
        }
    });
    let mut settings = settings(vec![mirror(&slow.url()), release.directory()]);
    settings.patience.stall = Duration::from_secs(1);
    let client = Client::new();
    client.frames(&settings, &release, &release.large()[..1]).unwrap();
    assert!(client.was_told(|notice| matches!(notice, Notice::Failed { reason, .. } if reason.contains("too slowly"))));
}

#[test]
fn fetch_keeps_verified_frames_for_another_run_and_believes_none_of_them() {
    let release = Release::new(24);
    let settings = settings(vec![release.directory()]);
    let client = Client::new();
    let large = release.large();
    let sum = |frames: &[Frame]| frames.iter().map(|frame| frame.length).sum::<u64>();
    assert_eq!(client.frames(&settings, &release, &large[..2]), Ok(sum(&large[..2])));
    assert_eq!(
        client.frames(&settings, &release, &large),
        Ok(sum(&large[2..])),
        "another run fetched again what was there"
    );
    let partial = client.cache.path().join("partial");
    let spoiled = partial.join(large[1].sha256.to_string());
    let mut bytes = fs::read(&spoiled).unwrap();
    bytes[5] ^= 1;
    fs::write(&spoiled, bytes).unwrap();
    assert_eq!(
        client.frames(&settings, &release, &large),
        Ok(large[1].length),
        "what changed was believed, or all was fetched"
    );
    assert!(client.was_told(|notice| matches!(notice, Notice::Spoiled { .. })));
    assert!(client.was_told(|notice| matches!(notice, Notice::Received { from: Origin::Kept, .. })));
    client.run(&settings, |fetcher| {
        fetcher.frames(&release.name, &release.payload, &large).unwrap();
        fetcher.done(&release.payload).unwrap();
    });
    assert_eq!(fs::read_dir(partial).unwrap().count(), 0);
}

#[test]
fn fetch_sweeps_old_parts_and_what_is_no_part() {
    let release = Release::new(16);
    let settings = settings(vec![release.directory()]);
    let client = Client::new();
    client.frames(&settings, &release, release.frames()).unwrap();
    let partial = client.cache.path().join("partial");
    let kept = fs::read_dir(&partial).unwrap().count();
    assert_eq!(kept, release.frames().len());
    let old = partial.join(release.frames()[0].sha256.to_string());
    let then = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    fs::File::options().write(true).open(old).unwrap().set_modified(then).unwrap();
    fs::write(partial.join("rubbish"), "").unwrap();
    client.run(&settings, |_| ());
    assert_eq!(fs::read_dir(&partial).unwrap().count(), kept - 1);
}

#[test]
fn fetch_remembers_a_payload_that_no_mirror_has_whole() {
    let release = Release::new(16);
    let path = release.stored(&release.name, &release.payload);
    let large = release.large();
    let mut bytes = release.bytes.clone();
    bytes[usize::try_from(large[0].offset).unwrap()] ^= 1;
    fs::write(&path, bytes).unwrap();
    let broken = settings(vec![release.directory()]);
    let client = Client::new();
    assert!(client.frames(&broken, &release, &large).unwrap_err().contains("not tried again before"));
    fs::write(&path, &release.bytes).unwrap();
    client.run(&broken, |fetcher| {
        let error = fetcher.frames(&release.name, &release.payload, &large).err().unwrap();
        assert!(matches!(error, FetchError::Broken { .. }) && error.class() == Class::Integrity, "{error}");
        fetcher.forget_broken(&release.payload).unwrap();
        assert!(fetcher.frames(&release.name, &release.payload, &large).is_ok());
    });
    // Blame is the mirror's, not the release's: another one is asked, also one that is named first or only now; the one to blame is not.
    fs::write(&path, vec![0; release.bytes.len()]).unwrap();
    let good = tempfile::tempdir().unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(release.repo.path().join(".")).arg(good.path()).status();
    assert!(copied.unwrap().success());
    fs::write(good.path().join(path.strip_prefix(release.repo.path()).unwrap()), &release.bytes).unwrap();
    let good = mirror(&format!("file://{}", good.path().display()));
    let client = Client::new();
    client.frames(&broken, &release, &large).unwrap_err();
    client.frames(&settings(vec![release.directory(), good.clone()]), &release, &large).unwrap();
    assert_eq!(client.evil().len(), 1, "it was asked again: {:?}", client.notices.borrow());
    let client = Client::new();
    client.frames(&broken, &release, &large).unwrap_err();
    client.frames(&settings(vec![good]), &release, &large).unwrap();
    // A mirror that only can't be reached may have it: nothing is remembered.
    fs::write(&path, vec![0; release.bytes.len()]).unwrap();
    let unknown = settings(vec![release.directory(), mirror("http://127.0.0.1:9")]);
    let client = Client::new();
    for _ in 0..2 {
        let error = client.frames(&unknown, &release, &large).unwrap_err();
        assert!(error.contains("isn't what was signed") && error.contains("can't be reached"), "{error}");
    }
}

#[test]
fn fetch_is_not_faster_than_its_limit() {
    let release = Release::new(16);
    let settings = DownloadSettings { rate_limit: Some(4 << 20), ..settings(vec![release.directory()]) };
    let begun = Instant::now();
    let wire = Client::new().frames(&settings, &release, &release.large()[..1]).unwrap();
    // The last piece has its time after it.
    let least = Duration::from_millis((wire - (64 << 10)) * 1000 / (4 << 20));
    assert!(begun.elapsed() >= least, "{wire} bytes within {:?}", begun.elapsed());
}
