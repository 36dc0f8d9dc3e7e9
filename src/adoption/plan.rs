//! Taking over a running agent: the plan holds all facts before anything is changed.

use super::AdoptingInstance;
use super::environment::Environment;
use super::host_settings::HostSettings;
use super::packaged_tree::PackagedTree;
use super::record::{Adoption, GUARD_NAME, Stage};
use super::running_agent::{failed, find, is_own, other_user, shares};
use crate::agent::adoption::{Adopter, RunningAgent};
use crate::agent::caller::Caller;
use crate::agent::gate::GuardReport;
use crate::agent::{AgentSettings, Answers};
use crate::bundle::manifest::Head;
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::os::account::Rights;
use crate::os::process::{self, Identity};
use crate::os::{again, clock, proc_fs};
use crate::store::check::Depth;
use crate::supervise::control::{Answer, Command, SwitchCommand, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::switch::schedule::When;
use crate::switch::{Adopted, Mode, Purpose, Request};
use crate::version::Release;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a running agent may take to load its guard: it loads all its modules for that, on a busy host.
const GUARD_WAIT: Duration = Duration::from_secs(60);
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// The choices of the administrator.
#[derive(Debug, Default)]
pub struct Chosen {
    /// The release that takes over; None: the newest installed release.
    pub release: Option<Release>,
    /// The unit of the package's agent; None: the usual one.
    pub unit: Option<String>,
    /// How to take over; None: overlap.
    pub mode: Option<Mode>,
    /// Nothing is to be changed.
    pub is_dry_run: bool,
}

/// The state that an interrupted adoption left.
pub enum Earlier {
    /// Nothing, or a failed adoption, which is undone now.
    None,
    /// The instance is adopted.
    Adopted,
    /// The switch had succeeded; the rest is done now.
    Completed {
        /// The release that runs.
        release: Release,
        /// Warnings: the parts of the adoption that failed, or were left out.
        warnings: Vec<String>,
    },
}

/// Completes or undoes an earlier adoption that was cut off. A dry run changes nothing.
pub fn resume(instance: &AdoptingInstance, is_dry_run: bool) -> Result<Earlier, Report> {
    let Some(mut adoption) = Adoption::read(instance.layout(), instance.name())? else { return Ok(Earlier::None) };
    let journal = instance.files.journal()?;
    match (adoption.stage, journal.live, journal.proven) {
        (Stage::Held, ..) => return Ok(Earlier::Adopted),
        (Stage::Begun, Some(live), _) => {
            let (name, package) = (instance.name(), instance.package());
            let message = format!("cannot adopt {name}: switch {} is {}", live.id, live.phase);
            let hint = format!("wait for that switch (`sidle status {package}` shows it), or `sidle cancel {package}`");
            return Err(Report::of(Class::Conflict, message).hint(hint));
        }
        (Stage::Begun, None, _) if is_dry_run => {}
        (Stage::Begun, None, Some(release)) => {
            let mut warnings = adoption.retire(instance, &instance.replaced(&instance.store().head(&release)?)?)?;
            warnings.extend(adoption.describe_extras(instance, &release));
            return Ok(Earlier::Completed { release, warnings });
        }
        (Stage::Begun, None, None) => adoption.undo(instance)?,
    }
    Ok(Earlier::None)
}

/// An adoption that can begin.
pub struct AdoptionPlan<'a> {
    pub(super) instance: &'a AdoptingInstance,
    pub(super) to: Release,
    pub(super) manifest: Head,
    pub(super) configuration: PathBuf,
    settings: AgentSettings,
    pub(super) adopter: &'static dyn Adopter,
    pub(super) found: RunningAgent,
    pub(super) unit: String,
    managed: bool,
    pub(super) environment: Environment,
    host_settings: HostSettings,
    mode: Mode,
}

