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
    memory_available_below(Path::new("/"))
}

fn memory_available_below(root: &Path) -> Option<u64> {
    let text = file::read_if_exists(&root.join("proc/meminfo"), 1 << 16).ok().flatten()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let host = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    match group_memory_left(root) {
        GroupMemory::Unlimited => Some(host),
        GroupMemory::Left(bytes) => Some(bytes.min(host)),
        GroupMemory::Unknown => None,
    }
}

/// The memory that control groups (version 2) leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupMemory {
    Unlimited,
    Left(u64),
    /// There is a limit, or may be one, and a file can't be read.
    Unknown,
}

/// The memory that the control groups of this process leave.
fn group_memory_left(root: &Path) -> GroupMemory {
    let read = |path: PathBuf, most| file::read_if_exists(&path, most).map(|bytes| bytes.map(|bytes| text_of(&bytes)));
    let own = match read(root.join("proc/self/cgroup"), 1 << 14) {
        Ok(Some(own)) => own,
        // A kernel without control groups.
        Ok(None) => return GroupMemory::Unlimited,
        Err(_) => return GroupMemory::Unknown,
    };
    let Some(group) = own.lines().find_map(|line| line.strip_prefix("0::")) else { return GroupMemory::Unlimited };
    let all = root.join("sys/fs/cgroup");
    let group = all.join(group.trim_start_matches('/'));
    let mut left = GroupMemory::Unlimited;
    for path in group.ancestors().take_while(|path| path.starts_with(&all)) {
        let limit = match read(path.join("memory.max"), 64) {
            // The first group has no such file, and a group whose parent does not limit memory has none.
            Ok(None) => continue,
            Ok(Some(limit)) if limit == "max" => continue,
            Ok(Some(limit)) => limit.parse::<u64>().ok(),
            Err(_) => None,
        };
        let used = read(path.join("memory.current"), 64).ok().flatten().and_then(|used| used.parse::<u64>().ok());
        let (Some(limit), Some(used)) = (limit, used) else { return GroupMemory::Unknown };
        let here = limit.saturating_sub(used);
        left = match left {
            GroupMemory::Left(least) => GroupMemory::Left(least.min(here)),
            GroupMemory::Unlimited | GroupMemory::Unknown => GroupMemory::Left(here),
        };
    }
    left
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Largest configuration file of the dynamic linker that is read.
const LINKER_CONFIGURATION_BYTES_MAXIMUM: u64 = 64 * 1024;

/// The root of the system that runs what lies below `root`: an image with an `os-release` of its own is a system, and starts on its own C library; any
/// other directory is a part of this one.
pub fn system_of(root: &Path) -> &Path {
    if os_release(root).is_some() { root } else { Path::new("/") }
}

/// Largest `os-release` that is read.
const OS_RELEASE_BYTES_MAXIMUM: u64 = 1 << 16;

/// The file in which the system at `system` tells its name (os-release(5)); None: it has none that can be read.
fn os_release(system: &Path) -> Option<String> {
    let read = |path: &str| file::read_if_exists(&system.join(path), OS_RELEASE_BYTES_MAXIMUM).ok().flatten();
    read("etc/os-release").or_else(|| read("usr/lib/os-release")).map(|bytes| text_of(&bytes))
}

/// The directories of the dynamic linker of the system at `system`: built-in (Debian's, RHEL's and SUSE's), and those of its ld.so.conf.
pub fn library_directories(system: &Path) -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", architecture());
    let built_in = ["lib64", "usr/lib64", "lib", "usr/lib"].map(|directory| system.join(directory));
    let multiarch = ["lib", "usr/lib"].map(|base| system.join(base).join(&triplet));
    let mut directories: Vec<PathBuf> = multiarch.into_iter().chain(built_in).collect();
    let mut configurations = vec![system.join("etc/ld.so.conf")];
    if let Ok(dir) = Dir::open(&system.join("etc/ld.so.conf.d")) {
        let names = dir.names().unwrap_or_default();
        configurations.extend(names.into_iter().map(|name| dir.path().join(name)));
    }
    for configuration in configurations {
        // A host without the file has the built-in directories only.
        let bytes = file::read(&configuration, LINKER_CONFIGURATION_BYTES_MAXIMUM).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        directories.extend(text.lines().filter_map(|line| line.trim().strip_prefix('/')).map(|path| system.join(path)));
    }
    directories
}

/// The file of the shared library `name` (`libssl.so.3`) on the system at `system`.
pub fn library(system: &Path, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    library_directories(system).into_iter().map(|directory| directory.join(name)).find(|path| file::open(path).is_ok())
}

/// The name of the distribution whose root directory is `system`, from its `os-release`: `Debian GNU/Linux 12 (bookworm)`. None if no file names it.
pub fn system_name(system: &Path) -> Option<String> {
    named_in(&os_release(system)?)
}

fn named_in(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let name: String = line.trim_matches(|c| c == '"' || c == '\'').chars().filter(|c| !c.is_control()).collect();
    (!name.is_empty() && name.len() <= 100).then_some(name)
}

/// The kernel's version, first two numbers; (0, 0): unknown.
pub fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The highest level of x86-64 (its psABI, "Micro-Architecture Levels") whose instructions this processor has, from 1 on; None: another architecture.
pub fn x86_64_level() -> Option<u8> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        let of_2 =
            has!("cmpxchg16b") && has!("popcnt") && has!("sse3") && has!("sse4.1") && has!("sse4.2") && has!("ssse3");
        let of_3 = has!("avx")
            && has!("avx2")
            && has!("bmi1")
            && has!("bmi2")
            && has!("f16c")
            && has!("fma")
            && has!("lzcnt")
            && has!("movbe");
        let of_4 = has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
        let levels = [of_2, of_3, of_4].into_iter().take_while(|has_all| *has_all).count();
        u8::try_from(levels).ok().map(|levels| levels + 1)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the tests make files")]

    use super::*;

    #[test]
    fn a_directory_with_an_os_release_is_a_system_of_its_own() {
        let image = tempfile::tempdir().unwrap();
        assert_eq!(system_of(image.path()), Path::new("/"));
        let put = |path: &str, text: &str| {
            std::fs::create_dir_all(image.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(image.path().join(path), text).unwrap();
        };
        put("usr/lib/os-release", "PRETTY_NAME=\"Old Linux 7\"\n");
        assert_eq!(system_of(image.path()), image.path());
        assert_eq!(system_name(image.path()).as_deref(), Some("Old Linux 7"));
        assert_eq!(library(image.path(), "libc.so.6"), None, "the running system's is not the image's");
        put("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n/opt/own\n");
        put("opt/own/libc.so.6", "");
        assert_eq!(library(image.path(), "libc.so.6"), Some(image.path().join("opt/own/libc.so.6")));
    }

    #[test]
    fn memory_that_cannot_be_seen_is_unknown_and_not_free() {
        let host = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = host.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let seen = || memory_available_below(host.path());
        assert_eq!(seen(), None, "there is no /proc");
        put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8 kB\n");
        assert_eq!(seen(), Some(8192));
        put("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(seen(), Some(8192), "no group limits it");
        put("sys/fs/cgroup/a/memory.max", "max\n");
        put("sys/fs/cgroup/a/b/memory.max", "5000\n");
        assert_eq!(seen(), None, "a limit, and nobody knows how much of it is used");
        put("sys/fs/cgroup/a/b/memory.current", "1000\n");
        assert_eq!(seen(), Some(4000));
        put("sys/fs/cgroup/a/memory.max", "nonsense\n");
        assert_eq!(seen(), None);
    }
}
