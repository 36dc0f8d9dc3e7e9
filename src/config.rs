//! Settings: `/etc/sidle/sidle.toml` and the fragments of `conf.d`, one over the other, then the defaults under them.
//! [`keys`] documents each of them.

mod files;
pub mod keys;
mod repository;
mod units;

pub use units::{Bytes, Time, duration};

use crate::bundle::written;
use crate::digest::{Digest, Hasher};
use crate::failure::{Class, Report};
use crate::fetch;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::os::environment::{Need, Passed};
use crate::rehearsal::ExtrasPolicy;
use crate::rehearsal::states::Depth;
use crate::switch::Limits;
use crate::switch::driver::Policy;
use crate::switch::schedule::windows::{Window, Windows};
use crate::trust::pattern::ReleasePattern;
use crate::trust::{BY_HAND_GRACE, Expiry};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use repository::RepositoryFragment;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};

/// Largest settings file read.
const FILE_BYTES_MAXIMUM: u64 = 256 * 1024;
/// Where an operator finds what can be set.
const DOCUMENTED: &str = "`man sidle.toml` and docs/settings.md have each key";

/// The settings of this host. [`keys`] has what each key means, and its default.
#[expect(missing_docs, reason = "`keys` documents them")]
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    probation: Time,
    start_timeout: Time,
    stop_timeout: Time,
    rehearsal_timeout: Time,
    drain_timeout: Time,
    retire_timeout: Time,
    pub rehearsal: Policy,
    pub highstate: Depth,
    pub count_uses: bool,
    pub extras: ExtrasPolicy,
    pub extras_wheels: Option<PathBuf>,
    extras_timeout: Time,
    pub switch_deadline: Time,
    pub restart_pause: Time,
    pub restart_pause_limit: Time,
    pub fall_back_within: Time,
    pub host_check_every: Time,
    pub job_splay: Time,
    pub scrub_every: Time,
    pub scrub_rate: Bytes,
    pub keep_extra: usize,
    pub by_hand_grace: Time,
    windows: Vec<Window>,
    timezone: Option<String>,
    repository: RepositoryFragment,
    instances: BTreeMap<InstanceName, InstanceFragment>,
}

impl Default for Settings {
    fn default() -> Self {
        use keys::default;
        Self {
            probation: default("probation"),
            start_timeout: default("start_timeout"),
            stop_timeout: default("stop_timeout"),
            rehearsal_timeout: default("rehearsal_timeout"),
            drain_timeout: default("drain_timeout"),
            retire_timeout: default("retire_timeout"),
            rehearsal: default("rehearsal"),
            highstate: default("highstate"),
            count_uses: default("count_uses"),
            extras: default("extras"),
            extras_wheels: None,
            extras_timeout: default("extras_timeout"),
            switch_deadline: default("switch_deadline"),
            restart_pause: default("restart_pause"),
            restart_pause_limit: default("restart_pause_limit"),
            fall_back_within: default("fall_back_within"),
            host_check_every: default("host_check_every"),
            job_splay: default("job_splay"),
            scrub_every: default("scrub_every"),
            scrub_rate: default("scrub_rate"),
            keep_extra: default("keep_extra"),
            by_hand_grace: default("by_hand_grace"),
            windows: default("windows"),
            timezone: None,
            repository: RepositoryFragment::default(),
            instances: BTreeMap::new(),
        }
    }
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
        Self::deserialize(whole).map_err(|error| {
            Report::of(Class::Usage, format!("the settings files don't fit together: {error}")).hint(DOCUMENTED)
        })
    }

    /// The paths in them that are meant on the host, by the key that names each.
    fn paths(&self) -> impl Iterator<Item = (String, &Path)> {
        let wheels = self.extras_wheels.as_deref().map(|path| ("extras_wheels".to_owned(), path));
        let configurations = self.instances.iter().filter_map(|(name, instance)| {
            Some((format!("config of [instances.{name}]"), instance.config.as_deref()?))
        });
        wheels.into_iter().chain(configurations)
    }

    /// How long the phases of a switch may last.
    pub fn limits(&self) -> Limits {
        // Also where extras are refused, those for the same Python are copied.
        let is_mended = self.extras != ExtrasPolicy::Report;
        Limits {
            stop: *self.stop_timeout,
            start: *self.start_timeout,
            rehearsal: *self.rehearsal_timeout,
            rebuild: if is_mended { *self.extras_timeout } else { Duration::ZERO },
            drain: *self.drain_timeout,
            retire: *self.retire_timeout,
            probation: *self.probation,
            pause_minimum: Duration::from_secs(30),
            pause_maximum: Duration::from_secs(15 * 60),
        }
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

    /// The patterns of the releases that may be chosen where none is named; a package that none is about has no limit.
    pub fn releases(&self) -> &[ReleasePattern] {
        self.repository.releases()
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
        let grace = SignedDuration::try_from(*self.by_hand_grace).unwrap_or(BY_HAND_GRACE);
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

/// The settings of one file alone.
fn parse(path: &Path, text: &str) -> Result<Settings, Report> {
    let refused = |why: String| {
        let report = Report::of(Class::Usage, format!("cannot use the settings in {}", path.display())).because(why);
        report.hint(format!("correct or remove the line; {DOCUMENTED}"))
    };
    let settings: Settings = toml::from_str(text).map_err(|error| refused(written::problem(text, &error)))?;
    for (key, path) in settings.paths() {
        if path.is_relative() {
            return Err(refused(format!("{key}: {} is not absolute: begin it with /", path.display())));
        }
    }
    Ok(settings)
}

/// Puts a valid file over the earlier files.
fn add(whole: &mut Table, path: &Path, text: &str) -> Result<(), Report> {
    parse(path, text)?;
    merge(whole, text.parse().expect("it was parsed just now"));
    Ok(())
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
        assert_eq!(settings.limits().probation, Duration::from_secs(120));
        assert_eq!(settings.keep_extra, 3);
        let found = settings.instance(&Layout::new(Path::new("/r")), &"a".parse().unwrap()).unwrap();
        assert_eq!(found, ("p".parse().unwrap(), Some(PathBuf::from("/r/etc/x"))));
    }

    #[test]
    fn extras_take_time_where_they_are_rebuilt_or_copied() {
        let limit = |text| parse(Path::new("a"), text).unwrap().limits().rebuild.as_secs();
        assert_eq!(limit("extras = \"rebuild\"\nextras_wheels = \"/srv/wheels\"\n"), 600);
        assert_eq!(limit("extras = \"rebuild\"\nextras_timeout = \"90s\"\n"), 90);
        assert_eq!(limit("extras_timeout = \"90s\"\n"), 90, "a copy takes its time, too");
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
