//! A rehearsal on real Salt: what a host's own modules and configuration lose is found before anything is tried, what failed before doesn't
//! count, and the host stays as it is. There is no master anywhere.

mod again;
mod back;
mod extras;
mod highstate;
mod verb;

use crate::support::salt::{tree, tree_of_python};
use crate::support::trees::{contents, put};
use sidle::os::clock;
use sidle::os::environment::Passed;
use sidle::rehearsal::states::Asked;
use sidle::rehearsal::{Part, Rehearsal, Scene};
use sidle::salt::rehearsal::SaltRehearser;
use sidle::salt::rehearsal::report::{How, RehearsalReport};
use sidle::switch::rehearsal::performance::{Question, Rehearsing};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

const OLD: &str = "3006.30";
const NEW: &str = "3008.5";
/// The default of `rehearsal_timeout`.
const REHEARSAL_MAX: Duration = Duration::from_secs(120);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/salt-minion/guard/sidle_rehearsal.py")
}

/// Kinds, modes and contents; times of change of content and of anything.
type Everything = (BTreeMap<String, (char, u32, Vec<u8>)>, BTreeMap<String, (i64, i64, i64, i64)>);

/// A host with a configuration and synced modules; its master's ports are watched.
struct Host {
    root: TempDir,
    ports: [TcpListener; 2],
}

impl Host {
    fn new(options: &str) -> Self {
        let root = tempfile::Builder::new().prefix("sidle-rehearsal-").tempdir().unwrap();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [publish, request] = [0, 1].map(|index: usize| {
            ports[index].set_nonblocking(true).unwrap();
            ports[index].local_addr().unwrap().port()
        });
        let host = Self { root, ports };
        let text = format!(
            "root_dir: {}\nid: one\nuser: root\nmaster: 127.0.0.1\npublish_port: {publish}\nmaster_port: {request}\n{options}",
            host.root.path().display()
        );
        host.put("etc/minion", &text);
        host
    }

    fn put(&self, path: &str, text: &str) {
        put(self.root.path(), path, text.as_bytes(), 0o644);
    }

    fn module(&self, kind: &str, name: &str, text: &str) {
        self.put(&format!("var/cache/salt/minion/extmods/{kind}/{name}.py"), text);
    }

    /// Everything on it, with the times of last change.
    fn everything(&self) -> Everything {
        let root = self.root.path();
        let times = |path: &String| {
            let stat = fs::symlink_metadata(root.join(path)).unwrap();
            (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec())
        };
        let all = contents(root);
        let changed = all.keys().map(|path| (path.clone(), times(path))).collect();
        (all, changed)
    }

    fn rehearsed(&self, trial: &str, former: Option<&str>) -> Rehearsal {
        self.compared(plain(trial), former.map(plain), None)
    }

    fn compared(&self, trial: Part, former: Option<Part>, states: Option<Asked>) -> Rehearsal {
        let run = tempfile::tempdir().unwrap();
        let name = |part: &Part| part.tree.file_name().unwrap().to_string_lossy().into_owned();
        let told = format!("{:?} to {}", former.as_ref().map(name), name(&trial));
        let scene = Scene {
            trial,
            former: former.into(),
            config_directory: self.root.path().join("etc"),
            passed: Passed::default(),
            states,
        };
        let rehearser = Box::leak(Box::new(SaltRehearser::with_script(&script())));
        let before = self.everything();
        let now = clock::since_boot();
        let mut rehearsing =
            Rehearsing::start(rehearser, scene, Question::Worse, run.path(), REHEARSAL_MAX, now).unwrap();
        let found = loop {
            if let Some(answer) = rehearsing.poll(clock::since_boot()) {
                break answer.unwrap();
            }
            clock::sleep(Duration::from_millis(20));
        };
        println!(
            "{told}, {:.1} s:\n{}",
            clock::since_boot().saturating_sub(now).as_secs_f32(),
            found.told(false).join("\n")
        );
        self.is_untouched(&before);
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0, "the rehearsal tidies up");
        found
    }

    fn is_untouched(&self, before: &Everything) {
        assert!(*before == self.everything(), "the host is as it was");
        for port in &self.ports {
            assert!(port.accept().is_err(), "nobody called the master");
        }
    }

    fn program(&self, version: &str, script: &Path, more: &[&str]) -> Output {
        self.program_with(version, script, more, &[])
    }

    fn program_with(&self, version: &str, script: &Path, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(tree(version).join("bin/python3"));
        command.args(["-E", "-s", "-B"]).arg(script).arg("-c").arg(self.root.path().join("etc")).args(more);
        let output = command.env("TMPDIR", temporary.path()).envs(variables.iter().copied()).output().unwrap();
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "it removes its own scratch directory");
        output
    }

    /// The report of one release, by hand: `more` are further arguments.
    fn report(&self, version: &str, more: &[&str]) -> RehearsalReport {
        let output = self.program(version, &script(), more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        println!("{}", String::from_utf8_lossy(&output.stdout).rsplit_once("\"seconds\"").unwrap().1);
        RehearsalReport::parse(&output.stdout).unwrap()
    }
}

