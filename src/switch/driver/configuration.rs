//! The agent's configuration in a switch: a snapshot before the trial, an earlier one put back on a rollback, its own on the way back.

use crate::agent::AgentKind;
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::journal::snapshot::{Snapshots, summary};
use crate::switch::process::Processes;
use crate::switch::{Former, Phase, Purpose, Side, Switch};
use std::path::PathBuf;

/// The names at the top of an agent's configuration directory that are none of its configuration. The CLI registers them, as it does with
/// [`crate::agent::Registry`].
pub type NoConfiguration = fn(AgentKind) -> &'static [&'static str];

/// How configuration is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// What is left out.
    pub except: NoConfiguration,
    /// Whether a rollback, and the way back, put it back.
    pub restore: bool,
}

impl Driver {
    fn kept(&self, live: &Switch, processes: &Processes) -> Result<Option<(Keeping, Snapshots, PathBuf)>, DriveError> {
        let Some(keeping) = self.keeping else { return Ok(None) };
        let manifest = self.store.manifest(&live.request.to)?;
        let state = self.files.layout().instance(self.files.instance());
        let snapshots = Snapshots::new(&state, (keeping.except)(manifest.agent));
        Ok(Some((keeping, snapshots, processes.configuration(&manifest))))
    }

    /// Takes the snapshot, where configuration is put back at all. Gives why it can't be taken: that refuses the switch.
    pub(in crate::switch) fn keep_configuration(
        &self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Option<String>, DriveError> {
        let kept = self.kept(live, processes)?.filter(|(keeping, ..)| keeping.restore);
        let Some((_, snapshots, directory)) = kept else { return Ok(None) };
        let taken = snapshots.take(&directory, live.id, live.from.as_ref(), now.wall);
        Ok(taken.err().map(|report| format!("{report}; with `restore_configuration` there has to be a snapshot")))
    }

    /// Before a start: the configuration that its release had. The reason, where a rollback can't have it.
    pub(in crate::switch) fn configuration_for(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &Processes,
        now: Moment,
    ) -> Result<Option<String>, DriveError> {
        let there = live.which(side).is_some_and(|which| processes.of(which).is_some());
        match side {
            Side::Former => {
                self.put_own_back(live, processes, now)?;
                Ok(None)
            }
            Side::Trial if there || live.request.purpose != Purpose::Rollback => Ok(None),
            Side::Trial => {
                let Some((keeping, snapshots, directory)) = self.kept(live, processes)? else { return Ok(None) };
                if !keeping.restore {
                    return Ok(None);
                }
                let found = match live.restores {
                    Some(number) => snapshots.find(number),
                    None => snapshots.of_release(&live.request.to),
                };
                let snapshot = match found {
                    Ok(Some(snapshot)) => snapshot,
                    Ok(None) => {
                        let text =
                            format!("the configuration is left as it is: no snapshot of that of {}", live.request.to);
                        if self.journal.live.as_ref().is_some_and(|live| !live.notes.contains(&text)) {
                            self.note(&text, now)?;
                        }
                        return Ok(None);
                    }
                    Err(report) => return Ok(Some(report.to_string())),
                };
                let journal = self.journal.restoring(snapshot.switch);
                self.believe(journal, now)?;
                match snapshots.put_back(&snapshot, &directory) {
                    Ok(changes) if changes.is_empty() => Ok(None),
                    Ok(changes) => {
                        let text =
                            format!("configuration of switch {} put back: {}", snapshot.switch, summary(&changes));
                        self.note(&text, now)?;
                        Ok(None)
                    }
                    Err(report) => Ok(Some(report.to_string())),
                }
            }
        }
    }

    /// The way back of a switch that was to restore configuration, or has: as it was before this switch.
    fn put_own_back(&mut self, live: &Switch, processes: &Processes, now: Moment) -> Result<(), DriveError> {
        let Some((keeping, snapshots, directory)) = self.kept(live, processes)? else { return Ok(()) };
        if !keeping.restore && live.restores.is_none() {
            return Ok(());
        }
        let done = snapshots.find(live.id).and_then(|found| match found {
            Some(snapshot) => snapshots.put_back(&snapshot, &directory),
            None => Ok(Vec::new()),
        });
        // The release that worked is started in any case.
        let text = match done {
            Ok(changes) if changes.is_empty() => return Ok(()),
            Ok(changes) => format!("configuration put back: {}", summary(&changes)),
            Err(report) => format!("the configuration is not put back: {report}"),
        };
        if self.journal.live.as_ref().is_some_and(|live| !live.notes.contains(&text)) {
            self.note(&text, now)?;
        }
        Ok(())
    }

    /// At the end of a way back beside the old process, which was never started again.
    pub(in crate::switch) fn settle_configuration(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<(), DriveError> {
        let came_back = live.phase == Phase::RolledBack && live.former() == Former::Beside;
        if came_back { self.put_own_back(live, processes, now) } else { Ok(()) }
    }
}
