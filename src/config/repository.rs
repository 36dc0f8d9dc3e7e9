//! The settings of the repository that releases are fetched from.
//! [`super::keys`] documents each of them.

use super::units::{Bytes, Time};
use crate::failure::Report;
use crate::fetch::settings::{Access, Authorities, Mirror, Patience, Proxy};
use crate::fetch::{DownloadSettings, FetchError, Location};
use crate::trust::pattern::ReleasePattern;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::path::{Path, PathBuf};

/// One file's part of these settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepositoryFragment {
    url: Option<String>,
    mirrors: Option<Vec<MirrorFragment>>,
    ca_file: Option<Paths>,
    system_ca: Option<bool>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    netrc: Option<PathBuf>,
    proxy: Option<String>,
    rate_limit: Option<Bytes>,
    splay: Option<Time>,
    connect_timeout: Option<Time>,
    stall_timeout: Option<Time>,
    total_timeout: Option<Time>,
    attempts: Option<u32>,
    #[serde(default)]
    releases: Vec<ReleasePattern>,
}

/// A mirror: a URL, or a table with one.
#[derive(Debug, Clone, Default)]
struct MirrorFragment(MirrorTable);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorTable {
    url: String,
    ca_file: Option<Paths>,
    system_ca: Option<bool>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    netrc: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for MirrorFragment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOfTwo;
        impl<'de> Visitor<'de> for OneOfTwo {
            type Value = MirrorFragment;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a URL, or a table with `url`")
            }
            fn visit_str<E: de::Error>(self, url: &str) -> Result<Self::Value, E> {
                Ok(MirrorFragment(MirrorTable { url: url.to_owned(), ..MirrorTable::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                MirrorTable::deserialize(MapAccessDeserializer::new(map)).map(MirrorFragment)
            }
        }
        deserializer.deserialize_any(OneOfTwo)
    }
}

/// A file, or a list of files.
#[derive(Debug, Clone, Default)]
struct Paths(Vec<PathBuf>);

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Paths;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a file's path, or a list of them")
            }
            fn visit_str<E: de::Error>(self, path: &str) -> Result<Self::Value, E> {
                Ok(Paths(vec![path.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = sequence.next_element()? {
                    paths.push(path);
                }
                Ok(Paths(paths))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl RepositoryFragment {
    /// The download settings; an error if no mirror is named.
    pub(super) fn settings(&self) -> Result<DownloadSettings, Report> {
        self.with(self.mirrors()?)
    }

    /// The settings with the mirrors at these places instead. Credentials go only to those that the settings name, too.
    pub(super) fn instead(&self, places: &[Location]) -> Result<DownloadSettings, Report> {
        let listed = if self.is_named() { self.mirrors()? } else { Vec::new() };
        let at = |place: &Location| {
            let same = listed.iter().find(|mirror| mirror.location == *place).cloned();
            same.unwrap_or_else(|| Mirror { location: place.clone(), access: self.stranger() })
        };
        self.with(places.iter().map(at).collect())
    }

    /// True if the settings name a repository.
    pub(super) fn is_named(&self) -> bool {
        self.url.is_some() || self.mirrors.is_some()
    }

    /// The patterns of the releases that may be chosen where none is named.
    pub(super) fn releases(&self) -> &[ReleasePattern] {
        &self.releases
    }

    fn stranger(&self) -> Access {
        let ca_files = self.ca_file.clone().unwrap_or_default().0;
        Access { ca_files, authorities: authorities(self.system_ca), ..Access::default() }
    }

    fn mirrors(&self) -> Result<Vec<Mirror>, Report> {
        let named = match (&self.url, &self.mirrors) {
            (Some(_), Some(_)) => return Err(refuse("[repository]", "it has both `url` and `mirrors`").into()),
            (Some(url), None) => {
                vec![MirrorFragment(MirrorTable { url: url.clone(), ..MirrorTable::default() })]
            }
            (None, mirrors) => mirrors.clone().unwrap_or_default(),
        };
        if named.is_empty() {
            return Err(FetchError::NoMirror.into());
        }
        Ok(named.into_iter().map(|MirrorFragment(table)| self.mirror(table)).collect::<Result<_, _>>()?)
    }

    fn with(&self, mirrors: Vec<Mirror>) -> Result<DownloadSettings, Report> {
        for (key, path) in mirrors.iter().flat_map(|mirror| paths(&mirror.access)) {
            if path.is_relative() {
                let reason = format!("{} is not absolute: begin it with /", path.display());
                return Err(refuse(&format!("{key} in [repository]"), &reason).into());
            }
        }
        let default = Patience::default();
        let or = |text: Option<Time>, default| text.map_or(default, |text| text.0);
        Ok(DownloadSettings {
            mirrors,
            proxy: self.proxy.as_deref().map_or(Ok(Proxy::Environment), proxy)?,
            rate_limit: self.rate_limit.map(|limit| limit.0),
            splay: or(self.splay, std::time::Duration::ZERO),
            patience: Patience {
                connect: or(self.connect_timeout, default.connect),
                stall: or(self.stall_timeout, default.stall),
                total: or(self.total_timeout, default.total),
                attempts: self.attempts.unwrap_or(default.attempts).max(1),
                pause: default.pause,
            },
        })
    }

    fn mirror(&self, table: MirrorTable) -> Result<Mirror, FetchError> {
        let location: Location = table.url.parse()?;
        // A mirror's own credentials replace those for all: none of the latter goes where the former do.
        let own_login = table.token_file.is_some() || table.netrc.is_some();
        let (token_file, netrc) =
            if own_login { (table.token_file, table.netrc) } else { (self.token_file.clone(), self.netrc.clone()) };
        let certificate = table.client_certificate.or_else(|| self.client_certificate.clone());
        let key = table.client_key.or_else(|| self.client_key.clone());
        let client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(refuse("[repository]", "`client_certificate` and `client_key` belong together")),
        };
        let ca_files = table.ca_file.or_else(|| self.ca_file.clone()).unwrap_or_default().0;
        let authorities = authorities(table.system_ca.or(self.system_ca));
        let access = match &location {
            Location::Http(_) => Access { ca_files, authorities, client_certificate, token_file, netrc },
            Location::Directory(_) => Access::default(),
            Location::Stdio | Location::StdioByHand => {
                let reason = "it is the program that starts a command: settings can't name it";
                return Err(FetchError::Settings {
                    subject: "`stdio:` in [repository]".to_owned(),
                    reason: reason.to_owned(),
                    hint: Some("leave it out; `--repository stdio:` names it for one command".to_owned()),
                });
            }
        };
        Ok(Mirror { location, access })
    }
}

fn authorities(system_ca: Option<bool>) -> Authorities {
    match system_ca {
        Some(false) => Authorities::None,
        Some(true) | None => Authorities::System,
    }
}

/// The paths of credentials, by the key that names each.
fn paths(access: &Access) -> Vec<(&'static str, &Path)> {
    let Access { ca_files, authorities: _, client_certificate, token_file, netrc } = access;
    let mut paths: Vec<(&str, &Path)> = ca_files.iter().map(|path| ("ca_file", path.as_path())).collect();
    if let Some((certificate, key)) = client_certificate {
        paths.extend([("client_certificate", certificate.as_path()), ("client_key", key)]);
    }
    paths.extend(token_file.as_deref().map(|path| ("token_file", path)));
    paths.extend(netrc.as_deref().map(|path| ("netrc", path)));
    paths
}

/// Its URL is not told where it is refused: there may be a password in it.
fn proxy(text: &str) -> Result<Proxy, FetchError> {
    if text == "none" {
        return Ok(Proxy::None);
    }
    let wrong = || {
        let reason = "it is none of http://HOST:PORT, https://HOST:PORT, socks5h://HOST:PORT and \"none\"; user or password belong into `netrc`";
        refuse("proxy in [repository]", reason)
    };
    // A proxy is no mirror, but its URL has the same secrets in it.
    match text.replacen("socks5h://", "http://", 1).parse() {
        Ok(Location::Http(_)) => {}
        Ok(Location::Directory(_) | Location::Stdio | Location::StdioByHand) | Err(_) => return Err(wrong()),
    }
    Ok(Proxy::Through(text.parse().map_err(|_| wrong())?))
}

fn refuse(subject: &str, reason: &str) -> FetchError {
    FetchError::Settings { subject: subject.to_owned(), reason: reason.to_owned(), hint: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RepositoryFragment {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn paths_that_depend_on_where_one_stands_and_proxies_of_another_kind_are_refused() {
        for (text, told) in [
            ("ca_file = \"ca.pem\"", "ca_file in [repository]: ca.pem is not absolute"),
            ("netrc = \"./n\"", "netrc in [repository]: ./n is not absolute"),
            ("client_certificate = \"/c\"\nclient_key = \"k\"", "client_key in [repository]: k is not absolute"),
            ("proxy = \"socks5://me:secret@there:1\"", "proxy in [repository]: it is none of http://HOST:PORT"),
        ] {
            let refused = read(&format!("url = \"https://a.example/x\"\n{text}\n")).settings().unwrap_err().to_string();
            assert!(refused.contains(told) && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_mirrors_own_credentials_replace_those_for_all() {
        let text = "netrc = \"/n\"\nca_file = [\"/a\", \"/b\"]\nmirrors = [\"https://a.example/x\", \
                    { url = \"https://b.example\", token_file = \"/t\", ca_file = \"/c\", system_ca = false }, \"file:///m\"]\n";
        let settings = read(text).settings().unwrap();
        let names: Vec<_> = settings.mirrors.iter().map(|mirror| mirror.location.to_string()).collect();
        assert_eq!(names, ["https://a.example/x", "https://b.example", "file:///m"]);
        let access = |index: usize| settings.mirrors[index].access.clone();
        assert_eq!((access(0).netrc, access(0).token_file), (Some("/n".into()), None));
        assert_eq!(access(0).ca_files, [PathBuf::from("/a"), "/b".into()]);
        assert_eq!((access(1).netrc, access(1).token_file), (None, Some("/t".into())));
        assert_eq!((access(1).ca_files, access(1).authorities), (vec!["/c".into()], Authorities::None));
        assert_eq!(access(2), Access::default());
    }

    #[test]
    fn mirrors_named_for_once_get_credentials_only_where_the_settings_name_them_too() {
        let text = "token_file = \"/t\"\nca_file = \"/a\"\nurl = \"https://a.example/x\"\nrate_limit = \"1MiB\"\n";
        let places: Vec<Location> =
            ["https://b.example", "https://a.example/x"].iter().map(|text| text.parse().unwrap()).collect();
        let settings = read(text).instead(&places).unwrap();
        let access = |index: usize| settings.mirrors[index].access.clone();
        assert_eq!((access(0).token_file, access(0).ca_files), (None, vec!["/a".into()]));
        assert_eq!(access(1).token_file, Some("/t".into()));
        assert_eq!(settings.rate_limit, Some(1 << 20));
        assert_eq!(read("").instead(&places).unwrap().mirrors.len(), 2);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_says_why() {
        for (text, said) in [
            ("", "name no repository"),
            ("url = \"https://a\"\nmirrors = []", "both"),
            ("url = \"https://a\"\nclient_key = \"/k\"", "belong together"),
            ("url = \"https://a\"\nproxy = \"http://me:geheim@p\"", "user or password"),
            ("url = \"https://a\"\nproxy = \"/dev/null\"", "none of"),
            ("mirrors = [\"https://a\", \"stdio:\"]", "settings can't name it"),
        ] {
            let report = read(text).settings().unwrap_err();
            assert!(report.to_string().contains(said) && !report.to_string().contains("geheim"), "{report}");
        }
        for (text, said) in [
            ("mirrors = [{ url = \"https://a\", tokenfile = \"/t\" }]", "tokenfile"),
            ("mirrors = [1]", "a URL, or a table"),
            ("rate_limit = \"2\"", "MiB"),
            ("rate_limit = \"0B\"", "MiB"),
            ("bandwidth = 1", "bandwidth"),
        ] {
            let error = toml::from_str::<RepositoryFragment>(text).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
