//! `sidle doctor`: every check of this host and its instances, each finding with its remedy.

use super::{Context, Ended, agents, examiners, instance_of, usage};
use crate::agent::AgentKind;
use crate::agent::examination::{Examiner, Explanation, Finding, Group, Severity};
use crate::doctor::{self, CheckedInstance, Running, Supervised, explanations};
use crate::failure::Report;
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::store;
use crate::supervise::status::SupervisorStatus;
use clap::Args;
use serde_json::{Value, json};

/// `sidle doctor [PACKAGE]`
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// The package [default: all]
    package: Option<PackageName>,
    /// The instance [default: the one named as the package]
    #[arg(long, requires = "package")]
    instance: Option<InstanceName>,
    /// Explain these words of a log or a message
    #[arg(long, value_name = "WORDS")]
    find: Option<String>,
}

/// The findings of the host, or of one instance.
struct Examined {
    /// None: the host.
    instance: Option<InstanceName>,
    groups: Vec<Group>,
}

impl Examined {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.groups.iter().flat_map(|group| &group.findings)
    }

    fn name(&self) -> String {
        self.instance.as_ref().map_or_else(|| "host".to_owned(), ToString::to_string)
    }
}

/// `sidle doctor`
pub fn doctor(context: &Context, arguments: &DoctorArguments) -> Result<Ended, Report> {
    let sought = arguments.find.as_deref().map(sought).transpose()?;
    let now = clock::now();
    let mut examined = vec![Examined { instance: None, groups: doctor::host(&context.layout, now) }];
    let installed = store::packages(&context.layout)?;
    let packages = match &arguments.package {
        Some(package) if !installed.contains(package) => return Err(not_there(package, &installed)),
        Some(package) => vec![package.clone()],
        None => installed,
    };
    for package in &packages {
        let instance = instance_of(package, arguments.instance.as_ref());
        let groups = examine(context, package, &instance, now);
        examined.push(Examined { instance: Some(instance), groups });
    }
    if let Some(sought) = &sought {
        for one in &mut examined {
            for group in &mut one.groups {
                group.findings.retain(|finding| sought.iter().any(|(known, _)| known.id == finding.id));
                group.looked_at.clear();
            }
        }
    }
    let findings: Vec<&Finding> = examined.iter().flat_map(Examined::findings).collect();
    let class = explanations::class(&findings, agents_own());
    context.output.result(text(&examined, sought.as_deref()), value(&examined, sought.as_deref()));
    Ok(class.map_or(Ended::Well, Ended::As))
}

fn examine(context: &Context, package: &PackageName, instance: &InstanceName, now: jiff::Timestamp) -> Vec<Group> {
    let layout = &context.layout;
    let mut unread = None;
    let status = SupervisorStatus::read(layout, instance).unwrap_or_else(|error| {
        unread = Some(error);
        None
    });
    let supervised = status.map(|status| Supervised {
        pid: status.supervisor.pid,
        version: status.version.clone(),
        trouble: status.trouble.clone(),
        agent: status.agent.map(|agent| Running {
            release: agent.release,
            leader: agent.leader,
            reaches: agent.reaches,
            lacks: agent.lacks,
        }),
    });
    let checked = CheckedInstance { layout, package, instance, supervised, registry: agents, examiners, now };
    let mut groups = doctor::instance(&checked);
    if let (Some(error), Some(group)) = (unread, groups.iter_mut().find(|group| group.name == "processes")) {
        group.unknown("what the supervisor says", error, "run it as root");
    }
    groups
}

fn not_there(package: &PackageName, installed: &[PackageName]) -> Report {
    let names: Vec<&str> = installed.iter().map(PackageName::as_str).collect();
    let there =
        if names.is_empty() { "nothing is installed".to_owned() } else { format!("installed: {}", names.join(", ")) };
    Report::of(crate::failure::Class::Failed, format!("cannot examine {package}: it is not installed; {there}"))
        .hint("`sidle doctor` without a name checks the host and every installed package")
}

/// The explanations that agents add.
fn agents_own() -> &'static [Explanation] {
    // The demonstration agent adds none.
    examiners(AgentKind::Salt).map(Examiner::explanations).unwrap_or_default()
}

type Known = (Explanation, Vec<&'static str>);

/// The findings that the words of a log may be about.
fn sought(words: &str) -> Result<Vec<Known>, Report> {
    let known = explanations::with(agents_own());
    let found: Vec<Known> = known
        .into_iter()
        .filter(|(known, sentences)| known.id == words || explanations::is_told_by(sentences, words))
        .collect();
    let nothing = || {
        let message = format!("cannot explain {words:?}: no finding has these words");
        usage(message, "give fewer words, without names and numbers; `sidle doctor` alone checks everything")
    };
    if found.is_empty() { Err(nothing()) } else { Ok(found) }
}

/// The worst findings first, then a line for each group of checks.
fn text(examined: &[Examined], sought: Option<&[Known]>) -> Vec<String> {
    let mut lines = Vec::new();
    for severity in [Severity::Error, Severity::Warning, Severity::Unknown, Severity::Note] {
        for one in examined {
            for finding in one.findings().filter(|finding| finding.severity == severity) {
                lines.push(format!("{} {} ({})", severity.word(), finding.id, one.name()));
                lines.push(format!("  {}", finding.what));
                if !finding.remedy.is_empty() {
                    lines.push(format!("  remedy: {}", finding.remedy));
                }
            }
        }
    }
    for (known, words) in sought.unwrap_or_default() {
        let is_found = examined.iter().flat_map(Examined::findings).any(|finding| finding.id == known.id);
        let found = if is_found { "found on this host, see above" } else { "not found on this host now" };
        lines.push(format!("{}: {found}", known.id));
        lines.push(format!("  {}", known.means));
        lines.push(format!("  remedy: {}", known.remedy));
        lines.extend(words.iter().map(|words| format!("  log: {words}")));
    }
    for one in examined.iter().filter(|_| sought.is_none()) {
        lines.push(format!("{}:", one.name()));
        for group in &one.groups {
            let mut told = group.looked_at.clone();
            let bad = group.findings.iter().filter(|finding| finding.severity > Severity::Note).count();
            if bad > 0 {
                told.push(format!("{bad} with a remedy, above"));
            }
            lines.push(format!("  {:<10} {}", group.name, told.join("; ")).trim_end().to_owned());
        }
    }
    lines
}

fn value(examined: &[Examined], sought: Option<&[Known]>) -> Value {
    let told = |one: &Examined| json!({"instance": one.instance, "groups": one.groups});
    let known = sought.map(|known| {
        known
            .iter()
            .map(|(known, words)| json!({"id": known.id, "means": known.means, "remedy": known.remedy, "words": words}))
            .collect::<Vec<_>>()
    });
    json!({"examined": examined.iter().map(told).collect::<Vec<_>>(), "explanations": known})
}
