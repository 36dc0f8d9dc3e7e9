//! What a minion's own files tell of one job: the entry of its process, the queues, the kept return, the log.

use super::entry;
use super::options::kept;
use super::queues;
use crate::agent::traces::{Inquiry, JobTraces, LogTraces};
use crate::os::dir::Dir;
use crate::os::{clock, file, proc_fs};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// So much of the end of the log is read: a minion at level debug writes a hundred megabytes a day.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Lines about the job that are given.
const LINES_MAX: usize = 5;
/// Longest line of the log that is given: a job's arguments may stand in it.
const LINE_CHARACTERS_MAX: usize = 200;

/// What the log says of each job: 3006.30, 3007.17, 3008.5.
const RECEIVED: &str = "Executing command";
const RETURNED: &str = "Returning information for job";
const NOT_RETURNED: &str = "failed to return the job";
/// Before a job's return in the log: that of another question about the job quotes the lines above.
const RETURN: &str = "return_data: ";
/// In each line of such a level, as Salt writes it by default: `[INFO    ]`.
const LEVELS: [&str; 5] = ["[INFO", "[PROFILE", "[DEBUG", "[TRACE", "[GARBAGE"];
/// The levels at which it says so.
const DETAILED: [&str; 6] = ["info", "profile", "debug", "trace", "garbage", "all"];

/// The options on which the answer rests, with Salt's names.
#[derive(Debug, Default)]
struct Places {
    cache: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    log: Option<PathBuf>,
    level: Option<String>,
    master: Option<String>,
}

