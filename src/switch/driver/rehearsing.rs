//! The driver's rehearsals: of a release before its trial, and of a proven release after a change of the host.

use crate::bundle::manifest::Head;
use crate::os::clock::Moment;
use crate::os::environment::Passed;
use crate::os::file;
use crate::rehearsal::states::Asked;
use crate::rehearsal::{Former, Part, Rehearsal, Rehearser, Scene};
use crate::store::Store;
use crate::store::host_fingerprint::HostFingerprint;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::{Driver, Policy, Rehearsals};
use crate::switch::process::Processes;
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::preparing::{Extras, Preparing};
use crate::switch::rehearsal::rebuild::Workshop;
use crate::switch::uses;
use crate::switch::{Outcome, Purpose, Switch};
use crate::version::Release;
use std::path::{Path, PathBuf};

/// What is known of this host, compared with the host on which a release was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Unchanged,
    Changed,
    /// The release was never proven here, or its fingerprint can't be read.
    Unknown,
}

/// A rehearsal that was begun, or the outcome without one.
enum Begun {
    Preparing(Box<Preparing>),
    Without(Outcome),
}

impl Driver {
    /// Rehearses the new release. A restart is only rehearsed if the host may have changed since the release was proven: if the release no longer
    /// loads, a restart that ends the old process first would leave no process.
    ///
    /// A rehearsal that can't be done counts as failed: a release that nobody has looked at is not known to work. Only the way back to a release
    /// that has worked on this very host needs no rehearsal.
    pub(in crate::switch) fn rehearse(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let wanted = self.rehearsals.clone().filter(|wanted| wanted.policy != Policy::Off);
        let Some(wanted) = wanted else { return Ok(Outcome::Done) };
        let policy = wanted.policy;
        let begun = match self.in_phase.preparing.take() {
            Some(preparing) => Begun::Preparing(Box::new(preparing)),
            None => self.prepare(live, wanted, processes, now)?,
        };
        let mut preparing = match begun {
            Begun::Preparing(preparing) => *preparing,
            Begun::Without(outcome) => return Ok(outcome),
        };
        let Some(came) = preparing.poll(now.since_boot) else {
            let waits_for = preparing.waits_for().to_owned();
            self.in_phase.preparing = Some(preparing);
            return Ok(Outcome::NotYet(waits_for));
        };
        let mut found = match came {
            Ok(found) => self.weighed_by_use(live, found)?,
            Err(reason) => Rehearsal::not_done(reason),
        };
        let ground = self.ground(&live.request.to)?;
        if live.request.purpose == Purpose::Rollback && ground == Ground::Unchanged {
            found = found.of_proven();
        }
        let journal = self.journal.noted(&found.told(policy == Policy::Refuse));
        self.write_journal(journal, now)?;
        Ok(match found.refusal().filter(|_| policy == Policy::Refuse) {
            None => Outcome::Done,
            Some(reason) if live.request.purpose == Purpose::Restart => {
                Outcome::Failed(not_restarted(&live.request.to, ground, &found, &reason))
            }
            Some(reason) => Outcome::Failed(reason),
        })
    }

    /// What is lost and used here counts against a release to switch to, and never against the way back.
    fn weighed_by_use(&self, live: &Switch, found: Rehearsal) -> Result<Rehearsal, DriveError> {
        let to = &live.request.to;
        let agents = self.rehearsals.as_ref().map(|wanted| wanted.agents);
        let rehearser = agents.and_then(|agents| agents(&self.store.head(to).ok()?.agent).ok()?.rehearser);
        match (live.request.purpose, &live.from, rehearser) {
            (Purpose::Rollback | Purpose::Restart, ..) | (_, None, _) | (.., None) => Ok(found),
            (_, Some(from), Some(rehearser)) => {
                Ok(uses::weighed(found, &self.store, self.files.instance(), rehearser, [from, to])?)
            }
        }
    }

