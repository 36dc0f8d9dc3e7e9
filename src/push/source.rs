//! What hosts ask for while they set themselves up (`--repository stdio:`, docs/formats.md): the files of a repository's directory, or the members of a
//! bundle file. Hosts are strangers: they get what is below `metadata/` and `targets/`, and nothing else. They verify every byte themselves.

use crate::bundle::file::BundleReader;
use crate::bundle::member::{MemberName, ReleaseFile, ReleaseId};
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, file};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Most bytes of one answer: a host that asks for more asks again (docs/formats.md). They are in memory, for each host that is served at a time.
const ANSWER_BYTES_MAXIMUM: u64 = 2 << 20;

/// A repository, held by this host.
#[derive(Debug)]
pub enum Source {
    /// A directory with `metadata/` and `targets/`.
    Directory(Dir),
    /// A bundle file.
    Bundle(Bundle),
}

/// A bundle file and its members.
#[derive(Debug)]
pub struct Bundle {
    file: File,
    small: BTreeMap<String, Vec<u8>>,
    payloads: BTreeMap<String, Range<u64>>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Request {
    ask: String,
    maximum: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
}

/// The answer: a line, then bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// These bytes of a file of `total`.
    Bytes {
        /// Them.
        bytes: Vec<u8>,
        /// The size of the file.
        total: u64,
    },
    /// There is no such file.
    Absent,
    /// It cannot be given, for this reason.
    Refused(String),
}

impl Request {
    /// A line of a host, if it is a request; any other line is its result.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

impl Answer {
    /// The answer as it is sent: a line, then bytes.
    pub fn encoded(self) -> (String, Vec<u8>) {
        match self {
            Self::Bytes { bytes, total } => (format!("{{\"bytes\":{},\"total\":{total}}}\n", bytes.len()), bytes),
            Self::Absent => ("{\"absent\":true}\n".to_owned(), Vec::new()),
            Self::Refused(reason) => (format!("{}\n", serde_json::json!({"error": reason})), Vec::new()),
        }
    }
}

impl Bundle {
    /// Opens a bundle file. Its form is checked, and the digests of its payloads; hosts judge the rest.
    pub fn open(path: &Path) -> Result<Self, Report> {
        let file = file::open(path)?;
        let position = || (&file).stream_position().map_err(|source| OsError::new("read", path, source));
        let (head, mut reader) = BundleReader::open(&file)?;
        let mut small: BTreeMap<String, Vec<u8>> =
            head.metadata.into_iter().map(|(name, bytes)| (MemberName::Metadata(name).to_string(), bytes)).collect();
        for release in head.releases {
            let mut add = |file, bytes| small.insert(MemberName::Small(release.id.clone(), file).to_string(), bytes);
            add(ReleaseFile::Manifest(release.manifest_digest), release.manifest);
            add(ReleaseFile::Checksums, release.checksums);
            add(ReleaseFile::Signature, release.signature);
        }
        let mut payloads = BTreeMap::new();
        while let Some(payload) = reader.next_payload()? {
            if let Some(part) = payload.part {
                let message =
                    format!("cannot push from {}: it has only what changed since {}", path.display(), part.since());
                let hint = "name a bundle file with the whole release: each host asks for the pieces that it lacks";
                return Err(Report::of(Class::Usage, message).hint(hint));
            }
            let begin = position()?;
            let name = MemberName::Payload(payload.id, payload.digest).to_string();
            payloads.insert(name, begin..begin.saturating_add(payload.length));
        }
        reader.finish()?;
        Ok(Self { file, small, payloads })
    }

    /// The releases in it.
    pub fn releases(&self) -> impl Iterator<Item = ReleaseId> + '_ {
        self.payloads.keys().filter_map(|name| match name.parse() {
            Ok(MemberName::Payload(id, _)) => Some(id),
            Ok(_) | Err(_) => None,
        })
    }
}

impl Source {
    /// The first root, whose fingerprint a person has named.
    pub fn first_root(&self) -> Answer {
        let maximum = Some(crate::trust::limits::ROOT_BYTES_MAXIMUM as u64);
        self.answer(&Request { ask: "metadata/1.root.json".to_owned(), maximum, from: None, to: None })
    }

