//! `sidle missed`: when this host's agents could not hear their peers, and the command that lists what was published then.

use crate::agent::missed::Unheard;
use crate::cli::host::list::packages;
use crate::cli::status::result;
use crate::cli::{Context, Ended, agents, instance_of};
use crate::failure::{Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::store::Store;
use crate::switch::Entry;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::switch::journal::downtimes::{Downtime, DowntimeCause, Downtimes, SwitchDowntime};
use crate::switch::journal::files::InstanceFiles;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// So many of the last downtimes are printed; the data have all.
const SHOWN_MAX: usize = 20;

/// `sidle missed [PACKAGE]`
#[derive(Debug, Args)]
pub struct MissedArguments {
    /// The package [default: all]
    package: Option<PackageName>,
    /// The instance [default: the instance with the package's name]
    #[arg(long, requires = "package")]
    instance: Option<InstanceName>,
}

/// Lists when the agents could not hear.
pub fn missed(context: &Context, arguments: &MissedArguments) -> Result<Ended, Report> {
    let mut installed = packages(context, arguments.package.as_ref())?;
    installed.retain(|package| !package.is_sidle());
    let (mut lines, mut values) = (Vec::new(), Vec::new());
    for package in &installed {
        let instance = instance_of(package, arguments.instance.as_ref());
        let files = InstanceFiles::new(&context.layout, &instance, package);
        let found = InstanceDowntimes::read(&files)?;
        lines.extend(found.lines());
        values.push(found.value());
    }
    if installed.is_empty() {
        lines.push("nothing is installed below this root; `sidle install FILE` installs a release".to_owned());
    }
    context.output.result(lines, json!({"instances": values}));
    Ok(Ended::Well)
}

/// The downtimes of an instance.
struct InstanceDowntimes {
    instance: InstanceName,
    package: PackageName,
    /// Oldest first; the last one may not be over.
    all: Vec<Known>,
    /// The command that lists what was published then; None: there was no downtime, or the kind of agent has no such command.
    command: Option<String>,
}

/// One downtime, wherever it is kept.
struct Known {
    from: Timestamp,
    /// None: it is not over.
    until: Option<Timestamp>,
    cause: String,
    detail: String,
    switch: Option<u64>,
    /// How long it was, and for what reason.
    words: String,
}

impl Known {
    fn of_switch(entry: &Entry) -> Option<Self> {
        let SwitchDowntime { down, up } = SwitchDowntime::of(entry)?;
        let words = format!("switch {} to {} ({}), {}", entry.id, entry.request.to, entry.mode, result(entry.result));
        Some(Self {
            from: down,
            until: Some(up),
            cause: "switch".to_owned(),
            detail: String::new(),
            switch: Some(entry.id),
            words: format!("{}  {words}", length(down, up)),
        })
    }

    fn of(downtime: &Downtime) -> Self {
        let Downtime { from, until, cause, detail } = downtime.clone();
        let more = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let words = format!("{} at most  {}{more}", length(from, until), cause.words());
        Self { from, until: Some(until), cause: word(cause), detail, switch: None, words }
    }

    /// The one that is not over.
    fn present(kept: &Downtimes) -> Option<Self> {
        let (heard, lacks) = (kept.heard.as_ref()?, kept.lacks.clone()?);
        let cause = DowntimeCause::Disconnected;
        let words = format!("not over  {}: {lacks}", cause.words());
        Some(Self { from: heard.at, until: None, cause: word(cause), detail: lacks, switch: None, words })
    }

    fn value(&self) -> Value {
        let Self { from, until, cause, detail, switch, .. } = self;
        let seconds = until.map(|until| until.duration_since(*from).as_secs_f64());
        json!({"from": from, "until": until, "seconds": seconds, "cause": cause, "detail": detail, "switch": switch})
    }
}

/// The word of a cause in data.
fn word(cause: DowntimeCause) -> String {
    json!(cause).as_str().unwrap_or_default().to_owned()
}

/// How long it was: `31.2 s`, `9 h 3 min`.
fn length(from: Timestamp, until: Timestamp) -> String {
    let length = Duration::try_from(until.duration_since(from)).unwrap_or_default();
    match length.as_secs() {
        0..120 => format!("{:.1} s", length.as_secs_f64()),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

impl InstanceDowntimes {
    fn read(files: &InstanceFiles) -> Result<Self, Report> {
        let (history, kept) = (files.history()?, files.downtimes()?);
        let mut all: Vec<Known> = history.entries().iter().filter_map(Known::of_switch).collect();
        all.extend(kept.entries().iter().map(Known::of));
        all.extend(Known::present(&kept));
        all.sort_by_key(|known| known.from);
        let oldest = all.iter().rev().take(SHOWN_MAX).next_back().map(|known| known.from);
        let command = oldest.and_then(|from| command(files, from));
        Ok(Self { instance: files.instance().clone(), package: files.package().clone(), all, command })
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} ({})", self.instance, self.package)];
        if self.all.is_empty() {
            lines.push("  no downtime is on record".to_owned());
        }
        let left_out = self.all.len().saturating_sub(SHOWN_MAX);
        if left_out > 0 {
            lines.push(format!("  ({left_out} earlier downtimes: --json has them)"));
        }
        lines.extend(self.all[left_out..].iter().map(|known| format!("  {}  {}", moment(known.from), known.words)));
        if let Some(command) = &self.command {
            lines.push("  which jobs were published then, a master knows: this command lists there what was missed, and runs what you choose, once:".to_owned());
            lines.push(format!("  {command}"));
        }
        lines
    }

    fn value(&self) -> Value {
        let downtimes: Vec<Value> = self.all.iter().map(Known::value).collect();
        json!({"instance": self.instance, "package": self.package, "downtimes": downtimes, "command": self.command})
    }
}

/// The command that lists, where the peers are, what was published since then; None: the kind of agent has no such command, or is not known.
pub(in crate::cli) fn command(files: &InstanceFiles, from: Timestamp) -> Option<String> {
    let store = Store::new(files.layout(), files.package());
    let proven = files.journal().ok().and_then(|journal| journal.proven);
    let release = proven.or_else(|| store.releases().ok()?.into_iter().next_back())?;
    let missed = agents::parts(&store.head(&release).ok()?.agent).ok()?.missed?;
    let reports = Gatekeeper::new(files.layout(), files.instance()).reports();
    let options = reports.iter().find_map(|report| report.options.as_ref());
    Some(missed(Unheard { from, options, state: &files.layout().instance(files.instance()) }))
}

/// The same after a switch; None: it had no downtime.
pub(in crate::cli) fn command_of(files: &InstanceFiles, entry: &Entry) -> Option<String> {
    command(files, SwitchDowntime::of(entry)?.down)
}

/// The same for people.
pub(in crate::cli) fn hint(files: &InstanceFiles, entry: &Entry) -> Option<String> {
    let (SwitchDowntime { down, up }, command) = (SwitchDowntime::of(entry)?, command_of(files, entry)?);
    Some(format!(
        "jobs that were published in these {} may be missed: on a master, `{command}` lists them",
        length(down, up)
    ))
}
