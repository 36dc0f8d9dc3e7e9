//! How a repository is asked: its mirrors, what lets us in, and how long and how fast. `config` reads it from `[repository]`.

use super::location::Location;
use std::path::PathBuf;
use std::time::Duration;

/// A repository, as the settings have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadSettings {
    /// Where it is kept, in the order in which they are asked.
    pub mirrors: Vec<Mirror>,
    /// Which proxy leads there.
    pub proxy: Proxy,
    /// Bytes a second that are received at most; None: as fast as it goes.
    pub rate_limit: Option<u64>,
    /// The longest wait before the first request of a run that nobody waits for: spreads a fleet.
    pub splay: Duration,
    /// How long and how often.
    pub patience: Patience,
}

/// One place where a repository is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Where.
    pub location: Location,
    /// What it is told, and by what it is known.
    pub access: Access,
}

/// What a mirror is told to let us in, and by what it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Certificates (PEM) of authorities that are believed.
    pub ca_files: Vec<PathBuf>,
    /// Which others are.
    pub authorities: Authorities,
    /// Our certificate chain (PEM) and its private key (PEM, PKCS#8).
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// A file whose first line is sent as bearer token.
    pub token_file: Option<PathBuf>,
    /// A netrc file with users and passwords by host.
    pub netrc: Option<PathBuf>,
}

/// Whose certificates are believed beside those of `ca_files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorities {
    /// Those of the host.
    #[default]
    System,
    /// No others.
    None,
}

/// Which proxy leads to the mirrors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proxy {
    /// What `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    #[default]
    Environment,
    /// None, whatever they say.
    None,
    /// This one (`http://…`, `https://…` or `socks5h://…`), but for hosts in `NO_PROXY`.
    Through(url::Url),
}

/// How long is waited, and how often is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until a connection stands.
    pub connect: Duration,
    /// Until the next byte; also the window in which at least `BYTES_PER_SECOND_MINIMUM` must come on average.
    pub stall: Duration,
    /// For everything that one run fetches.
    pub total: Duration,
    /// Failures of one mirror in a row, none of them followed by progress, after which it isn't asked any more in this run.
    pub attempts: u32,
    /// The pause after a mirror's first failure; doubles with each further one.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            total: Duration::from_secs(2 * 60 * 60),
            attempts: 5,
            pause: Duration::from_millis(500),
        }
    }
}
