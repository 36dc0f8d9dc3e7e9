//! The titles of processes: Salt names the job that a process runs in its command line.

use crate::os::{OsError, proc_fs};

/// What a child of main is, by its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Title {
    /// A published job.
    Payload {
        /// Its jid.
        jid: String,
        /// True once it has come to writing its own entry: modules are loaded, the function is next.
        begun: bool,
    },
    /// A scheduled job.
    Schedule {
        /// Name in the schedule.
        name: String,
        /// Its jid.
        jid: String,
    },
    /// An engine.
    Engine,
    /// Writes the log for the others (up to 3004).
    Logging,
    /// Nothing that Salt names.
    Other(String),
}

impl Title {
    /// Reads the title of a process. The first marker is its own: a descendant's title only grows at the end.
    pub fn parse(title: &str) -> Self {
        let markers = ["ProcessPayload(jid=", "Schedule(name=", "Engine(", "MultiprocessingLoggingQueue"];
        let first = markers.iter().filter_map(|marker| title.find(marker).map(|at| (at, *marker))).min();
        let Some((at, marker)) = first else {
            // One that Salt itself has started again: `ProcessManager.restart_process` passes on no name, and the class's name counts.
            let is_engine = title.ends_with(" Engine") && title.contains("salt-minion");
            return if is_engine { Self::Engine } else { Self::Other(title.to_owned()) };
        };
        let rest = &title[at + marker.len()..];
        // A title that the space for it cut short names nothing for certain.
        match (marker, rest.split_once(')')) {
            ("Engine(", _) => Self::Engine,
            ("MultiprocessingLoggingQueue", _) => Self::Logging,
            ("ProcessPayload(jid=", Some((jid, rest))) => {
                let begun = rest.contains("_thread_return") || rest.contains("_thread_multi_return");
                Self::Payload { jid: jid.to_owned(), begun }
            }
            ("Schedule(name=", _) => match rest.rsplit_once(", jid=").map(|(name, jid)| (name, jid.split_once(')'))) {
                Some((name, Some((jid, _)))) => Self::Schedule { name: name.to_owned(), jid: jid.to_owned() },
                _ => Self::Other(title.to_owned()),
            },
            _ => Self::Other(title.to_owned()),
        }
    }

    /// The jid that it names.
    pub fn jid(&self) -> Option<&str> {
        match self {
            Self::Payload { jid, .. } | Self::Schedule { jid, .. } => Some(jid),
            Self::Engine | Self::Logging | Self::Other(_) => None,
        }
    }

    /// The title of a process now; None where it is gone.
    pub fn of(pid: u32) -> Result<Option<Self>, OsError> {
        let words = proc_fs::command_line(pid)?;
        Ok(words.map(|words| Self::parse(&words.join(" "))))
    }
}
