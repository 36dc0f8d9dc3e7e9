//! Which of an instance's processes is meant.

use crate::version::Release;
use std::fmt;

/// Which process of an instance is meant: in a restart both sides run the same release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind<'a> {
    /// The one that a switch has on trial.
    Trial {
        /// The number of the switch.
        switch: u64,
        /// What it runs.
        release: &'a Release,
    },
    /// The one that runs a release and is not on trial for this switch.
    Incumbent {
        /// What it runs.
        release: &'a Release,
        /// The number of the live switch; None: there is none.
        switch: Option<u64>,
    },
    /// The one that sidle did not start and is about to take over from.
    Foreign,
}

impl fmt::Display for ProcessKind<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.release() {
            Some(release) => release.fmt(formatter),
            None => formatter.write_str("the adopted agent"),
        }
    }
}

impl<'a> ProcessKind<'a> {
    /// What it runs; None: nothing of sidle's.
    pub fn release(self) -> Option<&'a Release> {
        match self {
            Self::Trial { release, .. } | Self::Incumbent { release, .. } => Some(release),
            Self::Foreign => None,
        }
    }

    /// Whether it is the one that runs `release` (None: nothing of sidle's) and was started to try it by the switch `trial_of`; None: by
    /// none.
    pub fn is(self, release: Option<&Release>, trial_of: Option<u64>) -> bool {
        let side = match self {
            Self::Trial { switch, .. } => trial_of == Some(switch),
            Self::Incumbent { switch, .. } => switch.is_none() || trial_of != switch,
            Self::Foreign => true,
        };
        side && release == self.release()
    }
}
