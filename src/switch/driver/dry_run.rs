//! What a request would come to, for dry runs: the same refusals as the request itself, and no change.

use crate::os::clock::{self, Moment};
use crate::store::Store;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::requests::{BadReleases, refuse_bad, refuse_held};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::journal::head::Head;
use crate::switch::schedule::Schedule;
use crate::switch::{Journal, Mode, NewSwitch, Switch};
use crate::version::Release;
use serde::{Deserialize, Serialize};

/// A switch that would be accepted now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedSwitch {
    /// Its number.
    pub switch: u64,
    /// The current release; None: none yet.
    pub from: Option<Release>,
    /// Its release.
    pub to: Release,
    /// Its mode.
    pub mode: Mode,
    /// When it would begin; None: at once. The delay (splay) is drawn by the switch itself.
    pub schedule: Option<Schedule>,
    /// Notes for the person who asks.
    pub notes: Vec<String>,
}

/// Whether the tree of the release is there to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// It is installed.
    Installed,
    /// It would be installed first.
    ToCome,
}

impl Driver {
    /// What a request would come to.
    pub fn dry_run(&self, new: NewSwitch, bad: BadReleases, now: Moment) -> Result<ExpectedSwitch, DriveError> {
        if let Some(report) = &self.unreadable {
            return Err(DriveError::Unreadable(report.clone()));
        }
        dry_run(&self.files, &self.journal, (new, Tree::Installed), bad, now)
    }
}

/// What a request would come to, from the files of the instance.
pub fn dry_run(
    files: &InstanceFiles,
    journal: &Journal,
    (mut new, tree): (NewSwitch, Tree),
    bad: BadReleases,
    now: Moment,
) -> Result<ExpectedSwitch, DriveError> {
    files.history()?;
    refuse_held(files, new.request.purpose, now.wall)?;
    let store = Store::new(files.layout(), files.package());
    if tree == Tree::Installed {
        new.notes.extend(damage(&store, &new.request.to)?);
    }
    refuse_bad(files, &new.request.to, bad)?;
    // A committed switch that only ends its old process makes room by itself.
    let live = journal.live.clone().filter(|live| !live.phase.is_committed());
    let requested = journal.with_live(live).requested(new, &clock::boot_id()?, now.wall)?;
    let Switch { head, schedule, .. } = requested.live.expect("a request is the live switch");
    let Head { id: switch, from, request, mode, notes, .. } = head;
    Ok(ExpectedSwitch { switch, from, to: request.to, mode, schedule, notes })
}

/// A note on damage that the switch would repair; an error where this host's files don't suffice.
fn damage(store: &Store, release: &Release) -> Result<Option<String>, DriveError> {
    let expected = store.dry_run_repair(release, crate::store::check::Depth::Quick)?;
    store.judge(release, expected.repaired.left)?;
    let count = expected.repaired.mended.len();
    Ok((count > 0).then(|| format!("{count} damaged paths of {release} are repaired first")))
}
