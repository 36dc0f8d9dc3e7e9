//! Names for the processes of an instance.

use crate::version::Release;
use std::fmt;

/// A process of an instance. The release alone does not name it: in a restart both sides run the same release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind<'a> {
    /// The process on trial.
    Trial {
        /// The number of the switch.
        switch: u64,
        /// Its release.
        release: &'a Release,
    },
    /// A process that is not on trial for this switch.
    Incumbent {
        /// Its release.
        release: &'a Release,
        /// The number of the live switch, if any.
        switch: Option<u64>,
    },
    /// The process that sidle did not start and takes over from.
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
    /// Its release; None: sidle did not install it.
    pub fn release(self) -> Option<&'a Release> {
        match self {
            Self::Trial { release, .. } | Self::Incumbent { release, .. } => Some(release),
            Self::Foreign => None,
        }
    }

    /// True if it is the process that runs `release` and that the switch `trial_of` started for a trial (None: no switch did).
    pub fn is(self, release: Option<&Release>, trial_of: Option<u64>) -> bool {
        let side = match self {
            Self::Trial { switch, .. } => trial_of == Some(switch),
            Self::Incumbent { switch, .. } => switch.is_none() || trial_of != switch,
            Self::Foreign => true,
        };
        side && release == self.release()
    }
}
