//! Gives a running minion its guard: a grain that is there for a moment, and an event on the minion's own bus that makes main load it.
//!
//! No program of the minion's own is run: the event is written as Salt's children write theirs (`salt/transport/ipc.py`), which all
//! releases read. What the grain does is in `sidle_adoption.py` and the guard's `attach.py`.

use super::SaltMinion;
use super::options::asking::Asker;
use super::options::{Masters, MinionConfig};
use super::rehearsal::{carrying, packaged, setup_files};
use crate::agent::adoption::{Adopter, ExtrasBack, HostSetting, RunningAgent, Trees};
use crate::agent::{AgentError, AgentSettings, Subject};
use crate::os::again::Start;
use crate::os::dir::Dir;
use crate::os::process::{self, Identity};
use crate::os::{OsError, clock, ground, proc_fs, socket};
use jiff::Zoned;
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

macro_rules! guard_files {
    ($($name:literal)*) => {
        [$((
            concat!($name, ".py"),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/bundles/salt-minion/guard/sidle_guard/", $name, ".py")),
        )),*]
    };
}

/// The guard as it is copied for a minion that has none in its tree.
pub const GUARD: [(&str, &str); 34] = guard_files!(
    "__init__" "alarm" "attach" "channels" "claims" "coroutines" "damage" "decision" "events" "gate" "guard"
    "handover" "handshakes" "hook" "joblog" "jobs" "mantle" "masters" "missing" "options" "owed"
    "paths" "proof" "queues" "quiet" "report" "roles" "shape" "singletons" "slot"
    "subscriptions" "tally" "uses" "wraps"
);

const GRAIN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/bundles/salt-minion/guard/sidle_adoption.py"));
const GRAIN_STEM: &str = "sidle_adoption";
const GRAINS_NAME: &str = "grains";
const PACKAGE_NAME: &str = "sidle_guard";

/// Makes main load all its modules and grains again.
const EVENT_TAG: &[u8] = b"module_refresh\n\n";
/// `{"force_refresh": True, "notify": False}` in msgpack: grains that are cached are read again.
const EVENT_DATA: &[u8] = b"\x82\xadforce_refresh\xc3\xa6notify\xc2";
/// A main that is loading something reads its bus a moment later; nobody waits for an answer here.
const SEND_WAIT: Duration = Duration::from_secs(5);

/// The units that run a minion, as distributions and Uyuni name them, and where each one's configuration is.
const UNITS: [(&str, &str); 2] =
    [("salt-minion.service", "/etc/salt"), ("venv-salt-minion.service", "/etc/venv-salt-minion")];

/// The first version whose minion can load the guard.
const FIRST_WITH_GUARD: u32 = 3006;

/// The processes from main up to the minion's first one: Salt has one above main.
const ABOVE_MAXIMUM: usize = 2;

/// How minions are adopted.
#[derive(Debug)]
pub struct SaltAdopter;

impl Adopter for SaltAdopter {
    fn unit(&self, package: &str) -> String {
        format!("{package}.service")
    }

    fn is_command(&self, name: &str) -> bool {
        name.contains("salt-")
    }

    fn shared_variables(&self) -> &'static [&'static str] {
        carrying::SHARED
    }

    fn host_settings(&self, root: &Path, unit: &str, found: &RunningAgent) -> Result<Vec<HostSetting>, AgentError> {
        // The scripts of Uyuni's package know no such files.
        if unit == UNITS[1].0 { Ok(Vec::new()) } else { setup_files::of(root, found) }
    }

    fn other_names(&self, unit: &str) -> Vec<(&'static str, &'static str)> {
        UNITS.into_iter().filter(|(name, _)| *name != unit).collect()
    }

    fn is_same(&self, ours: &AgentSettings, theirs: &AgentSettings) -> Result<Option<String>, AgentError> {
        Ok(shared_identity(&Asker::new(ours).last()?, &Asker::new(theirs).present()?))
    }

    fn find(&self, settings: &AgentSettings, leader: Option<u32>) -> Result<Option<RunningAgent>, AgentError> {
        let config = Asker::new(settings).present()?;
        let Some(main) = super::pid_in(&config.pid_file)? else { return Ok(None) };
        let leader = match leader {
            Some(leader) => leader,
            None => top(main)?,
        };
        let (Some(leader), Some(main)) = (Identity::of(leader)?, Identity::of(main)?) else {
            return Ok(None);
        };
        let Some(start) = Start::of(&leader)?.filter(|start| is_minion(&start.command)) else { return Ok(None) };
        // That main is below the leader, or this is no minion.
        SaltMinion::chain(Ok(&config), Subject::unguarded(&leader))?;
        let configuration = configuration_of(&start.command);
        Ok(Some(RunningAgent { leader, main, start, configuration, user: config.user }))
    }

    fn alone(&self, found: &RunningAgent) -> Option<String> {
        let version = packaged::version(&found.leader)?;
        is_too_old(&version)
            .then(|| format!("Salt {version} cannot load the guard: that needs {FIRST_WITH_GUARD} or later"))
    }

    fn guard(
        &self,
        settings: &AgentSettings,
        found: &RunningAgent,
        gate: &Path,
        copy: &Path,
    ) -> Result<(), AgentError> {
        lay_guard(&Asker::new(settings).present()?, found, gate, copy)
    }

    fn missed(&self, from: &Zoned, until: &Zoned) -> String {
        let told = |time: &Zoned| time.strftime("%Y-%m-%d %H:%M:%S").to_string();
        format!(
            "`salt-run jobs.list_jobs start_time='{}' end_time='{}'` on a master names what was published meanwhile, by this host's clock",
            told(from),
            told(until)
        )
    }

    fn tidy(&self, settings: &AgentSettings) -> Result<(), AgentError> {
        tidy(&Asker::new(settings).present()?)
    }

    fn extras(&self, trees: &Trees) -> Result<Option<String>, AgentError> {
        carrying::record(trees)
    }

    fn extras_back(&self, trees: &Trees, record: &str, is_plan: bool) -> Result<ExtrasBack, AgentError> {
        carrying::back(trees, record, is_plan)
    }
}

