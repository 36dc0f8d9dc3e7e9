//! `sidle setup --start`: the least configuration, a key that the masters accept, and the first switch.

use super::{Setup, Step};
use crate::acquire::Acquired;
use crate::adoption::running_agent;
use crate::agent::introduction::{Configured, Introduced, Introducer, Standing, Told};
use crate::agent::{AgentSettings, Answers};
use crate::bundle::manifest::Head;
use crate::cli::follow::follow;
use crate::cli::switches::switching::{SwitchArguments, switch};
use crate::cli::{Context, Ended, agents, instance_of};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::os::dir::Dir;
use crate::os::{clock, file, lock};
use crate::rehearsal::Part;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::InstanceFiles;
use crate::version::Release;
use clap::Args;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// How long a key may wait for its acceptance.
const WAIT: Duration = Duration::from_secs(15 * 60);
/// How long a supervisor may take to start.
const SUPERVISOR_WAIT: Duration = Duration::from_secs(10);
/// How long an agent of a supervisor that was just started may take to run.
const AGENT_WAIT: Duration = Duration::from_secs(30);
/// How often the masters are asked meanwhile.
const INTERVAL: Duration = Duration::from_secs(5);

/// The options of `--start`.
#[derive(Debug, Args)]
pub struct StartArguments {
    /// Start the release as this host's first agent (minion): write the least configuration, wait until the masters accept its key, then switch to it
    #[arg(long, conflicts_with = "adopt")]
    pub(super) start: bool,
    /// The minion's masters: names or addresses
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "start")]
    master: Vec<String>,
    /// The minion's id [default: Salt's choice, the host's name]
    #[arg(long, requires = "master")]
    id: Option<String>,
    /// The fingerprint of the masters' key, as `salt-key -F master` prints it there (not in Salt 3008.5 and older 3008: docs/first-host.md) [default: believe the first key that a master shows]
    #[arg(long, value_name = "FINGERPRINT", requires = "master", value_parser = fingerprint)]
    pin_master: Option<String>,
    /// How long to wait for the acceptance of the key [default: 15m]
    #[arg(long, value_name = "TIME", requires = "start", value_parser = crate::config::duration)]
    wait: Option<Duration>,
}

/// Largest file of a first configuration that is read: a few names.
const CONFIGURATION_BYTES_MAXIMUM: u64 = 64 << 10;

/// A first agent whose key is not accepted yet.
#[derive(Debug, Serialize)]
pub(super) struct Waiting {
    /// Its name at its peers.
    id: String,
    /// The fingerprint of its key.
    key: String,
    /// What is awaited of each peer, in words.
    pub(super) peers: Vec<String>,
}

/// A fingerprint as Salt compares it: with colons, in small letters. `sha256sum` prints none.
pub(in crate::cli) fn fingerprint(text: &str) -> Result<String, String> {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
    if digits.len() < 32 || digits.len() % 2 == 1 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(
            "expected the hexadecimal digits of a fingerprint, with or without colons, as in 1f:2e:…".to_owned()
        );
    }
    let bytes: Vec<&str> = (0..digits.len()).step_by(2).filter_map(|at| digits.get(at..at + 2)).collect();
    Ok(bytes.join(":"))
}

/// The host, how the release reads its configuration, and how its agent is brought up.
struct Host<'a> {
    context: &'a Context,
    settings: AgentSettings,
    introducer: &'static dyn Introducer,
}

