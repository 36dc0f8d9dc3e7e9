//! examples/acceptance on a booted Debian: it passes with sound releases, and fails where a release does not come up.

use crate::support::boot::Machine;
use crate::support::release::release_file;
use crate::support::stage::{Author, DEMO, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A job for the demonstration agent; it succeeds once the job is done.
const PROBE: &str = "n=p$(date +%s%N); s=/etc/demo-agent/state; mkdir -p $s/jobs; echo true >$s/jobs/.$n; mv $s/jobs/.$n $s/jobs/$n; \
                     for i in $(seq 100); do [ -e $s/done/$n ] && exit 0; sleep 0.1; done; exit 1";

#[test]
fn the_acceptance_script_tells_a_machine_that_works_from_a_release_that_fails() {
    let author = Author::new();
    author.release("1.0", "good");
    author.release("1.1", "good");
    author.release("1.2", "crash");
    let bundle = author.directory().join("all.sidle");
    let all = ["1.0-1", "1.1-1", "1.2-1"].map(|release| format!("{DEMO}@{release}"));
    let mut export = Command::new(crate::support::stage::SIDLE);
    export.args(["export", text(&author.repository())]).args(&all).args(["-o", text(&bundle)]);
    assert!(export.status().unwrap().success());
    let mut machine = Machine::bare("bookworm");
    fs::copy(release_file("deb"), machine.path("root/sidle.deb")).unwrap();
    fs::copy(&bundle, machine.path("root/all.sidle")).unwrap();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/acceptance"), machine.path("root/acceptance"))
        .unwrap();
    fs::create_dir_all(machine.path("etc/demo-agent")).unwrap();
    fs::create_dir_all(machine.path("etc/sidle/conf.d")).unwrap();
    let times = "probation = \"1s\"\nstart_timeout = \"8s\"\nstop_timeout = \"4s\"\n";
    fs::write(machine.path("etc/sidle/conf.d/test.toml"), times).unwrap();
    machine.boot_until(&["sh", "-c", "systemctl is-system-running | grep -qE 'running|degraded'"]);
    machine.inside(&["dpkg", "-i", "/root/sidle.deb"]);
    let fingerprint = author.fingerprint();
    let run = |new: &str| {
        let options = ["/root/acceptance", "--package", DEMO, "--probe", PROBE];
        machine.try_inside(&[&options[..], &["/root/all.sidle", &fingerprint, "1.0-1", new]].concat())
    };
    let (well, said) = run("1.1-1");
    println!("{said}");
    assert!(well && said.matches("PASS").count() > 12 && !said.contains("FAIL"), "{said}");
    let (well, said) = run("1.2-1");
    assert!(
        !well && said.contains("FAIL 6 the switch") && said.contains("PASS 4 the old release is current"),
        "{said}"
    );
    let (_, left) = machine.try_inside(&["ls", "/opt/sidle"]);
    assert!(left.contains("No such file"), "{left}");
}
