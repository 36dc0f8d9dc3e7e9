//! `sidle setup`: a host from nothing to an installed release, or to a running one, in one command that may be repeated.

mod adopt;
mod release;
mod settings_file;
mod start;

use super::facts::Facts;
use super::host::refuse_talk_with_people;
use super::order::ModeName;
use super::output::Output;
use super::{Context, Ended, instance_of, trust, usage};
use crate::acquire::Acquired;
use crate::agent::findings::Findings;
use crate::config::Settings;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::fetch::{DownloadSettings, Location};
use crate::name::PackageName;
use crate::os::{dir::Dir, file, units};
use crate::store::Store;
use crate::store::collect::Effect;
use crate::supervise::status::SupervisorStatus;
use crate::trust_store::{TrustStore, TrustStoreError};
use crate::version::Release;
use clap::Args;
use serde_json::{Value, json};
use start::{StartArguments, Waiting};

pub(super) use start::fingerprint;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "salt-minion";

/// `sidle setup --repository URL --fingerprint SHA256`
#[derive(Debug, Args)]
pub struct SetupArguments {
    /// The repository: https://…, http://…, file:///…, or `stdio:`, the program that started sidle (with --json; not written into the settings)
    #[arg(long, value_name = "URL")]
    repository: String,
    /// SHA-256 of the repository's 1.root.json: get it from the repository's owner, by another way than the repository
    #[arg(long, value_name = "SHA256")]
    fingerprint: String,
    /// A file with the certificates of the authorities that vouch for the repository's server
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The package to install
    #[arg(long, default_value = PACKAGE)]
    package: PackageName,
    /// The release to install [default: the newest that fits this host]
    #[arg(long)]
    release: Option<Release>,
    /// Start the supervisor, and take over the running agent (minion) of the distribution's package
    #[arg(long)]
    adopt: bool,
    /// With --adopt: how to take over [default: overlap]
    #[arg(long, value_enum, requires = "adopt")]
    mode: Option<ModeName>,
    #[command(flatten)]
    start: StartArguments,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The steps, by the names that messages have for them.
#[derive(Debug, Clone, Copy)]
enum Step {
    Trust,
    Settings,
    Install,
    Adopt,
    Start,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Settings => "settings",
            Self::Install => "install",
            Self::Adopt => "adopt",
            Self::Start => "start",
        }
    }

    /// The error of a step, with the remedy that holds for every step: the same command again.
    fn failed(self, report: impl Into<Report>) -> Report {
        let mut report: Report = report.into();
        let message = format!("cannot set up this host, step {}", self.name());
        report.causes.insert(0, std::mem::replace(&mut report.message, message));
        let again = "then run the same `sidle setup` again: it goes on where it stopped";
        let hint = report.hint.take();
        report.hint(hint.map_or_else(|| format!("correct that, {again}"), |hint| format!("{hint}; {again}")))
    }
}

/// What is wanted, parsed.
struct Setup<'a> {
    context: &'a Context,
    arguments: &'a SetupArguments,
    location: Location,
    ca: Option<PathBuf>,
    fingerprint: Digest,
    effect: Effect,
    done: Vec<(Step, String, bool)>,
    /// A first agent whose key is not accepted yet.
    waiting: Option<Waiting>,
    /// The findings of the takeover; None: nothing is to be taken over, or it was before.
    adoption: Option<Findings>,
}

/// `sidle setup`
pub fn setup(context: &Context, arguments: &SetupArguments) -> Result<Ended, Report> {
    let mut setup = Setup::new(context, arguments)?;
    // Both are looked at before anything is changed: a host of another repository stays as it is.
    let is_pinned = setup.is_pinned().map_err(|report| Step::Trust.failed(report))?;
    let is_named = setup.is_named().map_err(|report| Step::Settings.failed(report))?;
    let root = setup.first_root(is_pinned).map_err(|report| Step::Trust.failed(report))?;
    // Without anything to write before it, the install itself refuses in time.
    let writes_first = !is_pinned || !is_named;
    let preview = writes_first.then(|| setup.preview(root.as_deref())).transpose();
    let preview = preview.map_err(|report| Step::Install.failed(report))?;
    setup.trust(root.as_deref()).map_err(|report| Step::Trust.failed(report))?;
    setup.settings(is_named).map_err(|report| Step::Settings.failed(report))?;
    let installed = setup.install(preview).map_err(|report| Step::Install.failed(report))?;
    let ended = if arguments.adopt {
        setup.adopt(&installed).map_err(|report| Step::Adopt.failed(report))?
    } else if arguments.start.start {
        setup.start(&installed).map_err(|report| Step::Start.failed(report))?
    } else {
        None
    };
    setup.tell(&installed, ended)
}

