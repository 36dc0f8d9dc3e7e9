//! The settings of a fetch. `config` reads them from `[repository]`.

use super::location::Location;
use std::path::PathBuf;
use std::time::Duration;

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadSettings {
    /// Its mirrors, in the order in which they are asked.
    pub mirrors: Vec<Mirror>,
    /// The proxy for all of them.
    pub proxy: Proxy,
    /// Most received bytes a second; None: no limit.
    pub rate_limit: Option<u64>,
    /// The longest random wait before the first request of an unattended run: it spreads a fleet.
    pub splay: Duration,
    /// Time limits and attempts.
    pub patience: Patience,
}

/// One mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Its place.
    pub location: Location,
    /// Credentials and certificates.
    pub access: Access,
}

/// The credentials for a mirror, and the authorities that certify it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Certificates (PEM) of trusted authorities.
    pub ca_files: Vec<PathBuf>,
    /// Other trusted authorities.
    pub authorities: Authorities,
    /// This host's certificate chain (PEM) and its private key (PEM, PKCS#8).
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// A file whose first line is sent as bearer token.
    pub token_file: Option<PathBuf>,
    /// A netrc file with users and passwords by host.
    pub netrc: Option<PathBuf>,
}

/// The authorities that are trusted besides `ca_files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorities {
    /// The host's.
    #[default]
    System,
    /// No others.
    None,
}

/// The proxy for the mirrors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proxy {
    /// The proxy of `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    #[default]
    Environment,
    /// No proxy, whatever these variables say.
    None,
    /// This proxy (`http://…`, `https://…` or `socks5h://…`), except for hosts in `NO_PROXY`.
    Through(url::Url),
}

/// Time limits and attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until a connection stands.
    pub connect: Duration,
    /// Until the next byte; also the window in which at least `BYTES_PER_SECOND_MINIMUM` must come on average.
    pub stall: Duration,
    /// For the whole run.
    pub total: Duration,
    /// Failures of one mirror in a row, without progress between them, after which it is not asked again in this run.
    pub attempts: u32,
    /// The pause after a mirror's first failure; doubles with each further failure.
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
