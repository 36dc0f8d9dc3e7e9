//! HTTP: the only file that names `reqwest`, and the only way to a socket outside `os`. One request, one answer; callers decide what follows.

use crate::fetch::credentials::{self, Credentials, Login};
use crate::fetch::error::FetchError;
use crate::fetch::fault::Fault;
use crate::fetch::location::FilePath;
use crate::fetch::pace;
use crate::fetch::reply::{self, Ask, Body, Coding, Presence, Reply, Span, Wanted};
use crate::fetch::settings::{Access, Authorities, Patience, Proxy};
use crate::os::clock;
use reqwest::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_RANGE,
    LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, NoProxy, Response, StatusCode, redirect};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use url::Url;

/// Most redirects for one file. Stops loops.
const REDIRECTS_MAXIMUM: usize = 3;

/// Runs network futures on the calling thread.
#[derive(Debug)]
pub(in crate::fetch) struct Reactor(Option<Runtime>);

impl Reactor {
    pub(in crate::fetch) fn new() -> Result<Arc<Self>, FetchError> {
        // An error says that the provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        match built {
            Ok(runtime) => Ok(Arc::new(Self(Some(runtime)))),
            Err(error) => {
                Err(crate::os::OsError { attempted: "cannot use the network".to_owned(), answer: error }.into())
            }
        }
    }

    /// The future's value; None after `patience`.
    fn run<F: Future>(&self, patience: Duration, future: F) -> Option<F::Output> {
        let runtime = self.0.as_ref().expect("it is taken by drop alone");
        runtime.block_on(async { tokio::time::timeout(patience, future).await.ok() })
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // A resolver that hangs must not keep the process.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A mirror behind HTTP.
#[derive(Debug)]
pub(in crate::fetch) struct Http {
    base: Url,
    client: Client,
    /// Without this host's certificate: for redirects to other hosts.
    stranger: Option<Client>,
    login: Option<Login>,
    reactor: Arc<Reactor>,
}

impl Http {
    /// A client for the mirror at `base`.
    pub(in crate::fetch) fn new(
        base: &Url,
        access: &Access,
        proxy: &Proxy,
        patience: &Patience,
        reactor: Arc<Reactor>,
    ) -> Result<Self, FetchError> {
        let host = base.host_str().unwrap_or_default();
        let Credentials { login, authorities, identity } = Credentials::read(access, host, base.scheme() == "https")?;
        let build = |identity: Option<&Vec<u8>>| -> Result<Client, FetchError> {
            let mut builder = with_proxy(plain(patience), proxy, access)?;
            let mut certificates = Vec::new();
            for pem in &authorities {
                let found = Certificate::from_pem_bundle(pem).ok().filter(|found| !found.is_empty());
                certificates.extend(found.ok_or_else(|| unusable("ca_file", "it has no certificate in PEM form"))?);
            }
            builder = match access.authorities {
                Authorities::System if base.scheme() == "http" && certificates.is_empty() => {
                    // A host without authorities can still use plain HTTP.
                    let attempt = with_proxy(plain(patience), proxy, access)?.build();
                    return attempt.or_else(|_| builder.tls_certs_only([]).build()).map_err(|error| unbuilt(&error));
                }
                Authorities::System => builder.tls_certs_merge(certificates),
                Authorities::None => builder.tls_certs_only(certificates),
            };
            if let Some(pem) = identity {
                let identity = Identity::from_pem(pem).map_err(|_| {
                    unusable("client_certificate and client_key", "they are no certificate and key in PEM form")
                })?;
                builder = builder.identity(identity);
            }
            builder.build().map_err(|error| unbuilt(&error))
        };
        let stranger = identity.as_ref().map(|_| build(None)).transpose()?;
        Ok(Self { base: base.clone(), client: build(identity.as_ref())?, stranger, login, reactor })
    }

    /// Asks for a file.
    pub(in crate::fetch) fn get(&self, path: &FilePath, ask: &Ask) -> Result<Reply, Fault> {
        let response = self.follow(&Method::GET, path, ask)?;
        self.reply(response, ask)
    }

    /// Asks whether there is a file, without the page that comes with a 404. Only "no" counts: a server that refuses the question (403, 405,
    /// 501 …) may have the file.
    pub(in crate::fetch) fn presence(&self, path: &FilePath, patience: Duration) -> Result<Presence, Fault> {
        let response = self.follow(&Method::HEAD, path, &Ask { coding: path.coding(), patience, ..Ask::whole(0) })?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Presence::Absent),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Err(refusal(&response)),
            _ => Ok(Presence::Possible),
        }
    }

    /// The answer after redirects.
    fn follow(&self, method: &Method, path: &FilePath, ask: &Ask) -> Result<Response, Fault> {
        let text = format!("{}{}", self.base.as_str().trim_end_matches('/'), path.in_url());
        let mut url = Url::parse(&text).map_err(|error| Fault::wrong(error.to_string()))?;
        for _ in 0..=REDIRECTS_MAXIMUM {
            let response = self.send(method, &url, ask, path.changes())?;
            let Some(next) = response.headers().get(LOCATION).filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            url = redirected(&url, next.to_str().unwrap_or_default())?;
        }
        Err(Fault::wrong(format!("it redirects more than {REDIRECTS_MAXIMUM} times")))
    }

    fn send(&self, method: &Method, url: &Url, ask: &Ask, is_current: bool) -> Result<Response, Fault> {
        let is_home = url.origin() == self.base.origin();
        let client = self.stranger.as_ref().filter(|_| !is_home).unwrap_or(&self.client);
        let coding = match ask.coding {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
        };
        let mut request = client.request(method.clone(), url.clone()).header(ACCEPT_ENCODING, coding);
        request = match self.login.as_ref().filter(|_| is_home) {
            Some(Login::Bearer(token)) => request.bearer_auth(token),
            Some(Login::Basic { user, password }) => request.basic_auth(user, Some(password)),
            None => request,
        };
        if is_current {
            // A cache on the way asks the server whether it has another one: two caches of different ages look like a rollback.
            request = request.header(CACHE_CONTROL, "no-cache");
        }
        if let Wanted::Part(range) = &ask.wanted {
            request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
        }
        if let Some(validator) = &ask.if_range {
            request = request.header(IF_RANGE, validator);
        }
        match self.reactor.run(ask.patience, request.send()) {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(fault(&error)),
            None => Err(silent(ask.patience)),
        }
    }

    fn reply(&self, response: Response, ask: &Ask) -> Result<Reply, Fault> {
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let span = match response.status() {
            StatusCode::OK => Span::Whole,
            StatusCode::PARTIAL_CONTENT if matches!(ask.wanted, Wanted::Part(_)) => header(CONTENT_RANGE)
                .and_then(reply::content_range)
                .ok_or_else(|| Fault::wrong("it gives a part and doesn't say which"))?,
            _ => return Err(refusal(&response)),
        };
        let is_one_of = |names: &[&str], found: &str| names.iter().any(|name| name.eq_ignore_ascii_case(found));
        let coding = match header(CONTENT_ENCODING) {
            None => Coding::Identity,
            Some(name) if is_one_of(&["identity"], name) => Coding::Identity,
            Some(name) if ask.coding == Coding::Gzip && is_one_of(&["gzip", "x-gzip"], name) => Coding::Gzip,
            Some(_) => return Err(Fault::wrong("it sends another encoding of the file than was asked for")),
        };
        let length = header(CONTENT_LENGTH).and_then(|value| value.parse().ok());
        // A weak validator doesn't promise the same bytes (RFC 9110 §13.1.5).
        let validator = header(ETAG).filter(|tag| tag.starts_with('"')).map(str::to_owned);
        Ok(Reply {
            span,
            length,
            coding,
            validator,
            body: Box::new(HttpBody { response, reactor: Arc::clone(&self.reactor) }),
        })
    }
}

