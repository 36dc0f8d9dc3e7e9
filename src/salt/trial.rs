//! Whether a release of Salt works on a host: its minion starts, and its `salt-call` loads modules and runs a function of one.

use super::agentless;
use crate::agent::trial::{Call, Trial};
use std::path::Path;

/// The trial of a minion's release.
pub fn trial(place: &Path) -> Trial {
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
    Trial { files: vec![(configuration.join("minion"), agentless::configuration(&place.display().to_string()))], calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_trial_writes_lies_at_its_place() {
        let trial = trial(Path::new("/opt/sidle/.try"));
        assert!(trial.files.iter().all(|(path, _)| path.starts_with("/opt/sidle/.try")));
        let lines = trial.files[0].1.lines().filter_map(|line| line.split_once(": "));
        assert!(
            lines.filter(|(_, value)| value.starts_with('/')).all(|(_, value)| value.starts_with("/opt/sidle/.try"))
        );
    }
}
