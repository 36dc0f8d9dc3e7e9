//! A mirror on the loopback that answers whatever it is asked with the same bytes, and then hangs up.

use sidle::bundle::manifest::Frame;
use sidle::bundle::source::FrameSource as _;
use sidle::digest::Digest;
use sidle::fetch::settings::{Access, Authorities, DownloadSettings, Mirror, Patience, Proxy};
use sidle::fetch::{Fetcher, Notice};
use sidle::os::place::{Effect, Place};
use sidle::trust::Floor;
use sidle::trust::metadata::{Hashes, Target};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long either side waits for the other. Nobody does where both are right: the mirror hangs up after each answer.
const PATIENCE: Duration = Duration::from_millis(500);

struct Stage {
    settings: DownloadSettings,
    cache: Place,
    answer: Arc<Mutex<Vec<u8>>>,
}

fn answer(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let (mut asked, mut some) = (Vec::new(), [0; 4096]);
    while !asked.ends_with(b"\r\n\r\n") {
        match stream.read(&mut some) {
            Ok(0) | Err(_) => return,
            Ok(count) => asked.extend_from_slice(&some[..count]),
        }
    }
    let _ = stream.write_all(answer);
}

thread_local! {
    // Made once, and kept for the life of the process: a place of the file system is one thread's own.
    static STAGE: &'static Stage = Box::leak(Box::new(stage()));
}

fn stage() -> Stage {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port on the loopback");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
    let given = Arc::clone(&bytes);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let bytes = given.lock().expect("nobody panics with it").clone();
            answer(stream, &bytes);
        }
    });
    let patience =
        Patience { connect: PATIENCE, stall: PATIENCE, total: 4 * PATIENCE, attempts: 1, pause: Duration::ZERO };
    let access = Access { authorities: Authorities::None, ..Access::default() };
    let mirrors = vec![Mirror { location: url.parse().expect("a URL"), access }];
    let settings = DownloadSettings { mirrors, proxy: Proxy::None, rate_limit: None, splay: Duration::ZERO, patience };
    let place = std::env::temp_dir().join(format!("sidle-fuzz-{}", std::process::id()));
    let cache = Place::open_or_create(&place, 0o700, Effect::Apply).expect("a directory for the cache");
    Stage { settings, cache, answer: bytes }
}

/// Asks for what the first byte says, and is answered with the rest.
pub(super) fn reply(data: &[u8]) {
    let Some((question, rest)) = data.split_first() else { return };
    let stage = STAGE.with(|stage| *stage);
    *stage.answer.lock().expect("nobody panics with it") = rest.to_vec();
    let tell = |_: &Notice| {};
    let mut fetcher = Fetcher::new(&stage.settings, &stage.cache, &tell).expect("the settings are right");
    let target = Target { length: 64, hashes: Hashes { sha256: Some(Digest::of(b"a")), sha512: None } };
    match question % 4 {
        0 => drop(fetcher.root(2, &|_| true)),
        1 => {
            let floor = Floor::new(include_bytes!("../../tests/golden/v1/1.root.json").to_vec());
            drop(fetcher.refresh(&floor, None, jiff::Timestamp::UNIX_EPOCH));
        }
        2 => drop(fetcher.target("demo/1.0-1/linux-any/manifest.json.zst", &target)),
        _ => {
            let part = |offset, content: &[u8]| Frame {
                offset,
                length: 8,
                sha256: Digest::of(content),
                content_length: 1,
                generation: 0,
            };
            let wanted = [part(8, b"12345678"), part(24, b"abcdefgh")];
            if let Ok(mut frames) = fetcher.frames("demo/1.0-1/linux-any/payload.tar.zst", &target, &wanted) {
                let _ = wanted.iter().try_for_each(|frame| frames.next(frame).map(drop));
            }
        }
    }
    // What one input left behind is none of the next one's business.
    let _ = fetcher.done(&target);
    let _ = fetcher.forget_broken(&target);
}
