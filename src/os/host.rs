//! This host: its architecture, free memory, kernel and shared libraries.

use super::{dir::Dir, file};
use std::path::{Path, PathBuf};

/// The kernel's architecture name: `x86_64`.
pub fn architecture() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// Processors that this process may use, at least 1.
pub fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Memory available without swapping, bytes: the host's, or the control groups' if that is less. None: unknown.
pub fn memory_available() -> Option<u64> {
    let text = file::read_if_exists(Path::new("/proc/meminfo"), 1 << 16).ok().flatten()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let host = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    Some(group_memory_left().map_or(host, |left| left.min(host)))
}

/// The memory that the control groups (version 2) of this process leave; None: no readable limit.
fn group_memory_left() -> Option<u64> {
    let number = |path: PathBuf| -> Option<u64> {
        let bytes = file::read_if_exists(&path, 64).ok().flatten()?;
        String::from_utf8_lossy(&bytes).trim().parse().ok()
    };
    let own = file::read_if_exists(Path::new("/proc/self/cgroup"), 1 << 14).ok().flatten()?;
    let own = String::from_utf8_lossy(&own).into_owned();
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let group = Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    let around = group.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
    let left = around.filter_map(|path| {
        let limit = number(path.join("memory.max"))?;
        Some(limit.saturating_sub(number(path.join("memory.current"))?))
    });
    left.min()
}

/// Largest configuration file of the dynamic linker that is read.
const LINKER_CONFIGURATION_BYTES_MAXIMUM: u64 = 64 * 1024;

/// The dynamic linker's directories: built-in (Debian's, RHEL's and SUSE's), and those of ld.so.conf.
pub fn library_directories() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", architecture());
    let built_in = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from);
    let multiarch = ["/lib", "/usr/lib"].map(|base| Path::new(base).join(&triplet));
    let mut directories: Vec<PathBuf> = multiarch.into_iter().chain(built_in).collect();
    let mut configurations = vec![PathBuf::from("/etc/ld.so.conf")];
    if let Ok(dir) = Dir::open(Path::new("/etc/ld.so.conf.d")) {
        let names = dir.names().unwrap_or_default();
        configurations.extend(names.into_iter().map(|name| dir.path().join(name)));
    }
    for configuration in configurations {
        // A host without the file has the built-in directories only.
        let bytes = file::read(&configuration, LINKER_CONFIGURATION_BYTES_MAXIMUM).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        directories.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    directories
}

/// The file of the shared library `name` (`libssl.so.3`) on this host.
pub fn library(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    library_directories().into_iter().map(|directory| directory.join(name)).find(|path| file::open(path).is_ok())
}

/// The kernel's version, first two numbers; (0, 0): unknown.
pub fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
