//! `sidle try`: whether a release works on this host, before it is installed.

use super::install::{PlaceArguments, from_file_elsewhere};
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended, agents};
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::dir::Dir;
use crate::os::environment::Passed;
use crate::os::lock::LockFile;
use crate::os::process::Directory;
use crate::run::{CountsUses, RunRequest, RunRole, prepare};
use crate::store::Store;
use crate::store::install::Installed;
use crate::version::Release;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who tries a release holds this file in `/run/sidle`; no instance has such a name.
const LOCK: &str = ".try.lock";
/// A slow host reads a whole Salt from its disk.
const PATIENCE: Duration = Duration::from_secs(120);
const OPEN_DIRECTORY: u32 = 0o755;
const CLOSED_DIRECTORY: u32 = 0o700;

/// `sidle try FILE`
#[derive(Debug, Args)]
pub struct TryArguments {
    /// A bundle file
    file: PathBuf,
    /// The release to try, if the bundle has several [default: the newest that fits this host]
    #[arg(long)]
    release: Option<Release>,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Where the release is unpacked; it goes away in the end.
struct Place {
    packages: Dir,
    layout: Layout,
    _lock: crate::os::lock::Lock,
}

impl Place {
    /// An empty place; what an interrupted command left is removed.
    fn make(layout: &Layout) -> Result<Self, Report> {
        let packages = Dir::open_or_create(&layout.packages(), OPEN_DIRECTORY)?;
        let runs = Dir::open_or_create(&layout.runs(), OPEN_DIRECTORY)?;
        let file = LockFile::new(&runs, LOCK);
        let Some(lock) = file.try_exclusive()? else {
            let who = crate::os::lock::by(file.holder().as_ref());
            return Err(Report::of(Class::Locked, format!("cannot try a release: another one is being tried{who}"))
                .hint("wait for its end, and repeat the command"));
        };
        let place = Self { layout: Layout::new(&layout.tryout()), packages, _lock: lock };
        place.clear()?;
        place.packages.make_dir(name(), CLOSED_DIRECTORY)?;
        Ok(place)
    }

    fn clear(&self) -> Result<(), Report> {
        if self.packages.child_if_exists(name())?.is_some() {
            self.packages.remove_tree(name())?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What could not be removed is removed by the next `sidle try`.
        let _ = self.clear();
    }
}

fn name() -> &'static str {
    crate::layout::TRYOUT
}

/// What came of a call.
struct Outcome {
    shown: &'static str,
    works: bool,
    said: String,
}

impl Outcome {
    /// The line that tells most: the first one of an answer, the last one of an error.
    fn line(&self) -> &str {
        let mut lines = self.said.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = if self.works { lines.next() } else { lines.next_back() };
        line.unwrap_or("it printed nothing")
    }
}

/// `sidle try`
pub fn try_release(context: &Context, arguments: &TryArguments) -> Result<Ended, Report> {
    let place = Place::make(&context.layout)?;
    let installed = from_file_elsewhere(
        context,
        &arguments.file,
        arguments.release.as_ref(),
        (&place.layout, arguments.place.hazards()),
    )?;
    let outcomes = call(&place.layout, &installed)?;
    let Installed { package, release, .. } = &installed;
    let works = outcomes.iter().all(|outcome| outcome.works);
    let mut facts = Facts::new().with("tried", format!("{package} {release}: unpacked and verified"));
    for outcome in &outcomes {
        facts.add(if outcome.works { "works" } else { "fails" }, format!("{}: {}", outcome.shown, outcome.line()));
    }
    if outcomes.is_empty() {
        facts.add("not started", "sidle knows no call of this kind of agent that changes nothing");
    }
    facts.add("kept", "nothing");
    if !works {
        facts.add("next", "read what the program says (--json has all of it); `sidle inspect FILE` shows what the release needs of a host");
    }
    let calls: Vec<_> = outcomes
        .iter()
        .map(|Outcome { shown, works, said }| json!({ "call": shown, "works": works, "said": said }))
        .collect();
    let value = json!({ "package": package, "release": release, "works": works, "calls": calls });
    context.output.result(facts, value);
    Ok(if works { Ended::Well } else { Ended::As(Class::Failed) })
}

/// Calls the release's programs until one fails.
fn call(layout: &Layout, installed: &Installed) -> Result<Vec<Outcome>, Report> {
    let store = Store::new(layout, &installed.package);
    let kind = store.head(&installed.release)?.agent;
    let Some(maker) = agents::parts(&kind)?.tryout else { return Ok(Vec::new()) };
    let tryout = maker(layout.root());
    for (path, text) in &tryout.files {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { continue };
        Dir::open_or_create(directory, CLOSED_DIRECTORY)?.write_atomic(name, text.as_bytes(), 0o600)?;
    }
    let mut outcomes = Vec::new();
    for call in tryout.calls {
        let request = RunRequest {
            shared: Vec::new(),
            release: Some(installed.release.clone()),
            instance: InstanceName::default_of(&installed.package),
            command: Some(call.command.to_owned()),
            arguments: call.arguments,
            configuration: Some(layout.root().join("etc")),
            passed: Passed::default(),
            directory: Directory::Root,
            role: RunRole::Tool,
            counts_uses: CountsUses::No,
            registry: agents::parts,
        };
        let outcome = outcome(&store, &request, layout.root(), call.shown, call.expected)?;
        let works = outcome.works;
        outcomes.push(outcome);
        if !works {
            break;
        }
    }
    Ok(outcomes)
}

fn outcome(
    store: &Store,
    request: &RunRequest,
    place: &Path,
    shown: &'static str,
    expected: &str,
) -> Result<Outcome, Report> {
    let (program, _lease) = prepare(store, request)?;
    let said = match program.variable("TMPDIR", place).answer_within(PATIENCE) {
        Ok(Some(said)) => said,
        Ok(None) => {
            let said = format!("no end within {} s", PATIENCE.as_secs());
            return Ok(Outcome { shown, works: false, said });
        }
        Err(error) => return Ok(Outcome { shown, works: false, said: error.to_string() }),
    };
    let works = said.success && said.output.contains(expected);
    let said = if works { said.output } else { [said.output, said.errors].concat() };
    Ok(Outcome { shown, works, said })
}
