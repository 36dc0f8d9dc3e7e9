//! One supervisor for one instance: the right to drive its switches.

use super::SuperviseSettings;
use crate::failure::{Class, Report};
use crate::os::lock;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command may hold the right to drive: longer than writing a wish down takes.
const DRIVE_WAIT: Duration = Duration::from_secs(2);

/// Takes the right to drive; an error names who has it.
pub(super) fn drive_alone(files: &InstanceFiles, settings: &SuperviseSettings) -> Result<DriverLock, Report> {
    if let Some(lock) = lock::wait(DRIVE_WAIT, || files.try_drive())? {
        return Ok(lock);
    }
    let by = files.driver().map_or_else(String::new, |holder| format!(", by {holder}"));
    Err(Report::of(Class::Locked, format!("cannot supervise {}: it is supervised already{by}", settings.instance))
        .hint(format!("`sidle status {}` tells how it is", settings.package)))
}