impl<'a> AdoptionPlan<'a> {
    /// Looks for the agent, and refuses what cannot be adopted.
    pub fn new(instance: &'a AdoptingInstance, chosen: &Chosen) -> Result<Self, Report> {
        let (package, store) = (instance.package(), instance.store());
        let cannot = |why: String, hint: &str| Err(cannot(instance, &why, hint));
        let Some(to) = chosen.release.clone().or(store.releases()?.into_iter().next_back()) else {
            return cannot("no release of it is installed".to_owned(), "`sidle install FILE` installs a release");
        };
        if chosen.is_dry_run {
            store.judge(&to, store.check_without_index(&to, Depth::Quick)?.1)?;
        } else {
            store.verify(&to)?;
        }
        let manifest = store.head(&to)?;
        let settings = instance.agent(&manifest, if chosen.is_dry_run { Answers::Read } else { Answers::Kept })?;
        let configuration = settings.config_directory.clone();
        let Some(adopter) = instance.adopter(&manifest.agent)? else {
            return cannot("sidle cannot adopt this kind of agent".to_owned(), "`sidle switch` starts it");
        };
        if !chosen.is_dry_run {
            // A guard that a crash left lies where the running agent would load it.
            adopter.tidy(&settings).map_err(failed)?;
        }
        let unit = chosen.unit.clone().unwrap_or_else(|| adopter.unit(package.as_str()));
        let Some((found, managed)) = find(instance, adopter, &settings, &unit)? else {
            let hint =
                format!("`sidle switch {package}` starts a release where no agent runs; --unit names another unit");
            return cannot(format!("no agent runs with the configuration in {}", configuration.display()), &hint);
        };
        refuse_unfit(instance, &found, &configuration, managed)?;
        let mode = chosen.mode.unwrap_or(Mode::Overlap);
        if let Some(why) = adopter.alone(&found).filter(|_| mode == Mode::Overlap) {
            return Err(cannot_beside(instance, &why));
        }
        let mut environment = Environment::read(instance.layout(), &unit)?;
        let named = adopter.host_settings(instance.layout().root(), &unit, &found).map_err(failed)?;
        let host_settings = HostSettings::sorted(named, managed, &mut environment);
        Ok(Self {
            instance,
            to,
            manifest,
            configuration,
            settings,
            adopter,
            found,
            unit,
            managed,
            environment,
            host_settings,
            mode,
        })
    }

    /// The rights with which the agent is started again; None: its unit says that.
    fn rights(&self) -> Option<Rights> {
        self.found.start.rights.clone().filter(|_| !self.managed)
    }

    /// The agent's first process.
    pub fn leader(&self) -> &Identity {
        &self.found.leader
    }

    /// The release that takes over.
    pub fn release(&self) -> &Release {
        &self.to
    }

    /// Variables of the host that the release will have, beside those of its recipe: what the running agent has, and what files of the host name.
    pub fn variables(&self) -> Result<Vec<(OsString, OsString)>, Report> {
        let mut variables = self.host_settings.variables();
        for name in self.adopter.shared_variables().iter().filter(|_| self.managed) {
            let value = proc_fs::environment_variable(self.found.leader.pid, name)?;
            variables.extend(value.filter(|value| !value.is_empty()).map(|value| (name.into(), value)));
        }
        Ok(variables)
    }

    /// The steps, for a dry run.
    pub(super) fn steps(&self) -> Result<Vec<String>, Report> {
        let (layout, unit) = (self.instance.layout(), &self.unit);
        let mut steps = vec![format!(
            "process {} ({}) runs as {} with the configuration in {}, started by {}",
            self.found.leader.pid,
            self.found.start.command.join(" "),
            self.found.user.as_deref().unwrap_or("root"),
            self.configuration.display(),
            if self.managed { unit } else { "no service manager" },
        )];
        if self.managed {
            steps.push(format!(
                "keep systemd from starting {unit} while the adoption runs (a drop-in, and systemctl mask --runtime): a Salt state that wants it enabled \
                 fails meanwhile, and starts nothing"
            ));
        }
        steps.extend(self.environment.steps(layout, self.instance.name()));
        steps.extend(self.host_settings.steps());
        if self.mode == Mode::Overlap {
            steps.push("load sidle's guard into the running process (by a temporary grain)".to_owned());
        }
        steps.push(format!(
            "switch to {} in mode {}; if the switch fails, the process keeps running",
            self.to, self.mode
        ));
        steps.push(format!(
            "put a replacement unit in place of {unit} (/etc/systemd/system): stopping it stops nothing, restarting it loads a changed \
             configuration"
        ));
        let programs: Vec<String> = self.instance.replaced(&self.manifest)?.into_keys().collect();
        if !programs.is_empty() {
            steps.push(format!(
                "put commands for {} into /usr/local/sbin that lead to the running release",
                programs.join(", ")
            ));
        }
        let record = layout.adoption(self.instance.name());
        steps.push(format!("keep a record for `sidle unadopt` in {}", record.display()));
        Ok(steps)
    }