impl Host<'_> {
    /// Refuses a host whose agent runs without sidle.
    fn refuse_running(&self, manifest: &Head) -> Result<(), Report> {
        let package = &manifest.package;
        let Some(adopter) = agents::parts(&manifest.agent)?.adopter else { return Ok(()) };
        let Some(found) = adopter.find(&self.settings, None)? else {
            let (layout, unit) = (&self.context.layout, adopter.unit(package.as_str()));
            return running_agent::refuse_enabled(layout, manifest, &self.settings.config_directory, &unit);
        };
        let message = format!("cannot start {package}: it runs on this host already, as process {}", found.leader.pid);
        Err(Report::of(Class::Conflict, message).hint("take it over instead: `sidle setup … --adopt`"))
    }

    /// Writes the configuration, if nobody else has; what was done, and whether that is a change.
    fn configure(&self, told: &Told, effect: Effect) -> Result<(String, bool), Report> {
        let directory = &self.settings.config_directory;
        let first = self.introducer.file(told);
        let path = directory.join(&first.path);
        let masters = told.peers.join(", ");
        let present = file::read_if_exists(&path, CONFIGURATION_BYTES_MAXIMUM)?;
        // What an earlier run wrote is replaced: by other words of the same person. What somebody has added to stays.
        let is_own = present.as_ref().is_some_and(|text| self.introducer.wrote(text));
        let Configured { peers, pin, .. } = self.introducer.configured(&self.settings, self.context.layout.root())?;
        // The same masters alone are not all that was asked for: a name or a pinned key must be in the configuration, too.
        let has_all = told.id.is_none() && (told.pin.is_none() || told.pin == pin);
        match peers {
            Some(named) if told.peers.is_empty() || (named == told.peers && has_all && !is_own) => {
                let (named, directory) = (named.join(", "), directory.display());
                return Ok((format!("the configuration in {directory} names {named} already"), false));
            }
            Some(named) if named != told.peers && !is_own => return Err(self.other(&masters, &named)),
            None if told.peers.is_empty() => {
                let message = format!("cannot start: the configuration in {} names no master", directory.display());
                return Err(Report::of(Class::Usage, message).hint("name the masters: --master NAME,…"));
            }
            Some(_) | None => {}
        }
        let what = format!("{} with {masters}", path.display());
        if present.as_deref() == Some(first.text.as_bytes()) {
            return Ok((format!("{what} is there already"), false));
        }
        if present.is_some() && !is_own {
            let message = format!("cannot write {}: it has more than `sidle setup --start` writes", path.display());
            let hint = "name masters, id and pinned key there yourself, and leave out --master; or move your lines to another file of this directory";
            return Err(Report::of(Class::Conflict, message).hint(hint));
        }
        let (Some(parent), Some(name), Effect::Apply) = (path.parent(), path.file_name(), effect) else {
            return Ok((what, true));
        };
        let place = Dir::open_or_create(parent, 0o755)?;
        place.write_atomic(name, first.text.as_bytes(), 0o644)?;
        place.sync()?;
        let Configured { peers, pin, .. } = self.introducer.configured(&self.settings, self.context.layout.root())?;
        match peers {
            Some(named) if named != told.peers => Err(self.other(&masters, &named)),
            Some(_) | None if told.pin.is_some() && told.pin != pin => {
                let message = format!("cannot pin the masters' key: a file after {} pins another key", path.display());
                Err(Report::of(Class::Conflict, message).hint("remove its `master_finger`, or leave out --pin-master"))
            }
            Some(_) | None => Ok((what, true)),
        }
    }

    /// Refuses other masters, another id and another pinned key than the configuration of a started agent has.
    fn compare(&self, start: &StartArguments) -> Result<(), Report> {
        let Configured { id, peers, pin } = self.introducer.configured(&self.settings, self.context.layout.root())?;
        let named = peers.unwrap_or_default();
        if !start.master.is_empty() && start.master != named {
            return Err(self.other(&start.master.join(", "), &named));
        }
        if let Some(wanted) = start.id.as_ref().filter(|wanted| **wanted != id) {
            return Err(other_id(wanted, &id));
        }
        let Some(wanted) = start.pin_master.as_ref().filter(|wanted| Some(*wanted) != pin.as_ref()) else {
            return Ok(());
        };
        let directory = self.settings.config_directory.display();
        let pins = pin.map_or_else(|| "pins none".to_owned(), |pin| format!("pins {pin}"));
        let message = format!("cannot pin the masters' key {wanted}: the configuration in {directory} {pins}");
        let hint = "set `master_finger` there yourself, then `sidle restart`; or leave out --pin-master";
        Err(Report::of(Class::Conflict, message).hint(hint))
    }

    fn other(&self, masters: &str, named: &[String]) -> Report {
        let (directory, named) = (self.settings.config_directory.display(), named.join(", "));
        let message = format!("cannot name {masters}: the configuration in {directory} names {named}");
        let hint = "leave out --master to start with that configuration, or change it yourself";
        Report::of(Class::Conflict, message).hint(hint)
    }

    /// Waits until each master has accepted the key. Gives what they said last, and what is still awaited of whom.
    ///
    /// `is_started`: the agent runs already.
    fn wait(&self, id: Option<&str>, wait: Duration, is_started: bool) -> Result<(Introduced, Vec<String>), Report> {
        let begun = clock::since_boot();
        let mut told = Vec::new();
        loop {
            let shown = self.introducer.introduce(&self.settings, self.context.layout.root())?;
            if let Some(id) = id.filter(|id| **id != *shown.id) {
                return Err(other_id(id, &shown.id));
            }
            if let Some((why, remedy)) = shown.peers.iter().find_map(|(_, standing)| match standing {
                Standing::Refused(why, remedy) => Some((why, remedy)),
                Standing::Accepted | Standing::Waits(_) | Standing::Silent(_) => None,
            }) {
                return Err(Report::of(Class::Failed, why.clone()).hint(remedy.clone()));
            }
            let open: Vec<String> = shown.peers.iter().filter_map(|(name, standing)| waits(name, standing)).collect();
            // A started agent goes on by itself when a silent master is back: only a key to accept is worth a wait.
            let waits = shown.peers.iter().any(|(_, standing)| matches!(standing, Standing::Waits(_)));
            if open.is_empty() || (is_started && !waits) {
                return Ok((shown, open));
            }
            if open != told {
                self.context.output.step(format!("start: the key of {} is {}", shown.id, shown.key));
                for line in &open {
                    self.context.output.step(format!("start: waits: {line}"));
                }
                told.clone_from(&open);
            }
            if clock::since_boot().saturating_sub(begun) + INTERVAL > wait {
                return Ok((shown, open));
            }
            clock::sleep(INTERVAL);
        }
    }
}