impl<'a> Setup<'a> {
    fn new(context: &'a Context, arguments: &'a SetupArguments) -> Result<Self, Report> {
        let location: Location = arguments.repository.parse()?;
        refuse_talk_with_people(context, std::slice::from_ref(&location))?;
        let ca = match (&arguments.ca, &location) {
            (Some(_), Location::Directory(_) | Location::Stdio | Location::StdioByHand) => {
                return Err(usage(
                    format!("cannot use --ca with {location}: no server is asked, so there is no certificate"),
                    "leave out --ca, or name the repository by https://",
                ));
            }
            (Some(path), Location::Http(_)) => Some(file::canonical(path)?),
            (None, _) => None,
        };
        let fingerprint = trust::fingerprint(&arguments.fingerprint)?;
        let effect = if arguments.dry_run { Effect::DryRun } else { Effect::Apply };
        Ok(Self {
            context,
            arguments,
            location,
            ca,
            fingerprint,
            effect,
            done: Vec::new(),
            waiting: None,
            adoption: None,
        })
    }

    /// Notes a step and prints it: what was done, or what was done already.
    fn step(&mut self, step: Step, did: &str, would: &str, what: &str) {
        let word = if self.effect == Effect::Apply { did } else { would };
        self.note(step, format!("{word} {what}"), true);
    }

    fn note(&mut self, step: Step, text: String, changed: bool) {
        self.context.output.step(format!("{}: {text}", step.name()));
        self.done.push((step, text, changed));
    }

