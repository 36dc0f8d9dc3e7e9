//! The client under test of <https://github.com/theupdateframework/tuf-conformance>: sidle's TUF workflow behind that suite's command line, with the least
//! of HTTP that its loopback servers need. Not a program for anything else.
//!
//! The suite (2.4 or newer) cannot be installed by name with pip: take it from where it is developed, beside this project, with its Python requirements
//! (`pip install 'securesystemslib[crypto]' tuf pytest pytest-json-report`) and `faketime`. All of its tests pass, none is expected to fail:
//!
//! ```text
//! cargo build --example tuf_conformance
//! cd ../tuf-conformance && pytest tuf_conformance --entrypoint "$OLDPWD/target/debug/examples/tuf_conformance"
//! ```

#![expect(clippy::disallowed_methods, reason = "a program of its own, which reads and writes directories by itself")]

use jiff::Timestamp;
use sidle::os::clock;
use sidle::trust::request::encoded;
use sidle::trust::{Answer, DelegatedFiles, Expiry, Floor, MetadataRequest, Refresh, Role, target};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Longest wait for the server.
const WAIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tuf_conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `--metadata-dir D init ROOT`, `… --metadata-url U refresh`, `… --target-name T --target-base-url U --target-dir D download`.
#[derive(Default)]
struct Arguments {
    options: BTreeMap<String, String>,
    target_names: Vec<String>,
    words: Vec<String>,
}

impl Arguments {
    fn read(mut given: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut arguments = Self::default();
        while let Some(argument) = given.next() {
            let Some(option) = argument.strip_prefix("--") else {
                arguments.words.push(argument);
                continue;
            };
            let value = given.next().ok_or_else(|| format!("--{option} lacks its value"))?;
            if option == "target-name" {
                arguments.target_names.push(value);
            } else {
                arguments.options.insert(option.to_owned(), value);
            }
        }
        Ok(arguments)
    }

    fn option(&self, name: &str) -> Outcome<&str> {
        Ok(self.options.get(name).ok_or_else(|| format!("--{name} is missing"))?)
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let kept = Kept { directory: arguments.option("metadata-dir")?.into() };
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["init", root] => kept.put("root", Some(&fs::read(root)?)),
        ["refresh"] => refresh(arguments, &kept).map(|_| ()),
        ["download"] => {
            let refresh = refresh(arguments, &kept)?;
            arguments.target_names.iter().try_for_each(|name| download(arguments, &kept, &refresh, name))
        }
        _ => Err("the command is not init ROOT, refresh or download".into()),
    }
}

fn refresh(arguments: &Arguments, kept: &Kept) -> Outcome<Refresh> {
    let url = arguments.option("metadata-url")?;
    let mut refresh = Refresh::start(&kept.floor()?, clock::now(), Expiry::Strict)?;
    let outcome = drive(&mut refresh, url);
    // What was adopted before an error stays adopted.
    kept.store(&refresh.floor())?;
    outcome?;
    Ok(refresh)
}

fn drive(refresh: &mut Refresh, url: &str) -> Outcome<()> {
    while let Some(request) = refresh.request() {
        bring(url, &request, |answer| refresh.answer(answer))?;
    }
    Ok(())
}

fn download(arguments: &Arguments, kept: &Kept, refresh: &Refresh, name: &str) -> Outcome<()> {
    let before = kept.delegated()?;
    let mut delegated = before.clone();
    let outcome = search(arguments.option("metadata-url")?, refresh, name, &mut delegated);
    for (role, bytes) in delegated.iter().filter(|(role, bytes)| before.get(*role) != Some(*bytes)) {
        kept.put(role, Some(bytes))?;
    }
    let listed = outcome?;
    let place = Path::new(arguments.option("target-dir")?).join(encoded(name));
    let fits = |bytes: &[u8]| bytes.len() as u64 == listed.length && listed.hashes.fit(bytes);
    if read_if_exists(&place)?.is_some_and(|bytes| fits(&bytes)) {
        return Ok(());
    }
    let stored = target::stored(name, &listed.hashes, refresh.workflow().root().body.consistent_snapshot);
    let path = stored.split('/').map(encoded).collect::<Vec<_>>().join("/");
    let url = format!("{}/{path}", arguments.option("target-base-url")?.trim_end_matches('/'));
    match get(&url, listed.length)? {
        Some(bytes) if fits(&bytes) => Ok(fs::write(place, bytes)?),
        Some(_) => Err(format!("{name} is not what was signed").into()),
        None => Err(format!("{name} is not there").into()),
    }
}

