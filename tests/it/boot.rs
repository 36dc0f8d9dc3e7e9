//! The service under a real systemd, of four generations: start, stop, restart, reload, kill -9, and under the oldest and the newest power cuts in
//! the middle of a switch.

use crate::support::boot::{Machine, PACKAGE, UNIT};
use crate::support::eventually;
use crate::support::stage::{Author, DEMO};
use std::fs;

mod acceptance;
mod first_host;
mod first_minion;
mod images;
mod incident;
mod libraries;
mod migration;
mod packages;
mod portable;
mod pythons;
mod rhel;
mod setup;
mod suites;

/// A booted machine on which 1.0 runs.
fn booted(suite: &'static str) -> Machine {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    let mut machine = Machine::new(suite, &author, &bundles);
    probation(&machine, 1);
    machine.boot();
    machine.inside(&["sidle", "switch", DEMO, "1.0-1"]);
    machine.serves("1.0-1");
    machine
}

/// What differs from one systemd to the next: whom it kills, and what it starts.
fn starts_and_stops(suite: &'static str) {
    let machine = booted(suite);
    supervisor_is_killed(&machine);
    service_is_restarted(&machine);
    service_is_stopped_and_started(&machine);
    package_is_removed(&machine);
}

fn survives(suite: &'static str) {
    let mut machine = booted(suite);
    supervisor_is_killed(&machine);
    supervisor_is_renewed(&machine);
    service_is_reloaded(&machine);
    service_is_restarted(&machine);
    service_of_a_deaf_agent_is_restarted(&machine);
    service_is_stopped_and_started(&machine);
    // Each phase lasts until it is cut off: a release that never says that it is ready, and a long probation.
    let behaviour = machine.path("etc/demo-agent/behaviour-1.1");
    fs::write(&behaviour, "hang\n").unwrap();
    power_is_cut(&mut machine, "proving");
    fs::remove_file(behaviour).unwrap();
    probation(&machine, 60);
    machine.boot();
    machine.serves("1.0-1");
    power_is_cut(&mut machine, "probation");
    probation(&machine, 1);
    machine.boot();
    machine.serves("1.0-1");
    // Committed: the new release has proven itself, and the old process only has a job to finish.
    machine.job("long", "sleep 60");
    power_is_cut(&mut machine, "finishing-old");
    machine.boot();
    machine.serves("1.1-1");
}

fn probation(machine: &Machine, seconds: u64) {
    let others = "start_timeout = \"10s\"\nstop_timeout = \"5s\"\nrestart_pause = \"100ms\"\n";
    fs::write(machine.path("etc/sidle/sidle.toml"), format!("probation = \"{seconds}s\"\n{others}")).unwrap();
}

fn main_process(machine: &Machine) -> String {
    machine.property("MainPID")
}

fn supervisor_is_killed(machine: &Machine) {
    let (agent, supervisor) = (machine.agent(), main_process(machine));
    machine.inside(&["sh", "-c", &format!("kill -KILL {supervisor}")]);
    eventually(10, "systemd starts another supervisor", || match main_process(machine) {
        other if other != "0" && other != supervisor && machine.agent().is_some() => Ok(()),
        other => Err(other),
    });
    assert_eq!(machine.agent(), agent, "the agent was touched");
}

