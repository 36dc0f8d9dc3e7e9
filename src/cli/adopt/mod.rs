//! `sidle adopt` and `sidle unadopt`: a running agent of a distribution's package is taken over, and given back.

pub mod beside;
mod environment;
pub mod other_name;
pub mod record;
pub mod stand_in;
mod unadopt;
pub mod way_out;

pub use unadopt::{UnadoptArguments, unadopt};

use super::follow::follow;
use super::switching::ModeName;
use super::{Context, Ended, agents, instance_of, usage};
use crate::agent::adoption::{Adopter, RunningAgent};
use crate::agent::gate::GuardReport;
use crate::bundle::manifest::Manifest;
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::{clock, process};
use crate::store::Store;
use crate::supervise::control::{Answer, Request, Wish, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::files::InstanceFiles;
use crate::switch::gatekeeper::Gatekeeper;
use crate::switch::schedule::When;
use crate::switch::{Adopted, Mode, Purpose};
use crate::version::Release;
use clap::Args;
use environment::Environment;
use record::{Adoption, GUARD_NAME, Stage};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// How long a running agent may take to take its guard: it loads all its modules for that, on a busy host.
const GUARD_WAIT: Duration = Duration::from_secs(60);
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// `sidle adopt PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct AdoptArguments {
    /// The package
    package: PackageName,
    /// The release that takes over [default: the newest installed]
    release: Option<Release>,
    /// The instance [default: the one named as the package]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// The unit that runs the package's agent [default: named as the package]
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
    /// How to take over [default: overlap]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Everything that is known before anything is changed.
struct AdoptionPlan {
    package: PackageName,
    instance: InstanceName,
    to: Release,
    manifest: Manifest,
    configuration: PathBuf,
    adopter: &'static dyn Adopter,
    found: RunningAgent,
    unit: String,
    managed: bool,
    environment: Environment,
    mode: Mode,
}

/// Takes a running agent over.
pub fn adopt(context: &Context, arguments: &AdoptArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    if let Some(adoption) = Adoption::read(&context.layout, &instance)? {
        if let Some(ended) = go_on(context, &arguments.package, &instance, adoption, arguments.dry_run)? {
            return Ok(ended);
        }
    }
    let plan = plan(context, arguments, instance)?;
    if arguments.dry_run {
        let steps = plan.steps(context);
        context.output.result(steps.clone(), json!({"steps": steps, "process": plan.found.leader.pid}));
        return Ok(Ended::Well);
    }
    plan.perform(context)
}

/// What is left of an adoption that was cut off: one that has succeeded is completed, another one is taken back.
fn go_on(
    context: &Context,
    package: &PackageName,
    instance: &InstanceName,
    mut adoption: Adoption,
    dry_run: bool,
) -> Result<Option<Ended>, Report> {
    let files = InstanceFiles::new(&context.layout, instance, package);
    let journal = files.journal()?;
    let told = |text: String| {
        context.output.result(&text, json!({"adopted": instance}));
        Ok(Some(Ended::As(Class::NothingToDo)))
    };
    match (adoption.stage, &journal.live, &journal.proven) {
        (Stage::Held, None, Some(release)) if !dry_run && adoption.is_only_masked(&context.layout)? => {
            let manifest = Store::new(&context.layout, package).manifest(release)?;
            adoption.retire(&context.layout, (package, instance), &manifest.commands)?;
            let text =
                format!("{instance} is adopted: the mask of {} is a unit that stands in for it now", adoption.unit);
            context.output.result(&text, json!({"adopted": instance}));
            Ok(Some(Ended::Well))
        }
        (Stage::Held, ..) => told(format!("{instance} is adopted already; `sidle unadopt {package}` gives it back")),
        (Stage::Begun, Some(live), _) => Err(Report {
            class: Class::Conflict,
            message: format!("cannot adopt {instance}: switch {} is {}", live.id, live.phase),
            causes: Vec::new(),
            hint: Some(format!("wait for it, see `sidle status {package}`, or `sidle cancel {package}`")),
        }),
        (Stage::Begun, None, Some(release)) if !dry_run => {
            let manifest = Store::new(&context.layout, package).manifest(release)?;
            adoption.retire(&context.layout, (package, instance), &manifest.commands)?;
            told(format!("{instance} is adopted: it runs {release}"))
        }
        (Stage::Begun, None, _) if !dry_run => {
            environment::remove(&context.layout, instance, adoption.managed)?;
            adoption.undo(&context.layout, instance)?;
            Ok(None)
        }
        (Stage::Begun, None, _) => Ok(None),
    }
}

fn plan(context: &Context, arguments: &AdoptArguments, instance: InstanceName) -> Result<AdoptionPlan, Report> {
    let package = arguments.package.clone();
    let store = Store::new(&context.layout, &package);
    let to = arguments.release.clone().or(store.releases()?.into_iter().next_back());
    let to =
        to.ok_or_else(|| cannot(&package, "no release of it is installed", "`sidle install FILE` installs one"))?;
    store.verify(&to)?;
    let manifest = store.manifest(&to)?;
    let files = InstanceFiles::new(&context.layout, &instance, &package);
    let configuration = beside::configuration(context, &files, &manifest)?;
    let adopter = agents::parts(&manifest.agent)?
        .adopter
        .ok_or_else(|| cannot(&package, "an agent of its kind can't be adopted", "`sidle switch` starts it"))?;
    let failed = |error: crate::agent::AgentError| Report::new(Class::Failed, &error, None);
    // What a crash may have left lies where the running agent would load it.
    if !arguments.dry_run {
        adopter.tidy(&configuration).map_err(failed)?;
    }
    let unit = arguments.unit.clone().unwrap_or_else(|| adopter.unit(package.as_str()));
    let found = beside::running(context, adopter, &configuration, &unit)?;
    let (found, managed) = found.ok_or_else(|| {
        let hint =
            format!("`sidle switch {package}` starts a release where nothing runs yet; --unit names another unit");
        cannot(&package, &format!("none runs with the configuration in {}", configuration.display()), &hint)
    })?;
    if beside::is_own(&found)? {
        let hint = format!("`sidle status {package}` tells how it is");
        return Err(cannot(&package, &format!("process {} is sidle's own already", found.leader.pid), &hint));
    }
    if !beside::shares(&found, &configuration)? {
        let (theirs, ours) = (found.configuration.display(), configuration.display());
        let why = format!("it runs with the configuration in {theirs}, not {ours}");
        return Err(cannot(&package, &why, "set `config` of the instance in /etc/sidle/conf.d to that directory"));
    }
    if let Some((is, meant)) = beside::other_user(&found)? {
        let hint = format!("set `user: {is}` in its configuration, restart it, and try again");
        return Err(cannot(&package, &format!("it runs as {is}, and the next one would run as {meant}"), &hint));
    }
    let environment = Environment::read(&context.layout, &unit)?;
    let mode = arguments.mode.map_or(Mode::Overlap, Mode::from);
    Ok(AdoptionPlan {
        package,
        instance,
        to,
        manifest,
        configuration,
        adopter,
        found,
        unit,
        managed,
        environment,
        mode,
    })
}

fn cannot(package: &PackageName, why: &str, hint: &str) -> Report {
    Report {
        class: Class::Failed,
        message: format!("cannot adopt {package}: {why}"),
        causes: Vec::new(),
        hint: Some(hint.to_owned()),
    }
}

impl AdoptionPlan {
    fn steps(&self, context: &Context) -> Vec<String> {
        let by = if self.managed { self.unit.as_str() } else { "no service manager" };
        let user = self.found.user.as_deref().unwrap_or("root");
        let mut steps = vec![format!(
            "process {} ({}) runs as {user} with {}, by {by}",
            self.found.leader.pid,
            self.found.command.join(" "),
            self.configuration.display(),
        )];
        if self.managed {
            steps.push(format!("keep systemd from starting {} meanwhile (systemctl mask --runtime)", self.unit));
        }
        steps.extend(self.environment.told(&context.layout, &self.instance));
        if self.mode == Mode::Overlap {
            steps.push("give the running process a guard (a grain that is there for a moment)".to_owned());
        }
        steps.push(format!("switch from it to {} in mode {}; if that fails, it serves on", self.to, self.mode));
        steps.push(format!(
            "put a unit in place of {} that stops nothing and takes a changed configuration up (/etc/systemd/system)",
            self.unit
        ));
        let programs: Vec<&str> = self.manifest.commands.keys().map(String::as_str).collect();
        steps.push(format!("let {} lead to the running release (/usr/local/sbin)", programs.join(", ")));
        steps.push(format!("keep what `sidle unadopt` needs in {}", context.layout.adoption(&self.instance).display()));
        steps
    }

    fn perform(&self, context: &Context) -> Result<Ended, Report> {
        let layout = &context.layout;
        if SupervisorStatus::read(layout, &self.instance)?.is_none() {
            let hint = format!("start it first: `sidle supervise {}`; it begins with nothing to run", self.instance);
            return Err(cannot(&self.package, "its supervisor does not run", &hint));
        }
        let mut adoption =
            Adoption::new(self.manifest.agent.clone(), self.unit.clone(), self.managed, self.found.command.clone());
        adoption.write(layout, &self.instance)?;
        if let Some(told) = self.environment.carry(layout, &self.instance, beside::is_own_host(layout))? {
            context.output.warning(&told);
        }
        let switched = self.switch(context, &adoption);
        let files = InstanceFiles::new(layout, &self.instance, &self.package);
        let journal = files.journal()?;
        if journal.proven.as_ref() == Some(&self.to) {
            let told = adoption.retire(layout, (&self.package, &self.instance), &self.manifest.commands)?;
            for line in &told {
                context.output.warning(line);
            }
            Gatekeeper::new(layout, &self.instance).forget(self.found.leader.pid)?;
        } else if journal.live.is_none() {
            environment::remove(layout, &self.instance, beside::is_own_host(layout))?;
            adoption.undo(layout, &self.instance)?;
        }
        switched
    }

    fn switch(&self, context: &Context, adoption: &Adoption) -> Result<Ended, Report> {
        adoption.hold()?;
        if self.mode == Mode::Overlap {
            self.guard(context)?;
        }
        let settings = Settings::read(&context.layout)?;
        let wish = Wish {
            purpose: Purpose::Switch,
            mode: Some(self.mode),
            to: self.to.clone(),
            deadline_seconds: settings.switch_deadline.as_secs(),
            reason: "adopted".to_owned(),
            by: process::user_name(process::user()),
            origin: agents::caller(),
            force: false,
            when: When::default(),
        };
        let adopted = Adopted {
            leader: self.found.leader.clone(),
            agent: self.manifest.agent.clone(),
            unit: self.managed.then(|| self.unit.clone()),
            command: self.found.command.clone(),
        };
        let files = InstanceFiles::new(&context.layout, &self.instance, &self.package);
        let request = Request::Adopt { wish: Box::new(wish), adopted: Box::new(adopted) };
        match ask(&context.layout, &self.instance, &request)? {
            Some(Answer::Accepted { switch }) => follow(&files, switch, &context.output),
            Some(Answer::Refused(report)) => Err(report),
            None => Err(usage("cannot ask the supervisor: it does not answer", "try again")),
        }
    }

    /// Gives the running process its guard, and waits until it says that it has it.
    fn guard(&self, context: &Context) -> Result<(), Report> {
        context.output.step("giving the running process a guard");
        let mut gate = Gatekeeper::new(&context.layout, &self.instance);
        let user = self.found.user.as_deref().and_then(process::user_number);
        gate.prepare(user.filter(|number| *number != process::user()))?;
        let leader = self.found.leader.pid;
        gate.forget(leader)?;
        let copy = context.layout.adoption(&self.instance).join(GUARD_NAME);
        let failed = |error: crate::agent::AgentError| Report::new(Class::Failed, &error, None);
        let asked = self.adopter.guard(&self.found, gate.path(), &copy).map_err(failed);
        let report = asked.map(|()| self.wait_for_report(&gate));
        // Also when it failed: the next load of grains is not to find it.
        self.adopter.tidy(&self.configuration).map_err(failed)?;
        let why = match report? {
            Some(report) => report.forbids_overlap(),
            None => Some(format!("it took no guard within {} s", GUARD_WAIT.as_secs())),
        };
        why.map_or(Ok(()), |why| {
            let hint = "add `--mode idle`: it waits until no job runs; what is published during the change is missed";
            Err(cannot(&self.package, &format!("the running process can't run beside another: {why}"), hint))
        })
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
