//! /proc: processes, their families, and the files that they hold. A process that ends meanwhile is left out.

use crate::os::{OsError, Result, clock};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line of /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// State letter: `Z` is a zombie, `T` is stopped.
    pub state: char,
    /// Start time in clock ticks since boot; with the pid it names a process within one boot.
    pub start_time: u64,
    /// Threads it has.
    pub threads: u64,
}

impl Process {
    /// False for a zombie or a vanishing process.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

pub(super) fn path_of(pid: u32, entry: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{entry}"))
}

/// Whether an error means that the process is gone.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

pub(super) fn gone_is_none<T>(result: io::Result<T>, path: &Path) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(OsError::new("read", path, error)),
    }
}

/// More than the line of any process: a name of 16 bytes and some fifty numbers.
const STAT_BYTES: usize = 2048;

/// No table of sockets that a host can have is longer.
const FILE_BYTES_MAXIMUM: u64 = 1 << 30;

/// Reads a file of /proc without asking for its size, which is 0.
pub(super) fn read_at_one_go<const BYTES: usize>(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BYTES);
    std::fs::File::open(path)?.take(FILE_BYTES_MAXIMUM).read_to_end(&mut bytes)?;
    Ok(bytes)
}

thread_local! {
    /// The processes that this thread has read since its `Look` began; None: it has none.
    static LOOK: RefCell<Option<HashMap<u32, Option<Process>>>> = const { RefCell::new(None) };
}

/// A look at processes, which lasts until this is dropped: in this thread each process is read once, and is for the rest of the look what it was then.
/// It is read anew once this thread has sent it a signal or has taken its exit status, and each is once the thread has slept: who waits sees what changes.
#[derive(Debug)]
pub struct Look(PhantomData<*const ()>);

impl Look {
    /// Begins a look. There is one at a time.
    pub fn begin() -> Self {
        LOOK.set(Some(HashMap::new()));
        Self(PhantomData)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LOOK.set(None);
    }
}

/// The process `pid`, if there is one; in a look, what it was when it was first read.
pub fn process(pid: u32) -> Result<Option<Process>> {
    match LOOK.with_borrow(|look| look.as_ref()?.get(&pid).cloned()) {
        Some(seen) => Ok(seen),
        None => process_now(pid),
    }
}

/// Reads a process anew that this thread has sent a signal, or whose exit status it has taken.
pub(super) fn look_again_at(pid: u32) {
    LOOK.with_borrow_mut(|look| look.as_mut().map(|look| look.remove(&pid)));
}

/// Reads all processes anew.
pub(in crate::os) fn look_anew() {
    LOOK.with_borrow_mut(|look| look.as_mut().map(HashMap::clear));
}

/// The process `pid`, if there is one, as it is now, which a look takes over.
pub(super) fn process_now(pid: u32) -> Result<Option<Process>> {
    let found = read_process(pid)?;
    LOOK.with_borrow_mut(|look| look.as_mut().map(|look| look.insert(pid, found.clone())));
    Ok(found)
}

/// A supervisor in the middle of a switch asks for every process several times a second: the kernel gives the whole line to one call, and a second one would only
/// be told that this was all.
fn read_process(pid: u32) -> Result<Option<Process>> {
    let path = path_of(pid, "stat");
    let mut bytes = [0; STAT_BYTES];
    let read = std::fs::File::open(&path).and_then(|mut file| file.read(&mut bytes));
    let Some(length) = gone_is_none(read, &path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..length]);
    let parsed = parse_stat(pid, &text);
    parsed.map(Some).ok_or_else(|| OsError::new("understand", &path, io::ErrorKind::InvalidData))
}

