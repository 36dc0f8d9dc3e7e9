//! What of `plain::fetch::access` needs root or a package: see there.

use crate::plain::fetch::access::*;
use crate::plain::fetch::*;
use crate::support::mirrors::{Certificates, Nginx};
use sidle::fetch::settings::{Access, Authorities, Mirror};
use sidle::fetch::{Fetcher, Notice};
use sidle::os::place::{Effect, Place};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

#[test]
fn fetch_shows_its_token_its_password_or_its_certificate() {
    let release = Release::new(1);
    let certificates = Certificates::new();
    let ca = certificates.file("ca.pem");
    let nginx = Nginx::start(
        &release.repo.path(),
        &certificates,
        &format!("ssl_client_certificate {}; ssl_verify_client optional;", ca.display()),
    );
    let client = Client::new();
    let requests = Cell::new(0);
    let fetched = |access: Access| {
        let mut mirror = mirror_with_ca(&nginx.url(), &ca);
        mirror.access = Access { ca_files: mirror.access.ca_files, authorities: Authorities::None, ..access };
        target_of(&client, &settings(vec![mirror]), &release).unwrap();
        requests.set(requests.get() + 1);
        let seen = nginx.seen(requests.get());
        let fields: Vec<&str> = seen.last().unwrap().split('|').collect();
        (fields[4].to_owned(), fields[5].to_owned())
    };
    let pair = |authorization: &str, certificate: &str| (authorization.to_owned(), certificate.to_owned());
    let token = secret(&client, "token", "abc.DEF-123\n");
    let netrc =
        secret(&client, "netrc", "machine other login a password b\nmachine 127.0.0.1 login user password \"p w\"\n");
    assert_eq!(fetched(Access::default()), pair("-", "-"));
    assert_eq!(
        fetched(Access { token_file: Some(token.clone()), ..Access::default() }),
        pair("Bearer abc.DEF-123", "-")
    );
    // base64 of `user:p w`
    assert_eq!(fetched(Access { netrc: Some(netrc), ..Access::default() }), pair("Basic dXNlcjpwIHc=", "-"));
    let both = (certificates.file("client.pem"), certificates.file("client.key"));
    fs::set_permissions(&both.1, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fetched(Access { client_certificate: Some(both), ..Access::default() }), pair("-", "CN=client.example"));

    let refused = |url: &str, token: &Path| {
        let access = Access { token_file: Some(token.to_owned()), ..Access::default() };
        let settings = settings(vec![Mirror { access, ..mirror(url) }]);
        let tell = |_: &Notice| ();
        let error = Fetcher::new(&settings, &Place::open(client.cache.path(), Effect::Apply).unwrap().unwrap(), &tell)
            .err()
            .unwrap()
            .to_string();
        assert!(!error.contains("abc.DEF"), "{error}");
        error
    };
    assert!(refused("http://127.0.0.1:9", &token).contains("plain HTTP"));
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused("https://127.0.0.1:9", &token).contains("other users may read"));
    let broken = secret(&client, "bad-token", "abc.DEF\u{7f} x\r\nX: y");
    assert!(refused("https://127.0.0.1:9", &broken).contains("no token"));
}

#[test]
fn fetch_believes_no_unknown_authority_and_no_other_host() {
    let release = Release::new(1);
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let nginx = Nginx::start(&release.repo.path(), &certificates, "");
    let error = |url: &str, ca: PathBuf| {
        let client = Client::new();
        let error = target_of(&client, &settings(vec![mirror_with_ca(url, &ca)]), &release).unwrap_err().to_string();
        assert!(error.contains("certificate is untrusted"), "{error}");
        assert!(client.was_told(|notice| matches!(notice, Notice::GivenUp { .. })));
    };
    error(&nginx.url(), others.file("ca.pem"));
    // A name that the certificate does not have.
    error(&nginx.url().replace("127.0.0.1", "localhost"), certificates.file("ca.pem"));
    // The system's authorities don't know ours; beside ours they do no harm.
    let client = Client::new();
    assert!(target_of(&client, &settings(vec![mirror(&nginx.url())]), &release).is_err());
    let mut both = mirror_with_ca(&nginx.url(), &certificates.file("ca.pem"));
    both.access.authorities = Authorities::System;
    assert!(target_of(&client, &settings(vec![both]), &release).is_ok());
}

#[test]
fn fetch_follows_few_redirects_none_to_plain_http_and_tells_strangers_nothing() {
    let release = Release::new(1);
    let certificates = Certificates::new();
    let root = release.repo.path();
    let asks = format!("ssl_client_certificate {}; ssl_verify_client optional;", certificates.file("ca.pem").display());
    let second = Nginx::start(&root, &certificates, &asks);
    let rules = format!(
        "location /away/ {{ rewrite ^/away/(.*)$ {}/$1 redirect; }}\n\
         location /plain/ {{ rewrite ^/plain/(.*)$ http://127.0.0.1:9/$1 redirect; }}\n\
         location /user/ {{ rewrite ^/user/(.*)$ https://user:word@127.0.0.1:$server_port/$1 redirect; }}\n\
         location /round/ {{ rewrite ^ https://127.0.0.1:$server_port/round/again redirect; }}\n\
         location /home/ {{ rewrite ^/home/(.*)$ https://127.0.0.1:$server_port/$1 redirect; }}",
        second.url()
    );
    let first = Nginx::start(&root, &certificates, &format!("{asks}\n{rules}"));
    let client = Client::new();
    let token = secret(&client, "token", "abc\n");
    fs::set_permissions(certificates.file("client.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let fetched = |way: &str| {
        let mut mirror = mirror_with_ca(&format!("{}/{way}/", first.url()), &certificates.file("ca.pem"));
        mirror.access.token_file = Some(token.clone());
        mirror.access.client_certificate = Some((certificates.file("client.pem"), certificates.file("client.key")));
        target_of(&client, &settings(vec![mirror]), &release).map_err(|error| error.to_string())
    };
    let told = |nginx: &Nginx, requests| {
        let seen = nginx.seen(requests);
        let fields: Vec<&str> = seen.last().unwrap().split('|').collect();
        (fields[4].to_owned(), fields[5].to_owned())
    };
    let pair = |authorization: &str, certificate: &str| (authorization.to_owned(), certificate.to_owned());
    assert!(fetched("home").is_ok());
    assert_eq!(told(&first, 2), pair("Bearer abc", "CN=client.example"));
    assert!(fetched("away").is_ok());
    assert_eq!(told(&second, 1), pair("-", "-"), "another host was told our token, or shown our certificate");
    assert!(fetched("user").unwrap_err().contains("with a user in it"));
    assert!(fetched("plain").unwrap_err().contains("from https to http"));
    assert!(fetched("round").unwrap_err().contains("more than 3 times"));
    assert_eq!(first.seen(9).len(), 9, "2 for home, 1 each for away, user and plain, 4 here");
}
