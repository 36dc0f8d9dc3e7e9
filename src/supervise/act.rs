//! The supervisor's own acts: one `match` over the intents of its parts.

use super::Supervisor;
use super::intent::{Intent, OwnSwitch};
use super::keeper::{self, Due, Keeper, Kept, NotStarted, Past, Started};
use super::pace::{END_INTERVAL, HEALTH_INTERVAL, HEALTH_INTERVAL_SHORT};
use crate::agent::gate::{GateRole, Origin};
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::proc_fs::Look;
use crate::store::Store;
use crate::switch::process::ProcessKind;
use crate::version::Release;
use std::time::Duration;

impl Supervisor {
    /// Reads each process once in a turn at rest: what ends in it is an event, and so another turn.
    pub(super) fn look_at_rest(&self) -> Option<Look> {
        let is_at_rest = self.driver.journal().live.is_none() && self.ending.is_none();
        is_at_rest.then(Look::begin)
    }

    /// Starts the serving process if it does not run, unless the acts of a switch do that.
    pub(super) fn keep_running(&mut self, now: Moment) -> Duration {
        if self.leaves_processes_alone() {
            return HEALTH_INTERVAL;
        }
        let mut journal = self.driver.journal().clone();
        let is_left_to_it = journal.live.as_ref().is_some_and(|live| live.phase.keeps().is_none());
        if self.resuming.is_some() && is_left_to_it && self.processes.records().next().is_none() {
            // After a boot nothing of a switch runs. It goes on once the journal can be written.
            journal.live = None;
        }
        let Some(Kept { allowed, serving }) = keeper::kept(&journal) else { return HEALTH_INTERVAL };
        // Other processes are left over from an abandoned switch.
        match self.processes.end_all_but(&allowed) {
            Ok(gone) if self.keeper.others(gone, self.settings.host.limits().stop, now.since_boot) => {
                return END_INTERVAL;
            }
            Ok(_) => {}
            Err(error) => self.troubled(error.to_string()),
        }
        let Some(which) = serving else { return HEALTH_INTERVAL };
        let runs = self.processes.of(which).is_some();
        if let Due::Rest(pause) = self.keeper.due(runs, now.since_boot, HEALTH_INTERVAL) {
            return pause;
        }
        let _ = self.processes.how_ended(which);
        self.driver.log_ends(&mut self.processes);
        let ended = self.processes.how_ended(which).map(str::to_owned);
        let result = self
            .start(which)
            .map_err(|report| NotStarted { is_damaged: report.class == Class::Integrity, why: report.to_string() });
        self.health = None;
        let started = Started { release: which.release().cloned(), ended, result };
        let intents = self.keeper.started(started, now.since_boot);
        self.carry_out(intents, now);
        HEALTH_INTERVAL_SHORT
    }

    /// True if the journal can't be read (for example a newer sidle's) and a process runs: it is unknown which processes belong to a switch, so
    /// none is ended, and `current` is not started.
    fn leaves_processes_alone(&self) -> bool {
        self.driver.unreadable().is_some()
            && self.processes.records().any(|record| record.leader.is_alive().unwrap_or(true))
    }

    /// Acts on intents. No other function does.
    pub(super) fn carry_out(&mut self, intents: impl IntoIterator<Item = Intent>, now: Moment) {
        for intent in intents {
            match intent {
                Intent::Begin(own) => self.begin_own(own, now),
                Intent::LeaveLooping(loops) => self.leave_looping(&loops, now),
                Intent::LeaveDamaged(damaged) => self.leave_damaged(&damaged, now),
                Intent::RestartUnhealthy(command, lacks) => self.restart_unhealthy(*command, &lacks, now),
                Intent::CompareConfiguration => self.compare_now(now),
                Intent::ForgetConfiguration => self.forget_configuration_check(),
                Intent::Unadopt => self.unadopt_now(now),
                Intent::CheckHost => self.run_host_check(Self::check_host, now),
                Intent::PollRehearsal => self.run_host_check(Self::poll_rehearsal, now),
                Intent::StopRehearsal => self.host_rehearsal.stop(),
                Intent::ShowTrouble(trouble) => self.trouble = trouble,
                Intent::NeedPerson(why) => self.needs_a_person(why),
                Intent::HoldJobs(until) => match self.processes.hold_jobs(until) {
                    Ok(()) => {}
                    // On a full file system jobs can't be made to wait, so they begin.
                    Err(_) if until.is_some() => self.tree.not_held(),
                    Err(error) => self.troubled(error.to_string()),
                },
                Intent::Watch(releases) => self.watch(&releases, now),
                Intent::Repair(release) => self.repair(&release, now),
                Intent::ScrubIfDue(release) => self.scrub_if_due(&release),
            }
        }
    }

    fn begin_own(&mut self, own: OwnSwitch, now: Moment) {
        let unless = own.unless.clone();
        let begun = self.begin(self.own_command(own), None, now);
        match (begun, unless) {
            (Ok(_), _) => {}
            (Err(report), Some(unless)) => self.needs_a_person(format!("{unless}{report}")),
            (Err(report), None) => self.troubled(report.to_string()),
        }
    }

    fn leave_looping(&mut self, loops: &str, now: Moment) {
        // The last switch may still wait for the old process's last jobs.
        if let Err(error) = self.driver.make_room(&mut self.processes, now) {
            self.troubled(error.to_string());
        }
        let off_this_host = self.way_off_this_host();
        self.leave(off_this_host, now, |keeper, past, _| keeper.leave_looping(loops, past, now.wall));
    }

    fn leave_damaged(&mut self, damaged: &str, now: Moment) {
        self.leave(None, now, |keeper, past, store| {
            keeper.leave_damaged(damaged, past, |release| store.verify_or_repair(release).is_ok())
        });
    }

    /// Begins the switch that the keeper wants, if any. One that cannot begin is tried again after the next end.
    fn leave(
        &mut self,
        off_this_host: Option<(Release, String)>,
        now: Moment,
        decide: impl FnOnce(&Keeper, &Past<'_>, &Store) -> Option<Intent>,
    ) {
        let history = self.driver.files().history().unwrap_or_default();
        let journal = self.driver.journal().clone();
        let fall_back_within = *self.settings.host.fall_back_within;
        let past = Past { journal: &journal, history: &history, fall_back_within, off_this_host };
        let intent = decide(&self.keeper, &past, self.driver.store());
        let is_wanted = intent.is_some();
        self.carry_out(intent, now);
        if is_wanted && self.driver.journal().live.is_some() {
            self.keeper.leaves(&past);
        }
    }

    /// Starts a process; returns a note if its release had to be repaired first.
    fn start(&mut self, which: ProcessKind<'_>) -> Result<Option<String>, Report> {
        let store = self.driver.store();
        // The supervisor never starts an adopted agent.
        let Some(release) = which.release() else { return Ok(None) };
        let repaired = store.verify_or_repair(release)?.map(|repaired| repaired.told(release));
        self.log_repair_before_start(repaired.as_deref());
        let manifest = store.head(release)?;
        self.processes.start(which, &manifest, Origin::Boot, GateRole::Active)?;
        Ok(repaired)
    }
}
