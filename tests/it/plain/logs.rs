//! The log tells one story, once, and harmlessly; the history tells it again afterwards.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, SIDLE, sidle, text, two_releases};
use jiff::ToSpan as _;
use serde_json::Value;
use sidle::os::process::{Identity, SignalNumber, user, user_name};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A host with a good release and one that ends as soon as it is started.
fn good_and_bad() -> (Host, Author) {
    let author = Author::new();
    let (good, bad) = (author.release("1.0", "good"), author.release("1.1", "crash"));
    let host = Host::new(&author);
    host.install(&good).ok();
    host.install(&bad).ok();
    (host, author)
}

/// The one line that holds all of these; its place in the log.
#[track_caller]
fn only(log: &str, words: &[&str]) -> usize {
    let found: Vec<usize> = log
        .lines()
        .enumerate()
        .filter(|(_, line)| words.iter().all(|word| line.contains(word)))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(found.len(), 1, "{words:?} is not there once in\n{log}");
    found[0]
}

/// The lines that sidle wrote itself; the agent's own output goes the same way.
fn own(log: &str) -> String {
    let is_own = |line: &&str| line.get(..4).is_some_and(|year| year.bytes().all(|byte| byte.is_ascii_digit()));
    let lines: Vec<&str> = log.split_inclusive('\n').filter(is_own).collect();
    lines.concat()
}

#[test]
fn a_switch_that_is_rolled_back_is_told_step_by_step_each_once_and_in_order() {
    let (host, _author) = good_and_bad();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = supervisor.log().len();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "idle", "--reason", "spring"]).code, Some(5));
    let log = own(&supervisor.log()[before..]);
    let told = [
        only(&log, &["INFO", "switch 2 is accepted: from 1.0-1 to 1.1-1", "by=", "reason=spring"]),
        only(&log, &["INFO", "from=checking", "to=rehearsing", "outcome=done", "took="]),
        only(&log, &["INFO", "from=rehearsing", "to=waiting", "outcome=done"]),
        only(&log, &["INFO", "from=waiting", "to=freezing", "outcome=done"]),
        only(&log, &["INFO", "from=freezing", "to=stopping", "outcome=done"]),
        only(&log, &["INFO", "of 1.0-1 was ended by signal 9: stopped by sidle", "role=serving", "lived="]),
        only(&log, &["INFO", "from=stopping ", "to=starting ", "outcome=done"]),
        only(&log, &["INFO", "of 1.1-1 is started", "role=trial", "switch=2"]),
        only(&log, &["INFO", "from=starting ", "to=proving ", "outcome=done"]),
        only(&log, &["WARN", "of 1.1-1 exited with code", "by itself", "role=trial", "lived="]),
        only(&log, &["WARN", "from=proving", "to=stopping-new", "outcome=lost", "why=\"the process of 1.1-1 exited"]),
        only(&log, &["INFO", "from=stopping-new", "to=starting-old"]),
        only(&log, &["INFO", "of 1.0-1 is started", "role=serving"]),
        only(&log, &["INFO", "from=starting-old", "to=proving-old"]),
        only(&log, &["WARN", "switch 2 failed and is rolled back from 1.1-1: 1.0-1 runs again", "downtime="]),
    ];
    assert!(told.is_sorted(), "{told:?}\n{log}");
    only(&log, &["rolled back"]);
    only(&log, &["why=\"the process of 1.1-1 exited"]);
    assert_eq!(log.matches("from=").count(), log.matches("took=").count(), "a transition without its time:\n{log}");
    assert_eq!(log.matches(" from=").count(), 10, "{log}");
}

/// Gives the agent a job that runs until the file is there whose path this gives.
fn busy(host: &Host) -> PathBuf {
    let flag = host.path("flag");
    host.job("long", &format!("until [ -e {} ]; do sleep 0.05; done", text(&flag)));
    host.running("long");
    flag
}

fn story(host: &Host, id: &str) -> Value {
    host.sidle(&["--json", "history", DEMO, "--id", id]).json()
}

/// The transitions of a story.
fn phases(story: &Value) -> Vec<(String, String)> {
    let word = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    let steps = story["switch"]["story"].as_array().unwrap();
    steps.iter().map(|step| (word(step, "from"), word(step, "to"))).collect()
}

