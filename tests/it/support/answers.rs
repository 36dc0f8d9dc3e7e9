//! A program that starts sidle and answers it over pipes (`--repository stdio:`).

use super::stage::{Host, Ran, SIDLE, text};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How the conversation goes on after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    GoOn,
    /// Standard input is closed.
    Close,
}

/// Runs sidle on a host; `answer` gets each request and the pipe. Gives the requests, and what the command came to, without them.
pub fn answering(
    host: &Host,
    arguments: &[&str],
    answer: impl FnMut(&Value, &mut dyn Write) -> Then,
) -> (Vec<Value>, Ran) {
    answering_as("stdio:", host, arguments, answer)
}

/// The same under this name of the repository.
pub fn answering_as(
    repository: &str,
    host: &Host,
    arguments: &[&str],
    mut answer: impl FnMut(&Value, &mut dyn Write) -> Then,
) -> (Vec<Value>, Ran) {
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&host.root()), "--json"]).args(arguments).args(["--repository", repository]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take();
    let (mut asked, mut said) = (Vec::new(), String::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if value.get("ask").is_none() {
            said.extend([line.as_str(), "\n"]);
            continue;
        }
        asked.push(value);
        // Sidle may have left; what it says then is judged.
        if let Some(pipe) = &mut input
            && answer(asked.last().unwrap(), pipe) == Then::Close
        {
            input = None;
        }
    }
    let output = child.wait_with_output().unwrap();
    let ran = Ran {
        code: output.status.code().filter(|_| output.status.signal().is_none()),
        stdout: said,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    super::schema::check(&[&["--json"], arguments].concat(), &ran.stdout);
    (asked, ran)
}

/// The bytes that a request is for, and the size of their file; None: there is no such file.
pub fn wanted(repository: &Path, request: &Value) -> Option<(Vec<u8>, usize)> {
    let bytes = fs::read(repository.join(request["ask"].as_str().unwrap())).ok()?;
    let number = |key: &str, default: usize| {
        request[key].as_u64().map_or(default, |number| usize::try_from(number).unwrap()).min(bytes.len())
    };
    Some((bytes[number("from", 0)..number("to", bytes.len())].to_vec(), bytes.len()))
}

/// Sends bytes with the line before them.
pub fn send(header: &Value, bytes: &[u8], pipe: &mut dyn Write) -> Then {
    let line = format!("{header}\n");
    let _ = pipe.write_all(line.as_bytes()).and_then(|()| pipe.write_all(bytes)).and_then(|()| pipe.flush());
    Then::GoOn
}

/// Answers from a repository's directory.
pub fn honestly(repository: &Path, request: &Value, pipe: &mut dyn Write) -> Then {
    match wanted(repository, request) {
        Some((bytes, total)) => send(&json!({"bytes": bytes.len(), "total": total}), &bytes, pipe),
        None => send(&json!({"absent": true}), b"", pipe),
    }
}