/// True if a minion of this version cannot load the guard. What is no version is not too old: its guard says more.
fn is_too_old(version: &str) -> bool {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse::<u32>().is_ok_and(|major| major < FIRST_WITH_GUARD)
}

/// The minion that both are, in the operator's words; None: they are two minions.
pub(super) fn shared_identity(ours: &MinionConfig, theirs: &MinionConfig) -> Option<String> {
    let (Masters::Named(mine, _), Masters::Named(others, _)) = (&ours.masters, &theirs.masters) else { return None };
    let shared = mine.iter().find(|master| others.contains(master));
    // One that has no id yet would make it of the host's name, as most have theirs.
    let same_id = theirs.id.is_none() || ours.id.is_none() || ours.id == theirs.id;
    let id = ours.id.as_ref().or(theirs.id.as_ref());
    let id = id.map_or("the minion of this host".to_owned(), |id| format!("minion {id}"));
    shared.filter(|_| same_id).map(|master| format!("{id} of master {}", master.name))
}

/// Copies the guard, puts the grain where main finds it, and makes main load it.
fn lay_guard(config: &MinionConfig, found: &RunningAgent, gate: &Path, copy: &Path) -> Result<(), AgentError> {
    tidy(config)?;
    let package = Dir::open_or_create(&copy.join(PACKAGE_NAME), 0o755)?;
    for (name, text) in GUARD {
        package.write_atomic(name, text.as_bytes(), 0o644)?;
    }
    let adoption = json!({
        "main": found.main.pid, "start_time": found.main.start_time, "leader": found.leader.pid,
        "gate": gate, "guard": copy, "now": clock::since_boot().as_secs_f64(),
    });
    let text = GRAIN.replace("@ADOPTION@", &adoption.to_string().replace('\\', "\\\\"));
    // The directory may be the minion's user's: his links lead where he has no rights.
    let extensions = ground::open_or_create(&config.extension_directory, 0o755)?;
    let is_new = extensions.stat(GRAINS_NAME)?.is_none();
    let grains = extensions.child_or_create(GRAINS_NAME, 0o755)?;
    let user = found.user.as_deref().and_then(process::user_number);
    if let Some(user) = user.filter(|user| is_new && *user != process::user()) {
        // The minion itself writes there later.
        grains.set_owner(user)?;
    }
    grains.write_atomic(format!("{GRAIN_STEM}.py"), text.as_bytes(), 0o644)?;
    tell(config)
}

/// Removes the grain.
fn tidy(config: &MinionConfig) -> Result<(), AgentError> {
    let path = config.extension_directory.join(GRAINS_NAME);
    let Some(grains) = ground::open_if_exists(&path)? else { return Ok(()) };
    grains.remove_file(format!("{GRAIN_STEM}.py"))?;
    if let Some(compiled) = grains.child_if_exists("__pycache__")? {
        for name in compiled.names()? {
            if name.to_string_lossy().starts_with(GRAIN_STEM) {
                compiled.remove_file(&name)?;
            }
        }
    }
    Ok(())
}

fn is_minion(command: &[String]) -> bool {
    command.iter().any(|word| word.contains("salt-minion"))
}

/// The highest process above `main` that is a minion, too.
fn top(main: u32) -> Result<u32, OsError> {
    let mut top = main;
    for _ in 0..ABOVE_MAXIMUM {
        let Some(process) = proc_fs::process(top)? else { break };
        let command = proc_fs::command_line(process.parent)?.unwrap_or_default();
        if process.parent <= 1 || !is_minion(&command) {
            break;
        }
        top = process.parent;
    }
    Ok(top)
}

/// The configuration directory that a minion was started with.
pub(super) fn configuration_of(command: &[String]) -> PathBuf {
    // setproctitle(3) may have made one word of them all.
    let words: Vec<&str> = command.iter().flat_map(|word| word.split(' ')).collect();
    let named = words.iter().enumerate().find_map(|(number, word)| match *word {
        "-c" | "--config-dir" => words.get(number + 1).copied(),
        other => other.strip_prefix("--config-dir=").or_else(|| other.strip_prefix("-c")).filter(|_| number > 0),
    });
    let default =
        if words.iter().any(|word| word.contains("venv-salt-minion")) { "/etc/venv-salt-minion" } else { "/etc/salt" };
    PathBuf::from(named.filter(|name| name.starts_with('/')).unwrap_or(default))
}

