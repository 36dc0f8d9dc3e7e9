//! Fetches metadata: drives the machines of `trust`, mirror after mirror, each from the same floor.

use super::error::FetchError;
use super::fault::Fault;
use super::location::FilePath;
use super::mirrors::{Mirrors, Quest};
use super::reply::Presence;
use crate::bundle::limits::BUNDLE_METADATA_MAXIMUM_BYTES;
use crate::trust::{Answer, Expiry, Floor, MetadataFiles, MetadataRequest, Refresh, Role, TrustError, Warning};
use jiff::Timestamp;

/// Most metadata in memory for one package: a bundle file has the same limit. Stops long chains of large roots, and many delegated roles.
const FOR_PACKAGE_BYTES_MAXIMUM: u64 = BUNDLE_METADATA_MAXIMUM_BYTES;

/// The same for a copy of everything.
const FOR_EVERYTHING_BYTES_MAXIMUM: u64 = 64 << 20;

/// The result of a refresh.
#[derive(Debug)]
pub struct Refreshed {
    /// Every received metadata file, by its published name, of the mirror that got furthest. Also after an error: newer valid metadata is
    /// adopted all the same.
    pub files: MetadataFiles,
    /// Whether all metadata is there and trusted.
    pub outcome: Result<Fresh, FetchError>,
}

/// A refresh that reached its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// The mirror that served it.
    pub mirror: String,
    /// Warnings for the operator.
    pub warnings: Vec<Warning>,
    /// Whether stored names of targets carry their digest.
    pub consistent_snapshot: bool,
}

/// Why an attempt with one mirror ended.
enum Ended {
    Mirror(Fault),
    Floor(TrustError),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Mirror(fault)
    }
}

/// Why a mirror's metadata is not taken, although it is signed and unexpired; None: it is taken. Otherwise the next mirror is asked.
pub type Objection<'a> = &'a dyn Fn(&MetadataFiles) -> Option<String>;

pub(super) fn refresh(
    mirrors: &mut Mirrors<'_>,
    floor: &Floor,
    directory: Option<&str>,
    (now, expiry): (Timestamp, Expiry),
    objection: Objection<'_>,
) -> Refreshed {
    let mut quest = Quest::new("the repository's metadata");
    let mut furthest = MetadataFiles::new();
    let failure = loop {
        let index = match mirrors.choose(&quest) {
            Ok(index) => index,
            Err(error) => break error,
        };
        let mut files = MetadataFiles::new();
        match from_mirror(mirrors, index, floor, directory, (now, expiry), &mut files) {
            Ok(fresh) => {
                let Some(reason) = objection(&files) else {
                    mirrors.succeeded(index);
                    return Refreshed { files, outcome: Ok(fresh) };
                };
                mirrors.failed(index, &mut quest, &Fault::Refused { reason });
            }
            Err(Ended::Mirror(fault)) => mirrors.failed(index, &mut quest, &fault),
            Err(Ended::Floor(error)) => break FetchError::Floor(error),
        }
        if files.len() > furthest.len() {
            furthest = files;
        }
    };
    Refreshed { files: furthest, outcome: Err(failure) }
}

fn from_mirror(
    mirrors: &mut Mirrors<'_>,
    index: usize,
    floor: &Floor,
    directory: Option<&str>,
    (now, expiry): (Timestamp, Expiry),
    files: &mut MetadataFiles,
) -> Result<Fresh, Ended> {
    let mut refresh = Refresh::start(floor, now, expiry).map_err(Ended::Floor)?;
    let bytes_maximum = if directory == Some("") { FOR_EVERYTHING_BYTES_MAXIMUM } else { FOR_PACKAGE_BYTES_MAXIMUM };
    while let Some(request) = refresh.request() {
        let bytes = bring(mirrors, index, &request, files, bytes_maximum)?;
        refresh.answer(answer(bytes)).map_err(|error| judged(&error))?;
    }
    if let Some(directory) = directory {
        // What the host keeps of delegated roles, and is still the newest, is not brought again.
        let mut delegated = floor.delegated.clone();
        let mut browse = refresh.browse(directory, &mut delegated).map_err(|error| judged(&error))?;
        while let Some(request) = browse.request() {
            let bytes = bring(mirrors, index, &request, files, bytes_maximum)?;
            browse.answer(answer(bytes)).map_err(|error| judged(&error))?;
        }
    }
    Ok(Fresh {
        mirror: mirrors.name(index).to_owned(),
        warnings: refresh.warnings().to_vec(),
        consistent_snapshot: refresh.workflow().root().body.consistent_snapshot,
    })
}

fn answer(bytes: Option<&[u8]>) -> Answer<'_> {
    bytes.map_or(Answer::NotFound, Answer::File)
}

/// What is not there is a mirror that is behind or elsewhere; everything else that is not trusted is worse.
fn judged(error: &TrustError) -> Fault {
    let reason = error.to_string();
    match error {
        TrustError::Missing { .. } => Fault::Refused { reason },
        _ => Fault::Untrusted { reason },
    }
}

/// A metadata file; None: the mirror says that there is none. All of them together take no more than `bytes_maximum`.
fn bring<'f>(
    mirrors: &mut Mirrors<'_>,
    index: usize,
    request: &MetadataRequest,
    files: &'f mut MetadataFiles,
    bytes_maximum: u64,
) -> Result<Option<&'f [u8]>, Fault> {
    if files.values().map(|bytes| bytes.len() as u64).sum::<u64>() > bytes_maximum {
        let mebibytes = bytes_maximum >> 20;
        return Err(Fault::Untrusted { reason: format!("its metadata takes more than {mebibytes} MiB in all") });
    }
    let path = FilePath::metadata(request);
    // A next root is hardly ever there: this spares the page that says so.
    if request.role == Role::Root.as_str() && mirrors.presence(index, &path)? == Presence::Absent {
        return Ok(None);
    }
    match mirrors.small_file(index, &path, request.bytes_maximum) {
        Ok(bytes) => {
            files.insert(request.file.clone(), bytes);
            Ok(files.get(&request.file).map(Vec::as_slice))
        }
        Err(Fault::NotFound) => Ok(None),
        // Some object stores say so of what they don't have; a mirror that lets us in nowhere is found out by the timestamp.
        Err(Fault::Forbidden) if request.role == Role::Root.as_str() => Ok(None),
        Err(Fault::Forbidden) => Err(Fault::Refused { reason: Fault::Forbidden.reason().to_owned() }),
        Err(fault) => Err(fault),
    }
}
