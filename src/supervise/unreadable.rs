//! What can't be had at the beginning: the right to drive, which somebody else has; a journal that can be read.

use super::Supervisor;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::proc_fs;

impl Supervisor {
    /// With a journal that can't be read (a newer program's, say) nobody knows what is meant to run beside `current`: what serves goes on, and nothing is
    /// ended. Only where nobody is there, `current` is started.
    pub(super) fn leaves_all_as_it_is(&self) -> bool {
        self.driver.unreadable().is_some()
            && self.processes.records().any(|record| record.leader.is_alive().unwrap_or(true))
    }
}

/// Who has the right to drive, in words.
pub(super) fn holder(layout: &Layout, instance: &InstanceName) -> String {
    let stat = Dir::open(&layout.instance(instance)).and_then(|directory| directory.stat_self());
    let holders = stat.and_then(|stat| proc_fs::holders((stat.device, stat.inode))).unwrap_or_default();
    let other = holders.into_iter().find(|(pid, _)| *pid != std::process::id());
    other.map_or_else(String::new, |(pid, title)| format!(", by process {pid} ({title})"))
}