impl Places {
    /// From a minion's options: those that a process of the minion has given, or that its guard reports.
    fn given(options: &Value) -> Self {
        let text = |name: &str| options[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        // Salt takes a log that is no path, such as file:///dev/log.
        let path = |name: &str| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let level = text("log_level_logfile").or_else(|| text("log_level"));
        let (cache, pid_file, log) = (path("cachedir"), path("pidfile"), path("log_file"));
        Self { cache, pid_file, log, level, master: text("master_uri") }
    }

    /// From what a release has last made of the configuration.
    fn kept(state: &Path) -> Option<Self> {
        let options = kept::read(state).into_iter().find_map(|kept| kept.loaded)?.options?;
        let (cache, pid_file, log) = (options.cachedir, options.pidfile, options.log_file);
        Some(Self { cache, pid_file, log, ..Self::default() })
    }
}

/// Reads what the minion's files tell of a job; None: where they are is not known.
pub fn traces(inquiry: Inquiry<'_>) -> Option<JobTraces> {
    let places = inquiry.options.map(Places::given).or_else(|| Places::kept(inquiry.state))?;
    let mut traces = JobTraces {
        started: places.pid_file.as_deref().and_then(started),
        peers: places.master.into_iter().collect(),
        log: places.log.map_or_else(LogTraces::default, |path| log(&path, inquiry.job)),
        ..JobTraces::default()
    };
    let level = places.level.map(|level| DETAILED.contains(&level.as_str()));
    traces.log.is_detailed = level;
    let Some(job) = inquiry.job else { return Some(traces) };
    traces.published = published(job);
    // An id that somebody chose must not lead out of a directory.
    if let Some(cache) = places.cache.filter(|_| is_name(job)) {
        let entry = entry::of(&cache.join("proc"), job);
        let lives = entry.as_ref().and_then(|entry| entry.is_live().ok());
        let of = |wanted| entry.as_ref().filter(|_| lives == Some(wanted)).map(|entry| entry.pid);
        (traces.running, traces.stale) = (of(true), of(false));
        traces.cached = is_kept(&cache.join("minion_jobs").join(job));
        traces.queued = queues::file_of(&cache, job).ok().flatten();
    }
    Some(traces)
}

fn is_name(job: &str) -> bool {
    !job.is_empty() && job != "." && job != ".." && !job.contains(['/', '\0'])
}

/// Whether the minion's own cache has the return of a job (`cache_jobs`).
fn is_kept(directory: &Path) -> Option<bool> {
    match Dir::open_if_exists(directory) {
        Ok(Some(directory)) => directory.stat("return.p").ok().map(|found| found.is_some()),
        Ok(None) => Some(false),
        Err(_) => None,
    }
}

/// The start of the process that a pid file names.
fn started(pid_file: &Path) -> Option<Timestamp> {
    let process = proc_fs::process(super::pid_in(pid_file).ok()??).ok()??;
    let age = i64::try_from(proc_fs::age(&process).as_millis()).ok()?;
    clock::now().checked_sub(age.milliseconds()).ok()
}

/// When a job was published, by its id: `20261124091200123456`, in UTC, with more behind it or not. None: somebody chose the id.
fn published(job: &str) -> Option<Timestamp> {
    let digits = job.get(..20).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let time = DateTime::strptime("%Y%m%d%H%M%S", &digits[..14]).ok()?;
    let whole = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    whole.checked_add(digits[14..].parse::<i64>().ok()?.microseconds()).ok()
}

/// What the log says of a job, and since when it tells anything. Its lines have the host's time.
fn log(path: &Path, job: Option<&str>) -> LogTraces {
    let Ok(Some(bytes)) = file::read_end_if_exists(path, LOG_BYTES_MAX) else { return LogTraces::default() };
    let zone = clock::zone(None).ok();
    let time = |line: &str| written(line, zone.as_ref()?);
    let text = String::from_utf8_lossy(&bytes);
    let is_about = |line: &&str| [RECEIVED, RETURNED, NOT_RETURNED].iter().any(|words| line.contains(words));
    // A log that was less detailed before would not have named the job.
    let is_detailed = |line: &&str| is_about(line) || LEVELS.iter().any(|level| line.contains(level));
    let since = text.lines().filter(is_detailed).find_map(time);
    let mut traces = LogTraces { since, ..LogTraces::default() };
    let Some(job) = job.filter(|job| !job.is_empty()) else { return traces };
    let lines: Vec<&str> =
        text.lines().filter(|line| names(line, job) && !line.contains(RETURN)).filter(is_about).collect();
    traces.returned_at = lines.iter().find(|line| line.contains(RETURNED)).and_then(|line| time(line));
    let last = lines.iter().skip(lines.len().saturating_sub(LINES_MAX));
    traces.lines = last.map(|line| line.chars().take(LINE_CHARACTERS_MAX).collect()).collect();
    traces
}

/// Whether a line names a job: an id that somebody chose may be a part of another one.
fn names(line: &str, job: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(job).any(|(at, _)| {
        let (before, behind) = (line[..at].chars().next_back(), line[at + job.len()..].chars().next());
        !before.is_some_and(|c| goes_on(c) || c == '.') && !behind.is_some_and(goes_on)
    })
}

/// The time at the beginning of a line: `2026-11-24 09:12:00`.
fn written(line: &str, zone: &TimeZone) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y-%m-%d %H:%M:%S", line.get(..19)?).ok()?;
    Some(time.to_zoned(zone.clone()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const JOB: &str = "20261124091200123456";

    fn put(directory: &Path, name: &str, content: &[u8]) {
        Dir::open_or_create(directory, 0o755).unwrap().write_atomic(name, content, 0o644).unwrap();
    }

    fn asked(root: &Path, job: Option<&str>, more: &Value) -> JobTraces {
        let mut options =
            json!({"cachedir": root.join("cache"), "log_file": root.join("log"), "pidfile": root.join("pid")});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        traces(Inquiry { job, options: Some(&options), state: Path::new("/nowhere") }).unwrap()
    }

    fn entry_of(pid: u32) -> Vec<u8> {
        let pair = |name: &str, value: rmpv::Value| (rmpv::Value::from(name), value);
        let map = vec![pair("pid", pid.into()), pair("fun", "test.sleep".into())];
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &rmpv::Value::Map(map)).unwrap();
        bytes
    }

    #[test]
    fn what_is_not_there_is_not_known_and_no_failure() {
        let root = tempfile::tempdir().unwrap();
        let published = published(JOB).unwrap();
        assert_eq!(published.to_string(), "2026-11-24T09:12:00.123456Z");
        let nothing = JobTraces { published: Some(published), cached: Some(false), ..JobTraces::default() };
        assert_eq!(asked(root.path(), Some(JOB), &json!({})), nothing);
        assert_eq!(asked(root.path(), None, &json!({"cachedir": "var"})), JobTraces::default());
        assert_eq!(traces(Inquiry { job: Some(JOB), options: None, state: root.path() }), None);
        for chosen in ["deploy-42", "2026112409120012345", "20261199091200123456", "ü0261124091200123456"] {
            assert_eq!(super::published(chosen), None, "{chosen}");
        }
        assert_eq!(super::published(&format!("{JOB}_1")), Some(published));
    }

    #[test]
    fn a_job_is_found_in_its_process_its_queue_and_the_kept_return() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("cache");
        put(&cache.join("proc"), JOB, &entry_of(std::process::id()));
        put(root.path(), "pid", format!("{}\n", std::process::id()).as_bytes());
        let found = asked(root.path(), Some(JOB), &json!({"master_uri": "tcp://m:4506"}));
        assert_eq!((found.running, found.stale, found.cached), (Some(std::process::id()), None, Some(false)));
        assert!(found.started.is_some_and(|started| started <= clock::now()));
        assert_eq!(found.peers, ["tcp://m:4506"]);

        put(&cache.join("proc"), JOB, &entry_of(u32::MAX - 1));
        put(&cache.join("minion_jobs").join(JOB), "return.p", b"");
        for queue in ["queues/m_4506/job_queue", "state_queue"] {
            let name = format!("queued_1_{JOB}.p");
            put(&cache.join(queue), &name, b"");
            let found = asked(root.path(), Some(JOB), &json!({}));
            assert_eq!((found.running, found.stale, found.cached), (None, Some(u32::MAX - 1), Some(true)));
            assert_eq!(found.queued, Some(cache.join(queue).join(&name)));
            Dir::open(&cache.join(queue)).unwrap().remove_file(&name).unwrap();
        }
        assert_eq!(asked(root.path(), Some("../proc"), &json!({})).cached, None, "it leads out of the directory");
    }