/// The body of an answer.
#[derive(Debug)]
struct HttpBody {
    response: Response,
    reactor: Arc<Reactor>,
}

impl Body for HttpBody {
    fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            match self.reactor.run(patience, self.response.chunk()) {
                Some(Ok(Some(bytes))) if bytes.is_empty() => {}
                Some(Ok(bytes)) => return Ok(bytes.map(Vec::from)),
                Some(Err(error)) => return Err(fault(&error)),
                None => return Err(silent(patience)),
            }
        }
    }
}

fn plain(patience: &Patience) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("sidle/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .connect_timeout(patience.connect)
        .pool_max_idle_per_host(1)
}

fn with_proxy(builder: ClientBuilder, proxy: &Proxy, access: &Access) -> Result<ClientBuilder, FetchError> {
    match proxy {
        Proxy::Environment => Ok(builder),
        Proxy::None => Ok(builder.no_proxy()),
        Proxy::Through(url) => {
            let mut through = reqwest::Proxy::all(url.clone()).map_err(|error| unbuilt(&error))?;
            if let Some(netrc) = &access.netrc {
                let login = credentials::login_of(netrc, url.host_str().unwrap_or_default())?;
                if let Some(Login::Basic { user, password }) = login {
                    through = through.basic_auth(&user, &password);
                }
            }
            Ok(builder.proxy(through.no_proxy(NoProxy::from_env())))
        }
    }
}

