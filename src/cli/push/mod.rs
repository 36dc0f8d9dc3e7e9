//! `sidle push`: sidle and a release for hosts that have nothing, over ssh.

mod sockets;
mod source;
mod told;

use super::dry_run::DryRun;
use super::order::ModeName;
use super::setup::fingerprint;
use super::terminal::rows::Rows;
use super::{Context, Ended, trust, usage};
use crate::agent::introduction::Acceptor;
use crate::config;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::file;
use crate::push::{self, Action, Call, Destination, Programs, Push, Ssh, Start};
use crate::salt::sign_in::accepting::SaltKey;
use crate::salt::{agentless, roster};
use crate::switch::Mode;
use crate::version::Release;
use clap::{Args, ValueEnum};
use sockets::Sockets;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest roster that is read: 10,000 hosts have some 2 MB.
const ROSTER_BYTES_MAXIMUM: u64 = 64 << 20;
/// The defaults of `--patience`: a takeover may wait for running jobs as long as `switch_deadline` says.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
const PATIENCE_OF_ADOPT: Duration = Duration::from_secs(45 * 60);
/// The default of `--wait` with `--accept`: an accepted key is let in a moment later, and other masters may have it accepted, too.
const WAIT: Duration = Duration::from_secs(2 * 60);

/// `sidle push HOST… --repository WHERE --fingerprint SHA256`
#[derive(Debug, Args)]
pub struct PushArguments {
    /// The hosts: HOST, USER@HOST, or an alias of ssh's configuration
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// Push to the hosts of this roster of salt-ssh, too (plain YAML)
    #[arg(long, value_name = "FILE")]
    roster: Option<PathBuf>,
    /// The repository, as this host reaches it: `https://…`, `file:///DIR`, or a bundle file
    #[arg(long, value_name = "URL|FILE")]
    repository: String,
    /// SHA-256 of the repository's 1.root.json
    #[arg(long, value_name = "SHA256")]
    fingerprint: String,
    /// The package
    #[arg(long, default_value = "salt-minion")]
    package: PackageName,
    /// The release [default: the newest that fits each host]
    #[arg(long)]
    release: Option<Release>,
    /// What to do on each host
    #[arg(long, value_enum, default_value = "install")]
    action: ActionName,
    /// With --action adopt: how to take over [default: overlap]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    #[command(flatten)]
    start: StartArguments,
    /// Then name this repository in the settings of each host, which must reach it
    #[arg(long, value_name = "URL")]
    configure: Option<String>,
    /// The static program for hosts that have none, or an older one; repeat the option for each kind of machine [default: this program]
    #[arg(long, value_name = "FILE")]
    program: Vec<PathBuf>,
    /// Become root on the hosts by `sudo -n`
    #[arg(long)]
    sudo: bool,
    /// How many hosts at a time
    #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000))]
    parallel: u16,
    /// The time in which a connection must stand
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = config::duration)]
    connect_timeout: Duration,
    /// Give a host up after a silence of this time [default: 10m; 45m with --action adopt; --wait longer with --action start]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    patience: Option<Duration>,
    /// Give a host up after this time in all, also if it still answers
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = config::duration)]
    total_timeout: Duration,
    #[command(flatten)]
    ssh: SshArguments,
    #[command(flatten)]
    dry: DryRun,
    /// With --action call: the words after `salt-call --local`
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Options of `--action start`.
#[derive(Debug, Args)]
struct StartArguments {
    /// With --action start: the minion's masters, names or addresses
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    master: Vec<String>,
    /// With --action start: the minion's id, for one host [default: its id in the roster; of a host that the command line names, Salt's choice]
    #[arg(long, requires = "master")]
    id: Option<String>,
    /// With --action start: the fingerprint of the masters' key [default: believe the first key that a master shows]
    #[arg(long, value_name = "FINGERPRINT", requires = "master", value_parser = fingerprint)]
    pin_master: Option<String>,
    /// With --action start: accept the keys of these hosts at the master on this machine, each if its fingerprint is the one that the host tells over ssh
    #[arg(long, requires = "master")]
    accept: bool,
    /// For --accept: the configuration directory of the master [default: that of `salt-key`, /etc/salt]
    #[arg(long, value_name = "DIRECTORY", requires = "accept")]
    master_config: Option<PathBuf>,
    /// With --action start: how long a key may wait until it is accepted [default: 0s; 2m with --accept]
    #[arg(long, value_name = "TIME", requires = "master", value_parser = config::duration)]
    wait: Option<Duration>,
}

