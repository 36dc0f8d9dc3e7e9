//! status and history: intended, installed and running, told apart; offline, without rights, without a socket.

use crate::adoption::{manual_start, record::Adoption};
use crate::cli::follow::words;
use crate::cli::host_change::{self, HostChanges};
use crate::cli::output::Lines;
use crate::cli::story::story;
use crate::cli::tone::{Place, Tone, Toned};
use crate::cli::trees::Trees;
use crate::cli::{Context, Ended, adopting, instance_of};
use crate::failure::{Class, Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::store::{self, Store};
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::claim::Claim;
use crate::switch::journal::files::{FilesError, InstanceFiles};
use crate::switch::journal::hold::Hold;
use crate::switch::{Entry, Journal, Phase};
use crate::version::Release;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// `sidle status [PACKAGE]`
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The package [default: all]
    package: Option<PackageName>,
    /// The instance [default: the instance with the package's name]
    #[arg(long, requires = "package")]
    instance: Option<InstanceName>,
    /// Do not look at the files of the releases: for programs that ask often
    #[arg(long)]
    no_trees: bool,
}

/// `sidle history PACKAGE`
#[derive(Debug, Args)]
pub struct HistoryArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Show each step of the switch with this number, also while the switch is under way
    #[arg(long, value_name = "NUMBER")]
    id: Option<u64>,
}

/// What a line of status tells at a glance.
const STATUS_TONES: [Toned; 8] = [
    Toned("WARNING", Place::Label, Tone::Warning),
    Toned("trouble", Place::Label, Tone::Bad),
    Toned("held", Place::Label, Tone::Warning),
    Toned("whole", Place::After("tree"), Tone::Good),
    Toned("reaches", Place::After("running"), Tone::Good),
    Toned("not healthy", Place::After("running"), Tone::Bad),
    Toned("not supervised", Place::After("running"), Tone::Warning),
    Toned("stranded", Place::After("switch"), Tone::Bad),
];

/// The same of the history: how a switch ended.
const HISTORY_TONES: [Toned; 3] = [
    Toned(": done", Place::After(""), Tone::Good),
    Toned(": rolled-back", Place::After(""), Tone::Bad),
    Toned(": abandoned", Place::After(""), Tone::Bad),
];

/// `sidle status`
pub fn status(context: &Context, arguments: &StatusArguments) -> Result<Ended, Report> {
    let packages = match &arguments.package {
        Some(package) => vec![package.clone()],
        None => store::packages(&context.layout)?,
    };
    if packages.is_empty() {
        context.output.result(
            "nothing is installed below this root; `sidle install FILE` installs a release",
            json!({"instances": []}),
        );
        return Ok(Ended::Well);
    }
    let mut texts = Vec::new();
    let mut values = Vec::new();
    let mut class = None;
    for package in &packages {
        let instance = instance_of(package, arguments.instance.as_ref());
        let seen = InstanceStatus::read(context, package, &instance, !arguments.no_trees)?;
        if !texts.is_empty() {
            texts.push(String::new());
        }
        texts.extend(seen.lines());
        values.push(seen.value());
        class = class.or(seen.journal.live.as_ref().map(|_| Class::Pending));
    }
    context.output.result(Lines::from(texts).toned(&STATUS_TONES), json!({"instances": values}));
    Ok(class.map_or(Ended::Well, Ended::As))
}

/// The status of one instance.
struct InstanceStatus {
    instance: InstanceName,
    package: PackageName,
    journal: Journal,
    installed: Vec<Release>,
    current: Option<Release>,
    supervisor: Option<SupervisorStatus>,
    hold: Option<Hold>,
    claim: Option<Claim>,
    host_changes: HostChanges,
    trees: Trees,
    last: Option<Entry>,
    /// Files that cannot be read, with the reasons.
    unread: Vec<String>,
    /// Commands that run the agent without sidle.
    manual_commands: Vec<String>,
    now: Timestamp,
}

