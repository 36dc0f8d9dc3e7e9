//! Hosts of a fleet: each has a real minion under sidle, on a root that is a template's, with the changes of its own.

use super::keys;
use super::leftovers;
use super::salt::Master;
use super::stage::{Host, SALT, SIDLE, Supervisor, text};
use super::stream::Marks;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// So many start at the same time.
const AT_ONCE: usize = 4;

/// The Salt extension.
pub fn extension() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/saltext-sidle")
}

/// Starts the minions of hosts, some at a time.
pub fn start(members: &mut [Member]) {
    for some in members.chunks_mut(AT_ONCE) {
        std::thread::scope(|scope| some.iter_mut().for_each(|member| drop(scope.spawn(|| member.start()))));
    }
}

/// One host of the fleet. The fields go in this order: what runs on the root, the root.
pub struct Member {
    pub id: String,
    pub family: &'static str,
    pub from: String,
    pub marks: Marks,
    supervisor: Option<Supervisor>,
    pub host: Host,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.as_mut() {
            supervisor.abandon();
        }
        leftovers::kill(&self.host.root());
    }
}

impl Member {
    /// A host whose root is the template's, with what it changes itself; its minion is not started.
    pub fn new(template: &Host, masters: &[&Master], (id, family, version): (String, &'static str, &str)) -> Self {
        let host = Host::over(&template.root());
        let mut marks = Marks::new();
        for name in ["sidle.py", "_sidle_program.py", "_sidle_files.py", "_sidle_cards.py"] {
            fs::copy(extension().join("src/saltext/sidle/modules").join(name), marks.modules().join(name)).unwrap();
        }
        marks.watch(&host.path("run/sidle").join(SALT).join("gate"));
        let configuration = format!(
            "id: {id}\nuser: root\nroot_dir: {}\nlog_level_logfile: info\ngrains: {{os_family: {family}}}\nsidle: {{program: {SIDLE}, root: {}}}\n{}",
            text(&host.root()),
            text(&host.root()),
            marks.quiet_configuration(masters),
        );
        fs::create_dir_all(host.path("etc/salt/minion.d")).unwrap();
        fs::write(host.path("etc/salt/minion"), configuration).unwrap();
        keys::put(&host.path("etc/salt/pki/minion"), "minion");
        Self { id, family, from: format!("{version}-1"), marks, supervisor: None, host }
    }

    pub fn start(&mut self) {
        self.supervisor = Some(self.host.supervise_instance(SALT));
        if self.current().is_empty() {
            self.host.sidle(&["switch", SALT, &self.from, "--mode", "idle"]).ok();
        }
    }

    pub fn stop(&mut self) {
        assert_eq!(self.supervisor.take().expect("it runs").end(), Some(0));
    }

    pub fn status(&self) -> Value {
        self.host.sidle(&["--json", "status", "--no-trees", SALT]).json()["instances"][0].clone()
    }

    /// The current release; empty: none.
    pub fn current(&self) -> String {
        let target = fs::read_link(self.host.path("opt/sidle").join(SALT).join("current")).unwrap_or_default();
        target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
