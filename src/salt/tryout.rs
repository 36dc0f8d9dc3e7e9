//! Whether a release of Salt works on a host: its minion starts, and its `salt-call` loads modules and runs a function of one.

use super::agentless;
use crate::agent::tryout::{Call, Tryout};
use std::path::Path;

/// The calls for a minion's release.
pub fn tryout(place: &Path) -> Tryout {
    let configuration = place.join("etc");
    let call = ["--local".into(), "--config-dir".into(), configuration.clone().into(), "--out=txt".into()];
    let calls = vec![
        Call {
            command: "salt-minion",
            arguments: vec!["--version".into()],
            expected: "salt-minion",
            shown: "salt-minion --version",
        },
        Call {
            command: agentless::COMMAND,
            arguments: call.into_iter().chain(["test.ping".into()]).collect(),
            expected: "True",
            shown: "salt-call --local test.ping",
        },
    ];
    Tryout {
        files: vec![(configuration.join("minion"), agentless::configuration(&place.display().to_string()))],
        calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_calls_write_lies_at_their_place() {
        let tryout = tryout(Path::new("/opt/sidle/.try"));
        assert!(tryout.files.iter().all(|(path, _)| path.starts_with("/opt/sidle/.try")));
        let lines = tryout.files[0].1.lines().filter_map(|line| line.split_once(": "));
        assert!(
            lines.filter(|(_, value)| value.starts_with('/')).all(|(_, value)| value.starts_with("/opt/sidle/.try"))
        );
    }
}