/// No master answers.
fn silent(id: &str, why: &[String]) -> Report {
    let message = format!("cannot show the key of {id} to its masters: {}", why.join("; "));
    let hint = "correct --master; each master must be reachable from this host (Salt's ports are 4505 and 4506)";
    Report::of(Class::Failed, message).hint(hint)
}

fn other_id(wanted: &str, id: &str) -> Report {
    let message = format!("cannot start the minion as {wanted}: its configuration names it {id}");
    Report::of(Class::Conflict, message).hint("remove the other `id`, or leave out --id")
}

/// What is awaited of a peer, in words; None: nothing.
fn waits(name: &str, standing: &Standing) -> Option<String> {
    match standing {
        Standing::Accepted => None,
        Standing::Waits(how) => Some(how.clone()),
        Standing::Silent(why) => Some(format!("{name} does not answer: {why}")),
        Standing::Refused(why, _) => Some(why.clone()),
    }
}

impl<'a> Setup<'a> {
    /// Starts the release as the host's first agent. Gives the end of a switch that did not end well.
    pub(super) fn start(&mut self, installed: &Acquired) -> Result<Option<Class>, Report> {
        let (context, package, start) = (self.context, &self.arguments.package, &self.arguments.start);
        let name = instance_of(package, None);
        let store = Store::new(&context.layout, package);
        if let Some(current) = store.current(&name)? {
            return self.start_again(&store, &current, installed);
        }
        let Some(release) = self.present(installed) else {
            self.note(Step::Start, format!("would configure and start {package}"), true);
            return Ok(None);
        };
        let host = self.host(&store, &release)?;
        // What runs below the supervisor is sidle's own: an earlier run of this command was cut off in the first switch.
        let is_own = SupervisorStatus::read(&context.layout, &name)?.is_some_and(|status| status.agent.is_some());
        if !is_own {
            host.refuse_running(&store.head(&release)?)?;
        }
        let (peers, id, pin) = (start.master.clone(), start.id.clone(), start.pin_master.clone());
        let (what, changed) = host.configure(&Told { peers, id, pin }, self.effect)?;
        if changed {
            self.step(Step::Start, "wrote", "would write", &what);
        } else {
            self.note(Step::Start, what, false);
        }
        if self.effect == Effect::DryRun {
            self.note(Step::Start, format!("would show the key to the masters, and start {package} {release}"), true);
            return Ok(None);
        }
        let (shown, open) = host.wait(start.id.as_deref(), start.wait.unwrap_or(WAIT), false)?;
        if !open.is_empty() && !shown.peers.iter().any(|(_, standing)| matches!(standing, Standing::Waits(_))) {
            return Err(silent(&shown.id, &open));
        }
        if !open.is_empty() {
            return Ok(Some(self.wait_for_acceptance(shown, open)));
        }
        let masters: Vec<&str> = shown.peers.iter().map(|(name, _)| name.as_str()).collect();
        self.note(Step::Start, format!("{} accepts the key of {}", masters.join(", "), shown.id), true);
        self.start_supervisor(Step::Start)?;
        self.require_supervisor()?;
        let files = InstanceFiles::new(&context.layout, &name, package);
        // An earlier run of this command was cut off in the first switch, which goes on by itself.
        let ended = match files.journal()?.live.filter(|live| live.request.to == release) {
            Some(live) => follow(&files, live.id, &self.within().output)?,
            None => switch(&self.within(), &SwitchArguments::to(package, &release))?,
        };
        match ended {
            Ended::As(class) if class != Class::NothingToDo => return Ok(Some(class)),
            Ended::As(_) | Ended::Well => {}
        }
        self.note(Step::Start, format!("started {package} {release} as {}", shown.id), true);
        Ok(None)
    }