/// Writes the event into main's socket.
fn tell(config: &MinionConfig) -> Result<(), AgentError> {
    let none = |cause: &str| {
        AgentError::new(format!("cannot speak to the minion in {}: {cause}", config.socket_directory.display()))
    };
    let directory = Dir::open(&config.socket_directory)?;
    let names = directory.names()?;
    let names = names.iter().filter_map(|name| name.to_str());
    let sockets: Vec<&str> =
        names.filter(|name| name.starts_with("minion_event_") && name.ends_with("_pull.ipc")).collect();
    let [name] = sockets[..] else {
        return Err(none(&format!("{} sockets of minions are there, not one", sockets.len())));
    };
    let stream = socket::connect(&directory, name, SEND_WAIT)?;
    let mut stream = stream.ok_or_else(|| none("no process listens"))?;
    let frame = frame();
    Ok(stream.write_all(&frame).map_err(|source| OsError::new("write to", &directory.path().join(name), source))?)
}

/// `{"head": {}, "body": tag and data}` in msgpack, with its length before it.
fn frame() -> Vec<u8> {
    let body = [EVENT_TAG, EVENT_DATA].concat();
    let length = u8::try_from(body.len()).expect("the event is shorter than 256 bytes");
    let map = [&b"\x82\xa4head\x80\xa4body\xc4"[..], &[length], &body].concat();
    let length = u32::try_from(map.len()).expect("the frame is shorter than 4 GiB").to_be_bytes();
    [&length[..], &map].concat()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn the_whole_guard_is_copied() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/salt-minion/guard/sidle_guard");
        let names = Dir::open(&directory).unwrap().names().unwrap();
        let mut names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "py"));
        names.sort();
        assert_eq!(GUARD.map(|(name, _)| name).to_vec(), names);
    }

    #[test]
    fn minions_before_3006_are_too_old_for_the_guard_and_what_is_no_version_is_not() {
        let old = ["2019.2.8", "3000.9", "3004.2", "3005.5", "3005.1+2.gabc"];
        assert!(old.iter().all(|version| is_too_old(version)));
        let young = ["3006.0", "3006.0rc1", "3006.30", "3007.17", "3008.5", "3009.0", "", "unknown"];
        assert!(!young.iter().any(|version| is_too_old(version)));
    }

    #[test]
    fn a_minion_says_where_its_configuration_is() {
        let of = |words: &[&str]| configuration_of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["/usr/bin/python3", "/usr/bin/salt-minion"]), Path::new("/etc/salt"));
        assert_eq!(of(&["python3", "-E", "salt-minion", "-c", "/srv/etc"]), Path::new("/srv/etc"));
        assert_eq!(of(&["python3 salt-minion --config-dir=/srv/etc"]), Path::new("/srv/etc"));
        let job = "python3 salt-minion --config-dir /srv/etc -l info MinionProcessManager ProcessPayload(jid=1)";
        assert_eq!(of(&[job]), Path::new("/srv/etc"));
        let venv = "/usr/lib/venv-salt-minion/bin/python";
        assert_eq!(of(&[venv, "/usr/bin/venv-salt-minion"]), Path::new("/etc/venv-salt-minion"));
    }

    #[test]
    fn the_guard_goes_through_no_link_of_the_minions_user() {
        let root = tempfile::tempdir().unwrap();
        let (cache, victim) = (root.path().join("var/cache/salt/minion"), root.path().join("victim"));
        for directory in [&cache, &victim] {
            fs::create_dir_all(directory).unwrap();
        }
        let config = MinionConfig {
            extension_directory: cache.join("extmods"),
            socket_directory: root.path().join("run"),
            ..super::super::options::answer::recorded().config().unwrap()
        };
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&victim, cache.join("extmods")).unwrap();
        let own = Identity::own().unwrap();
        let start = Start::of(&own).unwrap().unwrap();
        let found =
            RunningAgent { leader: own.clone(), main: own, start, configuration: "/etc/salt".into(), user: None };
        let given = |copy: &str| lay_guard(&config, &found, &root.path().join("gate"), &root.path().join(copy));
        assert!(given("copy").unwrap_err().to_string().contains("it is a link"));
        assert!(tidy(&config).unwrap_err().to_string().contains("it is a link"));
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        // Without the link the guard is laid down, and nobody listens.
        fs::remove_file(cache.join("extmods")).unwrap();
        assert!(!given("copy").unwrap_err().to_string().contains("it is a link"));
        assert!(cache.join("extmods/grains/sidle_adoption.py").exists());
    }

    #[test]
    fn the_event_is_framed_as_salt_reads_it() {
        let frame = frame();
        assert_eq!(frame.len() - 4, usize::from(frame[3]));
        assert!(frame.windows(16).any(|part| part == b"module_refresh\n\n"));
    }
}
