//! Metadata that comes as gzip, and the question whether there is a next root: what they spare, and what they open no way to.

use super::*;
use crate::support::mirrors::{Asked, Handmade, Line};
use flate2::Compression;
use flate2::write::GzEncoder;
use sidle::repository::Rotation;
use sidle::trust::publish::Lifetimes;
use sidle::trust::{Expiry, Floor, MetadataFiles};
use std::io::Write as _;

/// As the author's guide has it for nginx, and what a distribution's `mime.types` says of JSON; a server that would pack targets, too, if it were let.
pub fn as_the_guide_says() -> String {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/authors.md")).unwrap();
    let ours = |line: &&str| line.starts_with("    gzip on;") || line.starts_with("    server_tokens off;");
    let lines: Vec<&str> = guide.lines().filter(ours).map(|line| line.split('#').next().unwrap()).collect();
    assert_eq!(lines.len(), 2, "the guide's lines for nginx are elsewhere");
    format!("{}\ntypes {{ application/json json zst; }}", lines.join("\n"))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn renew_root(repo: &RepoBuilder) {
    let rotation = Rotation { role: "root".parse().unwrap(), add: Vec::new(), remove: Vec::new(), threshold: None };
    let mut repository = repo.open();
    repository.rotate(&rotation, &Lifetimes::default(), repo.now).unwrap();
    repository.sign(&repo.offline).unwrap();
    drop(repository);
    repo.publish();
}

/// A refresh from the first root: what came, or what went wrong.
pub fn refresh(client: &Client, settings: &DownloadSettings, release: &Release) -> Result<MetadataFiles, String> {
    let floor = Floor::new(release.repo.root());
    let refreshed = client.run(settings, |fetcher| fetcher.refresh(&floor, None, release.repo.now, Expiry::Strict));
    refreshed.outcome.map(|_| refreshed.files).map_err(|error| error.to_string())
}

/// A proper server, but for the requests that `other` answers.
pub fn server(release: &Release, other: impl Fn(&Asked, &mut Line, &[u8]) -> bool + Send + Sync + 'static) -> Handmade {
    let root = release.repo.path();
    Handmade::new(move |asked, line| {
        let file = fs::read(root.join(&asked.path[1..])).ok();
        if !other(asked, line, file.as_deref().unwrap_or_default()) {
            line.serve(asked, file.as_deref());
        }
    })
}

pub fn method(head: &str) -> &str {
    head.split(' ').next().unwrap()
}

#[test]
fn fetch_believes_nobody_who_refuses_the_question_for_a_next_root() {
    let release = Release::new(1);
    renew_root(&release.repo);
    let is_root = |asked: &Asked| asked.path.ends_with("2.root.json");
    for head in ["405 Method Not Allowed", "403 Forbidden", "501 Not Implemented", "400 Bad Request", "500 Broken"] {
        let strange = server(&release, move |asked, line, _| {
            let refused = method(&asked.head) == "HEAD" && is_root(asked);
            if refused {
                line.answer(head, b"");
            }
            refused
        });
        let files = refresh(&Client::new(), &settings(vec![mirror(&strange.url())]), &release);
        assert!(files.unwrap().contains_key("2.root.json"), "{head} was taken for: there is none");
        let heads = strange.heads();
        let asked = heads.iter().filter(|head| head.contains("2.root.json")).map(|head| method(head));
        assert_eq!(asked.collect::<Vec<_>>(), ["HEAD", "GET"], "{head}");
    }
    // One that is busy is not asked for more at once.
    let busy = server(&release, move |asked, line, _| {
        if is_root(asked) {
            line.answer("503 Service Unavailable\nRetry-After: 0", b"");
        }
        is_root(asked)
    });
    let mut settings = settings(vec![mirror(&busy.url())]);
    settings.patience.attempts = 2;
    let error = refresh(&Client::new(), &settings, &release).unwrap_err();
    assert!(error.contains("503"), "{error}");
    assert_eq!(busy.heads().iter().map(|head| method(head)).collect::<Vec<_>>(), ["HEAD", "HEAD"]);
}

/// Two caches of different ages behind one name looked like a rollback, and like an attack.
#[test]
fn fetch_asks_caches_on_the_way_for_what_is_there_now() {
    let release = Release::new(1);
    let server = server(&release, |_, _, _| false);
    refresh(&Client::new(), &settings(vec![mirror(&server.url())]), &release).unwrap();
    let heads = server.heads();
    let is_current = |head: &&String| head.to_lowercase().contains("cache-control: no-cache");
    let (current, others): (Vec<_>, Vec<_>) = heads.iter().partition(is_current);
    let all_are = |heads: &[&String], names: &[&str]| {
        heads.iter().all(|head| names.iter().any(|name| head.lines().next().unwrap().contains(name)))
    };
    assert!(current.len() == 2 && all_are(&current, &["/timestamp.json ", "/2.root.json "]), "{heads:?}");
    assert!(others.len() >= 2 && all_are(&others, &[".snapshot.json ", ".targets.json "]), "{heads:?}");
}

/// Makes something else of a file's gzip.
pub type Spoil = fn(&[u8]) -> Vec<u8>;

#[test]
fn fetch_blames_a_mirror_for_gzip_that_is_none() {
    let release = Release::new(1);
    let spoils: [(&str, Spoil); 5] = [
        ("checksum", |file| {
            let mut bytes = gzip(file);
            let place = bytes.len() - 8;
            bytes[place] ^= 1;
            bytes
        }),
        ("can't be opened", |file| {
            let mut bytes = gzip(file);
            bytes[10] ^= 0b110; // the kind of the first block: one that doesn't exist
            bytes
        }),
        ("can't be opened", <[u8]>::to_vec),
        ("can't be opened", |file| [&gzip(file)[..], b"and more than a head of it"].concat()),
        ("cut off", |file| gzip(file)[..100].to_vec()),
    ];
    for (number, (reason, spoil)) in spoils.into_iter().enumerate() {
        let liar = server(&release, move |asked, line, file| {
            let is_meant = asked.path.ends_with("timestamp.json");
            if is_meant {
                line.answer("200 OK\nContent-Encoding: gzip", &spoil(file));
            }
            is_meant
        });
        let client = Client::new();
        let mut settings = settings(vec![mirror(&liar.url()), release.directory()]);
        settings.patience.attempts = 2;
        refresh(&client, &settings, &release).unwrap();
        let said = |notice: &Notice| match notice {
            Notice::Evil { reason: said, .. } => reason != "cut off" && said.contains(reason),
            Notice::Failed { reason: said, .. } => reason == "cut off" && said.contains(reason),
            _ => false,
        };
        assert!(client.was_told(said), "{number}, {reason}: {:?}", client.notices.borrow());
    }
}

#[test]
fn fetch_opens_no_more_of_gzip_than_the_file_may_have() {
    let release = Release::new(1);
    // Eight kilobytes of gzip for 8 MiB of blanks; then empty blocks without end.
    let bomb = gzip(&vec![b' '; 8 << 20]);
    assert!(bomb.len() < 16 << 10);
    let nothing = [&gzip(b"")[..10], &[0, 0, 0, 0xff, 0xff].repeat(4 << 20)[..]].concat();
    for (name, body, reason) in [("bomb", bomb, "more than the 16384 bytes"), ("nothing", nothing, "more gzip than")] {
        let evil = server(&release, move |asked, line, _| {
            let is_meant = asked.path.ends_with("timestamp.json");
            if is_meant {
                let _ = line.head("200 OK\nContent-Encoding: gzip") && line.send(&body);
            }
            is_meant
        });
        let client = Client::new();
        let floor = Floor::new(release.repo.root());
        let error = client.run(&settings(vec![mirror(&evil.url())]), |fetcher| {
            let outcome = fetcher.refresh(&floor, None, release.repo.now, Expiry::Strict).outcome;
            assert!(fetcher.wire_bytes() < 1 << 20, "{name}: {} bytes were read", fetcher.wire_bytes());
            outcome.unwrap_err().to_string()
        });
        assert!(error.contains(reason), "{name}: {error}");
        assert_eq!(client.evil(), [evil.url()]);
    }
    // Told before the first byte of it.
    let announced = server(&release, |asked, line, _| {
        let is_meant = asked.path.ends_with("timestamp.json");
        if is_meant {
            let _ = line.head("200 OK\nContent-Encoding: gzip\nContent-Length: 99999999");
            line.hold();
        }
        is_meant
    });
    let error = refresh(&Client::new(), &settings(vec![mirror(&announced.url())]), &release).unwrap_err();
    assert!(error.contains("announces"), "{error}");
}

#[test]
fn fetch_takes_no_encoding_that_it_did_not_ask_for() {
    let release = Release::new(1);
    let packer = server(&release, |asked, line, file| {
        let is_meant = asked.path.contains("/targets/");
        if is_meant {
            line.answer("200 OK\nContent-Encoding: gzip", &gzip(file));
        }
        is_meant
    });
    let client = Client::new();
    let settings_of = |url: &str| settings(vec![mirror(url), release.directory()]);
    target_of(&client, &settings_of(&packer.url()), &release).unwrap();
    client.frames(&settings_of(&packer.url()), &release, release.frames()).unwrap();
    assert_eq!(client.evil(), [packer.url(), packer.url()]);
    assert!(packer.heads().iter().all(|head| head.to_ascii_lowercase().contains("accept-encoding: identity")));
    let other = server(&release, |asked, line, file| {
        let is_meant = asked.path.ends_with(".snapshot.json");
        if is_meant {
            line.answer("200 OK\nContent-Encoding: br", file);
        }
        is_meant
    });
    let client = Client::new();
    refresh(&client, &settings_of(&other.url()), &release).unwrap();
    assert_eq!(client.evil(), [other.url()]);
}