    /// The releases of a package whose files are here. Which of them are published only the metadata says, which hosts verify.
    pub fn releases(&self, package: &PackageName) -> Result<Vec<ReleaseId>, Report> {
        match self {
            Self::Directory(directory) => releases_below(directory, package),
            Self::Bundle(bundle) => Ok(bundle.releases().filter(|id| id.package == *package).collect()),
        }
    }

    /// The answer to a request.
    pub fn answer(&self, request: &Request) -> Answer {
        if !is_published(&request.ask) {
            return Answer::Refused("no such file is published".to_owned());
        }
        let found = match self {
            Self::Directory(directory) => in_directory(directory, request),
            Self::Bundle(bundle) => bundle.answer(request),
        };
        found.unwrap_or_else(|error| Answer::Refused(error.to_string()))
    }
}

impl Bundle {
    fn answer(&self, request: &Request) -> io::Result<Answer> {
        if let Some(bytes) = self.small.get(&request.ask) {
            return bytes_of(request, bytes.len() as u64, |part| {
                let (from, to) = (usize::try_from(part.start), usize::try_from(part.end));
                let part = from.ok().zip(to.ok()).and_then(|(from, to)| bytes.get(from..to));
                part.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            });
        }
        let Some(place) = self.payloads.get(&request.ask) else { return Ok(Answer::Absent) };
        bytes_of(request, place.end - place.start, |part| {
            read_at(&self.file, place.start + part.start..place.start + part.end)
        })
    }
}

/// The releases that have a directory below `targets/PACKAGE`.
fn releases_below(directory: &Dir, package: &PackageName) -> Result<Vec<ReleaseId>, Report> {
    let Some(targets) = directory.child_if_exists("targets")? else { return Ok(Vec::new()) };
    let Some(releases) = targets.child_if_exists(package.as_str())? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for release in directories(&releases)? {
        for platform in directories(&releases.child(&release)?)? {
            let name = format!("{package}/{}/{}", release.to_string_lossy(), platform.to_string_lossy());
            found.extend(name.parse::<ReleaseId>().ok());
        }
    }
    Ok(found)
}

fn directories(place: &Dir) -> Result<Vec<OsString>, Report> {
    let entries = place.entries()?.into_iter();
    Ok(entries.filter(|(_, kind)| *kind == FileKind::Directory).map(|(name, _)| name).collect())
}

fn in_directory(directory: &Dir, request: &Request) -> io::Result<Answer> {
    let path = Path::new(&request.ask);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Answer::Absent) };
    let absent = |error: &OsError| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let parent = match directory.beneath(parent) {
        Ok(parent) => parent,
        Err(error) if absent(&error) => return Ok(Answer::Absent),
        Err(error) => return Err(error.answer),
    };
    match parent.stat(name).map_err(|error| error.answer)? {
        Some(stat) if stat.kind == FileKind::File => {
            let file = parent.open_file(name).map_err(|error| error.answer)?;
            bytes_of(request, stat.size, |part| read_at(&file, part))
        }
        Some(_) | None => Ok(Answer::Absent),
    }
}

fn bytes_of(request: &Request, total: u64, read: impl FnOnce(Range<u64>) -> io::Result<Vec<u8>>) -> io::Result<Answer> {
    let refused = |reason: &str| Ok(Answer::Refused(reason.to_owned()));
    let part = match (request.maximum, request.from, request.to) {
        (Some(maximum), None, None) if total > maximum => return refused("the file is larger than you allow"),
        (Some(_), None, None) => 0..total.min(ANSWER_BYTES_MAXIMUM),
        (None, Some(from), Some(to)) if from < to && to <= total => from..to.min(from + ANSWER_BYTES_MAXIMUM),
        (None, Some(_), Some(_)) => return refused("the file has no such bytes"),
        _ => return refused("the request has neither `maximum` nor `from` and `to`"),
    };
    Ok(Answer::Bytes { bytes: read(part)?, total })
}

fn read_at(file: &File, part: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(part.end - part.start).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, part.start)?;
    Ok(bytes)
}

