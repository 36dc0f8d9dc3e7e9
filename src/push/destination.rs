//! Whom a push goes to: a host as the command line or a roster names it.

use crate::failure::{Class, Report};
use std::path::PathBuf;

/// Longest name of a host, user or jump host. No name is as long; a longer one is a file that was taken for a list of hosts.
const NAME_BYTES_MAXIMUM: usize = 512;

/// A host, and how it differs from what ssh's own configuration says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destination {
    /// Its name in messages: as a person wrote it, or its id in the roster.
    pub name: String,
    /// The id of its first agent (minion); None: the agent's choice.
    pub id: Option<String>,
    /// The name for ssh: `HOST`, `USER@HOST`, an alias of ssh's configuration.
    pub host: String,
    /// The user.
    pub user: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// The private key.
    pub identity: Option<PathBuf>,
    /// Whether the user becomes root by `sudo`.
    pub sudo: bool,
    /// The seconds in which a connection must stand.
    pub connect_seconds: Option<u64>,
}

impl Destination {
    /// A host as a word of the command line.
    pub fn of_word(word: &str) -> Result<Self, Report> {
        check("the host", word)?;
        Ok(Self { name: word.to_owned(), host: word.to_owned(), ..Self::default() })
    }
}

/// Refuses names that ssh or a shell could take for something else.
pub fn check(what: &str, name: &str) -> Result<(), Report> {
    let refuse = |reason: &str| {
        Err(Report::of(Class::Usage, format!("cannot use {what} {name:?}: {reason}"))
            .hint("write HOST or USER@HOST, or an alias of ssh's configuration"))
    };
    let harmful = |c: char| c.is_control() || c.is_whitespace() || "'\"`$\\;&|<>(){}!*?#".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAXIMUM {
        return refuse("it is empty or too long");
    }
    if name.split('@').any(|part| part.starts_with('-')) {
        return refuse("it begins with `-`, like an option");
    }
    if name.chars().any(harmful) {
        return refuse("it has a character that no name of a host has");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_taken_for_an_option_or_a_command() {
        for good in ["web1", "root@web1.example.org", "ssh://root@[::1]:2222", "10.0.0.1", "alias_1"] {
            assert_eq!(Destination::of_word(good).unwrap().host, good);
        }
        for bad in ["", "-oProxyCommand=id", "root@-x", "a b", "a\nb", "$(id)", "a;b", "`id`", "a|b"] {
            assert_eq!(Destination::of_word(bad).unwrap_err().class, Class::Usage, "{bad:?}");
        }
    }
}
