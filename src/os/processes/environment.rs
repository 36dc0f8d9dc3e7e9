//! The environment variables of this process, and which of them a program gets. Loaders, interpreters and Salt obey variables without number, so
//! the list names what passes, and not what stays.

use super::account;
use crate::os::ground;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The search path of a program, if this process has none that is fit for it.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Any text.
    Text,
    /// A word: with a slash it names a file of translations or of a terminal.
    Word,
    /// A time zone; files only of the system's directory.
    Zone,
    /// Directories; those that another user could fill are left out.
    Directories,
    /// A directory that no other user could have filled.
    Directory,
}

/// What every program gets.
const ALL: [(&str, Shape); 17] = [
    ("PATH", Shape::Directories),
    ("HOME", Shape::Directory),
    ("TMPDIR", Shape::Directory),
    ("USER", Shape::Text),
    ("LOGNAME", Shape::Text),
    ("SUDO_USER", Shape::Text),
    ("SUDO_UID", Shape::Text),
    ("SUDO_GID", Shape::Text),
    ("LANG", Shape::Word),
    ("LANGUAGE", Shape::Word),
    ("LC_*", Shape::Word),
    ("TERM", Shape::Word),
    ("COLORTERM", Shape::Word),
    ("NO_COLOR", Shape::Text),
    ("COLUMNS", Shape::Text),
    ("LINES", Shape::Text),
    ("TZ", Shape::Zone),
];
/// The proxies, in both spellings.
const NETWORK: [&str; 5] = ["http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"];
/// The agent of ssh's keys, and Kerberos' tickets.
const KEYS: [(&str, Shape); 2] = [("SSH_AUTH_SOCK", Shape::Text), ("KRB5CCNAME", Shape::Text)];
/// By these a program finds the person who has to enter a PIN.
const PERSON: [(&str, Shape); 6] = [
    ("GPG_TTY", Shape::Text),
    ("DISPLAY", Shape::Text),
    ("WAYLAND_DISPLAY", Shape::Word),
    ("XAUTHORITY", Shape::Text),
    ("DBUS_SESSION_BUS_ADDRESS", Shape::Text),
    ("XDG_RUNTIME_DIR", Shape::Directory),
];
/// What builders of trees read.
const BUILD: [(&str, Shape); 18] = [
    ("SIDLE_*", Shape::Text),
    ("PIP_*", Shape::Text),
    ("CC", Shape::Text),
    ("CXX", Shape::Text),
    ("CFLAGS", Shape::Text),
    ("CPPFLAGS", Shape::Text),
    ("CXXFLAGS", Shape::Text),
    ("LDFLAGS", Shape::Text),
    ("MAKEFLAGS", Shape::Text),
    ("PYENV_ROOT", Shape::Directory),
    ("XDG_CACHE_HOME", Shape::Directory),
    ("CARGO_HOME", Shape::Directory),
    ("RUSTUP_HOME", Shape::Directory),
    ("RUSTFLAGS", Shape::Text),
    ("SSL_CERT_FILE", Shape::Text),
    ("SSL_CERT_DIR", Shape::Text),
    ("REQUESTS_CA_BUNDLE", Shape::Text),
    ("CURL_CA_BUNDLE", Shape::Text),
];
/// By these tests stop and kill this program's own processes.
#[cfg(feature = "crash-points")]
const TESTS: [(&str, Shape); 3] =
    [("SIDLE_CRASH_*", Shape::Text), ("SIDLE_STOP_*", Shape::Text), ("SIDLE_EFFECTS", Shape::Text)];
#[cfg(not(feature = "crash-points"))]
const TESTS: [(&str, Shape); 0] = [];

/// What a program needs beside what every program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The network: proxies.
    Network,
    /// The caller's keys.
    Keys,
    /// A person, who is asked.
    Person,
    /// What builders of trees read.
    Build,
}

