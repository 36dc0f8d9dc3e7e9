//! Credentials: files with tokens, passwords and keys. Secrets are read here, and printed nowhere.

use crate::fetch::error::FetchError;
use crate::fetch::settings::Access;
use crate::os::file;
use std::fmt;
use std::path::Path;

/// Largest file with credentials or certificates that is read. A bundle of all public authorities has some 200 KiB.
const FILE_BYTES_MAXIMUM: u64 = 1 << 20;

/// The credentials for one mirror, and the authorities that certify it.
pub(in crate::fetch) struct Credentials {
    /// The value of the Authorization header.
    pub(in crate::fetch) login: Option<Login>,
    /// Certificates of authorities, PEM.
    pub(in crate::fetch) authorities: Vec<Vec<u8>>,
    /// Our certificate chain and key, PEM.
    pub(in crate::fetch) identity: Option<Vec<u8>>,
}

/// A login.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::fetch) enum Login {
    Bearer(String),
    Basic { user: String, password: String },
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bearer(_) => "Bearer(…)",
            Self::Basic { .. } => "Basic(…)",
        })
    }
}

impl Credentials {
    /// Reads the files of `access` for `host`. `is_private`: the connection is encrypted; without that no secret is sent.
    pub(in crate::fetch) fn read(access: &Access, host: &str, is_private: bool) -> Result<Self, FetchError> {
        if !is_private && (access.token_file.is_some() || access.client_certificate.is_some()) {
            return Err(FetchError::Settings {
                subject: format!("credentials for the mirror at {host}"),
                reason: "they would be sent over plain HTTP".to_owned(),
                hint: Some("use https://".to_owned()),
            });
        }
        let authorities =
            access.ca_files.iter().map(|path| file::read(path, FILE_BYTES_MAXIMUM)).collect::<Result<_, _>>()?;
        let identity = match &access.client_certificate {
            Some((certificate, key)) => {
                let mut pem = file::read_secret(key, FILE_BYTES_MAXIMUM)?;
                pem.push(b'\n');
                pem.extend(file::read(certificate, FILE_BYTES_MAXIMUM)?);
                Some(pem)
            }
            None => None,
        };
        let login = match (&access.token_file, &access.netrc) {
            (Some(path), _) => Some(Login::Bearer(token(path)?)),
            (None, Some(path)) if is_private => login_of(path, host)?,
            (None, _) => None,
        };
        Ok(Self { login, authorities, identity })
    }
}

/// The user and password that a netrc file has for `host`.
pub(in crate::fetch) fn login_of(path: &Path, host: &str) -> Result<Option<Login>, FetchError> {
    let text = text(path, file::read_secret(path, FILE_BYTES_MAXIMUM)?)?;
    Ok(netrc(&text, host).map(|(user, password)| Login::Basic { user, password }))
}

fn token(path: &Path) -> Result<String, FetchError> {
    let text = text(path, file::read_secret(path, FILE_BYTES_MAXIMUM)?)?;
    let token = text.lines().next().unwrap_or_default().trim();
    // RFC 6750 §2.1; other characters could break out of the header.
    if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token.to_owned());
    }
    Err(unusable(path, "its first line is no token"))
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, FetchError> {
    String::from_utf8(bytes).map_err(|_| unusable(path, "it is no UTF-8 text"))
}

fn unusable(path: &Path, reason: &str) -> FetchError {
    FetchError::Settings { subject: path.display().to_string(), reason: reason.to_owned(), hint: None }
}

/// The user and password for `host`: of its `machine`, else of `default`. Words may be in double quotes, with `\` before a literal character;
/// macros end with an empty line; unknown words are skipped.
fn netrc(text: &str, host: &str) -> Option<(String, String)> {
    let mut words = words(text).into_iter();
    let (mut applies, mut user, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "machine" | "default" => {
                if applies && user.is_some() {
                    break;
                }
                applies = word == "default" || words.next().is_some_and(|name| name.eq_ignore_ascii_case(host));
                (user, password) = (None, None);
            }
            "login" => user = words.next().filter(|_| applies),
            "password" => password = words.next().filter(|_| applies),
            "account" => drop(words.next()),
            _ => {}
        }
    }
    user.map(|user| (user, password.unwrap_or_default()))
}

/// The words of a netrc file without comments and macros.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut in_macro = false;
    for line in text.lines() {
        if in_macro {
            in_macro = !line.trim().is_empty();
            continue;
        }
        let mut rest = line.trim_start();
        // Only a whole line is a comment: a password may begin with `#`.
        if rest.starts_with('#') {
            continue;
        }
        while !rest.is_empty() {
            let (word, after) = word(rest);
            if word == "macdef" {
                in_macro = true;
                break;
            }
            words.push(word);
            rest = after.trim_start();
        }
    }
    words
}

fn word(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut word = String::new();
    let mut characters = quoted.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return (word, &quoted[place + 1..]),
            '\\' => word.extend(characters.next().map(|(_, next)| next)),
            other => word.push(other),
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netrc_gives_a_hosts_own_login_else_the_default_one() {
        let text = "# comment\nmachine a.example login ann password \"p \\\"1\"\nmacdef init\nmachine b.example login no password no\n\n\
                    machine b.example\n\tlogin bob\n\taccount x\n\tpassword #2\nmachine c.example password p login cleo\n\
                    default login dee password d\n";
        let found = |host: &str| netrc(text, host).unwrap();
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(found("a.example"), pair("ann", "p \"1"));
        assert_eq!(found("A.example"), pair("ann", "p \"1"));
        assert_eq!(found("c.example"), pair("cleo", "p"));
        assert_eq!(found("d.example"), pair("dee", "d"));
        assert_eq!(found("b.example"), pair("bob", "#2"));
        assert_eq!(netrc("machine a login x", "b"), None);
        assert_eq!(netrc("", "b"), None);
    }

    #[test]
    fn a_login_is_never_printed() {
        let printed = format!(
            "{:?}{:?}",
            Login::Bearer("geheim".to_owned()),
            Login::Basic { user: "u".to_owned(), password: "geheim".to_owned() }
        );
        assert!(!printed.contains("geheim"));
    }
}
