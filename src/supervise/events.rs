//! The events that wake the supervisor: a child's end, a request on the control socket, a change in a watched directory, a signal, a timer.

use super::control::{self, Answer, Command, LINE_LENGTH_MAXIMUM};
use super::workers::Fresh;
use crate::failure::{Class, Report};
use crate::os::process::Identity;
use crate::os::watch::Watch;
use crate::os::{OsError, clock, process, socket};
use crate::saved;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// An event.
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
    /// A request on the control socket.
    Asked(Box<Question>),
    /// The supervisor has to end.
    Terminate,
    /// The supervisor has to replace itself by the program at its path.
    Renew,
}

/// A request and its connection.
#[derive(Debug)]
pub struct Question {
    /// The command, or why it can't be read.
    pub command: Result<Command, Report>,
    /// The user who asks, as the kernel knows them.
    pub by: String,
    /// The process that asks; None: not known.
    pub asker: Option<Identity>,
    stream: UnixStream,
}

impl Question {
    /// Answers. The client may have gone away; an accepted request is in the journal all the same.
    pub fn answer(self, answer: &Answer) {
        // A line fits the socket's buffer, so the write never blocks.
        let _ = self.stream.try_write(&saved::line(answer));
    }
}

/// How long a client may take to send its request: a client must not block the supervisor.
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
    /// A timer's descriptor reads like a pipe, as inotify's does.
    timer: pipe::Receiver,
}

impl Events {
    /// Makes the sources, with the control socket `listener`.
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
            timer: pipe::Receiver::from_owned_fd_unchecked(clock::timer()?).map_err(failed)?,
        })
    }

    /// Replaces the watch over the trees of running releases.
    pub(super) fn watch_trees(&mut self, fresh: Fresh) {
        self.trees = match fresh {
            Fresh::AsBefore => return,
            Fresh::Nothing => None,
            Fresh::Watch(watch) => pipe::Receiver::from_owned_fd_unchecked(watch.into()).ok(),
        };
    }

    /// Watches these directories from now on. If the kernel has no watch left, only the timer is used.
    pub fn watch(&mut self, directories: Vec<PathBuf>) {
        if directories == self.watched {
            return;
        }
        self.watch = if directories.is_empty() {
            None
        } else {
            // An inotify descriptor reads like a pipe; the content of its events does not matter.
            let watch = Watch::new(directories.iter().map(PathBuf::as_path));
            watch.and_then(|watch| pipe::Receiver::from_owned_fd_unchecked(watch.into())).ok()
        };
        self.watched = directories;
    }

    /// Waits for the next event; [`Event::Timer`] after `pause`.
    pub async fn next(&mut self, pause: Duration) -> Event {
        let is_set = clock::set_timer(&self.timer, pause).is_ok();
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
            () = changed(Some(&self.timer)) => Event::Timer,
            () = tokio::time::sleep(pause), if !is_set => Event::Timer,
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
    let by = user.map_or_else(|| "an unknown user".to_owned(), process::user_name);
    let asker = socket::peer_process(&stream);
    if !allowed {
        let refusal = Report::of(Class::Failed, "cannot take requests from this user")
            .hint("ask as the owner of the instance, or as root");
        return Event::Asked(Box::new(Question { command: Err(refusal), by, asker, stream }));
    }
    let mut line = String::new();
    let read = async { BufReader::new((&mut stream).take(LINE_LENGTH_MAXIMUM)).read_line(&mut line).await };
    match tokio::time::timeout(QUESTION_WAIT, read).await {
        Ok(Ok(_)) => Event::Asked(Box::new(Question { command: control::parse(&line), by, asker, stream })),
        Ok(Err(_)) | Err(_) => Event::Timer,
    }
}
