//! The driver's rehearsals: of a release before its trial, and of one that worked here until the host changed under it.

use crate::bundle::manifest::{Manifest, Service};
use crate::os::clock::Moment;
use crate::os::file;
use crate::rehearsal::{Part, Rehearsers, Scene};
use crate::store::host_fingerprint::HostFingerprint;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::{Driver, Policy, Rehearsals};
use crate::switch::process::Processes;
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::preparing::{Extras, Preparing};
use crate::switch::rehearsal::rebuild::Workshop;
use crate::switch::{Outcome, Purpose, Switch};
use crate::version::Release;
use std::path::Path;

impl Driver {
    /// The new release loads what this host has for it. A restart changes no release, and its trial will tell: unless the host has changed
    /// under it, when a restart that ends the old process first would leave nobody.
    pub(in crate::switch) fn rehearse(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let wanted = self.rehearsals.clone().filter(|wanted| wanted.policy != Policy::Off);
        let Some(Rehearsals { rehearsers, policy, extras, wheels }) = wanted else { return Ok(Outcome::Done) };
        let mut preparing = if let Some(preparing) = self.preparing.take() {
            preparing
        } else {
            let manifest = self.store.manifest(&live.request.to)?;
            if live.request.purpose == Purpose::Restart {
                // A note of what was is no reason to refuse anything.
                let proven = self.files.host_fingerprints().unwrap_or_default();
                let stands = |before| HostFingerprint::read(&manifest).changes(before).is_empty();
                if proven.of(&live.request.to).is_none_or(stands) {
                    return Ok(Outcome::Done);
                }
                Preparing::of(self.again(rehearsers, &manifest, processes, now)?)
            } else {
                let scene = self.scene(live, &manifest, processes)?;
                let run = self.files.layout().run(self.files.instance());
                let state = self.files.layout().instance(self.files.instance());
                let workshop = Workshop { state, wheels, longest: self.limits.rebuild };
                let (rehearser, extras) = (rehearsers(manifest.agent), Extras { policy: extras, workshop });
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
                        "the host has changed since {} was proven, and it would not come up again: {reason}; the running process is left \
                         alone: put back what is missing, or switch to a release that works on this host",
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

    /// Begins the rehearsal of an installed release that has worked here, once its files are known to be whole; None: none is wanted.
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
        Ok(Some(self.again(wanted.rehearsers, &manifest, processes, now)?))
    }

    fn again(
        &self,
        rehearsers: Rehearsers,
        manifest: &Manifest,
        processes: &Processes,
        now: Moment,
    ) -> Result<Rehearsing, DriveError> {
        let configuration = processes.configuration(manifest);
        let part = self.part(manifest, &configuration)?;
        let run = self.files.layout().run(self.files.instance());
        let (rehearser, longest) = (rehearsers(manifest.agent), self.limits.rehearsal);
        let scene = Scene { trial: part, former: None, config_directory: configuration };
        Ok(Rehearsing::start(rehearser, scene, Question::Still, &run, longest, now.since_boot)?)
    }

    fn scene(&self, live: &Switch, manifest: &Manifest, processes: &Processes) -> Result<Scene, DriveError> {
        let config_directory = processes.configuration(manifest);
        let former = match &live.from {
            Some(from) => Some(self.part(&self.store.manifest(from)?, &config_directory)?),
            None => None,
        };
        Ok(Scene { trial: self.part(manifest, &config_directory)?, former, config_directory })
    }

    fn part(&self, manifest: &Manifest, config_directory: &Path) -> Result<Part, DriveError> {
        let environment = manifest.service.environment.iter();
        let environment = environment.map(|(name, value)| (name.into(), Service::expanded(value, config_directory)));
        let tree = file::canonical(self.store.tree(&manifest.release())?.path())?;
        Ok(Part { tree, environment: environment.collect() })
    }

    /// Writes down what of the host the release has been proven on.
    pub(in crate::switch) fn record_host_fingerprint(&self, release: &Release) -> Result<(), DriveError> {
        let fingerprint = HostFingerprint::read(&self.store.manifest(release)?);
        let kept = self.store.releases()?;
        let fingerprints = self.files.host_fingerprints()?.with(release, fingerprint, |release| kept.contains(release));
        Ok(self.files.write_host_fingerprints(&self.lock, &fingerprints)?)
    }
}