    fn prepare(
        &self,
        live: &Switch,
        wanted: Rehearsals,
        processes: &Processes,
        now: Moment,
    ) -> Result<Begun, DriveError> {
        let Rehearsals { agents, policy: _, states, extras, wheels } = wanted;
        let manifest = self.store.head(&live.request.to)?;
        let rehearser = match agents(&manifest.agent) {
            Ok(parts) => parts.rehearser,
            Err(error) => return Ok(Begun::Without(Outcome::Failed(error.to_string()))),
        };
        let Some(rehearser) = rehearser else { return Ok(Begun::Without(Outcome::Done)) };
        if live.request.purpose == Purpose::Restart {
            if self.ground(&live.request.to)? == Ground::Unchanged {
                return Ok(Begun::Without(Outcome::Done));
            }
            return Ok(Begun::Preparing(Box::new(Preparing::of(self.again(rehearser, &manifest, processes, now)?))));
        }
        let configuration = processes.configuration(&manifest);
        let former = match &live.adopted {
            Some(adopted) => rehearser.packaged(&adopted.leader),
            None => former(&self.store, live.from.as_ref(), &configuration)?,
        };
        let scene = Scene {
            states: Asked::new(states, self.limits.rehearsal)?,
            ..scene(&self.store, former, &manifest, configuration, processes.passed.clone())?
        };
        let run = self.files.layout().run(self.files.instance());
        let state = self.files.layout().instance(self.files.instance());
        let workshop = Workshop { state, wheels, longest: self.limits.rebuild };
        let extras = Extras { policy: extras, workshop };
        let preparing = Preparing::start(rehearser, scene, &run, extras, self.limits.rehearsal, now.since_boot)?;
        Ok(Begun::Preparing(Box::new(preparing)))
    }

    fn ground(&self, release: &Release) -> Result<Ground, DriveError> {
        let Ok(proven) = self.files.host_fingerprints() else { return Ok(Ground::Unknown) };
        let Some(before) = proven.of(release) else { return Ok(Ground::Unknown) };
        let changes = HostFingerprint::read(&self.store.head(release)?).changes(before);
        Ok(if changes.is_empty() { Ground::Unchanged } else { Ground::Changed })
    }

    /// Verifies a proven release and begins its rehearsal; None: rehearsals are off.
    pub fn rehearse_again(
        &self,
        release: &Release,
        processes: &Processes,
        now: Moment,
    ) -> Result<Option<Rehearsing>, DriveError> {
        let Some(wanted) = self.rehearsals.as_ref().filter(|wanted| wanted.policy != Policy::Off) else {
            return Ok(None);
        };
        self.store.verify(release)?;
        let manifest = self.store.head(release)?;
        let rehearser = (wanted.agents)(&manifest.agent).ok().and_then(|parts| parts.rehearser);
        rehearser.map(|rehearser| self.again(rehearser, &manifest, processes, now)).transpose()
    }

    fn again(
        &self,
        rehearser: &'static dyn Rehearser,
        manifest: &Head,
        processes: &Processes,
        now: Moment,
    ) -> Result<Rehearsing, DriveError> {
        let configuration = processes.configuration(manifest);
        let part = part(&self.store, manifest, &configuration)?;
        let run = self.files.layout().run(self.files.instance());
        let longest = self.limits.rehearsal;
        let scene = Scene {
            trial: part,
            former: Former::Nothing,
            config_directory: configuration,
            passed: processes.passed.clone(),
            states: None,
        };
        Ok(Rehearsing::start(rehearser, scene, Question::Still, &run, longest, now.since_boot)?)
    }

    /// Writes the fingerprint of the host on which the release was proven.
    pub(in crate::switch) fn record_host_fingerprint(&self, release: &Release) -> Result<(), DriveError> {
        let fingerprint = HostFingerprint::read(&self.store.head(release)?);
        let kept = self.store.releases()?;
        let fingerprints = self.files.host_fingerprints()?.with(release, fingerprint, |release| kept.contains(release));
        Ok(self.files.write(&self.lock, &fingerprints)?)
    }
}

/// The refusal of a restart.
fn not_restarted(release: &Release, ground: Ground, found: &Rehearsal, reason: &str) -> String {
    let host = match ground {
        Ground::Unchanged | Ground::Changed => format!("the host has changed since {release} was proven"),
        Ground::Unknown => format!("nobody can tell whether the host has changed since {release} was proven"),
    };
    let release_would = match found.blocking.first() {
        Some(_) => "it would not come up again",
        None => "nobody can tell whether it would come up again",
    };
    format!(
        "{host}, and {release_would}: {reason}; the running process is not touched: put back what is missing, or switch to a release that works \
         on this host"
    )
}

/// The current release, to compare with. The caller holds a lease on it.
pub fn former(store: &Store, from: Option<&Release>, config_directory: &Path) -> Result<Former, DriveError> {
    Ok(from.map(|from| part(store, &store.head(from)?, config_directory)).transpose()?.into())
}

/// The scene of a switch to a release. The caller holds a lease on it.
pub fn scene(
    store: &Store,
    former: Former,
    manifest: &Head,
    config_directory: PathBuf,
    passed: Passed,
) -> Result<Scene, DriveError> {
    Ok(Scene { trial: part(store, manifest, &config_directory)?, former, config_directory, passed, states: None })
}

fn part(store: &Store, manifest: &Head, config_directory: &Path) -> Result<Part, DriveError> {
    let tree = file::canonical(store.tree(&manifest.release())?.path())?;
    Ok(Part::of(tree, manifest, config_directory))
}
