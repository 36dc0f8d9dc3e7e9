//! hold and unhold: a person forbids or allows switches of an instance.

use super::{Context, Ended, instance_of, usage};
use crate::failure::{Class, Reason, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::{clock, process};
use crate::store::Store;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::journal::hold::{Hold, Scope};
use clap::Args;
use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::time::Duration;

/// `sidle hold PACKAGE`
#[derive(Debug, Args)]
#[command(
    after_help = "While an instance is held, sidle refuses switch, upgrade and restart (exit code 10). A rollback is allowed, unless you set --all. \
                  A switch that fails rolls back even under a hold. A hold does not stop or restart the running agent."
)]
pub struct HoldArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// The reason, which a refused command shows
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Hold until this time: 2026-12-24, "2026-12-24 08:00" (this host's time), or 2026-12-24T07:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "duration")]
    until: Option<String>,
    /// Hold for this long: 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = crate::config::duration)]
    duration: Option<Duration>,
    /// Refuse rollbacks, too
    #[arg(long)]
    all: bool,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle unhold PACKAGE`
#[derive(Debug, Args)]
pub struct UnholdArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Holds an instance.
pub fn hold(context: &Context, arguments: &HoldArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    let instance = instance_of(package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, package);
    // A hold on a mistyped name would protect nothing.
    if Store::new(&context.layout, package).releases()?.is_empty() {
        return Err(Report::of(Class::Failed, format!("cannot hold {package}: no release of it is installed"))
            .hint("`sidle list` shows the installed packages"));
    }
    let now = clock::now();
    let until = match (&arguments.until, arguments.duration) {
        (Some(text), _) => Some(moment(text)?),
        (None, Some(duration)) => {
            let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
            Some(now.saturating_add(duration).unwrap_or(Timestamp::MAX))
        }
        (None, None) => None,
    };
    if until.is_some_and(|until| until <= now) {
        let given = arguments.until.clone().unwrap_or_else(|| "now".to_owned());
        let past = usage(format!("cannot hold {instance} until {given}: that time is past"), "name a later time");
        return Err(past.reason(Reason::TimeIsPast));
    }
    let scope = if arguments.all { Scope::All } else { Scope::Upgrades };
    let hold = Hold::new(now, process::user_name(process::user()), &arguments.reason, until, scope);
    if !arguments.dry_run {
        files.write_hold(&hold)?;
    }
    let live = files.journal()?.live;
    let goes_on = live.as_ref().map(|live| {
        format!("note: switch {} has begun already and continues; `sidle cancel {package}` cancels it", live.id)
    });
    let is = if arguments.dry_run { "would be" } else { "is" };
    context.output.result(
        std::iter::once(format!("{instance} {is} held {hold}")).chain(goes_on).collect::<Vec<_>>(),
        json!({"dry_run": arguments.dry_run, "instance": instance, "hold": hold, "live_switch": live.map(|live| live.id)}),
    );
    Ok(Ended::Well)
}

/// Lifts the hold.
pub fn unhold(context: &Context, arguments: &UnholdArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    let is_dry_run = arguments.dry_run;
    let lifted = if is_dry_run { files.has_hold()? } else { files.remove_hold()? };
    let text = match (lifted, is_dry_run) {
        (true, true) => format!("{instance} would no longer be held"),
        (true, false) => format!("{instance} is no longer held"),
        (false, _) => format!("{instance} is not held"),
    };
    context.output.result(&text, json!({"dry_run": is_dry_run, "instance": instance, "lifted": lifted}));
    Ok(if lifted { Ended::Well } else { Ended::As(Class::NothingToDo) })
}

/// Reads a time; without an offset it is local time of the host.
fn moment(text: &str) -> Result<Timestamp, Report> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp);
    }
    if crate::config::duration(text).is_ok() {
        let message = format!("cannot read {text:?} as a time: it is a length of time");
        return Err(usage(message, format!("write `--for {text}` to hold for that long from now on")));
    }
    let refused = || {
        usage(
            format!("cannot read {text:?} as a time"),
            "write 2026-12-24, \"2026-12-24 08:00\" (this host's time), or 2026-12-24T07:00:00Z",
        )
    };
    // A time with an offset was read above; an offset here is invalid, and must not be ignored.
    let plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ':' | 'T' | ' '));
    let civil: Option<DateTime> = text.parse::<DateTime>().ok().or_else(|| text.parse::<Date>().ok().map(Into::into));
    let civil = civil.filter(|_| plain).ok_or_else(refused)?;
    // In a gap or a fold of the clock the later time: a hold must not end early.
    let ambiguous = clock::zone(None)?.to_ambiguous_timestamp(civil);
    ambiguous.later().map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_in_place_of_a_time_is_told_its_option() {
        for text in ["7d", "90m"] {
            let refused = moment(text).unwrap_err();
            assert_eq!(
                refused.hint.as_deref().map(|hint| hint.contains(&format!("`--for {text}`"))),
                Some(true),
                "{refused:?}"
            );
        }
        let refused = moment("soon").unwrap_err();
        assert!(refused.hint.unwrap().contains("2026-12-24"));
    }
}