/// What a program gets of this process's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    needs: Vec<Need>,
    names: Vec<String>,
}

/// The pattern that every name fits.
const EVERY_NAME: &str = "*";

/// Variables that the person at the command line passes on.
static NAMED: OnceLock<Vec<String>> = OnceLock::new();

/// Passes variables on to every program that this process starts: names, or beginnings of names before a `*`. Only the first call counts.
pub fn pass(names: Vec<String>) {
    let _ = NAMED.set(names);
}

/// The value of a variable, where it is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Passed {
    /// All variables. Only for what root or the service manager has set, and for this program itself.
    pub fn everything() -> Self {
        Self::default().with_names([EVERY_NAME.to_owned()])
    }

    /// The same, with what a need adds.
    #[must_use]
    pub fn with(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// The same, with these variables whatever they hold: names, or beginnings of names before a `*`.
    #[must_use]
    pub fn with_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names.extend(names);
        self
    }

    /// Whether all variables are passed.
    pub fn is_everything(&self) -> bool {
        self.names.iter().any(|name| name == EVERY_NAME)
    }

    /// Whether a variable that is set is passed by its name.
    pub fn names(&self, name: &str) -> bool {
        let named = NAMED.get().map(Vec::as_slice).unwrap_or_default();
        let is_named = named.iter().chain(&self.names).any(|pattern| fits(pattern, OsStr::new(name)));
        is_named && variable(name).is_some()
    }

    /// The variables with their values.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let named = NAMED.get().map(Vec::as_slice).unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        // Who is not root runs at his own risk what lies in directories of other users.
        let trusts = |path: &Path| user != account::ROOT || matches!(ground::trusted(path), Ok(Some(_)));
        let home = || account::of(user).map(|account| account.home);
        self.chosen(std::env::vars_os(), named, &trusts, &home)
    }

    fn chosen(
        &self,
        all: impl IntoIterator<Item = (OsString, OsString)>,
        named: &[String],
        trusts: &dyn Fn(&Path) -> bool,
        home: &dyn Fn() -> Option<PathBuf>,
    ) -> Vec<(OsString, OsString)> {
        let is_named = |name: &OsStr| named.iter().chain(&self.names).any(|pattern| fits(pattern, name));
        let mut chosen = Vec::new();
        for (name, value) in all {
            if is_named(&name) {
                chosen.push((name, value));
            } else if let Some(shape) = self.shape(&name) {
                let fit = shape.fit(&value, trusts);
                // A caller's home may be a stranger's: what root reads there would be the stranger's, too.
                let fit = fit.or_else(|| home().filter(|path| name == "HOME" && trusts(path)).map(Into::into));
                chosen.extend(fit.map(|value| (name, value)));
            }
        }
        if !chosen.iter().any(|(name, _)| name == "PATH") {
            chosen.push(("PATH".into(), SEARCH_PATH.into()));
        }
        chosen
    }

    fn shape(&self, name: &OsStr) -> Option<Shape> {
        let listed = |need| -> &'static [(&'static str, Shape)] {
            match need {
                Need::Network => &[],
                Need::Keys => &KEYS,
                Need::Person => &PERSON,
                Need::Build => &BUILD,
            }
        };
        let needed = self.needs.iter().flat_map(|need| listed(*need));
        let found = ALL.iter().chain(&TESTS).chain(needed).find(|(pattern, _)| fits(pattern, name));
        let is_proxy = || {
            let name = name.to_string_lossy();
            let is_either = |proxy: &&str| *name == **proxy || *name == proxy.to_uppercase();
            self.needs.contains(&Need::Network) && NETWORK.iter().any(is_either)
        };
        found.map(|(_, shape)| *shape).or_else(|| is_proxy().then_some(Shape::Text))
    }
}

fn fits(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.as_bytes().starts_with(beginning.as_bytes()),
        None => name == pattern,
    }
}

