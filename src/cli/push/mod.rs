//! `sidle push`: sidle and a release for hosts that have nothing, over ssh.

mod sockets;
mod source;
mod told;

use super::dry_run::DryRun;
use super::terminal::rows::Rows;
use super::{Context, Ended, trust, usage};
use crate::config;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::file;
use crate::push::{self, Action, Call, Destination, Programs, Push, Ssh};
use crate::salt::{agentless, roster};
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
    /// Give a host up after a silence of this time [default: 10m; 45m with --action adopt]
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
    let programs = Programs::read(&arguments.program)?;
    let sockets = Sockets::make(context)?;
    let patience = if action == Action::Adopt { PATIENCE_OF_ADOPT } else { PATIENCE };
    let push = Push {
        ssh,
        sockets: sockets.path(),
        programs,
        own: env!("CARGO_PKG_VERSION").parse().map_err(|error| Report::of(Class::Failed, format!("{error}")))?,
        source,
        fingerprint,
        package: arguments.package.clone(),
        release: arguments.release.clone(),
        action,
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
        usize::from(arguments.parallel),
        &|event| rows.show(event.host, &hosts[event.host].name, event.step.name(), event.bytes_sent),
        &|number, outcome| rows.end(number, told::host(&hosts[number], outcome, width), outcome.failure.is_none()),
    );
    rows.clear();
    sockets.remove();
    told::sum(context, &hosts, &outcomes);
    Ok(push::worst(&outcomes).map_or(Ended::Well, Ended::As))
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
        ActionName::Install => Ok(Action::Install),
        ActionName::Adopt => Ok(Action::Adopt),
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
