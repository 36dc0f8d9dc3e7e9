//! `sidle metrics`: the host for Prometheus, from its state files alone: no socket is asked, no lock is taken. What is not known is left out.

use crate::cli::exposition::{Sample, labels, text};
use crate::cli::host::instances;
use crate::cli::output::Lines;
use crate::cli::trees::Trees;
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::os::dir::Dir;
use crate::store::{self, Store};
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::{History, Phase};
use crate::trust_store::TrustStore;
use crate::version::Release;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Others read the file: the collector runs as a user of its own.
const FILE_MODE: u32 = 0o644;

/// `sidle metrics`
#[derive(Debug, Args)]
pub struct MetricsArguments {
    /// Write this file, whole or not at all, instead of standard output; its name should end in `.prom`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `sidle metrics`
pub fn metrics(context: &Context, arguments: &MetricsArguments) -> Result<Ended, Report> {
    let samples = samples(context)?;
    let lines = text(&samples);
    let Some(file) = &arguments.output else {
        context.output.result(Lines::verbatim(&lines), json!({"metrics": samples}));
        return Ok(Ended::Well);
    };
    let name = file.file_name().ok_or_else(|| {
        Report::of(Class::Usage, format!("cannot write metrics into {}: it names no file", file.display()))
            .hint("name a file in the directory that node_exporter's textfile collector reads")
    })?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let whole: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    Dir::open(parent)?.write_atomic(name, whole.as_bytes(), FILE_MODE)?;
    context.output.result(Vec::new(), json!({"file": file, "samples": samples.len()}));
    Ok(Ended::Well)
}

fn samples(context: &Context) -> Result<Vec<Sample>, Report> {
    let (layout, now) = (&context.layout, clock::now());
    let mut samples = vec![Sample::new("sidle_build_info", &labels(&[("version", env!("CARGO_PKG_VERSION"))]), 1)];
    for package in store::packages(layout)? {
        let store = Store::new(layout, &package);
        let mut shown = BTreeSet::new();
        let agents = if package.is_sidle() { Vec::new() } else { instances(layout, &package)? };
        for instance in agents {
            let files = InstanceFiles::new(layout, &instance, &package);
            let others = files.journal().is_ok_and(|journal| journal.package != package);
            if !others {
                shown.extend(of_instance(&files, &store, now, &mut samples));
            }
        }
        let installed = store.releases().unwrap_or_default();
        shown.retain(|release| installed.contains(release));
        if let Ok(trees) = Trees::read(&store, &shown) {
            trees.samples(package.as_str(), &mut samples);
        }
    }
    let trusted = TrustStore::open(&layout.trust()).and_then(|trust_store| trust_store.load()).ok();
    for (role, header) in trusted.and_then(|trusted| trusted.headers().ok()).into_iter().flatten() {
        let role = labels(&[("role", role)]);
        samples.push(Sample::new("sidle_metadata_expires_timestamp_seconds", &role, header.expires.as_second()));
    }
    Ok(samples)
}

/// The samples of one instance; returns the releases that a boot and a rollback would start.
fn of_instance(files: &InstanceFiles, store: &Store, now: Timestamp, out: &mut Vec<Sample>) -> BTreeSet<Release> {
    let (instance, package): (&InstanceName, &PackageName) = (files.instance(), files.package());
    let of = |more: &[(&str, &str)]| {
        labels(&[&[("instance", instance.as_str()), ("package", package.as_str())], more].concat())
    };
    let own = of(&[]);
    let (journal, history, hold, verdicts) =
        (files.journal().ok(), files.history().ok(), files.hold().ok(), files.verdicts().ok());
    let supervisor = SupervisorStatus::read(files.layout(), instance).ok();
    let current = store.current(instance).ok().flatten();
    let is_readable = journal.is_some() && history.is_some() && hold.is_some() && verdicts.is_some();
    out.push(Sample::new("sidle_state_readable", &own, i64::from(is_readable)));
    if let Some(hold) = hold {
        out.push(Sample::new("sidle_instance_held", &own, i64::from(hold.is_some_and(|hold| hold.is_on(now)))));
    }
    if let Some(verdicts) = verdicts {
        out.push(Sample::new("sidle_instance_bad_releases", &own, verdicts.bad.len()));
    }
    let running = supervisor.iter().flatten().find_map(|status| status.agent.as_ref()?.release.clone());
    let names: Vec<(&str, String)> = [("current", &current), ("running", &running)]
        .into_iter()
        .filter_map(|(name, release)| Some((name, release.as_ref()?.to_string())))
        .collect();
    if !names.is_empty() {
        let names: Vec<(&str, &str)> = names.iter().map(|(name, release)| (*name, release.as_str())).collect();
        out.push(Sample::new("sidle_release_info", &of(&names), 1));
    }
    if let Some(status) = &supervisor {
        out.push(Sample::new("sidle_supervised", &own, i64::from(status.is_some())));
    }
    if let Some(status) = supervisor.iter().flatten().next() {
        let agent = status.agent.as_ref();
        out.push(Sample::new("sidle_healthy", &own, i64::from(agent.is_some_and(|agent| agent.lacks.is_none()))));
        out.push(Sample::new("sidle_second_agents", &own, agent.map_or(0, |agent| agent.doubles.len())));
        out.push(Sample::new("sidle_finishing_processes", &own, status.finishing.len()));
    }
    if let Some(last) = history.as_ref().and_then(|history| history.entries().last()) {
        out.push(Sample::new("sidle_last_switch_result", &of(&[("result", last.result.word())]), 1));
        out.push(Sample::new("sidle_last_switch_timestamp_seconds", &own, last.ended_at.as_second()));
        let downtime = Duration::from_millis(last.downtime_milliseconds);
        out.push(Sample::lasting("sidle_last_switch_downtime_seconds", &own, downtime));
    }
    let live = journal.as_ref().and_then(|journal| journal.live.as_ref());
    if journal.is_some() {
        out.push(Sample::new("sidle_switch_live", &own, i64::from(live.is_some())));
    }
    let age = |since: Timestamp| now.duration_since(since).as_secs().max(0);
    if let Some(live) = live {
        out.push(Sample::new("sidle_switch_phase", &of(&[("phase", live.phase.word())]), 1));
        out.push(Sample::new("sidle_switch_phase_age_seconds", &own, age(live.phase_since)));
    }
    // A switch leaves its old process to itself, at the latest when it ends.
    let finishing = supervisor.iter().flatten().any(|status| !status.finishing.is_empty());
    let committed = history.iter().flat_map(History::entries).rev();
    let committed = committed.filter(|entry| entry.result == Phase::Committed).map(|entry| entry.ended_at);
    let retiring = live.filter(|live| live.phase == Phase::FinishingOld).map(|live| live.phase_since);
    if let Some(since) = retiring.or_else(|| committed.into_iter().next().filter(|_| finishing)) {
        out.push(Sample::new("sidle_finishing_process_age_seconds", &own, age(since)));
    }
    current.into_iter().chain(journal.and_then(|journal| journal.previous)).collect()
}