/// Whether a repository publishes a file of this name: nothing beside its two directories is anybody's.
fn is_published(path: &str) -> bool {
    let mut parts = path.split('/');
    let first = parts.next();
    let harmless = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    matches!(first, Some("metadata" | "targets")) && path.contains('/') && parts.all(harmless)
}

/// Refuses a source whose first root is not the one that a person has named: before any host is asked.
pub fn check_fingerprint(source: &Source, fingerprint: &crate::digest::Digest, place: &str) -> Result<(), Report> {
    let found = match source.first_root() {
        Answer::Bytes { bytes, .. } => crate::digest::Digest::of(&bytes),
        Answer::Absent => {
            return Err(Report::of(
                Class::Failed,
                format!("cannot use {place} as a repository: it has no metadata/1.root.json"),
            )
            .hint("name the directory that has `metadata` and `targets` in it, or a bundle file"));
        }
        Answer::Refused(reason) => return Err(Report::of(Class::Failed, format!("cannot read {place}: {reason}"))),
    };
    if found == *fingerprint {
        return Ok(());
    }
    let message = format!("cannot trust {place}: the fingerprint of its first root is {found}, not {fingerprint}");
    Err(Report::of(Class::NotTrusted, message).hint("ask the repository's owner for the fingerprint; do not force"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;

    fn ask(source: &Source, text: &str) -> Answer {
        source.answer(&Request::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn no_answer_is_larger_than_a_part_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("targets")).unwrap();
        let total = 3 * ANSWER_BYTES_MAXIMUM;
        std::fs::File::create(directory.path().join("targets/x")).unwrap().set_len(total).unwrap();
        let source = Source::Directory(Dir::open(directory.path()).unwrap());
        for request in [
            format!(r#"{{"ask":"targets/x","maximum":{total}}}"#),
            format!(r#"{{"ask":"targets/x","from":0,"to":{total}}}"#),
            format!(r#"{{"ask":"targets/x","from":5,"to":{total}}}"#),
        ] {
            let Answer::Bytes { bytes, total: told } = ask(&source, &request) else { panic!("{request}") };
            assert_eq!((bytes.len() as u64, told), (ANSWER_BYTES_MAXIMUM, total), "{request}");
        }
    }

    #[test]
    fn a_host_gets_published_files_in_parts_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        for below in ["metadata", "targets/p", "keys"] {
            std::fs::create_dir_all(directory.path().join(below)).unwrap();
        }
        std::fs::write(directory.path().join("targets/p/x"), "0123456789").unwrap();
        std::fs::write(directory.path().join("keys/secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../../keys/secret", directory.path().join("targets/p/link")).unwrap();
        let source = Source::Directory(Dir::open(directory.path()).unwrap());
        let bytes = |text: &str| Answer::Bytes { bytes: text.into(), total: 10 };
        assert_eq!(ask(&source, r#"{"ask":"targets/p/x","maximum":10}"#), bytes("0123456789"));
        assert_eq!(ask(&source, r#"{"ask":"targets/p/x","from":2,"to":5}"#), bytes("234"));
        assert_eq!(ask(&source, r#"{"ask":"metadata/no","maximum":10}"#), Answer::Absent);
        assert_eq!(ask(&source, r#"{"ask":"targets/p/link","maximum":10}"#), Answer::Absent);
        for refused in [
            r#"{"ask":"keys/secret","maximum":10}"#,
            r#"{"ask":"targets/../keys/secret","maximum":10}"#,
            r#"{"ask":"/etc/passwd","maximum":10}"#,
            r#"{"ask":"targets","maximum":10}"#,
            r#"{"ask":"targets/p/x","maximum":9}"#,
            r#"{"ask":"targets/p/x","from":5,"to":11}"#,
            r#"{"ask":"targets/p/x","from":5,"to":5}"#,
            r#"{"ask":"targets/p/x"}"#,
        ] {
            assert!(matches!(ask(&source, refused), Answer::Refused(_)), "{refused}");
        }
        assert_eq!(Request::parse(br#"{"schema":1,"changed":true}"#), None);
    }
}
