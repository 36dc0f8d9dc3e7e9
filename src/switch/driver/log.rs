//! The log of switches: each change of the journal after its write, and each end of a process before its consequences. Texts from outside are
//! fields, never part of a message, so that they can't forge another field.

use crate::name::InstanceName;
use crate::os::clock;
use crate::switch::journal::story::{Ending, StoryStep};
use crate::switch::process::Processes;
use crate::switch::{Journal, Phase, Switch};
use crate::version::Release;
use std::time::Duration;
use tracing::{debug, error, info, warn};

/// Logs the difference between two journals.
pub(in crate::switch) fn changes(before: &Journal, after: &Journal) {
    let instance = &after.instance;
    let Some(live) = &after.live else {
        match &before.live {
            Some(ended) => debug!(%instance, "switch {} is in the history", ended.id),
            None if before.proven != after.proven => {
                info!(%instance, "the adoption has ended: sidle runs nothing for this instance");
            }
            None => {}
        }
        return;
    };
    let known = before.live.as_ref().filter(|known| known.id == live.id);
    if known.is_none() {
        accepted(instance, live);
    }
    for step in live.story.after(known.map_or(0, |known| known.story.last_number())) {
        transition(instance, live, step);
    }
    for note in live.notes.iter().skip(known.map_or(0, |known| known.notes.len())) {
        info!(%instance, note, "switch {} has a note", live.id);
    }
    let was = known.filter(|known| known.phase == live.phase).and_then(|known| known.waiting_for.as_deref());
    if let Some(why) = live.waiting_for.as_deref().filter(|why| was != Some(*why) && !live.phase.is_ended()) {
        debug!(%instance, phase = %live.phase, why, "switch {} waits", live.id);
    }
}

fn accepted(instance: &InstanceName, live: &Switch) {
    let from = live.from.as_ref().map_or_else(
        || if live.adopted.is_some() { "an adopted agent" } else { "nothing" }.to_owned(),
        Release::to_string,
    );
    let reason = Some(live.request.reason.as_str()).filter(|reason| !reason.is_empty());
    let origin = live.request.origin.as_ref().map(ToString::to_string);
    let begins = live.schedule.as_ref().map(|schedule| schedule.begins.to_string());
    info!(
        %instance, purpose = %live.request.purpose, mode = %live.mode, begins, by = live.request.by, origin, reason,
        "switch {} is accepted: from {from} to {}", live.id, live.request.to
    );
}

/// Logs one transition. The level says what a person has to do.
fn transition(instance: &InstanceName, live: &Switch, step: &StoryStep) {
    macro_rules! log {
        ($level:ident, $($message:tt)+) => {
            $level!(
                %instance, from = %step.from, to = %step.to, outcome = %step.outcome, took = seconds(step.took()),
                downtime = downtime(live, step), why = step.why, $($message)+
            )
        };
    }
    let (id, to) = (live.id, &live.request.to);
    let back = live.from.as_ref().map_or_else(
        || if live.adopted.is_some() { "the adopted agent" } else { "nothing" }.to_owned(),
        Release::to_string,
    );
    let doing = step.to.doing();
    match step.to {
        Phase::Stranded => log!(
            error,
            "switch {id} is stranded: {back} does not come up again; sidle keeps trying, and a person is needed: see `sidle status {}`",
            live.package
        ),
        Phase::RolledBack => log!(warn, "switch {id} failed and is rolled back from {to}: {back} runs again"),
        Phase::Refused => log!(warn, "switch {id} to {to} is refused, nothing was changed"),
        Phase::Expired => log!(warn, "switch {id} to {to} has expired, nothing was changed"),
        Phase::Abandoned => log!(warn, "switch {id} to {to} is abandoned"),
        Phase::Cancelled => log!(info, "switch {id} to {to} is cancelled, nothing was changed"),
        Phase::Committed => log!(info, "switch {id} is done: {to} is current, and the old process has ended"),
        Phase::Flipping if step.from != step.to => {
            log!(info, "switch {id} is committed: {to} has passed, and becomes current");
        }
        next if next.is_back() && !step.from.is_back() => {
            log!(warn, "switch {id} fails: rolling back from {to} to {back}");
        }
        _ if step.outcome == Ending::Interrupted => log!(warn, "switch {id} goes on after an interruption: {doing}"),
        _ if step.outcome == Ending::Failed => log!(warn, "switch {id} tries again: {doing}"),
        _ => log!(info, "switch {id}: {doing}"),
    }
}

/// The downtime, at the end of a switch.
fn downtime(live: &Switch, step: &StoryStep) -> Option<String> {
    let ended = step.to.is_ended() && step.to == live.phase;
    ended.then(|| seconds(Duration::from_millis(live.downtime_milliseconds)))
}

/// Logs the processes that have ended since the last call. `journal`: at the time of their ends.
pub(in crate::switch) fn ends(processes: &mut Processes, journal: &Journal) {
    for end in processes.take_unlogged() {
        let record = &end.record;
        let role = match &journal.live {
            Some(live) if record.trial_of == Some(live.id) && !live.phase.is_committed() => "trial",
            Some(live) if record.trial_of != Some(live.id) && live.phase.is_committed() => "former",
            Some(_) | None => "serving",
        };
        let lived = clock::now().duration_since(record.started_at);
        let lived = seconds(Duration::try_from(lived).unwrap_or_default());
        let release = record.release.as_ref().map_or_else(|| "the adopted agent".to_owned(), Release::to_string);
        let unfinished: Vec<String> = end.unfinished.iter().map(ToString::to_string).collect();
        let unfinished = Some(unfinished.join(", ")).filter(|jobs| !jobs.is_empty());
        let (instance, pid, how) = (&journal.instance, record.leader.pid, &end.how);
        if record.being_ended || end.is_asked_for {
            info!(%instance, role, lived, "process {pid} of {release} {how}: stopped by sidle");
        } else {
            warn!(%instance, role, lived, unfinished, "process {pid} of {release} {how} by itself");
        }
    }
}

/// Formats a duration for the log: `0.213s`.
pub fn seconds(time: Duration) -> String {
    format!("{:.3}s", time.as_secs_f64())
}
