//! `sidle job`: what this host knows of one job, for whoever asks why no return came.

use crate::agent::traces::{Inquiry, JobTraces};
use crate::cli::host::list::packages;
use crate::cli::output::Lines;
use crate::cli::status::{downtime, result};
use crate::cli::{Context, Ended, agents, instance_of, usage};
use crate::failure::{Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::supervise::status::{Ended as EndedAgent, SupervisorStatus};
use crate::switch::gate::claims;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::switch::journal::downtimes::SwitchDowntime;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::{Entry, Request};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The last switches that are shown: what is older is in the history.
const SWITCHES_MAX: usize = 5;

/// `sidle job [JID]`
#[derive(Debug, Args)]
pub struct JobArguments {
    /// The job, as the agent names it: a Salt jid [default: none; what is known of the agent itself]
    #[arg(value_name = "JID")]
    job: Option<String>,
    /// The package [default: the installed package, if there is only one]
    #[arg(long)]
    package: Option<PackageName>,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// The options of the running agent, a JSON object with the agent's own names: what an agent passes that asks about itself [default: what the agent
    /// reports, else what its release has made of the configuration]
    #[arg(long, value_name = "JSON", value_parser = options)]
    options: Option<Value>,
}

fn options(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("it is no JSON object".to_owned()) }
}

/// What is known of the job, and of its instance.
struct Known {
    job: Option<String>,
    package: PackageName,
    instance: InstanceName,
    now: Timestamp,
    claimed: Option<bool>,
    traces: JobTraces,
    /// The switch that a command of this job asked for.
    requested_switch: Option<u64>,
    switches: Vec<Entry>,
    /// How the last process ended that sidle did not end.
    ended: Option<EndedAgent>,
}

/// Finds out what this host knows of a job.
pub fn job(context: &Context, arguments: &JobArguments) -> Result<Ended, Report> {
    let package = package(context, arguments)?;
    let known = Known::read(context, package, arguments)?;
    context.output.result(Lines::from(known.lines()), known.value());
    Ok(Ended::Well)
}

/// The package that the job belongs to. An agent that asks about itself need not run from a release.
fn package(context: &Context, arguments: &JobArguments) -> Result<PackageName, Report> {
    if let (Some(package), Some(_)) = (&arguments.package, &arguments.options) {
        return Ok(package.clone());
    }
    let mut installed = packages(context, arguments.package.as_ref())?;
    installed.retain(|package| !package.is_sidle());
    match installed.as_slice() {
        [package] => Ok(package.clone()),
        several => {
            let names: Vec<&str> = several.iter().map(PackageName::as_str).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(usage(
                format!("cannot tell whose job it is: the installed packages are {names}"),
                "name it: --package NAME",
            ))
        }
    }
}

impl Known {
    fn read(context: &Context, package: PackageName, arguments: &JobArguments) -> Result<Self, Report> {
        let layout = &context.layout;
        let instance = instance_of(&package, arguments.instance.as_ref());
        let gatekeeper = Gatekeeper::new(layout, &instance);
        let reports = gatekeeper.reports();
        let reported = reports.iter().find_map(|report| report.options.as_ref());
        let state = layout.instance(&instance);
        let job = arguments.job.as_deref().filter(|job| !job.is_empty());
        let options = arguments.options.as_ref().or(reported);
        let traces = agents::traces(Inquiry { job, options, state: &state }).unwrap_or_default();
        let peers = reports.iter().flat_map(|report| &report.peers).filter_map(|peer| peer.address.clone());
        let peers: Vec<String> = peers.chain(traces.peers.iter().cloned()).collect();
        let now = clock::now();
        let claimed = match job {
            // A guard of another user keeps its claims to itself.
            Some(job) => {
                claims::is_claimed(gatekeeper.path(), (job, traces.published), &peers, now).unwrap_or_default()
            }
            None => None,
        };
        let files = InstanceFiles::new(layout, &instance, &package);
        let history = files.history()?;
        let entries = history.entries();
        let live = files.journal()?.live;
        let asked = entries
            .iter()
            .map(|entry| (entry.id, &entry.request))
            .chain(live.iter().map(|live| (live.id, &live.request)));
        let is_its_own =
            |request: &Request| request.origin.as_ref().is_some_and(|origin| job == Some(origin.job.as_str()));
        Ok(Self {
            job: job.map(str::to_owned),
            claimed,
            requested_switch: asked.filter(|(_, request)| is_its_own(request)).map(|(id, _)| id).next_back(),
            switches: entries[entries.len().saturating_sub(SWITCHES_MAX)..].to_vec(),
            ended: SupervisorStatus::read(layout, &instance)?.and_then(|status| status.ended),
            package,
            instance,
            now,
            traces,
        })
    }

