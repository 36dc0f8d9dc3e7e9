//! One supervisor for one instance: takes the driver lock.

use super::SuperviseSettings;
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command may hold the lock: longer than the write of a request takes.
const DRIVE_WAIT: Duration = Duration::from_secs(2);
const DRIVE_INTERVAL: Duration = Duration::from_millis(20);

/// Takes the driver lock; an error names its holder.
pub(super) fn drive_alone(files: &InstanceFiles, settings: &SuperviseSettings) -> Result<DriverLock, Report> {
    let give_up_at = clock::since_boot().saturating_add(DRIVE_WAIT);
    loop {
        if let Some(lock) = files.try_drive()? {
            return Ok(lock);
        }
        if clock::since_boot() >= give_up_at {
            break;
        }
        clock::sleep(DRIVE_INTERVAL);
    }
    let by = files.driver().map_or_else(String::new, |holder| format!(", by {holder}"));
    Err(Report::of(Class::Locked, format!("cannot supervise {}: it is supervised already{by}", settings.instance))
        .hint(format!("`sidle status {}` shows its state", settings.package)))
}