impl InstanceStatus {
    /// `with_trees`: whether their files are looked at, some ten thousand of each.
    fn read(
        context: &Context,
        package: &PackageName,
        instance: &InstanceName,
        with_trees: bool,
    ) -> Result<Self, Report> {
        let files = InstanceFiles::new(&context.layout, instance, package);
        let store = Store::new(&context.layout, package);
        let installed = store.releases()?;
        if installed.is_empty() {
            let there: Vec<String> = store::packages(&context.layout)?.iter().map(ToString::to_string).collect();
            let there = if there.is_empty() {
                "nothing is installed".to_owned()
            } else {
                format!("installed: {}", there.join(", "))
            };
            return Err(Report::of(
                Class::Failed,
                format!("cannot show {package}: no release of it is installed; {there}"),
            )
            .hint("`sidle install FILE` installs a release"));
        }
        let now = clock::now();
        let current = store.current(instance)?;
        let mut unread = Vec::new();
        let mut told = |error: FilesError| {
            let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            unread.push(format!("{error}{hint}"));
        };
        let journal = files.journal().or_else(|error| {
            told(error);
            files.journal_of_current()
        })?;
        let hold = files.hold().map_err(&mut told).unwrap_or_default();
        let claim = files.claimed().map_err(&mut told).unwrap_or_default();
        let history = files.history().map_err(&mut told).unwrap_or_default();
        // The releases that a boot and a rollback would start.
        let started = current.iter().chain(&journal.previous).filter(|release| installed.contains(release));
        let looked: BTreeSet<&Release> = started.filter(|_| with_trees).collect();
        let trees = Trees::read(&store, looked)?;
        let supervisor = SupervisorStatus::read(&context.layout, instance)?;
        let host_changes = if unread.is_empty() { HostChanges::read(&files, &store)? } else { HostChanges::default() };
        Ok(Self {
            instance: instance.clone(),
            package: package.clone(),
            journal,
            trees,
            installed,
            manual_commands: ways_out(context, &store, (package, instance), current.as_ref())?,
            current,
            host_changes: host_changes.with_settings(&context.layout, supervisor.as_ref()),
            supervisor,
            hold: hold.filter(|hold| hold.is_on(now)),
            claim: claim.filter(|claim| claim.is_on(now)),
            last: history.entries().last().cloned(),
            unread,
            now,
        })
    }

    fn lines(&self) -> Vec<String> {
        let or_none =
            |release: &Option<Release>| release.as_ref().map_or_else(|| "none yet".to_owned(), Release::to_string);
        let installed = self.installed.iter().map(Release::to_string).collect::<Vec<String>>().join(", ");
        let trees = self.trees.lines().into_iter().map(|(name, text)| format!("  {name:<10} {text}"));
        if self.package.is_sidle() {
            let text =
                format!("sidle (this program)\n  current    {}\n  installed  {installed}", or_none(&self.current));
            return text.lines().map(str::to_owned).chain(trees).collect();
        }
        let mut lines = vec![
            format!("{} ({})", self.instance, self.package),
            format!("  current    {} (what a boot starts)", or_none(&self.current)),
            format!("  previous   {}", or_none(&self.journal.previous)),
            format!("  installed  {installed}"),
            format!("  running    {}", self.running()),
        ];
        lines.extend(self.hold.iter().map(|hold| format!("  held       {hold}")));
        lines.extend(self.claim.iter().map(|claim| format!("  rollout    {claim}")));
        lines.extend(trees);
        let unwatched = self.supervisor.as_ref().and_then(|status| status.unwatched.as_ref());
        lines.extend(unwatched.map(|why| format!("             the running tree is {why}")));
        lines.extend(self.host_changes.lines.iter().map(|text| format!("  host       {text}")));
        lines.extend(self.host_changes.warnings.iter().map(|text| format!("  WARNING    {text}")));
        lines.extend(self.supervisor.iter().flat_map(SupervisorStatus::warnings));
        lines.extend(self.unread.iter().map(|text| format!("  trouble    {text}")));
        if let Some(trouble) = self.supervisor.as_ref().and_then(|status| status.trouble.as_ref()) {
            lines.push(format!("  trouble    {trouble}"));
        }
        if let Some(ended) = self.supervisor.as_ref().and_then(|status| status.ended.as_ref()) {
            lines.push(format!("  ended      {}: {ended}", moment(ended.at)));
        }
        let finishing = self.supervisor.iter().flat_map(|status| &status.finishing);
        lines.extend(finishing.map(|process| format!("  finishing  {process}")));
        if let Some(live) = &self.journal.live {
            lines.push(format!("  switch     {}", words(live)));
            if live.phase == Phase::FinishingOld {
                let told = [
                    "another switch or a rollback may begin: the old process finishes its jobs by itself",
                    "to end a job that hangs, kill its process",
                ];
                lines.extend(told.map(|text| format!("             {text}")));
            }
            lines.push(format!(
                "             since {}, deadline {}",
                ago(live.phase_since, self.now),
                moment(live.deadline)
            ));
            if let Some(origin) = &live.request.origin {
                lines.push(format!("             asked for in {origin}"));
            }
            if let Some(failure) = &live.failure {
                lines.push(format!("             because {}", failure.text));
            }
            lines.extend(live.notes.iter().map(|note| format!("             note: {note}")));
        }
        if let Some(last) = &self.last {
            lines.push(format!("  last       {}", line(last)));
        }
        if !self.manual_commands.is_empty() {
            lines.push("  without sidle (commands for a shell):".to_owned());
        }
        lines.extend(self.manual_commands.iter().map(|way| format!("             {way}")));
        lines
    }

