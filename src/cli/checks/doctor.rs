//! `sidle doctor`: checks this host, and prints each finding with its remedy.

use crate::agent::examination::{Examiner, Explanation, Finding, Group, Severity};
use crate::cli::host::list::not_installed;
use crate::cli::output::Lines;
use crate::cli::tone::{Place, Tone, Toned};
use crate::cli::{Context, Ended, agents, instance_of, usage};
use crate::doctor::explanations::{self, Known};
use crate::doctor::{self, CheckedInstance};
use crate::failure::{Class, Report};
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
    /// The instance [default: the instance with the package's name]
    #[arg(long, requires = "package")]
    instance: Option<InstanceName>,
    /// List the findings that match this line of a log, or this message, or a part of it, each with its meaning and remedy
    #[arg(long, value_name = "WORDS")]
    find: Option<String>,
}

/// The results for the host, or for an instance.
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

/// How bad a finding is, at a glance.
const TONES: [Toned; 4] = [
    Toned("ERROR", Place::Label, Tone::Bad),
    Toned("warning", Place::Label, Tone::Warning),
    Toned("not checked", Place::Label, Tone::Warning),
    Toned("findings above", Place::After(""), Tone::Warning),
];

/// Checks the host and its instances.
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
        let checked = CheckedInstance {
            layout: &context.layout,
            package,
            instance: &instance,
            supervised: SupervisorStatus::read(&context.layout, &instance),
            registry: agents::parts,
            now,
        };
        let groups = doctor::instance(&checked);
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
    let class = explanations::class(&findings, &agents_own());
    context
        .output
        .result(Lines::from(text(&examined, sought.as_deref())).toned(&TONES), value(&examined, sought.as_deref()));
    Ok(class.map_or(Ended::Well, Ended::As))
}

fn not_there(package: &PackageName, installed: &[PackageName]) -> Report {
    Report::of(Class::Failed, format!("cannot check {package}: {}", not_installed(installed)))
        .hint("`sidle doctor` without a name checks the host and all installed packages")
}

/// What agents add to the kinds of findings.
fn agents_own() -> Vec<Explanation> {
    let examiners = agents::ALL.iter().filter_map(|parts| parts.examiner);
    examiners.flat_map(Examiner::explanations).cloned().collect()
}

/// The kinds that the words of a log match.
fn sought(words: &str) -> Result<Vec<Known>, Report> {
    let mut known = explanations::with(&agents_own());
    known.retain(|(known, sentences)| known.id == words || explanations::matches(sentences, words));
    if known.is_empty() {
        let hint = "give fewer words, without names and numbers; `sidle doctor` runs all checks";
        return Err(usage(format!("cannot explain {words:?}: it matches no finding"), hint));
    }
    Ok(known)
}

/// The findings, the worst first; then the good results, a line for each group.
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
            let mut results = group.looked_at.clone();
            let bad = group.findings.iter().filter(|finding| finding.severity > Severity::Note).count();
            if bad > 0 {
                results.push(format!("findings above: {bad}"));
            }
            lines.push(format!("  {:<10} {}", group.name, results.join("; ")).trim_end().to_owned());
        }
    }
    lines
}

fn value(examined: &[Examined], sought: Option<&[Known]>) -> Value {
    let examined: Vec<Value> =
        examined.iter().map(|one| json!({"instance": one.instance, "groups": one.groups})).collect();
    let known = sought.map(|known| {
        known
            .iter()
            .map(|(known, words)| json!({"id": known.id, "means": known.means, "remedy": known.remedy, "words": words}))
            .collect::<Vec<_>>()
    });
    json!({"examined": examined, "explanations": known})
}
