//! The classes of failure: what a caller can do about an error. The CLI turns a class into an exit code; nothing below it knows codes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What kind of failure an error is. In the order in which the exit codes apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The command or its input makes no sense.
    Usage,
    /// Another command holds the lock.
    Locked,
    /// Signature, metadata, withdrawn, unpinned, unsafe content.
    NotTrusted,
    /// Bytes are not what was signed.
    Integrity,
    /// Bytes or inodes are missing.
    NoSpace,
    /// Held by a person, or outside its window.
    Held,
    /// Conflicts with an earlier request, such as a live switch to another release.
    Conflict,
    /// Still busy at its deadline.
    Busy,
    /// The switch came back to the release that worked.
    RolledBack,
    /// The switch is not finished.
    Pending,
    /// Nothing to do.
    NothingToDo,
    /// Everything else.
    Failed,
}

/// The reason of a failure, for programs: the message is for people, and its words may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A time that was given is past.
    TimeIsPast,
    /// The highstate is not the same with both releases (`rehearsal`).
    Highstate,
    /// By what the agent's peers have said, they would not take the release.
    Peers,
    /// The release lacks functions that are used here: a line has the kind, the function, and the last day.
    Used,
    /// The masters have not accepted the key of a host's first minion.
    KeyNotAccepted,
    /// The host belongs to another rollout.
    OtherRollout,
    /// The repository behind standard input (`stdio:`) is among those that failed.
    StandardInput,
}

/// As a source of an error, for [`Report::new`]: no part of the message.
impl std::error::Error for Reason {}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(formatter)
    }
}

/// A failure as it is told: what went wrong, because of what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What kind of failure it is.
    pub class: Class,
    /// The reason, where a program needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What was attempted, on what, and what came in the way.
    pub message: String,
    /// What that was caused by in turn, outermost first.
    pub causes: Vec<String>,
    /// The lines of a list that belongs to the message. A terminal shows each on a line of its own, and escapes it by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// A remedy that names a command, where there is one.
    pub hint: Option<String>,
}

/// The lines of a list, as the source of an error whose message ends with them. [`Report::new`] keeps them apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct List(pub Vec<String>);

impl Report {
    /// A report without causes or hint.
    pub fn of(class: Class, message: impl Into<String>) -> Self {
        Self { class, reason: None, message: message.into(), causes: Vec::new(), lines: Vec::new(), hint: None }
    }

    /// This report with a remedy.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// This report with a reason for programs.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// This report with what it was caused by.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "errors are handed over")]
    pub fn because(mut self, cause: impl ToString) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// The report of an error, with the errors behind it.
    pub fn new(class: Class, error: &dyn std::error::Error, hint: Option<String>) -> Self {
        let mut message = error.to_string();
        let mut causes: Vec<String> = Vec::new();
        let mut lines = Vec::new();
        let mut reason = None;
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(found) = cause.downcast_ref::<Reason>() {
                reason = Some(*found);
                break;
            }
            let text = cause.to_string();
            if let Some(List(list)) = cause.downcast_ref::<List>() {
                let tail = format!(": {text}");
                for told in std::iter::once(&mut message).chain(&mut causes) {
                    if let Some(head) = told.strip_suffix(&tail).map(str::to_owned) {
                        *told = head;
                        lines.clone_from(list);
                    }
                }
                if !lines.is_empty() {
                    break;
                }
            }
            // Some errors print their source themselves.
            if !message.contains(&text) && causes.iter().all(|known| !known.contains(&text)) {
                causes.push(text);
            }
            source = cause.source();
        }
        Self { class, reason, message, causes, lines, hint }
    }

    /// What a person reads first: all but the list and the hint.
    pub fn headline(&self) -> String {
        [&self.message].into_iter().chain(&self.causes).cloned().collect::<Vec<_>>().join(": ")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.headline())?;
        if self.lines.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.lines.join("; ")) }
    }
}

impl std::error::Error for Report {}

/// A time as messages have it: UTC to the second, which sorts.
pub fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Makes reports of errors that offer `class()` and `hint()`.
#[macro_export]
macro_rules! reports {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for $crate::failure::Report {
            fn from(error: $error) -> Self {
                let (class, hint) = (error.class(), error.hint());
                Self::new(class, &error, hint)
            }
        }
    )+};
}