impl Shape {
    /// The value, as far as it has the shape.
    fn fit(self, value: &OsStr, trusts: &dyn Fn(&Path) -> bool) -> Option<OsString> {
        let bytes = value.as_bytes();
        // Old shells take this for a function, whatever the name.
        if bytes.starts_with(b"()") {
            return None;
        }
        let fits = match self {
            Self::Text => true,
            Self::Word => !bytes.iter().any(|byte| matches!(byte, b'/' | b'%')),
            Self::Zone => is_zone(bytes),
            Self::Directory => Path::new(value).is_absolute() && trusts(Path::new(value)),
            Self::Directories => {
                let kept = std::env::split_paths(value).filter(|path| path.is_absolute() && trusts(path));
                return std::env::join_paths(kept).ok().filter(|kept| !kept.is_empty());
            }
        };
        fits.then(|| value.to_owned())
    }
}

/// A rule of POSIX or the name of a zone: no path but one into the system's directory.
fn is_zone(bytes: &[u8]) -> bool {
    const ZONES: &[u8] = b"/usr/share/zoneinfo/";
    let bytes = bytes.strip_prefix(b":").unwrap_or(bytes);
    let is_plain = bytes.iter().all(u8::is_ascii_graphic);
    is_plain && (!bytes.starts_with(b"/") || bytes.starts_with(ZONES)) && !bytes.windows(2).any(|two| two == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(passed: &Passed, named: &[&str], all: &[(&str, &str)]) -> Vec<String> {
        let all = all.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let home = || Some(PathBuf::from("/root"));
        let chosen = passed.chosen(all, &named, &|path| !path.starts_with("/home"), &home);
        let mut chosen: Vec<String> = chosen
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect();
        chosen.sort();
        chosen
    }

    #[test]
    fn only_what_the_list_has_passes_and_only_if_its_value_is_harmless() {
        let all = [
            ("PATH", "/usr/bin:.::bin:/home/me/bin:/bin"),
            ("HOME", "/home/me"),
            ("TMPDIR", "/home/me/tmp"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "../../home/me/locale"),
            ("TERM", "() { id; }"),
            ("TZ", ":/home/me/zone"),
            ("OPENSSL_CONF", "/home/me/openssl.cnf"),
            ("BASH_FUNC_ls%%", "() { id; }"),
            ("SALT_EXTRAS_DIR", "/home/me/extras"),
            ("SIDLE_GATE", "/home/me/gate"),
            ("https_proxy", "http://proxy"),
            ("NEW_LOADER_OF_2031", "/home/me"),
        ];
        let usual = ["HOME=/root", "LANG=C.UTF-8", "PATH=/usr/bin:/bin"];
        assert_eq!(passed(&Passed::default(), &[], &all), usual);
        let network = passed(&Passed::default().with(Need::Network), &["NEW_*"], &all);
        let more = [usual[0], usual[1], "NEW_LOADER_OF_2031=/home/me", usual[2], "https_proxy=http://proxy"];
        assert_eq!(network, more);
        assert_eq!(passed(&Passed::everything(), &[], &all).len(), all.len());
    }

    #[test]
    fn a_program_always_has_a_search_path() {
        let default = format!("PATH={SEARCH_PATH}");
        for all in [&[("PATH", ".:/home/me")][..], &[]] {
            assert_eq!(passed(&Passed::default(), &[], all), [&*default]);
        }
    }

    #[test]
    fn a_time_zone_is_a_rule_a_name_or_a_file_of_the_system() {
        for good in ["UTC", "Europe/Berlin", ":Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3", "/usr/share/zoneinfo/UTC"]
        {
            assert!(is_zone(good.as_bytes()), "{good}");
        }
        for bad in ["/home/me/zone", ":/etc/shadow", "../me", "/usr/share/zoneinfo/../me", "a b"] {
            assert!(!is_zone(bad.as_bytes()), "{bad}");
        }
    }
}
