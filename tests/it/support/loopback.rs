//! A network that has nothing but its own loopback.

use super::eventually;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

/// Moves this thread, and so all that it starts from now on, into a network of its own. It goes with the last of them.
pub fn alone() {
    let script = "busybox ip link set lo up && echo up && exec cat";
    let mut holder = Command::new("unshare");
    holder.args(["--net", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("unshare starts");
    let mut said = [0; 2];
    holder.stdout.take().unwrap().read_exact(&mut said).expect("this test needs root and busybox: loopback is up");
    let network = fs::File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let devices = eventually(5, "only loopback is there", || {
        let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
        if names.contains(&"lo") { Ok(names.join(" ")) } else { Err(text) }
    });
    assert!(!devices.contains("eth") && !devices.contains("ens"), "{devices}");
}