impl StartArguments {
    /// How long a key may wait: without `--accept` a person accepts it, and then runs the same again.
    fn wait(&self) -> Duration {
        self.wait.unwrap_or(if self.accept { WAIT } else { Duration::ZERO })
    }

    fn acceptor(&self) -> Result<Option<Box<dyn Acceptor>>, Report> {
        if !self.accept {
            return Ok(None);
        }
        // salt-key would take its own default for a directory that is not there.
        let configuration = self.master_config.as_deref().map(file::canonical).transpose()?;
        Ok(Some(Box::new(SaltKey { program: "salt-key".into(), configuration })))
    }
}

/// Options that are passed on to ssh.
#[derive(Debug, Args)]
struct SshArguments {
    /// For ssh: its configuration file
    #[arg(short = 'F', value_name = "FILE")]
    configuration: Option<PathBuf>,
    /// For ssh: the jump hosts
    #[arg(short = 'J', value_name = "HOST")]
    jump: Option<String>,
    /// For ssh: a private key
    #[arg(short = 'i', value_name = "FILE")]
    identity: Vec<PathBuf>,
    /// For ssh: the user
    #[arg(short = 'l', value_name = "USER")]
    user: Option<String>,
    /// For ssh: the port
    #[arg(short = 'p', value_name = "PORT")]
    port: Option<u16>,
    /// For ssh: another option, as in `ssh_config(5)`
    #[arg(short = 'o', value_name = "OPTION")]
    option: Vec<String>,
}

/// What is done on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActionName {
    /// Trust the repository, install the release
    Install,
    /// The same, then take over the running agent (minion) of the distribution's package
    Adopt,
    /// The same as install, then start the release as the host's first minion; a host on which a minion runs is refused
    Start,
    /// The same as install, then run `salt-call --local` of the release; no minion is started
    Call,
}

/// `sidle push`
pub fn push(context: &Context, arguments: &PushArguments) -> Result<Ended, Report> {
    let ssh = ssh(&arguments.ssh, arguments.connect_timeout);
    ssh.check()?;
    let hosts = hosts(context, arguments)?;
    let action = action(arguments)?;
    let fingerprint = trust::fingerprint(&arguments.fingerprint)?;
    let source = source::open(context, arguments, &fingerprint)?;
    let releases = source.releases(&arguments.package)?;
    let programs = Programs::read(&arguments.program)?;
    let sockets = Sockets::make(context)?;
    let patience = match action {
        Action::Adopt(_) => PATIENCE_OF_ADOPT,
        Action::Start(Start { wait, .. }) => PATIENCE.saturating_add(wait),
        Action::Install | Action::Call(_) => PATIENCE,
    };
    let push = Push {
        ssh,
        sockets: sockets.path(),
        programs,
        own: env!("CARGO_PKG_VERSION").parse().map_err(|error| Report::of(Class::Failed, format!("{error}")))?,
        source,
        releases,
        fingerprint,
        package: arguments.package.clone(),
        release: arguments.release.clone(),
        action,
        acceptor: arguments.start.acceptor()?,
        configure: arguments.configure.clone(),
        patience: arguments.patience.unwrap_or(patience),
        total: arguments.total_timeout,
        effect: context.effect,
        class: super::own::COMMANDS.class,
    };
    let rows = Rows::new(&context.output, hosts.len());
    let width = told::width(&hosts);
    let outcomes = push::all(
        &push,
        &hosts,
        parallel(context, arguments),
        &|event| rows.show(event.host, &hosts[event.host].name, event.step.name(), event.bytes_sent),
        &|number, outcome| rows.end(number, told::host(&hosts[number], outcome, width), outcome.failure.is_none()),
    );
    rows.clear();
    sockets.remove();
    told::sum(context, &hosts, &outcomes);
    Ok(push::worst(&outcomes).map_or(Ended::Well, Ended::As))
}

/// How many hosts at a time.
fn parallel(context: &Context, arguments: &PushArguments) -> usize {
    let (wanted, affordable) = (usize::from(arguments.parallel), push::affordable(arguments.parallel));
    if wanted > affordable {
        context.output.warning(&format!(
            "{affordable} hosts at a time, and not {wanted}: more need more open files (`ulimit -Hn`)"
        ));
    }
    affordable
}

