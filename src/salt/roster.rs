//! salt-ssh's flat roster: hosts by id, as `/etc/salt/roster` has them.

use super::yaml::{Value, YamlError};
use std::path::PathBuf;

/// Keys that concern what salt-ssh copies to a host, and nothing that is brought here.
const OF_SALT_SSH: [&str; 13] = [
    "cmd_umask",
    "grains",
    "minion_opts",
    "mine_functions",
    "mods",
    "pillar",
    "set_path",
    "ssh_pre_flight",
    "ssh_pre_flight_args",
    "thin_dir",
    "thin_extra_modules",
    "relenv",
    "wipe",
];

/// Longest part of a wrong line that is shown.
const LINE_CHARACTERS_MAX: usize = 120;

/// A host of a roster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its name or address.
    pub host: String,
    /// The user.
    pub user: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// The private key.
    pub key: Option<PathBuf>,
    /// Whether `sudo` is used.
    pub sudo: bool,
    /// Seconds in which a connection must stand.
    pub timeout: Option<u64>,
}

/// A roster: its hosts, and the keys in it that say nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    /// The hosts, in the order written.
    pub hosts: Vec<Entry>,
    /// The ignored keys, `ID: KEY`.
    pub ignored: Vec<String>,
}

/// Reads a roster. The error says what is wrong, and where.
pub fn parse(text: &str) -> Result<Roster, String> {
    if text.contains("{%") || text.contains("{{") {
        return Err(
            "it is a template; only a plain (flat) roster can be read: write out what the template makes".to_owned()
        );
    }
    let hosts = match Value::parse(text).map_err(|error| unreadable(text, &error))? {
        Value::Map(hosts) => hosts,
        Value::Null => Vec::new(),
        other => return Err(format!("it is {}, not a mapping of ids", other.kind())),
    };
    let mut roster = Roster::default();
    for (id, value) in hosts {
        let entry = match value {
            Value::Text(host) => Entry { host, id: id.clone(), ..Entry::default() },
            Value::Null => Entry { host: id.clone(), id: id.clone(), ..Entry::default() },
            Value::Map(pairs) => entry(&id, pairs, &mut roster.ignored)?,
            other => return Err(format!("{id}: it is {}, not a mapping", other.kind())),
        };
        roster.hosts.push(entry);
    }
    Ok(roster)
}

/// The line that is no mapping of hosts, in words of rosters; the reader's own words come last.
fn unreadable(text: &str, YamlError { line, cause }: &YamlError) -> String {
    let shown: String =
        text.lines().nth(line.saturating_sub(1)).unwrap_or_default().chars().take(LINE_CHARACTERS_MAX).collect();
    format!("line {line}, {}: it is no YAML of hosts ({cause})", shown.trim())
}

fn entry(id: &str, pairs: Vec<(String, Value)>, ignored: &mut Vec<String>) -> Result<Entry, String> {
    let mut entry = Entry { id: id.to_owned(), host: id.to_owned(), ..Entry::default() };
    for (key, value) in pairs {
        let wrong = |wanted: &str| format!("{id}: `{key}` is {}, not {wanted}", value.kind());
        let text = || match &value {
            Value::Text(text) => Ok(text.clone()),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => Err(wrong("a text")),
        };
        let number = || text()?.parse::<u64>().map_err(|_| wrong("a number"));
        match key.as_str() {
            "host" => entry.host = text()?,
            "user" => entry.user = Some(text()?),
            "port" => entry.port = Some(u16::try_from(number()?).map_err(|_| wrong("a port"))?),
            "priv" => entry.key = Some(PathBuf::from(text()?)).filter(|path| path.to_str() != Some("agent-forwarding")),
            "timeout" => entry.timeout = Some(number()?.max(1)),
            "sudo" => match value {
                Value::Bool(sudo) => entry.sudo = sudo,
                Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => return Err(wrong("true or false")),
            },
            _ if OF_SALT_SSH.contains(&key.as_str()) => ignored.push(format!("{id}: {key}")),
            // A connection without this would not be the one that is meant: `passwd`, `tty`, `sudo_user`, `ssh_options`.
            _ => {
                return Err(format!(
                    "{id}: the key `{key}` is not supported; set it in ssh's configuration, or leave it out"
                ));
            }
        }
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_roster_is_read_and_no_key_is_ignored_in_silence() {
        let text = "web1: 10.0.0.1\nweb2:\n  host: 10.0.0.2\n  user: adm\n  port: 2222\n  priv: /k\n  sudo: True\n  timeout: 5\n  thin_dir: /x\nweb3:\n";
        let roster = parse(text).unwrap();
        let web2 = Entry {
            id: "web2".into(),
            host: "10.0.0.2".into(),
            user: Some("adm".into()),
            port: Some(2222),
            key: Some("/k".into()),
            sudo: true,
            timeout: Some(5),
        };
        assert_eq!(roster.hosts[1], web2);
        let hosts: Vec<&str> = roster.hosts.iter().map(|entry| entry.host.as_str()).collect();
        assert_eq!((hosts, roster.ignored), (vec!["10.0.0.1", "10.0.0.2", "web3"], vec!["web2: thin_dir".to_owned()]));
        for (bad, words) in [
            ("a: {host: x, passwd: y}", "a: the key `passwd` is not supported"),
            ("a: {host: x, port: many}", "a: `port` is a text, not a number"),
            ("a: {host: x, port: 70000}", "not a port"),
            ("a: {host: x, sudo: 1}", "not true or false"),
            ("- a", "not a mapping"),
            ("{% for i in x %}", "template"),
            ("a: [", "line"),
            ("a: x\n  b: y", "it is no YAML of hosts ("),
            ("a: {host: x\nb:\tc: d", "it is no YAML of hosts ("),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}
