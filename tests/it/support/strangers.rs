//! A local user without rights, who does what he can to a host's sidle.

use super::stage::{Host, SIDLE, text};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ACTS_MINIMUM: usize = 50;

/// A stranger at work; ended when dropped.
pub struct Stranger {
    child: Child,
    /// What came of each act, a line for each.
    pub told: Vec<String>,
}

impl Stranger {
    /// Lets a stranger begin on a host, and waits until all acts were tried once. `releases`: the one that runs, and the one to come; `program`: one of
    /// the running release's.
    pub fn at(host: &Host, package: &str, supervisor: u32, releases: [&str; 2], program: &str) -> Self {
        // Temporary directories are their owner's alone, and so may the program be.
        fs::set_permissions(host.root(), fs::Permissions::from_mode(0o755)).unwrap();
        let sidle = host.path("sidle");
        fs::copy(SIDLE, &sidle).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/stranger.py");
        let mut child = Command::new("python3")
            .args([text(&script), text(&host.root()), text(&sidle), package, &supervisor.to_string()])
            .args([releases[0], releases[1], program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let told: Vec<String> = lines.take_while(|line| !line.starts_with("ready ")).collect();
        assert!(told.len() >= ACTS_MINIMUM, "{told:#?}");
        Self { child, told }
    }

    /// What came of this act.
    pub fn came_of(&self, act: &str) -> &str {
        let found = self.told.iter().find_map(|line| line.strip_prefix(act)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("{act} was not tried: {:#?}", self.told))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