/// The name in parentheses may hold spaces and parentheses itself: fields are counted from the last one.
fn parse_stat(pid: u32, text: &str) -> Option<Process> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    Some(Process {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// The age of a process.
pub fn age(process: &Process) -> Duration {
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let whole = Duration::from_secs(process.start_time / ticks_per_second);
    let rest = Duration::from_millis(process.start_time % ticks_per_second * 1000 / ticks_per_second);
    clock::since_boot().saturating_sub(whole + rest)
}

/// The kernel function in which the process's main thread waits; None: it is gone, does not wait, or the kernel hides it.
pub fn wait_channel(pid: u32) -> Result<Option<String>> {
    let path = path_of(pid, "wchan");
    let Some(bytes) = gone_is_none(std::fs::read(&path), &path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    Ok(Some(text).filter(|text| !text.is_empty() && text != "0"))
}

/// The numbers of all processes, the lowest first.
pub fn numbers() -> Result<BTreeSet<u32>> {
    let path = Path::new("/proc");
    let failed = |source| OsError::new("list", path, source);
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        found.extend(entry.map_err(failed)?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

/// All processes, the lowest number first.
pub fn all() -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for pid in numbers()? {
        found.extend(process(pid)?);
    }
    Ok(found)
}

/// The children of `pid`, zombies included.
pub fn children(pid: u32) -> Result<Vec<Process>> {
    Ok(all()?.into_iter().filter(|process| process.parent == pid).collect())
}

/// True if one of these processes is an ancestor of this one. For an agent's process: this command runs in a job of that agent.
pub fn is_below(pids: &[u32]) -> Result<bool> {
    Ok(ancestors(std::process::id())?.iter().any(|above| pids.contains(&above.pid)))
}

/// All descendants of `pid`, zombies included, parents before children.
pub fn descendants(pid: u32) -> Result<Vec<Process>> {
    let all = all()?;
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            if found.iter().all(|known| known.pid != process.pid) {
                parents.push(process.pid);
                found.push(process.clone());
            }
        }
    }
    Ok(found)
}

/// The processes above `pid`, its parent first. Bounded by their number: a process that moves meanwhile makes no loop.
pub fn ancestors(pid: u32) -> Result<Vec<Process>> {
    const DEPTH_MAX: usize = 256;
    let mut found: Vec<Process> = Vec::new();
    let mut next = process(pid)?.map(|process| process.parent);
    while let Some(parent) = next.filter(|parent| *parent > 0 && found.len() < DEPTH_MAX) {
        let Some(above) = process(parent)? else { break };
        next = Some(above.parent);
        found.push(above);
    }
    Ok(found)
}

/// The command line; empty for a kernel thread or a zombie, None without such a process.
pub fn command_line(pid: u32) -> Result<Option<Vec<String>>> {
    let path = path_of(pid, "cmdline");
    let Some(bytes) = gone_is_none(std::fs::read(&path), &path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some(text.split('\0').filter(|part| !part.is_empty()).map(str::to_owned).collect()))
}

/// One variable of a process's environment at its start.
pub fn environment_variable(pid: u32, name: &str) -> Result<Option<OsString>> {
    let path = path_of(pid, "environ");
    let Some(bytes) = gone_is_none(std::fs::read(&path), &path)? else { return Ok(None) };
    let prefix = format!("{name}=");
    let value = bytes.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(prefix.as_bytes()));
    Ok(value.map(|value| OsString::from_vec(value.to_vec())))
}

/// The inodes of the sockets that `pid` has; None without such a process.
pub fn socket_inodes(pid: u32) -> Result<Option<HashSet<u64>>> {
    let links = descriptor_links(pid)?;
    Ok(links.map(|links| {
        let inode = |link: &PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
        links.iter().filter_map(inode).collect()
    }))
}

fn descriptor_links(pid: u32) -> Result<Option<Vec<PathBuf>>> {
    let path = path_of(pid, "fd");
    let Some(entries) = gone_is_none(std::fs::read_dir(&path), &path)? else { return Ok(None) };
    // A descriptor closed between listing and reading is no longer held.
    Ok(Some(entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()))
}

/// Device and inode of a file.
pub type FileIdentity = (u64, u64);

/// True when `pid` has a descriptor on the file `identity`.
pub fn holds_descriptor(pid: u32, identity: FileIdentity) -> Result<bool> {
    let path = path_of(pid, "fd");
    let Some(entries) = gone_is_none(std::fs::read_dir(&path), &path)? else { return Ok(false) };
    let is_it = |link: PathBuf| std::fs::metadata(link).is_ok_and(|found| (found.dev(), found.ino()) == identity);
    Ok(entries.flatten().any(|entry| is_it(entry.path())))
}

/// The processes with a descriptor on the file `identity`, and their command lines. Other users' processes need rights to be seen.
pub fn holders(identity: FileIdentity) -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for process in all()? {
        if holds_descriptor(process.pid, identity).unwrap_or(false) {
            found.push((process.pid, title(process.pid)));
        }
    }
    Ok(found)
}

