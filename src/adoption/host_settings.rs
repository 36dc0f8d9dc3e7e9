//! Environment variables that files of the host set for a packaged agent, and its unit does not: the release gets them, or a warning says why not.

use super::environment::Environment;
use crate::agent::adoption::HostSetting;
use std::ffi::OsString;

/// Such variables, sorted by what becomes of them.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    carried: Vec<HostSetting>,
    left: Vec<String>,
}

impl HostSettings {
    /// Sorts them, and adds those that a release may have to `environment`. `managed`: a unit runs the agent, so that sidle's service gets them.
    pub(super) fn sorted(found: Vec<HostSetting>, managed: bool, environment: &mut Environment) -> Self {
        let mut settings = Self::default();
        for setting in found {
            let left = match &setting.refusal {
                Some(refusal) => refusal,
                None if managed => {
                    environment.add_variable(setting.variable, &setting.value);
                    settings.carried.push(setting);
                    continue;
                }
                None => {
                    "no unit runs the agent: set the variable for the supervisor, `sidle supervise`, before the adoption"
                }
            };
            let HostSetting { variable, value, file, .. } = &setting;
            settings.left.push(format!(
                "{} names {variable}={value}, which the running agent does not have, and the release will not get: {left}",
                file.display()
            ));
        }
        settings
    }

    /// The variables that a release gets.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        self.carried.iter().map(|setting| (setting.variable.into(), setting.value.clone().into())).collect()
    }

    /// A warning for each variable that the release does not get: file, value, reason and remedy.
    pub(super) fn warnings(&self) -> &[String] {
        &self.left
    }

    /// The steps of a dry run.
    pub(super) fn steps(&self) -> Vec<String> {
        let carried = self.carried.iter().map(|HostSetting { variable, value, file, .. }| {
            let file = file.display();
            format!(
                "take {variable}={value} from {file}: the running agent does not have it, the release will look there"
            )
        });
        carried.chain(self.left.iter().map(|left| format!("warning: {left}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(variable: &'static str, refusal: Option<&str>) -> HostSetting {
        let refusal = refusal.map(str::to_owned);
        HostSetting { variable, value: "/srv/x".to_owned(), file: "/etc/default/y".into(), refusal }
    }

    #[test]
    fn what_a_release_does_not_get_is_told_with_its_file_and_the_remedy() {
        let found = || vec![setting("A", None), setting("B", Some("give it to root"))];
        let mut environment = Environment::default();
        let settings = HostSettings::sorted(found(), true, &mut environment);
        assert_eq!(settings.variables(), [("A".into(), "/srv/x".into())]);
        assert_ne!(environment, Environment::default());
        let [warning] = settings.warnings() else { panic!("{settings:?}") };
        assert!(
            warning.starts_with("/etc/default/y names B=/srv/x") && warning.ends_with("give it to root"),
            "{warning}"
        );
        let steps = settings.steps();
        assert!(steps[0].starts_with("take A=/srv/x from /etc/default/y") && steps[1].contains(warning), "{steps:?}");
        let mut environment = Environment::default();
        let settings = HostSettings::sorted(found(), false, &mut environment);
        assert!(settings.variables().is_empty() && environment == Environment::default(), "no service gets it");
        assert!(settings.warnings()[0].contains("no unit runs the agent"), "{settings:?}");
    }
}