/// A release with nothing of its host's in its environment.
fn plain(version: &str) -> Part {
    Part { tree: tree(version), environment: Vec::new() }
}

/// The text of the finding that holds `part`; there must be exactly one.
fn one<'a>(found: &'a [String], part: &str) -> &'a str {
    let hits: Vec<&String> = found.iter().filter(|text| text.contains(part)).collect();
    assert_eq!(hits.len(), 1, "{part}: {found:?}");
    hits[0]
}

/// Modules of a site, of which some work only with the one or the other release.
fn site() -> Host {
    let host = Host::new(
        "schedule:\n  zone: {function: timezone.get_zone, minutes: 10}\n  ping: {function: test.ping, minutes: 10}\n  \
         off: {function: timezone.get_zone, minutes: 10, enabled: False}\nbeacons:\n  wtmp: []\n",
    );
    host.module("modules", "site_good", "def ping():\n    return __salt__['test.ping']()\n");
    host.module("modules", "site_vault", "import salt.utils.vault\n\ndef read():\n    return 1\n");
    host.module("modules", "site_trace", "import salt.utils.tracing\n\ndef read():\n    return 1\n");
    host.module("modules", "site_broken", "def broken(:\n");
    host.module("modules", "site_other", "def __virtual__():\n    return False, 'not for this host'\n");
    let noisy = "import os\nprint('noise')\nos.system('echo noise')\n\ndef made():\n    return 1\n";
    host.module("modules", "site_noisy", noisy);
    let grains = "import salt.version\n\ndef role():\n    old = salt.version.__version__.startswith('3006')\n    \
                  return {'site_role': 1, **({'site_old': 1} if old else {})}\n";
    host.module("grains", "site_role", grains);
    let fragile = "import sys\n\ndef fragile():\n    return {'site_fragile': sys.version_info[1] > 10 or {}['gone']}\n";
    host.module("grains", "site_fragile", fragile);
    host.module("states", "site_state", "def present(name):\n    return {}\n");
    host.module("sdb", "site_sdb", "import salt.utils.vault\n\ndef get(key):\n    return 1\n");
    host.put("etc/minion.d/broken_later.conf", "site_option: 1\n");
    host
}

#[test]
fn a_rehearsal_finds_what_the_newer_release_has_lost() {
    let found = site().rehearsed(NEW, Some(OLD));
    let vault = one(&found.blocking, "site_vault");
    assert!(vault.starts_with("the custom execution module site_vault (") && vault.contains("cannot be imported: "));
    assert!(vault.contains("No module named 'salt.utils.vault'"), "{vault}");
    one(&found.blocking, "the custom sdb module site_sdb");
    one(&found.blocking, "schedule zone needs the function timezone.get_zone, which the release does not have");
    one(&found.blocking, "beacon wtmp needs the beacon wtmp");
    assert_eq!(found.blocking.len(), 4, "{:?}", found.blocking);
    one(&found.notes, "don't count: site_broken");
    assert!(one(&found.notes, "would vanish: site_old").contains("zfs_support"));
    one(&found.notes, "execution modules would vanish: ");
    assert!(found.notes.len() < 20, "{:?}", found.notes);
}

