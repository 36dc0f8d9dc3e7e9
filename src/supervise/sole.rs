//! One supervisor for one instance: the right to drive its switches.

use super::SuperviseSettings;
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command may hold the right to drive: longer than writing a wish down takes.
const DRIVE_WAIT: Duration = Duration::from_secs(2);
const DRIVE_INTERVAL: Duration = Duration::from_millis(20);

/// Takes the right to drive; an error names who has it.
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
        .hint(format!("`sidle status {}` tells how it is", settings.package)))
}
