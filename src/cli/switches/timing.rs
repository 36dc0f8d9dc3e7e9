//! When a switch begins: in a maintenance window, or outside by a person's option; with a splay.

use crate::cli::usage;
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::InstanceName;
use crate::switch::Purpose;
use crate::switch::schedule::When;
use clap::Args;
use jiff::Timestamp;
use std::time::Duration;

/// The options for the beginning of a switch.
#[derive(Debug, Clone, Default, Args)]
pub struct Timing {
    /// Outside the maintenance windows, wait for the next window. The deadline counts from the start of the window. If sidle has not stopped or started a process when the window closes, the switch expires; else it may finish after the window
    #[arg(long)]
    at_window: bool,
    /// Begin now, even outside the maintenance windows
    #[arg(long, conflicts_with = "at_window")]
    outside_window: bool,
    /// First wait a random time of at most TIME, so that hosts of a fleet begin at different times: 10m [default: 0s; for switch, upgrade and
    /// restart in a Salt job of this minion: the setting `job_splay` (60s)]
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    splay: Option<Duration>,
}

impl Timing {
    /// Returns when a switch that is requested at `now` begins. Outside the windows it is refused, unless an option says otherwise. `by_job`: a job
    /// of the agent asks for it.
    pub fn when(
        &self,
        settings: &Settings,
        instance: &InstanceName,
        purpose: Purpose,
        by_job: bool,
        now: Timestamp,
    ) -> Result<When, Report> {
        let default = if by_job && purpose != Purpose::Rollback { *settings.job_splay } else { Duration::ZERO };
        let splay_seconds = self.splay.unwrap_or(default).as_secs();
        let when = When { opens: None, closes: None, splay_seconds };
        if self.outside_window {
            return Ok(when);
        }
        let windows = settings.windows(instance)?;
        if windows.is_always() {
            return if self.at_window {
                Err(usage(
                    format!("cannot wait for a window: the settings name none for {instance}"),
                    "leave out --at-window, or set `windows` in /etc/sidle/sidle.toml",
                ))
            } else {
                Ok(when)
            };
        }
        if windows.is_open(now) {
            return Ok(When { closes: windows.closing(now), ..when });
        }
        let opening = windows.opening(now);
        match opening {
            Some(opens) if self.at_window => {
                Ok(When { opens: Some(opens), closes: windows.closing(opens), splay_seconds })
            }
            _ => Err(Report::of(
                Class::Held,
                format!(
                    "cannot {purpose} {instance} now: it is outside its maintenance windows, {windows}; {}",
                    opening.map_or_else(
                        || "no window opens within weeks".to_owned(),
                        |opens| format!("the next opens {}", windows.shown(opens))
                    )
                ),
            )
            .hint("add --at-window to wait for the window, or --outside-window to begin now")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn what_a_job_asks_for_begins_within_the_settings_splay_unless_it_says_when_or_goes_back() {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings::read(&Layout::new(root.path())).unwrap();
        let instance = "salt-minion".parse().unwrap();
        let splay = |splay: Option<u64>, (purpose, by_job)| {
            let timing = Timing { at_window: false, outside_window: false, splay: splay.map(Duration::from_secs) };
            timing.when(&settings, &instance, purpose, by_job, Timestamp::UNIX_EPOCH).unwrap().splay_seconds
        };
        for (said, asked, seconds) in [
            (None, (Purpose::Switch, true), 60),
            (None, (Purpose::Restart, true), 60),
            (None, (Purpose::Rollback, true), 0),
            (None, (Purpose::Switch, false), 0),
            (Some(0), (Purpose::Switch, true), 0),
            (Some(900), (Purpose::Rollback, true), 900),
        ] {
            assert_eq!(splay(said, asked), seconds, "{said:?} {asked:?}");
        }
    }
}