    #[test]
    fn the_log_tells_of_the_job_alone_and_whether_it_names_each_job() {
        let root = tempfile::tempdir().unwrap();
        let line = |second: u32, words: &str| format!("2026-11-24 09:12:{second:02},123 [salt.minion][INFO] {words}\n");
        let about = |second, words| line(second, &format!("{words} {JOB}"));
        let quoted = format!("Job 7 execution finished, return_data: {{'log': ['{RETURNED}: {JOB}']}}");
        let others =
            line(1, "Returning information for job: 20261124091200123457") + &about(2, "looks at") + &line(2, &quoted);
        let endless = format!("2026-11-24 09:12:09 {RECEIVED} {JOB} {}\n", "ü".repeat(500));
        // At level warning, before it was raised.
        let warned = "2026-11-24 09:11:00,123 [salt.minion][WARNING ] no job is named at this level\n";
        let (received, returned) = (about(3, RECEIVED), about(4, "Returning information for job:"));
        let text = format!("no time\n{warned}{others}{received}{returned}{endless}");
        put(root.path(), "log", text.as_bytes());
        let log = asked(root.path(), Some(JOB), &json!({"log_level": "warning", "log_level_logfile": "info"})).log;
        let zone = clock::zone(None).unwrap();
        let at = |second: u32| written(&line(second, ""), &zone);
        assert_eq!((log.since, log.returned_at, log.is_detailed), (at(1), at(4), Some(true)));
        assert_eq!(log.lines.len(), 3, "{log:?}");
        assert!(log.lines[0].contains("09:12:03") && log.lines[2].chars().count() == LINE_CHARACTERS_MAX, "{log:?}");
        assert_eq!(
            asked(root.path(), Some(&JOB[..19]), &json!({})).log.lines,
            Vec::<String>::new(),
            "a part of the id"
        );
        assert!(names("for job deploy-4. This", "deploy-4") && !names("for job deploy-42", "deploy-4"));
        let log = asked(root.path(), None, &json!({"log_level": "warning", "log_level_logfile": null})).log;
        assert_eq!((log.lines.len(), log.since, log.is_detailed), (0, at(1), Some(false)));
        assert_eq!(asked(root.path(), Some(JOB), &json!({"log_file": "file:///dev/log"})).log, LogTraces::default());
    }
}