#[test]
fn a_rehearsal_names_what_salt_pip_installed_and_the_new_python_does_not_see() {
    let host = Host::new("");
    for (python, package) in [("3.10", "Site_Extra-1.2"), ("3.10", "both-1.0"), ("3.11", "both-2.0")] {
        let (name, version) = package.split_once('-').unwrap();
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        host.put(&format!("minion/extras-{python}/{package}.dist-info/METADATA"), &metadata);
    }
    let part = |tree: PathBuf, python: &str| {
        let directory = host.root.path().join(format!("minion/extras-{python}"));
        Part { tree, environment: vec![("SALT_EXTRAS_DIR".into(), directory.into_os_string())] }
    };
    let found = host.compared(part(tree(NEW), "3.11"), Some(part(tree_of_python(OLD, "3.10"), "3.10")), None);
    let text = one(&found.extras, "1 package that salt-pip installed in ");
    assert!(
        text.contains("minion/extras-3.10 would vanish with Python 3.11.") && text.contains(": site-extra 1.2;"),
        "{text}"
    );
    assert!(!found.notes.iter().any(|note| note.contains("salt-pip")), "{:?}", found.notes);
    let same = host.rehearsed(NEW, Some(OLD));
    assert!(same.extras.is_empty(), "{same:?}");
}

/// What `pure::rehearsal` compares: the reports of these releases on `site`.
#[test]
#[ignore = "a recorder, which writes into the source tree: `scripts/bench reports` runs it"]
fn record_reports() {
    let host = site();
    for version in [OLD, NEW] {
        let output = host.program(version, &script(), &[]);
        RehearsalReport::parse(&output.stdout).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/pure/rehearsal/{version}.json.zst"));
        // Of this machine nothing is kept.
        let text = String::from_utf8(output.stdout).unwrap().replace(host.root.path().to_str().unwrap(), "");
        let text = text.replace(tree(version).to_str().unwrap(), "/opt/sidle/salt-minion/current");
        fs::write(path, zstd::encode_all(text.as_bytes(), 19).unwrap()).unwrap();
    }
}

#[test]
fn a_rehearsal_finds_a_configuration_that_cannot_be_loaded() {
    let host = site();
    host.put("etc/minion.d/_schedule.conf", "schedule: [\n");
    host.put("etc/minion.d/site.conf", "site_option: [1, 2\n");
    let found = host.rehearsed(NEW, None);
    let text = one(&found.blocking, "cannot load the configuration: ");
    assert!(text.contains("minion.d/site.conf"), "{text}");
    assert_eq!(found.blocking.len(), 1, "{found:?}");
    let found = host.rehearsed(NEW, Some(OLD));
    assert!(!found.refuses(), "the running release couldn't load it either: {found:?}");
    one(&found.notes, "cannot compare: with either release it cannot load the configuration: ");
    assert_eq!(host.report(NEW, &["--unsealed"]).failure.unwrap().stage, "configuration");
    assert!(host.root.path().join("etc/minion.d/_schedule.conf").exists(), "Salt itself would have renamed it");

    // Salt only logs that there is no file `minion`.
    let etc = host.root.path().join("etc");
    fs::remove_file(etc.join("minion.d/site.conf")).unwrap();
    fs::rename(etc.join("minion"), etc.join("minion.d/own.conf")).unwrap();
    let found = host.rehearsed(NEW, None);
    assert!(!found.blocking.iter().any(|text| text.contains("cannot load the configuration")), "{found:?}");
}

