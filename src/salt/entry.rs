//! The entries of running jobs, `<cachedir>/proc/<jid>`: msgpack maps, and the question whether their processes still run.

use super::title::Title;
use crate::agent::{AgentError, Job};
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, clock, proc_fs};
use rmpv::Value;
use std::path::Path;

/// An entry holds the job's arguments, pillar data among them; more than this would only fill memory.
const ENTRY_BYTES_MAX: u64 = 64 << 20;

/// Entries that are looked at: a minion never runs so many jobs, and a directory full of rubbish must not hold the switch up for ever.
const ENTRIES_MAX: usize = 10_000;

/// Nesting of an entry's arguments: deeper would exhaust the stack.
const DEPTH_MAX: usize = 128;

/// A file's time and a process's start come from clocks of different grain, and the wall clock may have been corrected a little.
const CLOCK_GRAIN_SECONDS: i64 = 2;

/// A running job as Salt wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file's name.
    pub jid: String,
    /// The function or functions.
    pub function: String,
    /// The user of the master that published it; None: the entry names none.
    pub user: Option<String>,
    /// Its process; main itself in threads mode.
    pub pid: u32,
    /// Last write, seconds since 1970.
    pub written: i64,
}

/// Reads all entries in `proc`. An entry that vanishes meanwhile has ended; an entry that can't be understood is an error that names the file.
pub fn read(directory: &Dir) -> Result<Vec<Entry>, AgentError> {
    let names = directory.entries()?;
    let place = directory.path();
    if names.len() > ENTRIES_MAX {
        let text = format!("cannot look at all of {}: it holds more than {ENTRIES_MAX} entries", place.display());
        return Err(AgentError::new(text));
    }
    let mut entries = Vec::new();
    for (name, kind) in names {
        let Some(stat) = directory.stat(&name)?.filter(|_| kind == FileKind::File) else { continue };
        let Some(bytes) = directory.read_if_exists(&name, ENTRY_BYTES_MAX)? else { continue };
        let jid = name.to_string_lossy().into_owned();
        match parse(&jid, &bytes, stat.mtime.0) {
            Ok(entry) => entries.push(entry),
            Err(cause) => {
                let path = place.join(&name);
                let text = format!("cannot understand {}: {cause}; if no job runs, remove it", path.display());
                return Err(AgentError::new(text));
            }
        }
    }
    Ok(entries)
}

/// The entry of the job `jid` below `directory`; None where it can't be read.
pub fn of(directory: &Path, jid: &str) -> Option<Entry> {
    let directory = Dir::open_if_exists(directory).ok()??;
    let written = directory.stat(jid).ok()??.mtime.0;
    parse(jid, &directory.read_if_exists(jid, ENTRY_BYTES_MAX).ok()??, written).ok()
}

/// Reads the entry of the job `jid`, written at this second; else the reason why it is none.
pub fn parse(jid: &str, mut bytes: &[u8], written: i64) -> Result<Entry, String> {
    if bytes.is_empty() {
        return Err("it is empty: a job begins, or a crash left it".to_owned());
    }
    let value = rmpv::decode::read_value_with_max_depth(&mut bytes, DEPTH_MAX).map_err(|error| error.to_string())?;
    let Value::Map(pairs) = value else { return Err("it holds no mapping".to_owned()) };
    let field = |name: &str| pairs.iter().find(|(key, _)| word(key).as_deref() == Some(name)).map(|(_, value)| value);
    let pid = field("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    let function = match field("fun") {
        Some(Value::Array(names)) => names.iter().filter_map(word).collect::<Vec<_>>().join(","),
        Some(name) => word(name).unwrap_or_default(),
        None => String::new(),
    };
    let function = if function.is_empty() { "a job without a name".to_owned() } else { function };
    let user = field("user").and_then(word).filter(|user| !user.is_empty());
    Ok(Entry { jid: jid.to_owned(), function, user, pid: pid.ok_or("it names no process")?, written })
}

/// Text, which older writers packed as bytes.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        Value::Binary(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

impl Entry {
    /// As a job, for people.
    pub fn job(&self) -> Job {
        Job { id: self.jid.clone(), what: self.function.clone(), pid: Some(self.pid) }
    }

    /// False for a leftover: its process is gone, or the number belongs to a later process or another job. An orphaned job of a killed main
    /// counts: it still works on the host.
    pub fn is_live(&self) -> Result<bool, OsError> {
        let Some(process) = proc_fs::process(self.pid)?.filter(proc_fs::Process::is_alive) else { return Ok(false) };
        let Some(title) = Title::of(self.pid)? else { return Ok(false) };
        if let Some(jid) = title.jid() {
            return Ok(jid == self.jid);
        }
        let age = i64::try_from(proc_fs::age(&process).as_secs()).unwrap_or(i64::MAX);
        let started = clock::now().as_second().saturating_sub(age);
        Ok(started <= self.written.saturating_add(CLOCK_GRAIN_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::{Input, Program};

    fn packed(pid: u64, function: Value) -> Vec<u8> {
        let map = vec![
            (Value::from("pid"), Value::from(pid)),
            (Value::from("fun"), function),
            (Value::from("arg"), Value::Array(vec![Value::from(5)])),
            (Value::from("jid"), Value::from("20261121")),
        ];
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &Value::Map(map)).unwrap();
        bytes
    }

    #[test]
    fn an_entry_is_read_with_one_function_or_several() {
        let entry = parse("1", &packed(7, Value::from("test.sleep")), 9).unwrap();
        assert_eq!((entry.pid, entry.function.as_str(), entry.written), (7, "test.sleep", 9));
        let several = Value::Array(vec![Value::from("a.b"), Value::from("c.d")]);
        assert_eq!(parse("1", &packed(7, several), 9).unwrap().function, "a.b,c.d");
        assert_eq!(parse("1", &packed(7, Value::Binary(b"a.b".to_vec())), 9).unwrap().function, "a.b");
    }

    #[test]
    fn what_is_no_entry_is_an_error_and_never_nothing() {
        let whole = packed(7, Value::from("test.sleep"));
        for length in 0..whole.len() {
            assert!(parse("1", &whole[..length], 9).is_err(), "cut at {length}");
        }
        assert!(parse("1", &[0x01], 9).is_err());
        assert!(parse("1", &packed(u64::MAX, Value::from("x")), 9).is_err());
        assert!(parse("1", &vec![0x91; 10_000], 9).is_err(), "nesting is bounded");
        let root = tempfile::tempdir().unwrap();
        let directory = Dir::open(root.path()).unwrap();
        directory.write_atomic("20261121", b"", 0o600).unwrap();
        assert!(read(&directory).unwrap_err().message.contains("20261121: it is empty"));
    }

    #[test]
    fn leftovers_are_told_from_running_jobs() {
        let mut child = Program::new("/bin/sleep").argument("60").start(Input::Null).unwrap();
        let now = clock::now().as_second();
        let entry = |pid, written| Entry { jid: "1".to_owned(), function: "x".to_owned(), user: None, pid, written };
        assert!(entry(child.id(), now + 1).is_live().unwrap());
        assert!(!entry(child.id(), now - 60).is_live().unwrap(), "the process began after the entry was written");
        child.kill().unwrap();
        // It takes a moment to end. Until somebody waits for it, its number is still taken.
        let ended = (0..1000).any(|_| {
            clock::sleep(std::time::Duration::from_millis(5));
            !entry(child.id(), now + 1).is_live().unwrap()
        });
        assert!(ended && proc_fs::process(child.id()).unwrap().is_some());
        child.wait().unwrap();
        assert!(!entry(child.id(), now + 1).is_live().unwrap());
    }
}
