//! The driver's rehearsals: of a release before its trial, and of a proven release after a change of the host.

use crate::bundle::manifest::Manifest;
use crate::os::clock::Moment;
use crate::os::file;
use crate::rehearsal::{Part, Rehearser, Scene};
use crate::store::Store;
use crate::store::host_fingerprint::HostFingerprint;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::{Driver, Policy, Rehearsals};
use crate::switch::process::Processes;
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::preparing::{Extras, Preparing};
use crate::switch::rehearsal::rebuild::Workshop;
use crate::switch::{Outcome, Purpose, Switch};
use crate::version::Release;
use std::path::{Path, PathBuf};

impl Driver {
    /// Rehearses the new release. A restart is only rehearsed if the host has changed since the release was proven: if the release no longer
    /// loads, a restart that ends the old process first would leave no process.
    pub(in crate::switch) fn rehearse(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let wanted = self.rehearsals.clone().filter(|wanted| wanted.policy != Policy::Off);
        let Some(Rehearsals { agents, policy, extras, wheels }) = wanted else { return Ok(Outcome::Done) };
        let mut preparing = if let Some(preparing) = self.preparing.take() {
            preparing
        } else {
            let manifest = self.store.manifest(&live.request.to)?;
            let rehearser = match agents(&manifest.agent) {
                Ok(parts) => parts.rehearser,
                Err(error) => return Ok(Outcome::Failed(error.to_string())),
            };
            let Some(rehearser) = rehearser else { return Ok(Outcome::Done) };
            if live.request.purpose == Purpose::Restart {
                // Unreadable fingerprints are no reason to refuse a restart.
                let proven = self.files.host_fingerprints().unwrap_or_default();
                let is_unchanged = |before| HostFingerprint::read(&manifest).changes(before).is_empty();
                if proven.of(&live.request.to).is_none_or(is_unchanged) {
                    return Ok(Outcome::Done);
                }
                Preparing::of(self.again(rehearser, &manifest, processes, now)?)
            } else {
                let configuration = processes.configuration(&manifest);
                let scene = scene(&self.store, live.from.as_ref(), &manifest, configuration)?;
                let run = self.files.layout().run(self.files.instance());
                let state = self.files.layout().instance(self.files.instance());
                let workshop = Workshop { state, wheels, longest: self.limits.rebuild };
                let extras = Extras { policy: extras, workshop };
                Preparing::start(rehearser, scene, &run, extras, self.limits.rehearsal, now.since_boot)?
            }
        };
        let Some(came) = preparing.poll(now.since_boot) else {
            let waits_for = preparing.waits_for().to_owned();
            self.preparing = Some(preparing);
            return Ok(Outcome::NotYet(waits_for));
        };
        match came {
            Ok(rehearsal) => {
                let refuses = rehearsal.refusal().filter(|_| policy == Policy::Refuse);
                let journal = self.journal.noted(&rehearsal.told(policy == Policy::Refuse));
                self.believe(journal, now)?;
                Ok(match refuses {
                    None => Outcome::Done,
                    Some(reason) if live.request.purpose == Purpose::Restart => Outcome::Failed(format!(
                        "the host has changed since {} was proven, and it would not come up again: {reason}; the running process is not \
                         touched: put back what is missing, or switch to a release that works on this host",
                        live.request.to
                    )),
                    Some(reason) => Outcome::Failed(reason),
                })
            }
            Err(reason) => {
                let journal = self.journal.noted(&[reason]);
                self.believe(journal, now)?;
                Ok(Outcome::Done)
            }
        }
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
        let manifest = self.store.manifest(release)?;
        let rehearser = (wanted.agents)(&manifest.agent).ok().and_then(|parts| parts.rehearser);
        rehearser.map(|rehearser| self.again(rehearser, &manifest, processes, now)).transpose()
    }

    fn again(
        &self,
        rehearser: &'static dyn Rehearser,
        manifest: &Manifest,
        processes: &Processes,
        now: Moment,
    ) -> Result<Rehearsing, DriveError> {
        let configuration = processes.configuration(manifest);
        let part = part(&self.store, manifest, &configuration)?;
        let run = self.files.layout().run(self.files.instance());
        let longest = self.limits.rehearsal;
        let scene = Scene { trial: part, former: None, config_directory: configuration };
        Ok(Rehearsing::start(rehearser, scene, Question::Still, &run, longest, now.since_boot)?)
    }

    /// Writes the fingerprint of the host on which the release was proven.
    pub(in crate::switch) fn record_host_fingerprint(&self, release: &Release) -> Result<(), DriveError> {
        let fingerprint = HostFingerprint::read(&self.store.manifest(release)?);
        let kept = self.store.releases()?;
        let fingerprints = self.files.host_fingerprints()?.with(release, fingerprint, |release| kept.contains(release));
        Ok(self.files.write_host_fingerprints(&self.lock, &fingerprints)?)
    }
}

/// The scene of a switch: the new release, and the current release (`from`) to compare with. The caller holds leases on both.
pub fn scene(
    store: &Store,
    from: Option<&Release>,
    manifest: &Manifest,
    config_directory: PathBuf,
) -> Result<Scene, DriveError> {
    let former = from.map(|from| part(store, &store.manifest(from)?, &config_directory)).transpose()?;
    Ok(Scene { trial: part(store, manifest, &config_directory)?, former, config_directory })
}

fn part(store: &Store, manifest: &Manifest, config_directory: &Path) -> Result<Part, DriveError> {
    let tree = file::canonical(store.tree(&manifest.release())?.path())?;
    Ok(Part::of(tree, manifest, config_directory))
}
