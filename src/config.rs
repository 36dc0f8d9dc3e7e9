//! Settings: `/etc/sidle/sidle.toml` and the fragments of `conf.d`, one over the other, then the defaults under them.
//! [`keys`] documents each of them.

mod files;
pub mod keys;
mod repository;
mod units;

pub use units::duration;

use crate::bundle::written;
use crate::digest::{Digest, Hasher};
use crate::failure::{Class, Report};
use crate::fetch;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::os::environment::{Need, Passed};
use crate::rehearsal::ExtrasPolicy;
use crate::switch::Limits;
use crate::switch::driver::Policy;
use crate::switch::rehearsal::performance::REHEARSAL_MAX;
use crate::switch::schedule::windows::{Window, Windows};
use crate::trust::{BY_HAND_GRACE, Expiry};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use repository::RepositoryFragment;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};
use units::{Bytes, Text};

/// Largest settings file read.
const FILE_BYTES_MAXIMUM: u64 = 256 * 1024;
/// Where an operator finds what can be set.
const DOCUMENTED: &str = "`man sidle.toml` and docs/settings.md have each key";

/// One file's part of the settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fragment {
    probation: Option<Text>,
    start_timeout: Option<Text>,
    stop_timeout: Option<Text>,
    rehearsal_timeout: Option<Text>,
    drain_timeout: Option<Text>,
    retire_timeout: Option<Text>,
    rehearsal: Option<Policy>,
    extras: Option<ExtrasPolicy>,
    extras_wheels: Option<PathBuf>,
    extras_timeout: Option<Text>,
    switch_deadline: Option<Text>,
    restart_pause: Option<Text>,
    restart_pause_limit: Option<Text>,
    fall_back_within: Option<Text>,
    host_check_every: Option<Text>,
    job_splay: Option<Text>,
    scrub_every: Option<Text>,
    scrub_rate: Option<Bytes>,
    keep_extra: Option<usize>,
    by_hand_grace: Option<Text>,
    windows: Option<Vec<Window>>,
    timezone: Option<String>,
    #[serde(default)]
    repository: RepositoryFragment,
    #[serde(default)]
    instances: BTreeMap<InstanceName, InstanceFragment>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceFragment {
    package: Option<PackageName>,
    config: Option<PathBuf>,
    windows: Option<Vec<Window>>,
    timezone: Option<String>,
    pass_environment: Option<Vec<String>>,
}

impl Fragment {
    /// The paths in it that are meant on the host, by the key that names each.
    fn paths(&self) -> impl Iterator<Item = (String, &Path)> {
        let wheels = self.extras_wheels.as_deref().map(|path| ("extras_wheels".to_owned(), path));
        let configurations = self.instances.iter().filter_map(|(name, instance)| {
            Some((format!("config of [instances.{name}]"), instance.config.as_deref()?))
        });
        wheels.into_iter().chain(configurations)
    }
}

/// Puts the keys of a later file over those of the earlier files.
fn merge(below: &mut Table, over: Table) {
    for (key, value) in over {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(over)) => {
                // A later file that names a repository names all of it.
                if key == "repository" && (over.contains_key("url") || over.contains_key("mirrors")) {
                    below.remove("url");
                    below.remove("mirrors");
                }
                merge(below, over);
            }
            (_, value) => drop(below.insert(key, value)),
        }
    }
}

/// The settings of this host.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long the phases of a switch may last.
    pub limits: Limits,
    /// How long a switch waits for running jobs.
    pub switch_deadline: Duration,
    /// The first pause before an agent that ended is started again.
    pub restart_pause_minimum: Duration,
    /// The longest such pause.
    pub restart_pause_maximum: Duration,
    /// How long after its switch a release that keeps failing is left for the previous one.
    pub fall_back_within: Duration,
    /// How often the supervisor checks whether the host's libraries have changed.
    pub host_check_every: Duration,
    /// The longest random delay of a switch that a job of the agent requests.
    pub job_splay: Duration,
    /// What the result of a rehearsal may decide.
    pub rehearsal: Policy,
    /// How extra Python packages are treated that the new release lacks.
    pub extras: ExtrasPolicy,
    /// The directory of wheels from which extras are rebuilt.
    pub extras_wheels: Option<PathBuf>,
    /// How often a supervisor has its package scrubbed; zero: never.
    pub scrub_every: Duration,
    /// Reading rate of a scrub, in bytes per second.
    pub scrub_rate: u64,
    /// Releases kept beside current and previous.
    pub keep_extra: usize,
    /// How long after its expiry the metadata of a bundle file is still accepted.
    pub by_hand_grace: Duration,
    windows: Vec<Window>,
    timezone: Option<String>,
    repository: RepositoryFragment,
    instances: BTreeMap<InstanceName, InstanceFragment>,
}

