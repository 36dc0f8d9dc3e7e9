//! The command lines of OpenSSH's client. The first session of a host holds the connection, and the others share it.

use super::destination::{self, Destination};
use super::quote::command;
use super::{complaint, host_keys};
use crate::failure::Report;
use crate::os::dialogue::Patience;
use crate::os::environment::{Need, Passed};
use crate::os::process::{Directory, Program};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds between two questions to a host that is silent, and how many go unanswered before the connection counts as broken.
const ALIVE_SECONDS: u32 = 15;
const ALIVE_COUNT: u32 = 4;
/// Bounds of ssh's answer to `ssh -G`. Its configuration may run commands (`Match exec`), but no host is asked.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAXIMUM: usize = 1 << 20;

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
    /// Refuses options that are not known to be harmless.
    pub fn check(&self) -> Result<(), Report> {
        host_keys::strictness(&self.options)?;
        self.user.as_deref().map_or(Ok(()), |user| destination::check("the user", user))?;
        self.jump.as_deref().map_or(Ok(()), |jump| destination::check("the jump host", jump))
    }

    /// Asks ssh what it would do with this host, and refuses a host whose key it would not check.
    pub fn require_checked_key(&self, to: &Destination, socket: &Path) -> Result<(), Report> {
        let attempted = format!("ask ssh about {}", to.name);
        let patience = Patience::new(ANSWER_PATIENCE, ANSWER_PATIENCE);
        let mut dialogue =
            self.options_of(to, socket, "yes", &["-G", "-T"])?.argument("--").argument(&to.host).converse(patience)?;
        dialogue.close_input();
        let answer = dialogue.rest(ANSWER_BYTES_MAXIMUM).and_then(|answer| Ok((answer, dialogue.end()?)));
        let (answer, end) = answer.map_err(|error| complaint::of_broken(&attempted, &error, ANSWER_PATIENCE, ""))?;
        if end.code != Some(0) {
            let hint = "correct ssh's options and configuration: `ssh -G HOST` says the same";
            return Err(complaint::report(&attempted, end.code, &end.errors).hint(hint));
        }
        host_keys::judge(&to.name, &String::from_utf8_lossy(&answer))
    }

    /// The first session of a host: `line` is run there, and other sessions share its connection through `socket`.
    pub fn first(&self, to: &Destination, socket: &Path, line: &str) -> Result<Program, Report> {
        self.session(to, socket, "yes", line)
    }

    /// A session that shares the connection of the first one.
    pub fn next(&self, to: &Destination, socket: &Path, line: &str) -> Result<Program, Report> {
        self.session(to, socket, "no", line)
    }

    fn session(&self, to: &Destination, socket: &Path, master: &str, line: &str) -> Result<Program, Report> {
        Ok(self.options_of(to, socket, master, &["-T"])?.argument("--").argument(&to.host).argument(line))
    }

    /// ssh with all options for this host.
    fn options_of(&self, to: &Destination, socket: &Path, master: &str, first: &[&str]) -> Result<Program, Report> {
        let strictness = host_keys::strictness(&self.options)?;
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
            // Also where ssh's configuration says `no`: a changed key is never accepted, and nobody is there to be asked.
            format!("-oStrictHostKeyChecking={strictness}"),
            "-oNoHostAuthenticationForLocalhost=no".to_owned(),
            "-oVerifyHostKeyDNS=no".to_owned(),
            "-oBatchMode=yes".to_owned(),
            format!("-oControlMaster={master}"),
            format!("-oControlPath={}", socket.display()),
            "-oControlPersist=no".to_owned(),
            "-oRemoteCommand=none".to_owned(),
            // A host that belongs to somebody else must not reach others with this person's keys, whatever ssh's configuration says.
            "-oForwardAgent=no".to_owned(),
            "-oForwardX11=no".to_owned(),
            "-oClearAllForwardings=yes".to_owned(),
            "-oTunnel=no".to_owned(),
        ];
        let defaults = [
            format!("-oConnectTimeout={connect}"),
            format!("-oServerAliveInterval={ALIVE_SECONDS}"),
            format!("-oServerAliveCountMax={ALIVE_COUNT}"),
        ];
        let given = self.options.iter().flat_map(|option| ["-o".to_owned(), option.clone()]);
        let first = first.iter().map(|word| (*word).to_owned());
        for argument in first.chain(own).chain(given).chain(defaults) {
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
        Ok(program)
    }
}

/// The line that runs these words on a host, as root.
pub fn line(to: &Destination, words: &[&str]) -> String {
    let sudo: &[&str] = if to.sudo { &["sudo", "-n", "--"] } else { &[] };
    command(sudo.iter().chain(words).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;

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
    fn the_hosts_key_is_checked_whatever_is_given_and_configured() {
        let to = Destination::of_word("web1").unwrap();
        for (given, strict) in
            [(&[][..], "yes"), (&["Compression=yes", "StrictHostKeyChecking accept-new"], "accept-new")]
        {
            let program = ssh(given).next(&to, Path::new("/run/sidle/push-1/0"), "true").unwrap();
            let words: Vec<&str> = program.arguments.iter().filter_map(|word| word.to_str()).collect();
            assert_eq!(words[..2], ["-T", &format!("-oStrictHostKeyChecking={strict}")], "ssh takes the first value");
            for none in ["-oForwardAgent=no", "-oForwardX11=no", "-oClearAllForwardings=yes", "-oTunnel=no"] {
                assert!(words.contains(&none), "a host could reach others as this person: {words:?}");
            }
        }
        assert!(ssh(&["ForwardAgent=yes"]).next(&to, Path::new("/x"), "true").is_err());
        assert!(ssh(&["=StrictHostKeyChecking=no"]).next(&to, Path::new("/x"), "true").is_err());
        assert_eq!(ssh(&["=StrictHostKeyChecking=no"]).check().unwrap_err().class, Class::Usage);
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
        let program = program.unwrap();
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
