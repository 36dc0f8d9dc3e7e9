//! The agent's configuration in a switch: takes a snapshot before the trial; puts back an earlier snapshot on a rollback, and the switch's own
//! snapshot on the way back.

use crate::agent::Registry;
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::journal::snapshot::{Snapshots, summary};
use crate::switch::process::Processes;
use crate::switch::{Former, Phase, Purpose, Side, Switch};
use std::path::PathBuf;

/// How configuration is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// The agents, which name what is left out.
    pub agents: Registry,
    /// Whether a rollback, and the way back, put it back.
    pub restore: bool,
}

impl Driver {
    fn kept(&self, live: &Switch, processes: &Processes) -> Result<Option<(Keeping, Snapshots, PathBuf)>, DriveError> {
        let Some(keeping) = self.keeping else { return Ok(None) };
        let manifest = self.store.head(&live.request.to)?;
        let state = self.files.layout().instance(self.files.instance());
        // Of an unknown kind nothing is left out; the switch to it fails where its observer is asked for.
        let except = (keeping.agents)(&manifest.agent).map_or(&[][..], |parts| parts.not_configuration);
        let snapshots = Snapshots::new(&state, except);
        Ok(Some((keeping, snapshots, processes.configuration(&manifest))))
    }

    /// Takes the snapshot, if the settings put configuration back. Returns the refusal of the switch if it can't be taken.
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

    /// Before a start: puts back the configuration of the release. Returns the reason if a rollback can't have it.
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
                        let text = format!(
                            "the configuration is not changed: no snapshot of the configuration of {} is left",
                            live.request.to
                        );
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

    /// On the way back: puts back the configuration from before this switch.
    fn put_own_back(&mut self, live: &Switch, processes: &Processes, now: Moment) -> Result<(), DriveError> {
        let Some((keeping, snapshots, directory)) = self.kept(live, processes)? else { return Ok(()) };
        if !keeping.restore && live.restores.is_none() {
            return Ok(());
        }
        let done = snapshots.find(live.id).and_then(|found| match found {
            Some(snapshot) => snapshots.put_back(&snapshot, &directory),
            None => Ok(Vec::new()),
        });
        // The previous release is started in any case.
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

    /// At the end of a way back in overlap, where the old process was never started again: puts the configuration back.
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