impl Settings {
    /// Reads the settings below a layout's root, or only the file that the layout names. Without any file the defaults apply.
    pub fn read(layout: &Layout) -> Result<Self, Report> {
        let mut whole = Table::new();
        for (path, bytes) in files::texts(layout)? {
            add(&mut whole, &path, &String::from_utf8_lossy(&bytes))?;
        }
        Self::of(whole)
    }

    /// The digest of all settings files: another one means other settings.
    pub fn digest(layout: &Layout) -> Result<Digest, Report> {
        let mut hasher = Hasher::new();
        for (path, bytes) in files::texts(layout)? {
            hasher.update(path.as_os_str().as_encoded_bytes());
            hasher.update(Digest::of(&bytes).to_string().as_bytes());
        }
        Ok(hasher.finish())
    }

    fn of(whole: Table) -> Result<Self, Report> {
        let fragment = Fragment::deserialize(whole).map_err(|error| {
            Report::of(Class::Usage, format!("the settings files don't fit together: {error}")).hint(DOCUMENTED)
        })?;
        Ok(Self::from(fragment))
    }

    /// The variables of the caller's environment that an instance's programs get.
    pub fn passed(&self, instance: &InstanceName) -> Passed {
        let named = self.instances.get(instance).and_then(|fragment| fragment.pass_environment.clone());
        Passed::default().with(Need::Network).with_names(named.unwrap_or_default())
    }

    /// The package of an instance and its agent's configuration directory, where the settings name one. An instance that they don't name is
    /// its package's default one.
    pub fn instance(&self, layout: &Layout, instance: &InstanceName) -> Result<(PackageName, Option<PathBuf>), Report> {
        let fragment = self.instances.get(instance).cloned().unwrap_or_default();
        let package = match fragment.package {
            Some(package) => package,
            None => instance
                .as_str()
                .parse()
                .map_err(|error: crate::name::NameError| Report::new(Class::Usage, &error, None))?,
        };
        Ok((package, fragment.config.map(|path| layout.on_host(&path))))
    }
}

impl Settings {
    /// The repository that releases are fetched from. Looked at here and not when settings are read: a mirror that can't be used keeps no agent
    /// from starting.
    pub fn repository(&self) -> Result<fetch::DownloadSettings, Report> {
        self.repository.settings()
    }

    /// Whether there is one.
    pub fn names_a_repository(&self) -> bool {
        self.repository.is_named()
    }

    /// The same, but at these places: those of a command line. Credentials go only to those that the settings name, too.
    pub fn repository_at(&self, places: &[fetch::Location]) -> Result<fetch::DownloadSettings, Report> {
        self.repository.instead(places)
    }

    /// How late the metadata of a bundle carried by hand may be.
    pub fn expiry_by_hand(&self) -> Expiry {
        let grace = SignedDuration::try_from(self.by_hand_grace).unwrap_or(BY_HAND_GRACE);
        Expiry::ByHand { grace }
    }

    /// The maintenance windows of an instance. The time zone is looked up here and not when settings are read: a host without time zones
    /// still starts its agents.
    pub fn windows(&self, instance: &InstanceName) -> Result<Windows, Report> {
        let fragment = self.instances.get(instance).cloned().unwrap_or_default();
        let windows = fragment.windows.unwrap_or_else(|| self.windows.clone());
        if windows.is_empty() {
            return Ok(Windows::new(windows, TimeZone::UTC));
        }
        let named = fragment.timezone.as_deref().or(self.timezone.as_deref());
        let zone = clock::zone(named).map_err(|error| Report {
            class: Class::Usage,
            hint: Some(
                "correct `timezone` in the settings (`timedatectl list-timezones` lists the names), or install the package tzdata"
                    .to_owned(),
            ),
            ..Report::from(error)
        })?;
        Ok(Windows::new(windows, zone))
    }
}

fn parse(path: &Path, text: &str) -> Result<Fragment, Report> {
    let refused = |why: String| {
        let report = Report::of(Class::Usage, format!("cannot use the settings in {}", path.display())).because(why);
        report.hint(format!("correct or remove the line; {DOCUMENTED}"))
    };
    let fragment: Fragment = toml::from_str(text).map_err(|error| refused(written::problem(text, &error)))?;
    for (key, path) in fragment.paths() {
        if path.is_relative() {
            return Err(refused(format!("{key}: {} is not absolute: begin it with /", path.display())));
        }
    }
    Ok(fragment)
}

/// Puts a valid file over the earlier files.
fn add(whole: &mut Table, path: &Path, text: &str) -> Result<(), Report> {
    parse(path, text)?;
    merge(whole, text.parse().expect("it was parsed just now"));
    Ok(())
}