    /// Whether the root is pinned already; an error if another root is.
    fn is_pinned(&self) -> Result<bool, Report> {
        let path = self.context.layout.trust();
        let trusted = match TrustStore::open(&path).and_then(|store| store.load()) {
            Ok(trusted) => trusted,
            Err(TrustStoreError::Unpinned { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let offered = self.fingerprint;
        if trusted.pin.fingerprint == offered || Digest::of(&trusted.floor.root) == offered {
            return Ok(true);
        }
        let unpin = format!("`mv {0} {0}.old`", path.display());
        let report = Report::from(TrustStoreError::OtherPinned { path, pinned: trusted.pin.fingerprint, offered });
        Err(report.hint(format!(
            "`sidle trust show` prints the pinned root; to trust this repository instead, unpin: {unpin}"
        )))
    }

    /// True if no settings file is to be written. Refuses settings that name another repository.
    fn is_named(&self) -> Result<bool, Report> {
        let settings = Settings::read(&self.context.layout)?;
        if self.is_for_once() || self.is_named_by(&settings)? {
            return Ok(true);
        }
        let path = self.own_path();
        let own = file::read_if_exists(&path, settings_file::BYTES_MAXIMUM)?;
        let is_ours = own.as_ref().map(|bytes| settings_file::is_own(bytes));
        match is_ours {
            Some(true) => Ok(false),
            None if !settings.names_a_repository() => Ok(false),
            _ => {
                let names = if settings.names_a_repository() {
                    let places = settings.repository()?.mirrors;
                    let places: Vec<String> = places.iter().map(|mirror| mirror.location.to_string()).collect();
                    format!("the settings name {}", places.join(", "))
                } else {
                    format!("{} exists, and `sidle setup` did not write it", path.display())
                };
                let what = self.ca.as_ref().map_or_else(String::new, |ca| format!(" with ca_file {}", ca.display()));
                let message = format!("cannot name {}{what} in the settings: {names}", self.location);
                let hint = format!("change `[repository]` in {} yourself", self.context.layout.settings().display());
                Err(Report::of(Class::Conflict, message).hint(hint))
            }
        }
    }

    /// Whether the repository is no place to come back to.
    fn is_for_once(&self) -> bool {
        self.location.is_stdio()
    }

    fn is_named_by(&self, settings: &Settings) -> Result<bool, Report> {
        if !settings.names_a_repository() {
            return Ok(false);
        }
        let has_ca = |files: &[PathBuf]| self.ca.as_ref().is_none_or(|ca| files.contains(ca));
        let mirrors = settings.repository()?.mirrors;
        Ok(mirrors.iter().any(|mirror| mirror.location == self.location && has_ca(&mirror.access.ca_files)))
    }

    fn own_path(&self) -> PathBuf {
        self.context.layout.settings().join("conf.d").join(settings_file::NAME)
    }

    /// The repository: as the settings name it, or as the command line does.
    fn repository(&self) -> Result<DownloadSettings, Report> {
        let settings = Settings::read(&self.context.layout)?;
        if self.is_named_by(&settings)? {
            return settings.repository();
        }
        let mut named = settings.repository_at(std::slice::from_ref(&self.location))?;
        named.mirrors.iter_mut().for_each(|mirror| mirror.access.ca_files.extend(self.ca.clone()));
        Ok(named)
    }

    /// Pins the root; None: it is pinned already.
    fn trust(&mut self, root: Option<&[u8]>) -> Result<(), Report> {
        let what = format!("the root {}", self.fingerprint);
        let Some(root) = root else {
            self.note(Step::Trust, format!("{what} is pinned already"), false);
            return Ok(());
        };
        if self.effect == Effect::Apply {
            let store = TrustStore::open_or_create(&self.context.layout.trust())?;
            store.lock()?.pin(root, &self.fingerprint)?;
        }
        self.step(Step::Trust, "pinned", "would pin", &what);
        Ok(())
    }

    fn settings(&mut self, is_named: bool) -> Result<(), Report> {
        let location = self.location.clone();
        if self.is_for_once() {
            self.note(Step::Settings, format!("they stay as they are: {location} is for this command alone"), false);
            return Ok(());
        }
        if is_named {
            self.note(Step::Settings, format!("the settings name {location} already"), false);
            return Ok(());
        }
        let path = self.own_path();
        if self.effect == Effect::Apply {
            let directory = Dir::open_or_create(&self.context.layout.settings().join("conf.d"), 0o755)?;
            let content = settings_file::content(&self.arguments.repository, self.ca.as_deref());
            directory.write_atomic(settings_file::NAME, content.as_bytes(), 0o644)?;
            directory.sync()?;
            if !self.is_named_by(&Settings::read(&self.context.layout)?)? {
                let own = settings_file::NAME;
                let message =
                    format!("cannot name {location} in the settings: a file after {own} names another repository");
                let hint = format!("remove `url` or `mirrors` from the later files in {}", directory.path().display());
                return Err(Report::of(Class::Conflict, message).hint(hint));
            }
        }
        self.step(Step::Settings, "wrote", "would write", &format!("{} with {location}", path.display()));
        Ok(())
    }

    /// For the verb that does the last step: its steps are for people; a program gets the one result of this command.
    fn within(&self) -> Context {
        let output = if self.context.output.is_json() {
            Output::new(false, true, self.effect)
        } else {
            self.context.output.clone()
        };
        Context { layout: self.context.layout.clone(), output, effect: self.effect }
    }

    /// Enables and starts the supervisor, where systemd runs this host; elsewhere the last step says how to start it.
    fn start_supervisor(&mut self, step: Step) -> Result<(), Report> {
        let (layout, name) = (&self.context.layout, instance_of(&self.arguments.package, None));
        if layout.root() != Path::new("/") || !units::is_running() {
            return Ok(());
        }
        let unit = format!("sidle@{name}.service");
        let (is_enabled, runs) = (units::is_enabled(&unit), SupervisorStatus::read(layout, &name)?.is_some());
        if !is_enabled {
            units::enable_again(&unit)?;
        }
        if !runs {
            units::start(&unit)?;
            self.note(step, format!("started {unit}"), true);
        } else if !is_enabled {
            // Somebody started it by hand: the next boot would not.
            self.note(step, format!("enabled {unit}"), true);
        }
        Ok(())
    }

    /// The command that comes next; None: the release runs.
    fn next(&self, installed: &Acquired) -> Result<Option<String>, Report> {
        if self.arguments.adopt || self.arguments.start.start {
            return Ok(None);
        }
        let package = &self.arguments.package;
        let (layout, name) = (&self.context.layout, instance_of(package, None));
        if SupervisorStatus::read(layout, &name)?.is_none() {
            return Ok(Some(format!("systemctl enable --now sidle@{name}")));
        }
        let current = Store::new(layout, package).current(&name)?;
        Ok((current.as_ref() != Some(&installed.installed.release)).then(|| format!("sidle switch {package}")))
    }

    fn tell(&self, installed: &Acquired, ended: Option<Class>) -> Result<Ended, Report> {
        let changed = self.done.iter().any(|(_, _, changed)| *changed);
        let next = self.next(installed)?;
        let mut facts = Facts::new();
        if let Some(waiting) = &self.waiting {
            for peer in &waiting.peers {
                facts.add("next", peer);
            }
            facts.add("then", "run the same `sidle setup` again: it goes on where it stopped");
        } else if !changed {
            facts.add("nothing to do", "this host is set up");
        }
        if let Some(next) = &next {
            facts.add("next", next);
        }
        let steps = self
            .done
            .iter()
            .map(|(step, text, changed)| json!({"step": step.name(), "text": text, "changed": changed}));
        let value = json!({
            "dry_run": self.effect == Effect::DryRun, "changed": changed, "steps": steps.collect::<Vec<Value>>(), "next": next,
            "package": self.arguments.package, "release": installed.installed.release,
            "waiting": self.waiting, "adoption": self.adoption,
        });
        self.context.output.result(facts, value);
        Ok(match ended {
            Some(class) => Ended::As(class),
            None if changed => Ended::Well,
            None => Ended::As(Class::NothingToDo),
        })
    }
}