    fn lines(&self) -> Vec<String> {
        let traces = &self.traces;
        let mut lines = vec![format!("{} ({})", self.instance, self.package)];
        let mut add = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
        add("started", traces.started.map_or_else(|| "not known".to_owned(), moment));
        if let Some(job) = &self.job {
            add("job", traces.published.map_or_else(|| job.clone(), |at| format!("{job}, published {}", moment(at))));
            let claimed = match self.claimed {
                Some(true) => "yes: a process of this instance has taken the job",
                Some(false) => "no: no process of this instance has taken the job",
                None => "not known: no guard makes claims, or the job is older than the claims that are kept (an hour)",
            };
            add("claimed", claimed.to_owned());
            let process = match (traces.running, traces.stale) {
                (Some(pid), _) => format!("{pid} runs the job"),
                (None, Some(pid)) => format!("{pid} ended before the job was done"),
                (None, None) if traces.cached.is_none() => {
                    "not known: where the agent keeps its jobs is not known".to_owned()
                }
                (None, None) => "none runs the job".to_owned(),
            };
            add("process", process);
            if let Some(path) = &traces.queued {
                add("queued", path.display().to_string());
            }
            add("returned", self.returned());
            if let Some(id) = self.requested_switch {
                add("requested", format!("switch {id}"));
            }
        }
        for line in &traces.log.lines {
            add("log", line.clone());
        }
        for entry in &self.switches {
            add("switch", self.switch_line(entry));
        }
        if let Some(ended) = &self.ended {
            add("ended", format!("{}: {ended}", moment(ended.at)));
        }
        lines
    }

    fn returned(&self) -> String {
        let traces = &self.traces;
        let sent = traces.log.returned_at.map(|at| format!("{}, by its log", moment(at)));
        let kept = (traces.cached == Some(true)).then(|| "the agent has kept the return".to_owned());
        let told: Vec<String> = sent.into_iter().chain(kept).collect();
        if !told.is_empty() {
            return told.join("; ");
        }
        let reaches_back = traces.log.since < traces.published && traces.log.since.is_some();
        if reaches_back && traces.log.is_detailed == Some(true) {
            return "no, by its log".to_owned();
        }
        "not known: the agent's log of that time is not there, or does not name each job".to_owned()
    }

    fn switch_line(&self, entry: &Entry) -> String {
        let switch = format!("#{} to {} ({}), {}", entry.id, entry.request.to, entry.mode, result(entry.result));
        let Some(SwitchDowntime { down, up }) = SwitchDowntime::of(entry) else {
            return format!("{switch}; no downtime");
        };
        let missed = self.traces.published.is_some_and(|published| down <= published && published <= up);
        let missed = if missed { ": the job was published then" } else { "" };
        format!("{switch}; downtime {} from {}{missed}", downtime(entry.downtime_milliseconds), moment(down))
    }

    fn value(&self) -> Value {
        let traces = &self.traces;
        json!({
            "instance": self.instance,
            "package": self.package,
            "job": self.job,
            "now": seconds(self.now),
            "started": traces.started.map(seconds),
            "claimed": self.claimed,
            "running": traces.running,
            "stale": traces.stale,
            "queued": traces.queued.as_ref().map(|path| path.to_string_lossy()),
            "cached": traces.cached,
            "returned_at": traces.log.returned_at.map(seconds),
            "log": traces.log.lines,
            "log_since": traces.log.since.map(seconds),
            "log_is_detailed": traces.log.is_detailed,
            "requested_switch": self.requested_switch,
            "switches": self.switches.iter().map(switch_value).collect::<Vec<_>>(),
            "ended": self.ended,
        })
    }
}

fn switch_value(entry: &Entry) -> Value {
    let downtime = SwitchDowntime::of(entry);
    json!({
        "id": entry.id,
        "purpose": entry.request.purpose,
        "to": entry.request.to,
        "mode": entry.mode,
        "result": entry.result,
        "begun": seconds(entry.requested_at),
        "ended": seconds(entry.ended_at),
        "down": downtime.map(|downtime| seconds(downtime.down)),
        "up": downtime.map(|downtime| seconds(downtime.up)),
    })
}

/// Seconds since 1970, as programs in Python have times.
fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}
