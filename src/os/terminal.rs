//! The terminal behind a stream.

use std::os::fd::AsFd;

/// How many columns the terminal has; None: the stream is no terminal, or the terminal does not say.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}
