//! Files that the command line names: what can't be read is told with what was expected there.

use crate::failure::Report;
use crate::os::{OsError, file};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Opens a file to read. `expected` says what should be there: "a bundle file that `sidle export` wrote".
pub fn open(path: &Path, expected: &str) -> Result<File, Report> {
    file::open_input(path).map_err(|error| explained(error, expected))
}

/// Reads a file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64, expected: &str) -> Result<Vec<u8>, Report> {
    file::read_input(path, limit).map_err(|error| explained(error, expected))
}

/// The report of a path that can't be used as it was meant.
pub fn explained(error: OsError, expected: &str) -> Report {
    let hint = match error.kind() {
        ErrorKind::NotFound => Some(format!("check the path: it should name {expected}")),
        ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::FileTooLarge => {
            Some(format!("name {expected}"))
        }
        ErrorKind::PermissionDenied => Some("run it as a user who may read the file".to_owned()),
        _ => None,
    };
    let report = Report::from(error);
    Report { hint: hint.or(report.hint), ..report }
}
