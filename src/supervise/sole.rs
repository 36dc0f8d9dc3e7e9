//! One supervisor for one instance: takes the driver lock.

use super::SuperviseSettings;
use crate::failure::{Class, Report};
use crate::os::lock;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command may hold the lock: longer than the write of a request takes.
const DRIVE_WAIT: Duration = Duration::from_secs(2);

/// Takes the driver lock; an error names its holder.
pub(super) fn drive_alone(files: &InstanceFiles, settings: &SuperviseSettings) -> Result<DriverLock, Report> {
    if let Some(lock) = lock::wait(DRIVE_WAIT, || files.try_drive())? {
        return Ok(lock);
    }
    let by = files.driver().map_or_else(String::new, |holder| format!(", by {holder}"));
    Err(Report::of(Class::Locked, format!("cannot supervise {}: it is supervised already{by}", settings.instance))
        .hint(format!("`sidle status {}` shows its state", settings.package)))
}