/// What a person reads of switch 2, and of one that there never was.
fn is_told_to_people(host: &Host) {
    let shown = host.sidle(&["history", DEMO, "--id", "2"]).ok();
    for words in [
        "switch 2 of demo-agent",
        "1.1-1",
        "spring",
        "rolled-back",
        "lost after",
        "the process of 1.1-1 exited with code",
    ] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    let step = shown.lines().find(|line| line.contains("proving -> stopping-new")).unwrap();
    assert!(step.contains("Z  +") && step.contains(" s  proving"), "{step}");

    let unknown = host.sidle(&["history", DEMO, "--id", "7"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("switch 7 of demo-agent: known switches: 1 to 2"), "{unknown:?}");
    assert!(unknown.stderr.contains("hint: `sidle history demo-agent`"), "{unknown:?}");
}

#[test]
fn the_history_tells_the_same_story_after_the_supervisor_was_killed_and_came_back() {
    let (host, _author) = good_and_bad();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let flag = busy(&host);
    let arguments = ["switch", DEMO, "1.1-1", "--mode", "idle", "--no-wait", "--reason", "spring"];
    assert_eq!(host.sidle(&arguments).code, Some(4));
    host.reaches("waiting");
    let live = story(&host, "2");
    assert_eq!((&live["live"], phases(&live).len()), (&Value::Bool(true), 2), "{live}");
    let shown = host.sidle(&["history", DEMO, "--id", "2"]).ok();
    assert!(shown.contains("under way") && shown.contains("rehearsing -> waiting"), "{shown}");

    supervisor.kill();
    assert_eq!(story(&host, "2")["switch"]["story"], live["switch"]["story"], "what is written stays written");
    let mut supervisor = host.supervise();
    fs::write(flag, "").unwrap();
    eventually(30, "the switch is over", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    let told = story(&host, "2");
    supervisor.kill();
    let _supervisor = host.supervise();
    assert_eq!(story(&host, "2"), told);
    // What the log of both supervisors has is what is remembered.
    let log = own(&supervisor.log());
    let logged: Vec<(String, String)> = log
        .lines()
        .filter(|line| line.contains("switch 2 ") || line.contains("switch 2: "))
        .filter_map(|line| {
            let word = |name: &str| Some(line.split_once(name)?.1.split(' ').next()?.to_owned());
            Some((word(" from=")?, word(" to=")?))
        })
        .collect();
    assert_eq!(phases(&told), logged, "{log}");
    assert_eq!(phases(&told).last().unwrap().1, "rolled-back");
    let steps = told["switch"]["story"].as_array().unwrap();
    assert_eq!(steps[..2], live["switch"]["story"].as_array().unwrap()[..]);
    let numbers: Vec<u64> = steps.iter().map(|step| step["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=steps.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        (&told["schema"], &told["live"], &told["switch"]["result"]),
        (&1.into(), &false.into(), &"rolled-back".into())
    );
    is_told_to_people(&host);
}

#[test]
fn a_command_says_how_it_works_only_where_it_is_asked_to() {
    let (host, _author) = two_releases();
    for arguments in [&["list"][..], &["status"], &["verify", DEMO, "1.0-1"], &["history", DEMO], &["trust", "show"]] {
        let silent = host.sidle(arguments);
        assert_eq!(silent.stderr, "", "{arguments:?}");
        let told = host.sidle(&[arguments, &["-v"]].concat());
        assert!(own(&told.stderr) == told.stderr && told.stderr.contains(" DEBUG "), "{arguments:?}: {told:?}");
        assert!(told.stderr.contains(&format!("sidle {} begins", arguments[0])), "{told:?}");
        assert_eq!((told.code, told.stdout), (silent.code, silent.stdout), "{arguments:?}");
    }
    let quiet = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let log = own(&quiet.log());
    assert!(log.contains(" INFO ") && !log.contains(" DEBUG "), "{log}");
    assert_eq!(quiet.end(), Some(0));
}

#[test]
fn a_supervisor_tells_more_with_verbose_and_nothing_that_is_well_with_quiet() {
    let (host, _author) = two_releases();
    let verbose = supervisor(&host, "-v", &[]);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let told = verbose.end();
    let log = own(&told);
    only(&log, &["DEBUG", "switch 1 acts", "phase=starting"]);
    let waits = log.lines().filter(|line| line.contains("switch 1 waits") && line.contains("phase=probation")).count();
    assert!((1..=2).contains(&waits), "a line each time it looked:\n{log}");
    let quiet = supervisor(&host, "--quiet", &[]);
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(own(&quiet.end()[told.len()..]), "");
}

#[test]
fn a_refused_request_is_logged_with_who_asked_and_why() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["hold", DEMO, "--reason", "audit"]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--reason", "spring"]).code, Some(10));
    host.sidle(&["unhold", DEMO]).ok();
    busy(&host);
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "idle", "--no-wait"]).code, Some(4));
    host.reaches("waiting");
    assert_eq!(host.sidle(&["restart", DEMO]).code, Some(12));
    assert_eq!(host.sidle(&["cancel", DEMO]).code, Some(0));
    let day = (jiff::Zoned::now() + 3.days()).strftime("%a").to_string();
    fs::write(host.path("etc/sidle/conf.d/windows.toml"), format!("windows = [\"{day} 03:00-03:01\"]\n")).unwrap();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1"]).code, Some(10));
    let log = own(&supervisor.log());
    let by = format!("by={}", user_name(user()));
    only(&log, &["WARN", "a switch to 1.1-1 is refused", &by, "it is held", "audit", "reason=spring"]);
    only(&log, &["WARN", "a restart to 1.0-1 is refused", &by, "switch 2 to 1.1-1 is waiting"]);
    let asked = only(&log, &["INFO", "a cancellation is asked for", &by]);
    assert!(asked < only(&log, &["INFO", "switch 2 to 1.1-1 is cancelled, nothing was changed", "outcome=cancelled"]));
    only(&log, &["WARN", "a switch to 1.1-1 is refused", &by, "outside its maintenance windows"]);
}