fn ssh(arguments: &SshArguments, connect: Duration) -> Ssh {
    Ssh {
        program: "ssh".into(),
        configuration: arguments.configuration.clone(),
        jump: arguments.jump.clone(),
        identities: arguments.identity.clone(),
        user: arguments.user.clone(),
        port: arguments.port,
        options: arguments.option.clone(),
        connect,
    }
}

fn action(arguments: &PushArguments) -> Result<Action, Report> {
    match arguments.action {
        _ if !matches!(arguments.action, ActionName::Adopt) && arguments.mode.is_some() => Err(usage(
            "cannot take over in a mode where nothing is taken over",
            "add `--action adopt`, or leave out --mode",
        )),
        _ if !matches!(arguments.action, ActionName::Start) && !arguments.start.master.is_empty() => Err(usage(
            "cannot name masters for hosts that start no minion",
            "add `--action start`, or leave out --master",
        )),
        ActionName::Call if arguments.arguments.is_empty() => {
            Err(usage("cannot call nothing", "name the function after `--`: `--action call -- test.ping`"))
        }
        ActionName::Call => Ok(Action::Call(Call {
            prepare: agentless::prepare(),
            variables: agentless::variables(),
            command: agentless::COMMAND.to_owned(),
            arguments: agentless::arguments(&arguments.arguments),
        })),
        _ if !arguments.arguments.is_empty() => {
            Err(usage("cannot use words after `--` without a call", "add `--action call`, or leave them out"))
        }
        ActionName::Start if arguments.start.master.is_empty() => {
            Err(usage("cannot start a minion without a master", "name the masters: --master NAME,…"))
        }
        ActionName::Start => Ok(Action::Start(Start {
            peers: arguments.start.master.clone(),
            pin: arguments.start.pin_master.clone(),
            wait: arguments.start.wait(),
        })),
        ActionName::Install => Ok(Action::Install),
        ActionName::Adopt => Ok(Action::Adopt(arguments.mode.map(|mode| Mode::from(mode).to_string()))),
    }
}

/// The hosts of the command line, then those of the roster; each once.
fn hosts(context: &Context, arguments: &PushArguments) -> Result<Vec<Destination>, Report> {
    let mut hosts: Vec<Destination> =
        arguments.hosts.iter().map(|word| Destination::of_word(word)).collect::<Result<_, _>>()?;
    if let Some(path) = &arguments.roster {
        hosts.extend(of_roster(context, path)?);
    }
    if hosts.is_empty() {
        return Err(usage("cannot push: no host is named", "name hosts, or a roster with --roster"));
    }
    match (&arguments.start.id, &mut hosts[..]) {
        (None, _) => {}
        (Some(id), [only]) => only.id = Some(id.clone()),
        (Some(_), _) => {
            return Err(usage("cannot give several hosts one id", "name the ids in a roster: each host's own"));
        }
    }
    for host in &mut hosts {
        host.sudo |= arguments.sudo;
    }
    let mut names = std::collections::BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|host| !names.insert(&host.name)) {
        return Err(usage(format!("cannot push to {} twice", twice.name), "name each host once"));
    }
    Ok(hosts)
}

fn of_roster(context: &Context, path: &Path) -> Result<Vec<Destination>, Report> {
    let bytes = file::read(path, ROSTER_BYTES_MAXIMUM)?;
    let wrong = |reason: String| {
        let hint = "write `ID: HOST` for each host, or `ID:`, and below it, indented by blanks, `host: HOST`, `user: USER` and the like; \
                    docs/push.md, \"Rosters\", has all keys";
        usage(format!("cannot use the roster {}: {reason}", path.display()), hint)
    };
    let roster = roster::parse(&String::from_utf8_lossy(&bytes)).map_err(wrong)?;
    for ignored in &roster.ignored {
        context.output.warning(&format!("{}: {ignored} is ignored: it concerns salt-ssh alone", path.display()));
    }
    let destination = |entry: roster::Entry| {
        push::destination::check("the host", &entry.host)?;
        entry.user.as_deref().map_or(Ok(()), |user| push::destination::check("the user", user))?;
        Ok(Destination {
            id: Some(entry.id.clone()),
            name: entry.id,
            host: entry.host,
            user: entry.user,
            port: entry.port,
            identity: entry.key,
            sudo: entry.sudo,
            connect_seconds: entry.timeout,
        })
    };
    roster.hosts.into_iter().map(destination).collect()
}
