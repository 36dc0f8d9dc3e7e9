//! The command lines of OpenSSH's client. The first session of a host holds the connection, and the others share it.

use super::destination::{self, Destination};
use super::quote::command;
use crate::failure::{Class, Report};
use crate::os::environment::{Need, Passed};
use crate::os::process::{Directory, Program};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds between two questions to a host that is silent, and how many go unanswered before the connection counts as broken.
const ALIVE_SECONDS: u32 = 15;
const ALIVE_COUNT: u32 = 4;

/// The options that all hosts have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssh {
    /// The client.
    pub program: PathBuf,
    /// Its configuration (`-F`), instead of the user's.
    pub configuration: Option<PathBuf>,
    /// The jump hosts (`-J`).
    pub jump: Option<String>,
    /// Private keys (`-i`).
    pub identities: Vec<PathBuf>,
    /// The user (`-l`).
    pub user: Option<String>,
    /// The port (`-p`).
    pub port: Option<u16>,
    /// Its own options (`-o`), checked by [`Ssh::check`].
    pub options: Vec<String>,
    /// The time in which a connection must stand.
    pub connect: Duration,
}

impl Ssh {
    /// Refuses options with which a changed host key would be accepted, or which are the push's own.
    pub fn check(&self) -> Result<(), Report> {
        for option in &self.options {
            let (key, value) = parts(option);
            // `no`, `off` and `false` accept a changed key; so may what a later ssh understands.
            let is_strict = |value: &str| ["yes", "true", "ask", "accept-new"].contains(&value);
            let refuse = |reason: &str| {
                Err(Report::of(Class::Usage, format!("cannot pass -o {option:?} to ssh: {reason}"))
                    .hint("leave it out; `-o StrictHostKeyChecking=accept-new` accepts the keys of new hosts, and of no others"))
            };
            match key.as_str() {
                "stricthostkeychecking" if !is_strict(&value) => {
                    return refuse("a host whose key has changed would be accepted");
                }
                "controlmaster"
                | "controlpath"
                | "controlpersist"
                | "batchmode"
                | "remotecommand"
                | "requesttty"
                | "sessiontype"
                | "stdinnull"
                | "forkafterauthentication" => {
                    return refuse("this option is set by `sidle push`");
                }
                _ => {}
            }
        }
        self.user.as_deref().map_or(Ok(()), |user| destination::check("the user", user))?;
        self.jump.as_deref().map_or(Ok(()), |jump| destination::check("the jump host", jump))
    }

    /// The first session of a host: `line` is run there, and other sessions share its connection through `socket`.
    pub fn first(&self, to: &Destination, socket: &Path, line: &str) -> Program {
        self.session(to, socket, "yes", line)
    }

    /// A session that shares the connection of the first one.
    pub fn next(&self, to: &Destination, socket: &Path, line: &str) -> Program {
        self.session(to, socket, "no", line)
    }

    fn session(&self, to: &Destination, socket: &Path, master: &str, line: &str) -> Program {
        let mut program = Program::new(&self.program).variable("SSH_ASKPASS_REQUIRE", "never");
        program.without = ["SSH_ASKPASS", "DISPLAY", "WAYLAND_DISPLAY"].map(Into::into).into();
        // Options name files from where the person is.
        program = program.working(Directory::Callers);
        program = program.passing(Passed::default().with(Need::Network).with(Need::Keys));
        if let Some(file) = &self.configuration {
            program = program.argument("-F").argument(file);
        }
        let connect = to.connect_seconds.unwrap_or_else(|| self.connect.as_secs().max(1));
        // ssh takes the first value of an option.
        let own = [
            "-T".to_owned(),
            "-oBatchMode=yes".to_owned(),
            format!("-oControlMaster={master}"),
            format!("-oControlPath={}", socket.display()),
            "-oControlPersist=no".to_owned(),
            "-oRemoteCommand=none".to_owned(),
        ];
        let defaults = [
            // Also where ssh's configuration says `no`: a changed key is never accepted, and nobody is there to be asked.
            "-oStrictHostKeyChecking=yes".to_owned(),
            format!("-oConnectTimeout={connect}"),
            format!("-oServerAliveInterval={ALIVE_SECONDS}"),
            format!("-oServerAliveCountMax={ALIVE_COUNT}"),
        ];
        let given = self.options.iter().flat_map(|option| ["-o".to_owned(), option.clone()]);
        for argument in own.into_iter().chain(given).chain(defaults) {
            program = program.argument(argument);
        }
        if let Some(jump) = &self.jump {
            program = program.argument("-J").argument(jump);
        }
        for identity in to.identity.iter().chain(&self.identities) {
            program = program.argument("-i").argument(identity);
        }
        if let Some(user) = to.user.as_ref().or(self.user.as_ref()) {
            program = program.argument("-l").argument(user);
        }
        if let Some(port) = to.port.or(self.port) {
            program = program.argument("-p").argument(port.to_string());
        }
        program.argument("--").argument(&to.host).argument(line)
    }
}

/// The line that runs these words on a host, as root.
pub fn line(to: &Destination, words: &[&str]) -> String {
    let sudo: &[&str] = if to.sudo { &["sudo", "-n", "--"] } else { &[] };
    command(sudo.iter().chain(words).copied())
}

/// An option of ssh and its value, as ssh reads them: `Key=value`, `Key value`.
fn parts(option: &str) -> (String, String) {
    let text = option.trim();
    let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
    let value =
        text[end..].trim_start_matches(|c: char| c.is_whitespace() || c == '=').trim().trim_matches(['"', '\'']);
    (text[..end].to_ascii_lowercase(), value.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(options: &[&str]) -> Ssh {
        Ssh {
            program: "ssh".into(),
            configuration: None,
            jump: None,
            identities: Vec::new(),
            user: None,
            port: None,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            connect: Duration::from_secs(15),
        }
    }

    #[test]
    fn no_option_accepts_a_changed_host_key() {
        for bad in [
            "StrictHostKeyChecking=no",
            "stricthostkeychecking no",
            " StrictHostKeyChecking = \"off\"",
            "STRICTHOSTKEYCHECKING=NO",
            "StrictHostKeyChecking=false",
            "StrictHostKeyChecking='no'",
            "ControlPath=none",
            "BatchMode=no",
            "RemoteCommand=id",
        ] {
            assert_eq!(ssh(&[bad]).check().unwrap_err().class, Class::Usage, "{bad}");
        }
        ssh(&["StrictHostKeyChecking=accept-new", "Compression=yes"]).check().unwrap();
    }

    #[test]
    fn the_host_is_no_option_and_the_options_of_ssh_come_before_ours() {
        let to = Destination {
            port: Some(22),
            user: Some("adm".into()),
            sudo: true,
            ..Destination::of_word("web1").unwrap()
        };
        let program =
            ssh(&["ConnectTimeout=3"]).next(&to, Path::new("/run/sidle/push-1/0"), &line(&to, &["sh", "-c", "a b"]));
        let words: Vec<String> = program.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words[words.len() - 3..], ["--", "web1", "sudo -n -- sh -c 'a b'"]);
        let place = |text: &str| words.iter().position(|word| word == text).unwrap();
        assert!(place("ConnectTimeout=3") < place("-oConnectTimeout=15"));
        assert!(words.contains(&"-oStrictHostKeyChecking=yes".to_owned()));
        assert!(
            words.windows(2).any(|pair| pair == ["-l", "adm"]) && words.windows(2).any(|pair| pair == ["-p", "22"])
        );
    }
}