#[test]
fn no_text_of_a_stranger_forges_a_line_a_field_or_a_terminal() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let hostile = "why\n2026-01-01T00:00:00.000Z ERROR forged\r\u{1b}[2J\u{9b}2J\u{202e} \" by=nobody switch 9";
    host.sidle(&["hold", DEMO, "--reason", hostile]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1"]).code, Some(10));
    host.sidle(&["unhold", DEMO]).ok();
    host.sidle(&["switch", DEMO, "1.1-1", "--reason", hostile]).ok();
    let log = supervisor.log();
    assert!(!log.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01T00:00:00.000Z")), "{log}");
    let escaped =
        "why\\u{a}2026-01-01T00:00:00.000Z ERROR forged\\u{d}\\u{1b}[2J\\u{9b}2J\\u{202e} \\\" by=nobody switch 9\"";
    only(&log, &["WARN", "is refused", escaped]);
    only(&log, &["INFO", "switch 2 is accepted", escaped]);
    let shown = host.sidle(&["history", DEMO, "--id", "2"]).ok();
    assert!(shown.contains("why\\u{a}2026") && !shown.contains('\u{1b}') && !shown.contains('\u{9b}'), "{shown:?}");
}

#[test]
fn no_secret_is_logged_however_much_is_told() {
    const SECRET: &str = "geheim-5f1d";
    let author = Author::new();
    let variables = [("SIDLE_TEST_TOKEN", SECRET)];
    let pem = fs::read_to_string(author.key()).unwrap();
    let key = pem.lines().nth(1).unwrap();
    let bundle = author.release("1.0", "good");
    let recipe = author.directory().join("1.0.toml");
    let tree = author.directory().join("tree-1.0");
    let (repository, output) = (author.repository(), author.directory().join("again.sidle"));
    let arguments =
        ["-v", "pack", text(&recipe), "--version", "2.0", "--tree", text(&tree), "--repo", text(&repository)];
    let signing = author.key();
    let more = ["--key", text(&signing), "--output", text(&output)];
    let mut told = sidle(&[&arguments[..], &more].concat(), &variables).stderr;
    told += &sidle(&["-v", "key", "show", text(&author.key())], &variables).stderr;

    let host = Host::new(&author);
    fs::write(host.path("etc/demo-agent/demo.conf"), format!("password={SECRET}\n")).unwrap();
    fs::write(host.path("token"), SECRET).unwrap();
    fs::set_permissions(host.path("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let settings = format!("[repository]\nurl = \"http://127.0.0.1:9\"\ntoken_file = {:?}\n", host.path("token"));
    fs::write(host.path("etc/sidle/conf.d/repository.toml"), settings).unwrap();
    told += &host.sidle_with(&["-v", "install", text(&bundle)], &variables).stderr;
    let fetched = host.sidle_with(&["-v", "upgrade", DEMO], &variables);
    assert!(fetched.code != Some(0) && fetched.stderr.contains("DEBUG"), "{fetched:?}");
    told += &fetched.stderr;
    let supervisor = supervisor(&host, "-v", &variables);
    told += &host.sidle_with(&["-v", "switch", DEMO, "1.0-1"], &variables).stderr;
    fs::write(host.path("etc/demo-agent/demo.conf"), format!("password={SECRET}-2\n")).unwrap();
    told += &host.sidle_with(&["-v", "restart", DEMO, "--if-changed"], &variables).stderr;
    told += &supervisor.end();
    assert!(told.matches(" DEBUG ").count() > 40, "{told}");
    assert!(!told.contains(SECRET) && !told.contains(key), "{told}");
}

/// A supervisor with an option more, or another place for its log.
struct Own {
    child: Child,
    log: PathBuf,
}

fn supervisor(host: &Host, option: &str, variables: &[(&str, &str)]) -> Own {
    let file = fs::OpenOptions::new().create(true).append(true).open(host.path("own.log")).unwrap();
    supervisor_into(host, option, variables, Stdio::from(file))
}

fn supervisor_into(host: &Host, option: &str, variables: &[(&str, &str)], errors: Stdio) -> Own {
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&host.root()), option, "supervise", DEMO]).envs(variables.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let control = host.path("run/sidle/demo-agent/control");
    eventually(20, "the supervisor listens", || if control.exists() { Ok(()) } else { Err("no socket".to_owned()) });
    Own { child, log: host.path("own.log") }
}