/// The file that a process executes; None: it is gone, or is another user's.
pub fn program(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The user of `pid`; None without such a process.
pub fn user(pid: u32) -> Option<u32> {
    std::fs::metadata(path_of(pid, "")).ok().map(|found| found.uid())
}

/// The user who started a process. Unlike the owner of its directory in /proc it is also known of a program that was set-user-ID, or that nobody may dump.
pub fn real_user(pid: u32) -> Result<Option<u32>> {
    let path = path_of(pid, "status");
    let Some(bytes) = gone_is_none(std::fs::read(&path), &path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let users = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    Ok(users.and_then(|users| users.split_whitespace().next()?.parse().ok()))
}

/// True if the program that a process runs lies below `directory`.
pub fn runs_from(pid: u32, directory: &Path) -> Result<bool> {
    let link = path_of(pid, "exe");
    let program = gone_is_none(std::fs::read_link(&link), &link)?;
    Ok(program.is_some_and(|program| without_deleted(&program).starts_with(directory)))
}

/// A process's command line for messages: its program without the directory, shortened.
pub fn title(pid: u32) -> String {
    shortened(&command_line(pid).ok().flatten().unwrap_or_default().join(" "))
}

fn shortened(command: &str) -> String {
    const TITLE_CHARACTERS_MAXIMUM: usize = 120;
    // setproctitle(3) leaves one word, with blanks: the program ends at the first of them either way.
    let (program, arguments) = command.split_at(command.find(' ').unwrap_or(command.len()));
    let name = program.rsplit('/').next().unwrap_or(program);
    let text = format!("{name}{arguments}");
    match text.char_indices().nth(TITLE_CHARACTERS_MAXIMUM) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// How a process uses a directory tree: the entry of /proc that shows it, and the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// `exe`, `cwd`, `root` or `maps`.
    pub how: &'static str,
    /// The path in the tree, as the kernel tells it.
    pub path: PathBuf,
}

/// Whether `pid` runs from, stands in, or has mapped a file of the tree at `directory`. `files` are the tree's entries by device and inode:
/// through a bind mount the path differs. Names are compared, too: btrfs shows other device numbers in maps.
pub fn uses_tree(pid: u32, directory: &Path, files: &HashSet<FileIdentity>) -> Result<Option<Use>> {
    for how in ["exe", "cwd", "root"] {
        let link = path_of(pid, how);
        let Some(target) = gone_is_none(std::fs::read_link(&link), &link)? else { continue };
        let known = std::fs::metadata(&link).is_ok_and(|found| files.contains(&(found.dev(), found.ino())));
        if known || without_deleted(&target).starts_with(directory) {
            return Ok(Some(Use { how, path: target }));
        }
    }
    let path = path_of(pid, "maps");
    let Some(bytes) = gone_is_none(std::fs::read(&path), &path)? else { return Ok(None) };
    let maps = String::from_utf8_lossy(&bytes);
    let mapped = maps.lines().filter_map(parse_mapping);
    Ok(mapped
        .filter(|(identity, path)| files.contains(identity) || without_deleted(path).starts_with(directory))
        .map(|(_, path)| Use { how: "maps", path })
        .next())
}

/// A path without what the kernel appends to that of a file which is there no more.
pub fn without_deleted(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    text.strip_suffix(" (deleted)").map_or_else(|| path.to_owned(), PathBuf::from)
}

/// `7f…-7f… r-xp 00000000 fe:00 1234   /path`; anonymous mappings have no path.
fn parse_mapping(line: &str) -> Option<(FileIdentity, PathBuf)> {
    let mut rest = line;
    let mut fields = [""; 5];
    for field in &mut fields {
        let (head, tail) = rest.trim_start().split_once(' ')?;
        (*field, rest) = (head, tail);
    }
    let path = rest.trim_start();
    let (major, minor) = fields[3].split_once(':')?;
    let device = rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    path.starts_with('/').then(|| Some(((device, fields[4].parse().ok()?), PathBuf::from(path))))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) S (b)) R 7 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 3 0 12345 0 0";
        let process = parse_stat(42, text).unwrap();
        assert_eq!((process.state, process.parent, process.threads, process.start_time), ('R', 7, 3, 12345));
    }

    #[test]
    fn this_process_is_found_and_one_that_cannot_be_is_not() {
        assert!(process(std::process::id()).unwrap().unwrap().is_alive());
        assert_eq!(process(u32::MAX - 1).unwrap(), None);
    }

    #[test]
    fn a_title_is_the_program_without_its_directory_and_what_fits_of_the_rest() {
        assert_eq!(shortened("/usr/bin/sidle --root /tmp/x/ install a"), "sidle --root /tmp/x/ install a");
        assert_eq!(shortened("/a/python3 /b/salt-minion KeepAlive"), "python3 /b/salt-minion KeepAlive");
        let long = shortened(&format!("sh {}", "ä".repeat(200)));
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (121, true));
        assert_eq!(shortened(""), "");
    }

    #[test]
    fn a_mapping_is_read_with_spaces_in_its_path() {
        let line = "7f00-7f01 r-xp 00000000 fe:01 1234                       /opt/a b/lib.so";
        assert_eq!(parse_mapping(line), Some(((rustix::fs::makedev(0xfe, 1), 1234), PathBuf::from("/opt/a b/lib.so"))));
        assert_eq!(parse_mapping("7f00-7f01 rw-p 00000000 00:00 0 "), None);
    }
}