    fn running(&self) -> String {
        let Some(status) = &self.supervisor else {
            return format!("not supervised; `systemctl start sidle@{0}`, or `sidle supervise {0}`", self.instance);
        };
        match &status.agent {
            None => format!("nothing; supervised by process {}", status.supervisor.pid),
            Some(agent) => {
                let health = match &agent.lacks {
                    None => format!("reaches {}", agent.reaches.join(", ")),
                    Some(lacks) => format!("not healthy: {lacks}"),
                };
                format!(
                    "{} since {} (process {}), {health}",
                    agent.name(),
                    ago(agent.started_at, self.now),
                    agent.leader.pid
                )
            }
        }
    }

    fn value(&self) -> Value {
        json!({
            "instance": self.instance,
            "package": self.package,
            "current": self.current,
            "previous": self.journal.previous,
            "installed": self.installed,
            "supervisor": self.supervisor,
            "hold": self.hold,
            "rollout": self.claim,
            "unread": self.unread,
            "trees": self.trees.value(),
            "host_changes": self.host_changes.lines,
            "warnings": self.host_changes.warnings,
            "rehearsed_again": self.host_changes.rehearsed,
            "switch": self.journal.live,
            "last": self.last,
            "manual_commands": self.manual_commands,
        })
    }
}

/// Commands for a shell that run the agent without sidle: the current release, and what it was adopted from.
fn ways_out(
    context: &Context,
    store: &Store,
    (package, instance): (&PackageName, &InstanceName),
    current: Option<&Release>,
) -> Result<Vec<String>, Report> {
    let layout = &context.layout;
    let adopting = adopting(layout, instance, package);
    let mut ways = Vec::new();
    // Status must also work if a setting or a receipt cannot be read.
    if let Some(manifest) = current.and_then(|release| store.head(release).ok()) {
        let named = crate::config::Settings::read(layout).and_then(|settings| settings.instance(layout, instance));
        let named = named.ok().and_then(|(_, configuration)| configuration);
        let configuration = named.unwrap_or_else(|| layout.on_host(manifest.service.config.as_ref()));
        let commands = manual_start::commands(&adopting.files, &manifest, &configuration);
        if !commands.is_empty() {
            ways.push(format!("this release:         {}", commands.join("; ")));
        }
    }
    if let Some(adoption) = Adoption::read(layout, instance)? {
        ways.push(format!("the package's agent:  {}", adoption.manual_undo(&adopting).join("; ")));
    }
    Ok(ways)
}

/// `sidle history`
pub fn history(context: &Context, arguments: &HistoryArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    if let Some(id) = arguments.id {
        return story(context, &files, id);
    }
    let (history, again) = (files.history()?, files.rehearsed_again()?);
    let switches = history.entries().iter().map(|entry| (entry.ended_at, line(entry)));
    let mut lines: Vec<(Timestamp, String)> =
        switches.chain(again.entries().iter().map(|again| (again.at, host_change::line(again)))).collect();
    let incidents = Store::new(&context.layout, &arguments.package).incidents()?;
    lines.extend(incidents.iter().map(|incident| (incident.at, format!("{}  {incident}", moment(incident.at)))));
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    let text = if lines.is_empty() { vec![format!("{instance} was never switched")] } else { lines };
    let value = json!({"instance": instance, "switches": history.entries(), "rehearsed_again": again.entries(), "incidents": incidents});
    context.output.result(Lines::from(text).toned(&HISTORY_TONES), value);
    Ok(Ended::Well)
}

fn line(entry: &Entry) -> String {
    let from = entry.from.as_ref().map_or_else(|| "nothing".to_owned(), Release::to_string);
    let why = entry.failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.text));
    let reason = if entry.request.reason.is_empty() { String::new() } else { format!(" ({})", entry.request.reason) };
    let origin = entry.request.origin.as_ref().map_or_else(String::new, |origin| format!(", {origin}"));
    let told = format!(
        "{}  #{} {} {} -> {} ({}) by {}{origin}{reason}: {}{why}; downtime {}",
        moment(entry.ended_at),
        entry.id,
        entry.request.purpose,
        from,
        entry.request.to,
        entry.mode,
        entry.request.by,
        result(entry.result),
        downtime(entry.downtime_milliseconds)
    );
    std::iter::once(told).chain(entry.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
}

/// How a switch ended, in words.
pub(in crate::cli) fn result(phase: Phase) -> &'static str {
    match phase {
        Phase::Committed => "done",
        other => other.word(),
    }
}

/// The downtime, in words.
pub(in crate::cli) fn downtime(milliseconds: u64) -> String {
    format!("{:.1} s", Duration::from_millis(milliseconds).as_secs_f64())
}

fn ago(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86400),
    }
}
