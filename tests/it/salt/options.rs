//! A minion's options as sidle sees them are those that Salt loads: no rule of Salt's is written down a second time.

use crate::support::salt::tree;
use std::path::Path;
use std::process::{Command, Stdio};

/// Configurations for each Salt: with files that come and go, other types, directories that follow from others, and damaged text.
const COUNT: u32 = 300;

#[test]
fn three_hundred_configurations_are_seen_as_salt_sees_them() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compare = |version: &str| {
        let mut command = Command::new(tree(version).join("bin/python3"));
        command.arg("-I").arg("-B").arg(here.join("tests/it/support/configurations.py"));
        command.arg(here.join("bundles/salt-minion/guard/sidle_guard/options.py"));
        command.arg(here.join("src/salt/options/asking.py")).arg(COUNT.to_string()).arg(version);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    // The oldest and the newest, at once.
    let comparing = ["3006.30", "3008.5"].map(|version| (version, compare(version)));
    for (version, child) in comparing {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}");
        assert!(told.contains(&format!("{version}: {COUNT} configurations")), "{told}");
    }
}