fn supervisor_is_renewed(machine: &Machine) {
    let (agent, supervisor) = (machine.agent(), main_process(machine));
    machine.job("renewed", "sleep 3");
    // As an upgrade does it: dpkg replaces the program's file, and the package's script tells the supervisors.
    machine.inside(&["dpkg", "--install", &format!("/{PACKAGE}")]);
    eventually(10, "the supervisor is the new program", || {
        match machine.inside(&["readlink", &format!("/proc/{supervisor}/exe")]).trim() {
            "/usr/bin/sidle" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    machine.serves("1.0-1");
    assert_eq!((machine.agent(), main_process(machine)), (agent, supervisor));
    machine.done("renewed");
}

/// The package's removal stops nothing, says what runs, and leaves what is documented.
fn package_is_removed(machine: &Machine) {
    let (agent, supervisor) = (machine.agent(), main_process(machine));
    let (well, said) = machine.try_inside(&["sh", "-c", "dpkg --purge sidle 2>&1"]);
    assert!(well && said.contains(&format!("{UNIT} still runs")) && said.contains("/opt/sidle"), "{said}");
    let left = machine.inside(&["sh", "-c", "find /usr /etc /lib -name '*sidle*' ! -path '/etc/systemd/*' -prune"]);
    assert_eq!(left.trim(), "/etc/sidle", "{said}");
    let alive = format!("kill -0 {} && kill -0 {supervisor} && test -d /opt/sidle/{DEMO}/current/", agent.unwrap());
    machine.inside(&["sh", "-c", &alive]);
    machine.job("removed", "true");
    machine.done("removed");
}

fn last_switch(machine: &Machine, agent: Option<u64>) {
    let status = machine.status();
    let last = &status["last"];
    assert_eq!((last["purpose"].as_str(), last["mode"].as_str()), (Some("restart"), Some("overlap")), "{status}");
    assert_eq!(
        (last["result"].as_str(), last["downtime_milliseconds"].as_u64()),
        (Some("committed"), Some(0)),
        "{status}"
    );
    assert_ne!(machine.agent(), agent, "the agent was not restarted");
}

fn service_is_reloaded(machine: &Machine) {
    let agent = machine.agent();
    machine.job("reload", "sleep 3");
    machine.inside(&["systemctl", "reload", UNIT]);
    machine.done("reload");
    machine.serves("1.0-1");
    last_switch(machine, agent);
}

fn service_is_restarted(machine: &Machine) {
    let (agent, supervisor) = (machine.agent(), main_process(machine));
    machine.job("restart", "sleep 3");
    machine.inside(&["systemctl", "restart", UNIT]);
    assert_ne!(main_process(machine), supervisor);
    machine.done("restart");
    machine.serves("1.0-1");
    last_switch(machine, agent);
}

/// An agent that reaches nobody: the usual reflex helps, and costs no job that runs.
fn service_of_a_deaf_agent_is_restarted(machine: &Machine) {
    let agent = machine.agent();
    machine.job("deaf", "sleep 8");
    let deaf = format!("{}\n", agent.unwrap());
    fs::write(machine.path("etc/demo-agent/unheard"), deaf).unwrap();
    let asked = std::time::Instant::now();
    machine.inside(&["systemctl", "restart", UNIT]);
    eventually(20, "another process serves", || match machine.agent() {
        other if other.is_some() && other != agent => Ok(()),
        other => Err(format!("{other:?} {}", machine.status())),
    });
    println!("a deaf agent is served for after {:.1} s", asked.elapsed().as_secs_f32());
    machine.done("deaf");
    machine.serves("1.0-1");
    last_switch(machine, agent);
}

fn service_is_stopped_and_started(machine: &Machine) {
    machine.inside(&["systemctl", "stop", UNIT]);
    assert_eq!(machine.property("ActiveState"), "inactive");
    let left = machine.inside(&["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"]);
    assert!(!left.contains("/bin/demo-agent"), "{left}");
    machine.inside(&["systemctl", "start", UNIT]);
    machine.serves("1.0-1");
    machine.job("started", "true");
    machine.done("started");
}

/// Begins a switch to 1.1, and cuts the power in `phase`.
fn power_is_cut(machine: &mut Machine, phase: &str) {
    let begun = machine.inside(&["sh", "-c", "sidle switch demo-agent 1.1-1 --force --no-wait; test $? = 4"]);
    eventually(20, &format!("the switch is {phase}"), || match machine.status() {
        status if status["switch"]["phase"] == phase => Ok(()),
        status => Err(format!("{begun} {status}")),
    });
    machine.cut_power();
}

#[test]
fn the_service_survives_under_the_systemd_of_bullseye() {
    survives("bullseye");
}

#[test]
fn the_service_starts_and_stops_under_the_systemd_of_bookworm() {
    starts_and_stops("bookworm");
}

#[test]
fn the_service_starts_and_stops_under_the_systemd_of_trixie() {
    starts_and_stops("trixie");
}

#[test]
fn the_service_survives_under_the_systemd_of_sid() {
    survives("sid");
}
