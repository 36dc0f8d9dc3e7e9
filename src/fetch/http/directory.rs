//! A mirror that is a directory: a stick, an NFS mount. It answers like HTTP; links are not followed.

use crate::fetch::fault::Fault;
use crate::fetch::location::FilePath;
use crate::fetch::reply::{Ask, Body, Coding, Reply, Span, Wanted};
use crate::os::OsError;
use crate::os::dir::{Dir, FileKind};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Asks the directory at `root` for a file.
pub(in crate::fetch) fn get(root: &Path, path: &FilePath, ask: &Ask) -> Result<Reply, Fault> {
    let root = Dir::open(root).map_err(|error| Fault::Refused { reason: error.to_string() })?;
    let (directory, name) = path.on_disk();
    let directory = root.beneath(&directory).map_err(|error| fault(&error))?;
    let stat = directory.stat(name).map_err(|error| fault(&error))?.ok_or(Fault::NotFound)?;
    if stat.kind != FileKind::File {
        return Err(Fault::Refused { reason: format!("{path} is no regular file there") });
    }
    let mut file = directory.open_file(name).map_err(|error| fault(&error))?;
    let (span, remaining) = match &ask.wanted {
        Wanted::Whole { .. } => (Span::Whole, stat.size),
        Wanted::Part(range) if range.end > stat.size => {
            return Err(Fault::wrong(format!("{path} has {} bytes there, which is too few", stat.size)));
        }
        Wanted::Part(range) => {
            file.seek(SeekFrom::Start(range.start)).map_err(|error| unreadable(&error))?;
            (Span::Part { range: range.clone(), total: Some(stat.size) }, range.end - range.start)
        }
    };
    let body = Box::new(FileBody { file, remaining });
    Ok(Reply { span, length: Some(remaining), coding: Coding::Identity, validator: None, body })
}

/// What remains of a file.
#[derive(Debug)]
struct FileBody {
    file: File,
    remaining: u64,
}

impl Body for FileBody {
    fn next(&mut self, _patience: Duration) -> Result<Option<Vec<u8>>, Fault> {
        let wanted = usize::try_from(self.remaining).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let mut bytes = vec![0; wanted];
        let count = self.file.read(&mut bytes).map_err(|error| unreadable(&error))?;
        bytes.truncate(count);
        self.remaining -= count as u64;
        Ok((count > 0).then_some(bytes))
    }
}

fn unreadable(error: &std::io::Error) -> Fault {
    Fault::temporary(format!("its directory can't be read: {error}"))
}

fn fault(error: &OsError) -> Fault {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Fault::NotFound,
        _ => Fault::temporary(error.to_string()),
    }
}
