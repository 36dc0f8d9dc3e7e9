//! A journal that can't be read.

use super::Supervisor;

impl Supervisor {
    /// With a journal that can't be read (a newer program's, say) nobody knows what is meant to run beside `current`: what serves goes on, and nothing is
    /// ended. Only where nobody is there, `current` is started.
    pub(super) fn leaves_all_as_it_is(&self) -> bool {
        self.driver.unreadable().is_some()
            && self.processes.records().any(|record| record.leader.is_alive().unwrap_or(true))
    }
}