fn search(
    url: &str,
    refresh: &Refresh,
    name: &str,
    delegated: &mut DelegatedFiles,
) -> Outcome<sidle::trust::metadata::Target> {
    let mut search = refresh.search(name, delegated)?;
    while let Some(request) = search.request() {
        bring(url, &request, |answer| search.answer(answer))?;
    }
    Ok(search.listed().ok_or_else(|| format!("{name} is signed by nobody"))?.target.clone())
}

fn bring(
    url: &str,
    request: &MetadataRequest,
    mut answer: impl FnMut(Answer<'_>) -> Result<(), sidle::trust::TrustError>,
) -> Outcome<()> {
    let url = format!("{}/{}", url.trim_end_matches('/'), request.url_segment());
    let answered = match get(&url, request.bytes_maximum) {
        Ok(Some(bytes)) => answer(Answer::File(&bytes)),
        Ok(None) => answer(Answer::NotFound),
        Err(error) => answer(Answer::Failed(&error.to_string())),
    };
    Ok(answered?)
}

/// The body behind an `http:` URL, one byte more than `bytes_maximum` at most; None: the server says that there is none.
fn get(url: &str, bytes_maximum: u64) -> Outcome<Option<Vec<u8>>> {
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or("no http: URL")?;
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let head_maximum = 64 * 1024;
    let mut bytes = Vec::new();
    stream.take(head_maximum + bytes_maximum + 1).read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or("the answer has no end of its head")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut body = bytes.split_off(end + 4);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
    match head.split_whitespace().nth(1) {
        Some("404" | "403") => Ok(None),
        Some("200") if length.is_some_and(|length| length != body.len() as u64 && length <= bytes_maximum) => {
            Err("the answer is cut off".into())
        }
        Some("200") => {
            body.truncate(usize::try_from(bytes_maximum)?.saturating_add(1));
            Ok(Some(body))
        }
        status => Err(format!("the server answers {}", status.unwrap_or("nothing")).into()),
    }
}

/// Trusted metadata: `ROLE.json` in a directory, the name of a delegated role percent-encoded.
struct Kept {
    directory: PathBuf,
}

impl Kept {
    fn get(&self, role: Role) -> Outcome<Option<Vec<u8>>> {
        read_if_exists(&self.directory.join(role.file()))
    }

    fn put(&self, role: &str, bytes: Option<&[u8]>) -> Outcome<()> {
        let path = self.directory.join(format!("{}.json", encoded(role)));
        let Some(bytes) = bytes else {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            };
        };
        let temporary = path.with_extension("new");
        fs::write(&temporary, bytes)?;
        Ok(fs::rename(temporary, path)?)
    }

    fn floor(&self) -> Outcome<Floor> {
        Ok(Floor {
            delegated: sidle::trust::DelegatedFiles::new(),
            timestamp: self.get(Role::Timestamp)?,
            snapshot: self.get(Role::Snapshot)?,
            targets: self.get(Role::Targets)?,
            last_seen: None::<Timestamp>,
            root: self.get(Role::Root)?.ok_or("nothing is trusted yet: init first")?,
        })
    }

    fn store(&self, floor: &Floor) -> Outcome<()> {
        self.put("root", Some(&floor.root))?;
        self.put("targets", floor.targets.as_deref())?;
        self.put("snapshot", floor.snapshot.as_deref())?;
        self.put("timestamp", floor.timestamp.as_deref())
    }

    fn delegated(&self) -> Outcome<DelegatedFiles> {
        let mut files = DelegatedFiles::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let role = name.strip_suffix(".json").and_then(decoded);
            let is_top = Role::ALL.iter().any(|role| role.file() == name);
            if let Some(role) = role.filter(|_| !is_top) {
                files.insert(role, fs::read(entry.path())?);
            }
        }
        Ok(files)
    }
}

fn read_if_exists(path: &Path) -> Outcome<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(if byte == b'%' { digit()? << 4 | digit()? } else { byte });
    }
    String::from_utf8(bytes).ok()
}