/// The target of a redirect: never from HTTPS to HTTP, never with credentials in the URL.
fn redirected(from: &Url, location: &str) -> Result<Url, Fault> {
    let to = from.join(location).map_err(|_| Fault::wrong("it redirects to what is no URL"))?;
    if !to.username().is_empty() || to.password().is_some() {
        return Err(Fault::wrong("it redirects to a URL with a user in it"));
    }
    match (from.scheme(), to.scheme()) {
        ("http", "http" | "https") | ("https", "https") => Ok(to),
        (_, scheme) => Err(Fault::wrong(format!("it redirects from {} to {scheme}", from.scheme()))),
    }
}

/// The fault in an answer without the file.
fn refusal(response: &Response) -> Fault {
    let status = response.status();
    let reason = format!("HTTP {status}");
    let may_pass =
        status.is_server_error() || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Fault::NotFound,
        StatusCode::FORBIDDEN => Fault::Forbidden,
        _ if may_pass => {
            let value = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            Fault::Temporary { reason, retry_after: value.and_then(|value| pace::retry_after(value, clock::now())) }
        }
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => Fault::WrongAnswer { reason },
        _ => Fault::Refused { reason },
    }
}

/// The fault of a failed request. It names no URL: the target of a redirect may be secret.
fn fault(error: &reqwest::Error) -> Fault {
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        if let Some(rustls::Error::InvalidCertificate(_)) = cause.downcast_ref() {
            return Fault::Refused { reason: format!("its certificate is untrusted: {cause}") };
        }
        // An I/O error's source leaves out the error that it was made of.
        let inner = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        cause = match inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| cause.source()) {
            Some(next) => next,
            None => break,
        };
    }
    let what = match error {
        _ if error.is_connect() => "it can't be reached",
        _ if error.is_timeout() => "it doesn't answer in time",
        _ => "the connection broke",
    };
    Fault::temporary(format!("{what}: {cause}"))
}

fn silent(patience: Duration) -> Fault {
    Fault::temporary(format!("it was silent for {:.1} s", patience.as_secs_f64()))
}

fn unusable(subject: &str, reason: &str) -> FetchError {
    FetchError::Settings { subject: subject.to_owned(), reason: reason.to_owned(), hint: None }
}

fn unbuilt(error: &reqwest::Error) -> FetchError {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    FetchError::Settings {
        subject: "the settings of a mirror".to_owned(),
        reason,
        hint: Some("install the package ca-certificates, or name an authority with `ca_file`".to_owned()),
    }
}
