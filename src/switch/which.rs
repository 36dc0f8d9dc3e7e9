//! Which of an instance's processes is meant.

use crate::version::Release;

/// Which process of an instance is meant: in a restart both sides run the same release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    /// The one that a switch has on trial.
    Trial {
        /// The number of the switch.
        switch: u64,
        /// What it runs.
        release: &'a Release,
    },
    /// The one that runs a release and is not on trial for this switch.
    Settled {
        /// What it runs.
        release: &'a Release,
        /// The number of the live switch; None: there is none.
        switch: Option<u64>,
    },
}

impl<'a> Which<'a> {
    /// What it runs.
    pub fn release(self) -> &'a Release {
        match self {
            Self::Trial { release, .. } | Self::Settled { release, .. } => release,
        }
    }

    /// Whether it is the one that runs `release` and was started to try it by the switch `trial_of`; None: by none.
    pub fn is(self, release: &Release, trial_of: Option<u64>) -> bool {
        let side = match self {
            Self::Trial { switch, .. } => trial_of == Some(switch),
            Self::Settled { switch, .. } => switch.is_none() || trial_of != switch,
        };
        side && release == self.release()
    }
}