#[test]
fn a_rehearsal_on_a_kernel_that_cannot_seal_it_writes_nothing_either() {
    let host = Host::new("grains_cache: True\nenable_fqdns_grains: True\n");
    host.module("modules", "site_good", "def ping():\n    return 1\n");
    host.module("modules", "site_broken", "raise ValueError('because')\n");
    host.put("srv/_modules/site_local.py", "def ping():\n    return 1\n");
    host.put("etc/minion.d/dirs.conf", &format!("module_dirs: [{}/srv]\n", host.root.path().display()));
    let before = host.everything();
    for version in [OLD, "3007.17", NEW] {
        let report = host.report(version, &["--unsealed"]);
        assert_eq!((report.failure.as_ref(), report.version.as_deref()), (None, Some(version)));
        assert!(report.has("module", "test.ping") && report.has("module", "site_good.ping"));
        let own = &report.own["module"];
        assert_eq!(own.iter().collect::<Vec<_>>(), ["site_good.ping", "site_local.ping"]);
        let own: Vec<_> = report.errors.iter().filter(|error| error.own).collect();
        assert_eq!((own.len(), own[0].how), (1, How::Import));
        assert_eq!(own[0].reason, "ValueError: because");
        assert!(report.grains.contains("osrelease"));
        host.is_untouched(&before);
    }
}

#[test]
fn a_rehearsal_that_is_sealed_keeps_even_custom_code_from_changing_the_host() {
    let host = Host::new("");
    let writer = format!(
        "import os, tempfile\n\ndef __virtual__():\n    tempfile.mkstemp()\n    open('{}/trace', 'w').close()\n",
        host.root.path().display()
    );
    host.module("modules", "site_writer", &writer);
    let caller =
        "import socket\n\ndef call():\n    socket.create_connection(('127.0.0.1', __opts__['master_port']), 5)\n";
    host.module("grains", "site_caller", caller);
    let before = host.everything();
    for version in [OLD, NEW] {
        let report = host.report(version, &[]);
        assert_eq!(report.sealed.len(), 2, "this kernel or user can't seal it off, so nothing is tested");
        let reason = |kind, name| report.error(kind, name).unwrap().reason.as_str();
        assert!(reason("module", "site_writer").contains("Read-only file system"), "{:?}", report.errors);
        assert!(reason("grains", "site_caller.call").contains("unreachable"), "{:?}", report.errors);
        host.is_untouched(&before);
    }
}

#[test]
fn a_rehearsal_runs_no_custom_code_as_another_user_than_the_minion() {
    let host = Host::new("");
    let text = fs::read_to_string(host.root.path().join("etc/minion")).unwrap();
    host.put("etc/minion", &text.replace("user: root", "user: nobody-here"));
    host.module("modules", "site_good", "raise ValueError('it must not come to this')\n");
    let report = host.report(NEW, &[]);
    assert_eq!(report.failure.unwrap().stage, "user");
    assert!(report.errors.is_empty());
    let found = host.rehearsed(NEW, None);
    one(&found.blocking, "cannot run as the minion's user: it can't become the user nobody-here");
}

#[test]
fn a_rehearsal_takes_nothing_from_where_its_program_lies_and_bounds_itself() {
    let host = Host::new("");
    host.module("modules", "site_slow", "import time\n\ntime.sleep(600)\n");
    // The trial's site-packages, as the former's Python sees them.
    let packages = tempfile::tempdir().unwrap();
    put(packages.path(), "salt/__init__.py", b"raise SystemExit('the wrong release')\n", 0o644);
    put(packages.path(), "json.py", b"raise SystemExit('the wrong release')\n", 0o644);
    let program = packages.path().join("sidle_rehearsal.py");
    fs::copy(script(), &program).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let output = host.program(NEW, &program, &["--seconds", "3", "--scratch", scratch.path().to_str().unwrap()]);
    assert_eq!(output.status.signal(), Some(14), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(host.root.path().join("var/cache/salt/minion/extmods/modules/site_slow.py")).unwrap();
    let output = host.program(NEW, &program, &[]);
    let report = RehearsalReport::parse(&output.stdout).unwrap();
    assert_eq!((report.failure, report.version.as_deref()), (None, Some(NEW)));
}
