//! `--repository stdio:`: the program that starts sidle has the repository, and is believed no more than any mirror.

use crate::support::answers::{Then, answering, answering_as, honestly, send, wanted};
use crate::support::stage::{Author, DEMO, Host, sidle, text};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;

/// Bytes that no compressor makes smaller.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    (0..count).map(|_| next()).collect()
}

/// Parts of a payload that were asked for.
fn parts(asked: &[Value]) -> Vec<&Value> {
    asked.iter().filter(|request| request["ask"].as_str().unwrap().ends_with(".payload.tar.zst")).collect()
}

fn bytes(request: &Value) -> u64 {
    request["to"].as_u64().unwrap() - request["from"].as_u64().unwrap()
}

#[test]
fn only_missing_frames_are_asked_for_and_a_host_is_set_up_without_naming_a_place() {
    let author = Author::new();
    author.release_with("1.0", |tree| fs::write(tree.join("share/large"), noise(1, 200_000)).unwrap());
    let repository = author.repository();
    let honest = |request: &Value, pipe: &mut dyn Write| honestly(&repository, request, pipe);

    let host = Host::bare();
    let fingerprint = author.fingerprint();
    let line = ["setup", "--fingerprint", &fingerprint, "--package", DEMO];
    let (_, ran) = answering(&host, &line, honest);
    assert_eq!((ran.code, &ran.json()["release"]), (Some(0), &json!("1.0-1")), "{ran:?}");
    assert!(!host.path("etc/sidle/conf.d").exists(), "it wrote settings for a place that is none");
    assert_eq!(answering(&host, &line, honest).1.code, Some(3));

    author.release_with("1.1", |tree| fs::write(tree.join("share/large"), noise(1, 200_000)).unwrap());
    // Answers without a size, in small pieces, and with a failure that passes.
    let mut has_failed = false;
    let (asked, ran) = answering(&host, &["install", DEMO], |request, pipe| {
        let Some((bytes, _)) = wanted(&repository, request) else { return send(&json!({"absent": true}), b"", pipe) };
        if bytes.len() > 10 && !has_failed {
            has_failed = true;
            return send(&json!({"error": "the master does not answer"}), b"", pipe);
        }
        let piece = &bytes[..bytes.len().min(100)];
        send(&json!({"bytes": piece.len()}), piece, pipe)
    });
    assert_eq!((ran.code, &ran.json()["release"]), (Some(0), &json!("1.1-1")), "{ran:?}");
    assert!(ran.stderr.contains("standard input failed; next attempt"), "{ran:?}");
    let most = parts(&asked).iter().map(|request| bytes(request)).max().unwrap();
    assert!(most < 10_000, "the large file is there already, but {most} bytes were asked for");
    assert_eq!(host.sidle(&["verify", DEMO, "1.1-1", "--full"]).code, Some(0));
}

#[test]
fn after_a_cut_the_next_run_asks_for_the_rest() {
    let author = Author::new();
    author.release_with("1.0", |tree| {
        for number in 0..3 {
            fs::write(tree.join(format!("share/large{number}")), noise(number, 9 << 20)).unwrap();
        }
    });
    let (host, repository) = (Host::new(&author), author.repository());
    let mut first = 0;
    let (_, ran) = answering(&host, &["install", DEMO], |request, pipe| {
        let Some(from) = request["from"].as_u64() else { return honestly(&repository, request, pipe) };
        // Cut in the middle of the payload, in the middle of a frame.
        first = request["to"].as_u64().unwrap() - from;
        let (bytes, total) = wanted(&repository, request).unwrap();
        send(&json!({"bytes": bytes.len(), "total": total}), &bytes[..bytes.len() * 2 / 3], pipe);
        Then::Close
    });
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("standard input: standard input ended"), "{message}");
    assert_eq!(ran.json()["error"]["reason"], "standard-input", "a program knows its own pipe by this word");
    let (asked, ran) = answering(&host, &["install", DEMO], |request, pipe| honestly(&repository, request, pipe));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let again: u64 = parts(&asked).iter().map(|request| bytes(request)).sum();
    assert!(first > 27 << 20 && again < first * 2 / 3, "{again} bytes of {first} were asked for again");
}