    /// Refuses an adoption without a supervisor, which would perform its switch.
    pub fn refuse_unsupervised(&self) -> Result<(), Report> {
        let (layout, name) = (self.instance.layout(), self.instance.name());
        if SupervisorStatus::read(layout, name)?.is_some() {
            return Ok(());
        }
        let hint = format!("start it: `systemctl enable --now sidle@{name}`, or `sidle supervise {name}`");
        Err(cannot(self.instance, "its supervisor does not run", &hint))
    }

    /// The adoption as it begins.
    pub(super) fn adoption(&self) -> Adoption {
        let (unit, command) = (self.unit.clone(), self.found.start.command.clone());
        let mut adoption = Adoption::new(self.manifest.agent.clone(), unit, self.managed, command);
        adoption.rights = self.rights();
        adoption.packaged = PackagedTree::of(self.instance, &self.manifest.agent, &self.found);
        adoption
    }

    /// Begins: puts the adoption on record, and carries the unit's settings over. Returns the record, and warnings.
    pub fn begin(&self) -> Result<(Adoption, Vec<String>), Report> {
        let (layout, name) = (self.instance.layout(), self.instance.name());
        self.refuse_unsupervised()?;
        let adoption = self.adoption();
        adoption.write(layout, name)?;
        let warning = self.environment.carry(layout, name)?;
        Ok((adoption, self.host_settings.warnings().iter().cloned().chain(warning).collect()))
    }

    /// Asks the supervisor for the switch; returns its number. `say` takes each step.
    pub fn switch(&self, adoption: &Adoption, origin: Option<Caller>, say: &dyn Fn(&str)) -> Result<u64, Report> {
        let layout = self.instance.layout();
        adoption.hold(self.instance)?;
        if self.mode == Mode::Overlap {
            say("loading the guard into the running process");
            self.guard()?;
        }
        let request = Request {
            purpose: Purpose::Switch,
            to: self.to.clone(),
            reason: "adopted".to_owned(),
            by: process::user_name(process::user()),
            origin,
        };
        let command = SwitchCommand {
            request,
            mode: Some(self.mode),
            deadline_seconds: Settings::read(layout)?.switch_deadline.as_secs(),
            force: false,
            when: When::default(),
        };
        let adopted = Adopted {
            leader: self.found.leader.clone(),
            agent: self.manifest.agent.clone(),
            unit: self.managed.then(|| self.unit.clone()),
            command: self.found.start.command.clone(),
            rights: self.rights(),
        };
        let command = Command::Adopt { switch: Box::new(command), adopted: Box::new(adopted) };
        match ask(layout, self.instance.name(), &command)? {
            Some(Answer::Accepted { switch, .. }) => Ok(switch),
            Some(Answer::Refused(report)) => Err(report),
            None => Err(no_answer()),
        }
    }

    /// Retires the package's agent if the switch succeeded, and undoes the adoption if it ended otherwise. Returns warnings.
    pub fn finish(&self, adoption: &mut Adoption) -> Result<Vec<String>, Report> {
        let journal = self.instance.files.journal()?;
        if journal.proven.as_ref() == Some(&self.to) {
            let mut warnings = adoption.retire(self.instance, &self.instance.replaced(&self.manifest)?)?;
            warnings.extend(adoption.describe_extras(self.instance, &self.to));
            Gatekeeper::new(self.instance.layout(), self.instance.name()).forget(self.found.leader.pid)?;
            return Ok(warnings);
        }
        if journal.live.is_none() {
            adoption.undo(self.instance)?;
        }
        Ok(Vec::new())
    }

