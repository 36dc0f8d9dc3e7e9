//! `sidle setup --adopt` on a booted host with a packaged minion and no supervisor, on the host itself and by `sidle push`: under a stream of jobs, and
//! as its dry runs announced it.

use crate::support::boot::Machine;
use crate::support::packages::{Kind, NEW, OLD, PackagedHost};
use crate::support::roots::Roots;
use crate::support::stage::{Host, SALT, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

const SERVICE: &str = "sidle@salt-minion";
/// Inside: the repository.
const REPOSITORY: &str = "srv/repository";
const RATE: f64 = 1.0;
const AROUND_SECONDS: u64 = 3;

/// The files of administrators: paths, times of change, targets of links.
fn files(machine: &Machine) -> BTreeSet<String> {
    let find = ["find", "/etc", "/usr/local", "!", "-type", "d", "-printf", "%p %T@ %m %l\\n"];
    machine.inside(&find).lines().map(str::to_owned).collect()
}

fn paths<'a>(lines: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn setup_adopts_a_packaged_minion_on_a_booted_host_and_changes_what_its_dry_run_told() {
    let host = PackagedHost::new(Kind::Deb);
    let (machine, author) = (&host.machine, &host.author);
    let place = machine.path(REPOSITORY);
    let copied = Command::new("cp").args(["-r", text(&author.repository()), text(&place)]).status().unwrap();
    assert!(copied.success());
    let adopt = ["sidle", "--json", "adopt", SALT, "--dry-run"];
    let told: Value = serde_json::from_str(&machine.inside(&adopt)).unwrap();
    let told = told["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap().to_owned());
    let told: BTreeSet<String> =
        told.filter(|path| path.starts_with("/etc/") || path.starts_with("/usr/local/")).collect();
    assert!(told.len() > 4, "{told:?}");

    machine.inside(&["systemctl", "disable", "--now", SERVICE]);
    let refused = machine.try_inside(&["sidle", "adopt", SALT, "--dry-run"]);
    assert!(!refused.0 && refused.1.contains("its supervisor does not run"), "{refused:?}");
    let (url, fingerprint) = (format!("file:///{REPOSITORY}"), author.fingerprint());
    let release = format!("{NEW}-1");
    let setup =
        ["sidle", "setup", "--repository", &url, "--fingerprint", &fingerprint, "--release", &release, "--adopt"];
    let before = files(machine);
    let dry = machine.inside(&[&setup[..], &["--dry-run"]].concat());
    assert!(dry.contains("adopt: would take over") && dry.contains("settings: would write"), "{dry}");
    assert_eq!(files(machine), before);

    let stream = host.stream(RATE);
    stream.run(AROUND_SECONDS);
    // From another host, which makes the same call there, and names the repository that the host reaches itself.
    let (roots, other_host, repository) = (Roots::entered_by(&machine.enter()), Host::bare(), author.repository());
    let (config, from) = (roots.config(), format!("file://{}", text(&repository)));
    let options = ["--fingerprint", &fingerprint, "--release", &release, "--action", "adopt", "--configure", &url];
    let push = [&["--json", "push", "r0", "-F", text(&config), "--package", SALT, "--repository", &from], &options[..]];
    let pushed = other_host.sidle(&push.concat());
    assert!(pushed.code == Some(0), "{pushed:?}\n{}", host.logs());
    let did = pushed.json()["hosts"][0]["did"].to_string();
    assert!(did.contains(&format!("started {SERVICE}.service")) && did.contains("10-repository.toml"), "{did}");
    assert!(host.version().contains(NEW), "{}", host.logs());
    assert_eq!(host.state(), ["active", "enabled"]);
    let after = files(machine);
    let own = |path: &String| path.contains("/conf.d/10-repository.toml") || path.contains(".wants/sidle@");
    let changed: BTreeSet<String> = paths(after.difference(&before)).into_iter().filter(|path| !own(path)).collect();
    assert_eq!(changed, told, "what changed is what the dry run told");
    assert_eq!(paths(before.difference(&after)), BTreeSet::new(), "nothing that was there went or changed");
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless(&format!("{OLD} is adopted by setup"));
    let again = machine.try_inside(&setup);
    assert!(!again.0 && again.1.contains("nothing to do"), "{again:?}");
    assert_eq!(host.minions(), 1);
}