impl From<Fragment> for Settings {
    fn from(fragment: Fragment) -> Self {
        let or_seconds = |text: Option<Text>, seconds| text.map_or(Duration::from_secs(seconds), |text| text.0);
        let day = 24 * 60 * 60;
        let extras = fragment.extras.unwrap_or_default();
        let rebuilds = extras == ExtrasPolicy::Rebuild;
        Self {
            limits: Limits {
                stop: or_seconds(fragment.stop_timeout, 30),
                start: or_seconds(fragment.start_timeout, 120),
                rehearsal: or_seconds(fragment.rehearsal_timeout, REHEARSAL_MAX.as_secs()),
                rebuild: if rebuilds { or_seconds(fragment.extras_timeout, 10 * 60) } else { Duration::ZERO },
                drain: or_seconds(fragment.drain_timeout, 30 * 60),
                retire: or_seconds(fragment.retire_timeout, 30 * 60),
                probation: or_seconds(fragment.probation, 60),
                pause_minimum: Duration::from_secs(30),
                pause_maximum: Duration::from_secs(15 * 60),
            },
            switch_deadline: or_seconds(fragment.switch_deadline, 30 * 60),
            restart_pause_minimum: or_seconds(fragment.restart_pause, 1),
            restart_pause_maximum: or_seconds(fragment.restart_pause_limit, 60),
            fall_back_within: or_seconds(fragment.fall_back_within, 10 * 60),
            host_check_every: or_seconds(fragment.host_check_every, 10 * 60),
            job_splay: or_seconds(fragment.job_splay, 60),
            rehearsal: fragment.rehearsal.unwrap_or_default(),
            extras,
            extras_wheels: fragment.extras_wheels,
            scrub_every: or_seconds(fragment.scrub_every, 7 * day),
            scrub_rate: fragment.scrub_rate.map_or(20 << 20, |rate| rate.0),
            keep_extra: fragment.keep_extra.unwrap_or(1),
            by_hand_grace: or_seconds(fragment.by_hand_grace, 90 * day),
            windows: fragment.windows.unwrap_or_default(),
            timezone: fragment.timezone,
            repository: fragment.repository,
            instances: fragment.instances,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Settings {
        let mut whole = Table::new();
        for text in texts {
            add(&mut whole, Path::new("sidle.toml"), text).unwrap();
        }
        Settings::of(whole).unwrap()
    }

    #[test]
    fn a_later_file_that_names_a_repository_names_all_of_it() {
        let first = "[repository]\nmirrors = [\"https://a.example\"]\nrate_limit = \"2MiB\"\nstall_timeout = \"5s\"\n";
        let second = "[repository]\nurl = \"https://b.example\"\nproxy = \"none\"\n";
        let settings = read(&[first, second]).repository().unwrap();
        assert_eq!(settings.mirrors.len(), 1);
        assert_eq!(settings.mirrors[0].location.to_string(), "https://b.example");
        assert_eq!((settings.rate_limit, settings.proxy), (Some(2 << 20), fetch::settings::Proxy::None));
        assert_eq!(settings.patience.stall, Duration::from_secs(5));
    }

    #[test]
    fn a_later_fragment_counts_and_the_rest_stays() {
        let first = "probation = \"5s\"\nkeep_extra = 3\n[instances.a]\npackage = \"p\"\n";
        let second = "probation = \"2m\"\n[instances.a]\nconfig = \"/etc/x\"\n";
        let settings = read(&[first, second]);
        assert_eq!(settings.limits.probation, Duration::from_secs(120));
        assert_eq!(settings.keep_extra, 3);
        let found = settings.instance(&Layout::new(Path::new("/r")), &"a".parse().unwrap()).unwrap();
        assert_eq!(found, ("p".parse().unwrap(), Some(PathBuf::from("/r/etc/x"))));
    }

    #[test]
    fn extras_take_time_only_where_they_are_rebuilt() {
        let limit = |text| Settings::from(parse(Path::new("a"), text).unwrap()).limits.rebuild.as_secs();
        assert_eq!(limit("extras = \"rebuild\"\nextras_wheels = \"/srv/wheels\"\n"), 600);
        assert_eq!(limit("extras = \"rebuild\"\nextras_timeout = \"90s\"\n"), 90);
        assert_eq!(limit("extras = \"report\"\nextras_timeout = \"90s\"\n"), 0);
    }

    #[test]
    fn an_unknown_key_is_refused_by_its_name_and_file() {
        let report = parse(Path::new("/etc/sidle/sidle.toml"), "probatoin = \"5s\"\n").unwrap_err();
        assert!(
            report.to_string().contains("probatoin") && report.to_string().contains("/etc/sidle/sidle.toml"),
            "{report}"
        );
        for bad in ["5", "s", "5 s", "-5s", "5w", "99999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
