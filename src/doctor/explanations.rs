//! The kinds of findings: the class of each, and the sentences by which people meet it in logs and messages. What a kind means and what to do
//! about it are read from the tables of docs/operations.md, so that the page and `sidle doctor --find` say the same.

use crate::agent::examination::{COULD_NOT_LOOK, Explanation, Finding, Severity};
use crate::failure::Class;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md"));

/// A kind of finding: its id, its class, and its sentences (`…` stands for the parts that differ).
type Kind = (&'static str, Class, &'static [&'static str]);

/// The general kinds; an agent adds its own.
const KINDS: &[Kind] = &[
    (COULD_NOT_LOOK, Class::Failed, &["Permission denied", "Operation not permitted"]),
    ("settings-invalid", Class::Usage, &["cannot use the settings in …"]),
    (
        "foreign-directory",
        Class::NotTrusted,
        &["cannot use a place that other users can change", "belongs to … (user …)", "may be written to by … (mode …)"],
    ),
    ("trust-unpinned", Class::NotTrusted, &["cannot trust anything yet", "no repository's root is pinned"]),
    ("trust-damaged", Class::NotTrusted, &["is not as it was stored"]),
    ("trust-expired", Class::NotTrusted, &["metadata version … expired at …", "expired"]),
    ("trust-expires", Class::NotTrusted, &["metadata version … expires at …"]),
    ("trust-late", Class::NotTrusted, &["metadata version … expired at …; new releases are refused from … on"]),
    (
        "clock-behind",
        Class::NotTrusted,
        &["this host's clock shows …, but metadata was signed at …", "certificate is not yet valid", "clock skew"],
    ),
    (
        "release-damaged",
        Class::Integrity,
        &[
            "its files are not what was signed",
            "has other content",
            "No such file or directory",
            "cannot execute binary file",
        ],
    ),
    ("receipt-unreadable", Class::Integrity, &["cannot understand …manifest.json.zst"]),
    ("tree-without-receipt", Class::Failed, &["no release of it is installed"]),
    ("receipt-without-tree", Class::Failed, &["cannot find release … of …"]),
    ("staging-leftover", Class::Failed, &[]),
    (
        "current-broken",
        Class::Failed,
        &[
            "it has no current release yet",
            "it points to …, not to a release in versions/",
            "current: No such file or directory",
        ],
    ),
    ("no-current", Class::Failed, &["it has no current release yet"]),
    ("previous-missing", Class::Failed, &["there is no release to go back to"]),
    ("journal-corrupt", Class::Failed, &["cannot use …/journal"]),
    (
        "host-lacks",
        Class::Failed,
        &[
            "error while loading shared libraries: …: cannot open shared object file",
            "version `GLIBC_…' not found",
            "libraries that the release needs are missing on this host",
        ],
    ),
    ("read-only", Class::Failed, &["Read-only file system", "Remounting filesystem read-only", "EROFS"]),
    (
        "no-exec",
        Class::Failed,
        &["Permission denied", "the file system is mounted with noexec", "failed to map segment from shared object"],
    ),
    (
        "network-file-system",
        Class::Failed,
        &["No locks available", "Stale file handle", "the file system of … can't lock"],
    ),
    ("cleaned-by-age", Class::Failed, &["No module named 'salt.exceptions'", "ImportError: No module named"]),
    ("emptied-at-boot", Class::Failed, &[]),
    ("snapshot", Class::Failed, &[]),
    ("image-of-the-system", Class::Failed, &[]),
    ("selinux-label", Class::Failed, &["avc:  denied", "SELinux is preventing"]),
    ("volatile-file-system", Class::Failed, &[]),
    ("no-space", Class::NoSpace, &["No space left on device", "ENOSPC", "Disk quota exceeded"]),
    ("space-low", Class::NoSpace, &["No space left on device"]),
    ("no-inodes", Class::NoSpace, &["No space left on device"]),
    ("not-supervised", Class::Failed, &["not supervised", "sidle@….service: Main process exited"]),
    ("supervisor-older", Class::Failed, &[]),
    (
        "agent-not-running",
        Class::Failed,
        &["was ended by signal …", "exited with code …", "Out of memory: Killed process"],
    ),
    ("agent-unhealthy", Class::Failed, &["not healthy: …", "not connected", "not signed in"]),
    ("other-release-runs", Class::Failed, &[]),
    ("configuration-changed", Class::Failed, &[]),
    ("switch-live", Class::Pending, &["another switch is live"]),
    ("switch-stranded", Class::Pending, &["stranded", "waits for a person"]),
    ("switch-stuck", Class::Pending, &["its supervisor has ended"]),
    ("held", Class::Held, &["it is held by …"]),
    ("hold-unreadable", Class::Held, &[]),
    ("package-locked", Class::Locked, &["another command is at work on it"]),
    ("release-in-use", Class::Conflict, &["… holds its lease", "cannot remove …"]),
    (
        "unit-missing",
        Class::Failed,
        &["Unit sidle@….service could not be found", "Failed to start sidle@….service: Unit … not found"],
    ),
    ("unit-masked", Class::Failed, &["Unit … is masked"]),
    ("unit-disabled", Class::Failed, &[]),
    ("unit-failed", Class::Failed, &["Failed with result", "entered failed state"]),
    ("packaged-unit", Class::Failed, &[]),
    ("packaged-unit-masked", Class::Failed, &["Unit … is masked"]),
    ("distribution-package", Class::Failed, &[]),
    ("command-of-another", Class::Failed, &["command not found"]),
];

/// An explanation, with all sentences of its kind.
pub type Known = (Explanation, Vec<&'static str>);

/// The general kinds with the kinds and sentences that an agent adds.
pub fn with(own: &[Explanation]) -> Vec<Known> {
    let mut all: Vec<Known> = KINDS
        .iter()
        .map(|(id, class, words)| {
            let (means, remedy) = row(id).unwrap_or_default();
            (Explanation { id, class: *class, means, remedy, words }, words.to_vec())
        })
        .collect();
    for explanation in own {
        match all.iter_mut().find(|(known, _)| known.id == explanation.id) {
            Some((_, words)) => words.extend(explanation.words),
            None => all.push((explanation.clone(), explanation.words.to_vec())),
        }
    }
    all
}

/// The heading of the tables of findings: other tables of the page have rows of the same names.
const HEADING: &str = "## What each doctor finding means";

/// The meaning and the remedy in a finding's row of the page: ``| `id` | meaning | what to do |``.
fn row(id: &str) -> Option<(&'static str, &'static str)> {
    let mut findings = PAGE.lines().skip_while(|line| *line != HEADING);
    let cells = findings.find_map(|line| line.strip_prefix("| `")?.strip_prefix(id)?.strip_prefix("` | "))?;
    cells.strip_suffix(" |")?.split_once(" | ")
}

/// The class of the worst finding, for the exit code; None: nothing is worse than a note.
pub fn class(findings: &[&Finding], own: &[Explanation]) -> Option<Class> {
    let worst = findings.iter().map(|finding| finding.severity).max().filter(|worst| *worst > Severity::Note)?;
    let known = KINDS.iter().map(|(id, class, _)| (*id, *class)).chain(own.iter().map(|own| (own.id, own.class)));
    let known: Vec<_> = known.collect();
    let class = |id: &str| known.iter().find(|(known, _)| *known == id).map_or(Class::Failed, |(_, class)| *class);
    findings.iter().filter(|finding| finding.severity == worst).map(|finding| class(finding.id)).min()
}

/// True if the line of a log matches one of the sentences, or a part of one. Case and punctuation do not count.
pub fn matches(words: &[&str], asked: &str) -> bool {
    let asked = plain(asked);
    !asked.is_empty()
        && words.iter().any(|sentence| {
            let parts: Vec<String> = sentence.split('…').map(plain).filter(|part| !part.is_empty()).collect();
            // Whole words only.
            let is_part = format!(" {} ", parts.join(" ")).contains(&format!(" {asked} "));
            is_part || in_order(&asked, &parts)
        })
}

/// Lower case, letters and digits alone, one blank between words.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if the text has all parts, one after another.
fn in_order(mut text: &str, parts: &[String]) -> bool {
    let mut has = |part: &String| {
        let after = text.split_once(part.as_str()).map(|(_, after)| after);
        text = after.unwrap_or_default();
        after.is_some()
    };
    !parts.is_empty() && parts.iter().all(&mut has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_line_of_a_log_finds_its_kind() {
        let words = ["Master hostname: … not found or not responsive", "No space left on device"];
        for asked in [
            "no space left",
            "OSError: [Errno 28] No space left on device: '/var/cache/salt'",
            "2026-01-01 [ERROR] Master hostname: 'salt' not found or not responsive. Retrying in 30 seconds",
            "master hostname",
            "NOT RESPONSIVE!",
        ] {
            assert!(matches(&words, asked), "{asked}");
        }
        for asked in ["", "…", "spaceship", "not found here", "responsive hostname"] {
            assert!(!matches(&words, asked), "{asked}");
        }
    }

    #[test]
    fn each_kind_has_one_explanation_that_says_what_to_do() {
        let all = with(&[]);
        let ids: BTreeSet<&str> = all.iter().map(|(known, _)| known.id).collect();
        assert_eq!(ids.len(), all.len());
        for (known, _) in all {
            assert!(!known.means.is_empty() && !known.remedy.is_empty(), "docs/operations.md: {}", known.id);
        }
    }

    #[test]
    fn the_worst_finding_gives_the_class_and_a_note_gives_none() {
        let finding = |id, severity| Finding { id, severity, what: String::new(), remedy: String::new() };
        let note = finding("release-damaged", Severity::Note);
        let unknown = finding(COULD_NOT_LOOK, Severity::Unknown);
        let (space, damage) = (finding("no-space", Severity::Error), finding("release-damaged", Severity::Error));
        assert_eq!(class(&[&note], &[]), None);
        assert_eq!(class(&[&note, &unknown], &[]), Some(Class::Failed));
        assert_eq!(class(&[&unknown, &space, &damage], &[]), Some(Class::Integrity));
    }
}