    /// The agent was started before: what is asked for must be so, and its key accepted.
    fn start_again(&mut self, store: &Store, current: &Release, installed: &Acquired) -> Result<Option<Class>, Report> {
        let (package, start) = (&self.arguments.package, &self.arguments.start);
        let host = self.host(store, current)?;
        host.compare(start)?;
        let installed = Some(&installed.installed.release).filter(|release| *release != current);
        let other =
            installed.map(|release| format!("; `sidle switch {package} {release}` switches to the installed release"));
        let text = format!("{package} {current} is started already{}", other.unwrap_or_default());
        if self.effect == Effect::DryRun {
            self.note(Step::Start, text, false);
            return Ok(None);
        }
        self.start_supervisor(Step::Start)?;
        self.require_supervisor()?;
        // A clone has a key of its own, which nobody has accepted.
        let (shown, open) = host.wait(start.id.as_deref(), start.wait.unwrap_or(WAIT), true)?;
        self.note(Step::Start, text, false);
        if shown.peers.iter().any(|(_, standing)| matches!(standing, Standing::Waits(_))) {
            return Ok(Some(self.wait_for_acceptance(shown, open)));
        }
        // A minion without masters has nobody to hear.
        let is_deaf = shown.peers.iter().all(|(_, standing)| matches!(standing, Standing::Silent(_)));
        if is_deaf && !shown.peers.is_empty() {
            return Err(silent(&shown.id, &open));
        }
        for line in open {
            self.note(Step::Start, line, false);
        }
        self.require_agent()?;
        Ok(None)
    }

    /// Refuses to call an agent started that does not run: it ends again and again, or a person has ended it.
    fn require_agent(&self) -> Result<(), Report> {
        let (layout, package) = (&self.context.layout, &self.arguments.package);
        let name = instance_of(package, None);
        let agent = || Ok(SupervisorStatus::read(layout, &name)?.and_then(|status| status.agent));
        if lock::wait::<_, Report>(AGENT_WAIT, agent)?.is_some() {
            return Ok(());
        }
        let message = format!("cannot start {package}: its supervisor runs, but the agent does not");
        Err(Report::of(Class::Failed, message).hint(format!("`sidle status {package}` and `sidle doctor` say why")))
    }

    fn wait_for_acceptance(&mut self, shown: Introduced, open: Vec<String>) -> Class {
        self.note(Step::Start, format!("the key of {} ({}) is not accepted yet", shown.id, shown.key), false);
        self.waiting = Some(Waiting { id: shown.id, key: shown.key, peers: open });
        Class::Pending
    }

    /// Refuses a host without a supervisor. One that systemd has just started says so a moment later.
    fn require_supervisor(&self) -> Result<(), Report> {
        let (layout, package) = (&self.context.layout, &self.arguments.package);
        let name = instance_of(package, None);
        if lock::wait(SUPERVISOR_WAIT, || SupervisorStatus::read(layout, &name))?.is_some() {
            return Ok(());
        }
        let message = format!("cannot start {package}: no supervisor runs on this host");
        Err(Report::of(Class::Failed, message).hint(format!("start one by your init: `sidle supervise {name}`")))
    }

    /// The release, and what it is to read.
    fn host(&self, store: &Store, release: &Release) -> Result<Host<'a>, Report> {
        let (layout, name) = (&self.context.layout, instance_of(&self.arguments.package, None));
        let manifest = store.head(release)?;
        let Some(introducer) = agents::parts(&manifest.agent)?.introducer else {
            let message = format!(
                "cannot start {} by itself: an agent of kind {} has no key",
                self.arguments.package, manifest.agent
            );
            return Err(Report::of(Class::Usage, message).hint(format!(
                "`systemctl enable --now sidle@{name}`, then `sidle switch {}`",
                self.arguments.package
            )));
        };
        let settings = Settings::read(layout)?;
        let (passed, named) = (settings.passed(&name), settings.instance(layout, &name)?.1);
        let configuration = named.unwrap_or_else(|| layout.on_host(Path::new(&manifest.service.config)));
        let part = Part::of(file::canonical(store.tree(release)?.path())?, &manifest, &configuration);
        let asking = AgentSettings::new(&configuration).asking(part, Answers::Forgotten);
        Ok(Host { context: self.context, settings: AgentSettings { passed, ..asking }, introducer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_pinned_as_salt_compares_it() {
        let with = ["1f"; 32].join(":");
        for good in [with.clone(), "1f".repeat(32), "1F".repeat(32), with.to_uppercase()] {
            assert_eq!(fingerprint(&good), Ok(with.clone()), "{good}");
        }
        for bad in ["", "1f:2e", &"1g".repeat(32), &"1f".repeat(32)[1..], "-"] {
            assert!(fingerprint(bad).is_err(), "{bad}");
        }
    }
}
