//! Look-alikes of hosts whose `/usr` is an image, booted: it can only be read.

use crate::support::boot::{Machine, UNIT};
use crate::support::stage::{Author, DEMO, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn machine(author: &Author) -> Machine {
    let machine = Machine::new("trixie", author, &[]);
    for version in ["1.0", "1.1"] {
        fs::copy(author.release(version, "good"), machine.path(&format!("srv/{version}.sidle"))).unwrap();
    }
    fs::write(machine.path("etc/sidle/sidle.toml"), "probation = \"1s\"\nstop_timeout = \"2s\"\n").unwrap();
    machine
}

/// From now on nothing can be written to `/usr`.
fn seal(machine: &Machine) {
    machine.inside(&["sh", "-ec", "mount --bind /usr /usr; mount -o remount,bind,ro /usr; ! touch /usr/x 2>&1"]);
}

fn switches(machine: &Machine) {
    for version in ["1.0", "1.1"] {
        machine.inside(&["sidle", "install", &format!("/srv/{version}.sidle")]);
        if version == "1.0" {
            // It has been started without any release.
            machine.inside(&["systemctl", "restart", UNIT]);
        }
        machine.inside(&["sidle", "switch", DEMO, &format!("{version}-1")]);
        machine.serves(&format!("{version}-1"));
    }
    machine.inside(&["sidle", "verify", DEMO, "--full"]);
    let doctor = machine.try_inside(&["sidle", "doctor"]).1;
    assert!(
        !doctor.contains("transactional") && !doctor.contains("ostree") && !doctor.contains("read-only"),
        "{doctor}"
    );
}

/// SLE Micro and `MicroOS`: `/opt` and `/var` are subvolumes of their own, the rest is a snapshot.
#[test]
fn on_a_look_alike_of_sle_micro_sidle_works_on_the_running_system_and_refuses_in_a_pending_snapshot() {
    let author = Author::new();
    let mut machine = machine(&author);
    machine.start();
    seal(&machine);
    let (well, said) = machine.try_inside(&["env", "TRANSACTIONAL_UPDATE=true", "sidle", "install", "/srv/1.0.sidle"]);
    assert!(!well && said.contains("snapshot of a transactional update"), "{said}");
    assert!(fs::read_dir(machine.path("opt")).unwrap().next().is_none(), "nothing was installed");
    switches(&machine);
    machine.cut_power();
    machine.boot();
    machine.serves("1.1-1");
}

/// Fedora's and RHEL's images: `/opt` is a link to `/var/opt`, and `/usr` a deployment.
#[test]
fn on_a_look_alike_of_an_ostree_host_sidle_works_in_var_opt_and_refuses_usr() {
    let author = Author::new();
    let mut machine = machine(&author);
    fs::rename(machine.path("opt"), machine.path("var/opt")).unwrap();
    symlink("var/opt", machine.path("opt")).unwrap();
    fs::create_dir(machine.path("usr/releases")).unwrap();
    machine.start();
    machine.inside(&["touch", "/run/ostree-booted"]);
    seal(&machine);
    machine.inside(&["ln", "-s", "/usr/releases", "/var/opt/sidle"]);
    let (well, said) = machine.try_inside(&["sidle", "install", "/srv/1.0.sidle"]);
    assert!(!well && said.contains("/usr/releases"), "{said}");
    machine.inside(&["rm", "/var/opt/sidle"]);
    switches(&machine);
    assert!(Path::new(text(&machine.path("var/opt/sidle"))).join(DEMO).join("versions/1.1-1").is_dir());
    machine.cut_power();
    machine.boot();
    machine.serves("1.1-1");
}
