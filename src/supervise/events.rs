//! What wakes the supervisor: a child's end, a question on the control socket, a change in a watched directory, a signal, the time.

use super::control::{self, Answer, Command, LINE_LENGTH_MAXIMUM};
use super::workers::Fresh;
use crate::failure::{Class, Report};
use crate::os::watch::Watch;
use crate::os::{OsError, process, socket};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The time is up.
    Timer,
    /// A child ended.
    Child,
    /// A watched directory changed.
    Changed,
    /// Something in a running release's tree changed.
    TreeChanged,
    /// Somebody asks for something.
    Asked(Box<Question>),
    /// The supervisor is to end.
    Terminate,
    /// The supervisor is to become the program that lies at its path now.
    Renew,
}

/// A question and the way to answer it.
#[derive(Debug)]
pub struct Question {
    /// What is asked, or why it can't be understood.
    pub command: Result<Command, Report>,
    /// The user who asks, as the kernel knows them.
    pub by: String,
    stream: UnixStream,
}

impl Question {
    /// Answers. Who asked may have gone away; what was accepted is written down all the same.
    pub fn answer(self, answer: &Answer) {
        let mut line = serde_json::to_vec(answer).expect("an answer has no map keys but strings");
        line.push(b'\n');
        // A line fits the socket's buffer: nobody is waited for.
        let _ = self.stream.try_write(&line);
    }
}

/// How long somebody may take to write a question: nobody holds the supervisor up.
const QUESTION_WAIT: Duration = Duration::from_millis(500);

/// The sources of events.
pub struct Events {
    listener: UnixListener,
    child: Signal,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    watch: Option<pipe::Receiver>,
    watched: Vec<PathBuf>,
    trees: Option<pipe::Receiver>,
}

impl Events {
    /// Events with the control socket `listener`.
    pub fn new(listener: std::os::unix::net::UnixListener) -> Result<Self, OsError> {
        let failed = |source| OsError::new("wait for", "events".as_ref(), source);
        Ok(Self {
            listener: UnixListener::from_std(listener).map_err(failed)?,
            child: signal(SignalKind::child()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            hangup: signal(SignalKind::hangup()).map_err(failed)?,
            watch: None,
            watched: Vec::new(),
            trees: None,
        })
    }

    /// Watches the trees of running releases by this from now on.
    pub(super) fn watch_trees(&mut self, fresh: Fresh) {
        self.trees = match fresh {
            Fresh::AsBefore => return,
            Fresh::Nothing => None,
            Fresh::Watch(watch) => pipe::Receiver::from_owned_fd_unchecked(watch.into()).ok(),
        };
    }

    /// Watches these directories from now on. Where the kernel has no watch left, the timer serves alone.
    pub fn watch(&mut self, directories: Vec<PathBuf>) {
        if directories == self.watched {
            return;
        }
        self.watch = if directories.is_empty() {
            None
        } else {
            // An inotify descriptor reads like a pipe; what it says does not matter, only that it says something.
            let watch = Watch::new(directories.iter().map(PathBuf::as_path));
            watch.and_then(|watch| pipe::Receiver::from_owned_fd_unchecked(watch.into())).ok()
        };
        self.watched = directories;
    }

    /// The next event, [`Event::Timer`] after `pause`.
    pub async fn next(&mut self, pause: Duration) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Terminate,
            _ = self.interrupt.recv() => Event::Terminate,
            _ = self.hangup.recv() => Event::Renew,
            _ = self.child.recv() => Event::Child,
            accepted = self.listener.accept() => match accepted {
                Ok((stream, _)) => asked(stream).await,
                Err(_) => Event::Timer,
            },
            () = changed(self.watch.as_ref()) => Event::Changed,
            () = changed(self.trees.as_ref()) => Event::TreeChanged,
            () = tokio::time::sleep(pause) => Event::Timer,
        }
    }
}

async fn changed(watch: Option<&pipe::Receiver>) {
    let Some(watch) = watch else { return std::future::pending().await };
    if watch.readable().await.is_ok() {
        let mut events = [0; 4096];
        while watch.try_read(&mut events).is_ok_and(|count| count > 0) {}
    }
}

async fn asked(mut stream: UnixStream) -> Event {
    let user = socket::peer_user(&stream).ok();
    let allowed = user.is_some_and(|user| user == 0 || user == process::user());
    let by = user.map_or_else(|| "nobody knows whom".to_owned(), process::user_name);
    if !allowed {
        let refusal = Report::of(Class::Failed, "cannot take requests from this user")
            .hint("ask as the owner of the instance, or as root");
        return Event::Asked(Box::new(Question { command: Err(refusal), by, stream }));
    }
    let mut line = String::new();
    let read = async { BufReader::new((&mut stream).take(LINE_LENGTH_MAXIMUM)).read_line(&mut line).await };
    match tokio::time::timeout(QUESTION_WAIT, read).await {
        Ok(Ok(_)) => Event::Asked(Box::new(Question { command: control::parse(&line), by, stream })),
        Ok(Err(_)) | Err(_) => Event::Timer,
    }
}