    /// Gives the running process its guard, and waits for the guard's report.
    fn guard(&self) -> Result<(), Report> {
        let (layout, name) = (self.instance.layout(), self.instance.name());
        let mut gate = Gatekeeper::new(layout, name);
        let user = self.found.user.as_deref().and_then(process::user_number);
        gate.prepare(user.filter(|number| *number != process::user()))?;
        gate.forget(self.found.leader.pid)?;
        let copy = layout.adoption(name).join(GUARD_NAME);
        let asked = self.adopter.guard(&self.settings, &self.found, gate.path(), &copy).map_err(failed);
        let report = asked.map(|()| self.wait_for_report(&gate));
        // Also after a failure: the next load of grains must not find the guard.
        self.adopter.tidy(&self.settings).map_err(failed)?;
        let why = match report? {
            Some(report) => report.forbids_overlap(),
            None => Some(format!("it did not load the guard within {} s", GUARD_WAIT.as_secs())),
        };
        why.map_or(Ok(()), |why| Err(cannot_beside(self.instance, &why)))
    }

    fn wait_for_report(&self, gate: &Gatekeeper) -> Option<GuardReport> {
        let give_up_at = clock::since_boot() + GUARD_WAIT;
        loop {
            let report = gate.report(self.found.leader.pid).filter(|report| report.pid == self.found.main.pid);
            if report.is_some() || clock::since_boot() >= give_up_at {
                return report;
            }
            clock::sleep(GUARD_INTERVAL);
        }
    }
}

/// Refuses an agent that sidle runs itself, that waits for this command, or that a release could not stand in for.
fn refuse_unfit(
    instance: &AdoptingInstance,
    found: &RunningAgent,
    configuration: &Path,
    managed: bool,
) -> Result<(), Report> {
    let package = instance.package();
    let cannot = |why: String, hint: &str| Err(cannot(instance, &why, hint));
    if is_own(found)? {
        let hint = format!("`sidle status {package}` shows its state");
        return cannot(format!("sidle started process {} itself", found.leader.pid), &hint);
    }
    if proc_fs::is_below(&[found.leader.pid])? {
        let why = "this command runs in a job of that agent, and the takeover waits for that job".to_owned();
        let hint =
            "use a shell, salt-call or salt-ssh; or let the job begin it: `systemd-run --on-active=5 sidle adopt …`";
        return cannot(why, hint);
    }
    if !shares(found, configuration)? {
        let (theirs, ours) = (found.configuration.display(), configuration.display());
        let hint = "set `config` of the instance in /etc/sidle/conf.d to that directory";
        return cannot(format!("it runs with the configuration in {theirs}, not {ours}"), hint);
    }
    if let Some((is, meant)) = other_user(found)? {
        let hint = format!("set `user: {is}` in its configuration, restart it, and try again");
        return cannot(format!("it runs as {is}, and a release would run as {meant}"), &hint);
    }
    let start = &found.start;
    if let (false, Err(why)) = (managed, again::program(&start.command, start.rights.as_ref())) {
        let why = format!("sidle could not start {} again: {why}", start.command.join(" "));
        let hint = format!("end process {}, then `sidle switch {package}` starts a release", found.leader.pid);
        return cannot(why, &hint);
    }
    Ok(())
}

fn cannot_beside(instance: &AdoptingInstance, why: &str) -> Report {
    let hint = "add `--mode idle`: it waits until no job runs; jobs published during the downtime are missed";
    cannot(instance, &format!("the running process cannot run beside another: {why}"), hint)
}

fn cannot(instance: &AdoptingInstance, why: &str, hint: &str) -> Report {
    Report::of(Class::Failed, format!("cannot adopt {}: {why}", instance.package())).hint(hint)
}

/// The report of a supervisor that does not answer.
pub(super) fn no_answer() -> Report {
    Report::of(Class::Failed, "cannot ask the supervisor: it does not answer")
        .hint("`sidle status` shows whether it runs")
}