#[test]
fn what_a_person_carries_may_be_older_than_what_the_host_has_seen() {
    let author = Author::new();
    author.release("1.0", "good");
    let older = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(author.repository()).arg(older.path()).status();
    assert!(copied.unwrap().success());
    let older = older.path().join("repository");
    author.release("1.1", "good");
    let host = Host::new(&author);
    let place = |repository: &std::path::Path| format!("file://{}", text(repository));
    let newest = format!("{DEMO}@1.1-1");
    host.sidle(&["install", &newest, "--repository", &place(&author.repository())]).ok();
    // A mirror that is behind is refused, as ever.
    let mirror = host.sidle(&["install", DEMO, "--repository", &place(&older)]);
    assert!(mirror.code == Some(7) && mirror.stderr.contains("timestamp.json"), "{mirror:?}");

    let by_hand = |host: &Host, what: &str| {
        answering_as("stdio:by-hand", host, &["install", what], |request, pipe| honestly(&older, request, pipe)).1
    };
    // A program that nobody stands behind is a mirror, too.
    let (_, ran) = answering(&host, &["install", DEMO], |request, pipe| honestly(&older, request, pipe));
    assert!(ran.code == Some(7) && ran.stdout.contains("timestamp.json"), "{ran:?}");
    let ran = by_hand(&host, DEMO);
    assert_eq!((ran.code, &ran.json()["release"]), (Some(0), &json!("1.0-1")), "{ran:?}");
    assert!(ran.stderr.contains("is older than the trusted metadata"), "{ran:?}");

    let repository = author.repository();
    for words in [["repo", "withdraw"], ["repo", "publish"]] {
        let (what, key) = (format!("{DEMO}@1.0-1"), author.key());
        let rest: &[&str] = if words[1] == "withdraw" { &[&what] } else { &["--key", text(&key)] };
        sidle(&[&words[..], &[text(&repository)], rest].concat(), &[]).ok();
    }
    let withdrawn = Host::new(&author);
    withdrawn.sidle(&["install", &newest, "--repository", &place(&author.repository())]).ok();
    let ran = by_hand(&withdrawn, &format!("{DEMO}@1.0-1"));
    assert!(ran.code == Some(7) && ran.stdout.contains("withdrawn"), "{ran:?}");
    let ran = by_hand(&withdrawn, DEMO);
    assert!(ran.code == Some(1) && ran.stdout.contains("1.1-1"), "{ran:?}");
}

/// What is answered to a request for a part of the payload, of these bytes: the line, and bytes behind it.
type Lie = Box<dyn Fn(&[u8]) -> (String, Vec<u8>)>;

#[test]
fn hostile_answers_are_refused_with_their_reason() {
    let author = Author::new();
    author.release("1.0", "good");
    let repository = author.repository();
    let settings = "[repository]\nstall_timeout = \"1s\"\n";
    // With the reason, and the exit code.
    let size = |bytes: &[u8]| bytes.len();
    let lies: [(Lie, &str, i32); 8] = [
        (Box::new(move |bytes| (json!({"bytes": size(bytes) + 1}).to_string(), bytes.to_vec())), "announces", 1),
        (
            Box::new(move |bytes| (json!({"bytes": size(bytes), "total": 5}).to_string(), bytes.to_vec())),
            "a part of 5 bytes where the file has",
            1,
        ),
        (Box::new(|_| (json!({"bytes": 0}).to_string(), Vec::new())), "announces no bytes", 1),
        (
            Box::new(move |bytes| (json!({"bytes": size(bytes)}).to_string(), vec![7; size(bytes)])),
            "no mirror had the bytes that were signed",
            6,
        ),
        (Box::new(|_| ("HTTP/1.1 200 OK".to_owned(), Vec::new())), "can't be read", 1),
        (Box::new(|_| (json!({"absent": false}).to_string(), Vec::new())), "says not one of", 1),
        (Box::new(|_| ("x".repeat(5000), Vec::new())), "more than 4096 bytes", 1),
        (Box::new(move |bytes| (json!({"bytes": size(bytes)}).to_string(), Vec::new())), "was silent for 1.0 s", 1),
    ];
    for (lie, reason, code) in lies {
        let host = Host::new(&author);
        fs::write(host.path("etc/sidle/conf.d/patience.toml"), settings).unwrap();
        let (asked, ran) = answering(&host, &["install", DEMO], |request, pipe| {
            if request.get("from").is_none() {
                return honestly(&repository, request, pipe);
            }
            let (line, bytes) = lie(&wanted(&repository, request).unwrap().0);
            let _ = pipe.write_all(format!("{line}\n").as_bytes()).and_then(|()| pipe.write_all(&bytes));
            Then::GoOn
        });
        let message = ran.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(ran.code == Some(code) && message.contains(reason), "{reason}: {ran:?}");
        assert_eq!(parts(&asked).len(), 1, "{reason}: it was asked again");
        assert!(!host.path("opt/sidle/demo-agent/versions/1.0-1").exists(), "{reason}");
    }
    // Metadata longer than any may be is refused before it is read.
    let (_, ran) = answering(&Host::new(&author), &["install", DEMO], |_, pipe| {
        send(&json!({"bytes": 1_u64 << 40, "total": 1_u64 << 40}), b"", pipe)
    });
    assert!(ran.code == Some(1) && ran.stdout.contains("are allowed"), "{ran:?}");
}

#[test]
fn people_and_settings_are_told_that_it_is_for_programs() {
    let author = Author::new();
    let host = Host::new(&author);
    let line = ["--root", text(&host.root()), "install", DEMO, "--repository", "stdio:"].map(str::to_owned);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let ran = sidle(&line, &[]);
    assert!(ran.code == Some(2) && ran.stderr.contains("add --json"), "{ran:?}");
    let ran = sidle(&[&line[..], &["--json", "--repository", "stdio:"]].concat(), &[]);
    assert!(ran.code == Some(2) && ran.stdout.contains("name stdio: once"), "{ran:?}");
    fs::write(host.path("etc/sidle/conf.d/own.toml"), "[repository]\nurl = \"stdio:\"\n").unwrap();
    let ran = host.sidle(&["install", DEMO]);
    assert!(ran.code == Some(2) && ran.stderr.contains("settings can't name it"), "{ran:?}");
}
