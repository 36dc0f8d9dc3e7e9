//! One supervisor for one instance: the right to drive its switches.

use super::SuperviseSettings;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::{clock, proc_fs};
use crate::switch::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command may hold the right to drive: longer than writing a wish down takes.
const DRIVE_WAIT: Duration = Duration::from_secs(2);
const DRIVE_LOOK: Duration = Duration::from_millis(20);

/// Takes the right to drive; an error names who has it.
pub(super) fn drive_alone(
    files: &InstanceFiles,
    layout: &Layout,
    settings: &SuperviseSettings,
) -> Result<DriverLock, Report> {
    let give_up_at = clock::since_boot().saturating_add(DRIVE_WAIT);
    loop {
        if let Some(lock) = files.try_drive()? {
            return Ok(lock);
        }
        if clock::since_boot() >= give_up_at {
            break;
        }
        clock::sleep(DRIVE_LOOK);
    }
    let holder = holder(layout, &settings.instance);
    Err(Report {
        class: Class::Locked,
        message: format!("cannot supervise {}: it is supervised already{holder}", settings.instance),
        causes: Vec::new(),
        hint: Some(format!("`sidle status {}` tells how it is", settings.package)),
    })
}

fn holder(layout: &Layout, instance: &InstanceName) -> String {
    let stat = Dir::open(&layout.instance(instance)).and_then(|directory| directory.stat_self());
    let holders = stat.and_then(|stat| proc_fs::holders((stat.device, stat.inode))).unwrap_or_default();
    let other = holders.into_iter().find(|(pid, _)| *pid != std::process::id());
    other.map_or_else(String::new, |(pid, title)| format!(", by process {pid} ({title})"))
}