impl Own {
    /// Ends it; gives its log.
    fn end(mut self) -> String {
        let identity = Identity::of(self.child.id()).unwrap().unwrap();
        identity.signal(SignalNumber::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

#[test]
fn a_supervisor_whose_log_nobody_reads_goes_on_and_says_later_what_was_lost() {
    let (host, _author) = two_releases();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    while let Ok(count) = writer.write(&[b'.'; 4096]) {
        filled += count;
    }
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let supervisor = supervisor_into(&host, "-v", &[], Stdio::from(writer));
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    reader.read_exact(&mut vec![0; filled]).unwrap();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    supervisor.end();
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    let first = own(&log).lines().next().unwrap().to_owned();
    assert!(first.contains("WARN ") && first.contains("log lines were lost"), "{log}");
    only(&own(&log), &["switch 2 is accepted"]);
    assert!(!log.contains("switch 1 is accepted"), "{log}");
}

#[test]
fn a_supervisor_whose_log_has_lost_its_reader_goes_on() {
    let (host, _author) = two_releases();
    let (reader, writer) = std::io::pipe().unwrap();
    let supervisor = supervisor_into(&host, "-v", &[], Stdio::from(writer));
    drop(reader);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    supervisor.end();
}

#[test]
fn the_journal_of_the_host_is_given_levels_and_no_second_time() {
    let (host, _author) = two_releases();
    let (journal, stream) = UnixStream::pair().unwrap();
    let stat = rustix::fs::fstat(&stream).unwrap();
    let named = format!("{}:{}", stat.st_dev, stat.st_ino);
    let errors = Stdio::from(std::os::fd::OwnedFd::from(stream));
    let supervisor = supervisor_into(&host, "-v", &[("JOURNAL_STREAM", &named)], errors);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    supervisor.end();
    let mut log = String::new();
    (&journal).read_to_string(&mut log).unwrap();
    only(&log, &["<6>switch 1 is accepted: from nothing to 1.0-1"]);
    assert!(log.lines().all(|line| ["<4>", "<6>", "<7>"].iter().any(|level| line.starts_with(level))), "{log}");
    // The variable is inherited by what has another standard error.
    let told = host.sidle_with(&["-v", "list"], &[("JOURNAL_STREAM", &named)]);
    assert!(!told.stderr.is_empty() && own(&told.stderr) == told.stderr, "{told:?}");
}
