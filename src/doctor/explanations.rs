//! What each kind of finding means, what to do about it, and the sentences by which people meet it in logs and messages.

use crate::agent::examination::{COULD_NOT_LOOK, Explanation, Finding, Severity};
use crate::failure::Class;

const fn of(
    id: &'static str,
    class: Class,
    means: &'static str,
    remedy: &'static str,
    words: &'static [&'static str],
) -> Explanation {
    Explanation { id, class, means, remedy, words }
}

/// The general ones; an agent's own come on top.
pub const ALL: &[Explanation] = &[
    of(
        COULD_NOT_LOOK,
        Class::Failed,
        "something could not be looked at: it is not known to be good",
        "run `sidle doctor` as root",
        &["Permission denied", "Operation not permitted"],
    ),
    of(
        "settings-invalid",
        Class::Usage,
        "the settings in /etc/sidle can't be understood",
        "correct the line that is named",
        &["cannot use the settings in …"],
    ),
    of(
        "foreign-directory",
        Class::NotTrusted,
        "a place that sidle works in belongs to somebody else, or others may write to it: what lies there can be anything",
        "look at what is in it, then `chown root:` and `chmod go-w` it",
        &["cannot use a place that other users can change", "belongs to … (user …)", "may be written to by … (mode …)"],
    ),
    of(
        "trust-unpinned",
        Class::NotTrusted,
        "no repository's root is pinned on this host",
        "`sidle trust pin FILE --fingerprint F`",
        &["cannot trust anything yet", "no repository's root is pinned"],
    ),
    of(
        "trust-damaged",
        Class::NotTrusted,
        "the trusted metadata is missing or not as it was stored",
        "restore /var/lib/sidle/trust from a backup",
        &["is not as it was stored"],
    ),
    of(
        "trust-expired",
        Class::NotTrusted,
        "root or targets metadata has expired: no new release is accepted; what is installed starts, is mended and rolled back all the same",
        "the repository's keyholder signs anew; then fetch, or carry a new bundle here",
        &["metadata version … expired at …", "expired"],
    ),
    of(
        "trust-expires",
        Class::NotTrusted,
        "root or targets metadata expires within 30 days",
        "the repository's keyholder signs anew in time",
        &["metadata version … expires at …"],
    ),
    of(
        "trust-late",
        Class::NotTrusted,
        "snapshot or timestamp metadata has expired: nothing newer came since",
        "fetch, or export a bundle from the repository as it is now",
        &["metadata version … expired at …; new releases are refused from … on"],
    ),
    of(
        "clock-behind",
        Class::NotTrusted,
        "the host's clock shows a time before one that trusted metadata was signed at",
        "set the clock: `timedatectl set-ntp true`",
        &["this host's clock shows …, but metadata was signed at …", "certificate is not yet valid", "clock skew"],
    ),
    of(
        "release-damaged",
        Class::Integrity,
        "files of a release are missing or changed: a cleaner of old files, a disk, or somebody's hand",
        "`sidle repair PACKAGE RELEASE`",
        &[
            "its files are not what was signed",
            "has other content",
            "No such file or directory",
            "cannot execute binary file",
        ],
    ),
    of(
        "receipt-unreadable",
        Class::Integrity,
        "the receipt of a release, which holds its signed manifest, can't be understood",
        "restore it from a backup, or remove the release and install it again",
        &["cannot understand …manifest.json.zst"],
    ),
    of(
        "tree-without-receipt",
        Class::Failed,
        "a tree lies among the releases that no install has finished, or whose receipt was deleted",
        "the next command that changes the package clears it away",
        &["no release of it is installed"],
    ),
    of(
        "receipt-without-tree",
        Class::Failed,
        "a release was deleted by hand: its receipt is left",
        "install it again, or let the next command clear the receipt away",
        &["cannot find release … of …"],
    ),
    of(
        "staging-leftover",
        Class::Failed,
        "an install is under way, or was cut off",
        "the next command that changes the package clears it away",
        &[],
    ),
    of(
        "current-broken",
        Class::Failed,
        "the link that says what a boot starts is missing, or names nothing that is installed",
        "`sidle supervise` makes it anew from its journal",
        &[
            "it has no current release yet",
            "it points to …, not to a release in versions/",
            "current: No such file or directory",
        ],
    ),
    of(
        "no-current",
        Class::Failed,
        "nothing was switched to yet",
        "`sidle switch PACKAGE`",
        &["it has no current release yet"],
    ),
    of(
        "previous-missing",
        Class::Failed,
        "the release before is not installed any more: there is no way back to it",
        "install it again",
        &["there is no release to go back to"],
    ),
    of(
        "journal-corrupt",
        Class::Failed,
        "the journal of switches is not what sidle wrote; it is never read as empty",
        "restore it from a backup",
        &["cannot use …/journal"],
    ),
    of(
        "host-lacks",
        Class::Failed,
        "the host's C library or other libraries are not what the release needs, as after an upgrade of the distribution",
        "install what is missing, or switch to a release that is built for this host",
        &[
            "error while loading shared libraries: …: cannot open shared object file",
            "version `GLIBC_…' not found",
            "this host lacks the libraries it needs",
        ],
    ),
    of(
        "read-only",
        Class::Failed,
        "a file system is mounted read-only: by choice, or by the kernel after an error of the disk",
        "`dmesg` tells why; `mount -o remount,rw`",
        &["Read-only file system", "Remounting filesystem read-only", "EROFS"],
    ),
    of(
        "no-exec",
        Class::Failed,
        "the file system of the releases does not let programs run",
        "`mount -o remount,exec`, and correct /etc/fstab",
        &["Permission denied", "the file system is mounted with noexec", "failed to map segment from shared object"],
    ),
    of(
        "network-file-system",
        Class::Failed,
        "the releases or the state lie on a network file system: locks may not hold there",
        "keep them on a local disk",
        &["No locks available", "Stale file handle", "the file system of … can't lock"],
    ),
    of(
        "cleaned-by-age",
        Class::Failed,
        "the releases or the state lie where systemd-tmpfiles removes what nobody has read for long: some files go, the rest stays",
        "exempt the directory (`x /THE/DIRECTORY` in /etc/tmpfiles.d), or keep them elsewhere",
        &["No module named 'salt.exceptions'", "ImportError: No module named"],
    ),
    of(
        "emptied-at-boot",
        Class::Failed,
        "the releases or the state lie where systemd-tmpfiles empties a directory at boot",
        "keep them on a disk of this host's own, elsewhere",
        &[],
    ),
    of(
        "snapshot",
        Class::Failed,
        "this is a snapshot of a transactional update: what is installed in it and what is known of it would part",
        "install on the running system: sidle needs no snapshot to go back to",
        &[],
    ),
    of(
        "image-of-the-system",
        Class::Failed,
        "the releases lie in the operating system's image, which the next deployment replaces",
        "keep them outside /usr",
        &[],
    ),
    of(
        "volatile-file-system",
        Class::Failed,
        "the releases or the state lie where a boot may empty them",
        "keep them on a disk, unless the host is meant to forget",
        &[],
    ),
    of(
        "no-space",
        Class::NoSpace,
        "there is no room for a release",
        "`sidle collect` removes old releases",
        &["No space left on device", "ENOSPC", "Disk quota exceeded"],
    ),
    of(
        "space-low",
        Class::NoSpace,
        "there is room for one more release, not for two",
        "`sidle collect`",
        &["No space left on device"],
    ),
    of(
        "no-inodes",
        Class::NoSpace,
        "the file system has too few inodes left for a release, though it may have bytes",
        "remove many small files there; `sidle collect` removes old releases; `df -i` counts",
        &["No space left on device"],
    ),
    of(
        "not-supervised",
        Class::Failed,
        "no supervisor lives: the agent is not run, or not looked after",
        "`systemctl enable --now sidle@INSTANCE`",
        &["not supervised", "sidle@….service: Main process exited"],
    ),
    of(
        "supervisor-older",
        Class::Failed,
        "the supervisor runs another version of sidle than the one installed",
        "`systemctl kill -s HUP --kill-who=main sidle@INSTANCE`",
        &[],
    ),
    of(
        "agent-not-running",
        Class::Failed,
        "the supervisor lives, and its agent does not",
        "`sidle status` tells what keeps it; see the agent's own log",
        &["was ended by signal …", "exited with code …", "Out of memory: Killed process"],
    ),
    of(
        "agent-unhealthy",
        Class::Failed,
        "the agent runs and does not reach what it must",
        "see what is found of its peers",
        &["not healthy: …", "not connected", "not signed in"],
    ),
    of(
        "other-release-runs",
        Class::Failed,
        "the running process is of another release than the current one",
        "`sidle restart PACKAGE`",
        &[],
    ),
    of(
        "configuration-changed",
        Class::Failed,
        "the agent was started before its configuration changed",
        "`sidle restart PACKAGE`",
        &[],
    ),
    of("switch-live", Class::Pending, "a switch is under way", "`sidle status PACKAGE`", &["another switch is live"]),
    of(
        "switch-stranded",
        Class::Pending,
        "a switch can go neither forth nor back by itself",
        "end what keeps it, or `sidle cancel PACKAGE`",
        &["stranded", "waits for a person"],
    ),
    of(
        "switch-stuck",
        Class::Pending,
        "a switch is under way and nobody drives it",
        "start its supervisor",
        &["the supervisor went away"],
    ),
    of("held", Class::Held, "a person keeps the instance as it is", "`sidle unhold PACKAGE`", &["it is held by …"]),
    of(
        "hold-unreadable",
        Class::Held,
        "the hold can't be understood: everything is held",
        "`sidle unhold PACKAGE`",
        &[],
    ),
    of(
        "package-locked",
        Class::Locked,
        "a command is at work on the package",
        "wait for it",
        &["another command is at work on it"],
    ),
    of(
        "release-in-use",
        Class::Conflict,
        "a process still uses a release that nobody wants",
        "end it, then `sidle collect`",
        &["… holds its lease", "cannot take … away"],
    ),
    of(
        "unit-missing",
        Class::Failed,
        "systemd has no unit that supervises the instance",
        "install sidle's own package",
        &["Unit sidle@….service could not be found", "Failed to start sidle@….service: Unit … not found"],
    ),
    of(
        "unit-masked",
        Class::Failed,
        "the unit that supervises the instance is masked",
        "`systemctl unmask sidle@INSTANCE`",
        &["Unit … is masked"],
    ),
    of(
        "unit-disabled",
        Class::Failed,
        "no boot starts the unit that supervises the instance",
        "`systemctl enable --now sidle@INSTANCE`",
        &[],
    ),
    of(
        "unit-failed",
        Class::Failed,
        "the unit that supervises the instance has failed",
        "`journalctl -u sidle@INSTANCE`",
        &["Failed with result", "entered failed state"],
    ),
    of(
        "packaged-unit",
        Class::Failed,
        "the package's own unit could start a second agent beside sidle's",
        "`sidle adopt PACKAGE`",
        &[],
    ),
    of(
        "packaged-unit-masked",
        Class::Failed,
        "the package's own unit is masked, and sidle runs nothing in its place",
        "`systemctl unmask UNIT`, or `sidle switch PACKAGE`",
        &["Unit … is masked"],
    ),
    of(
        "distribution-package",
        Class::Failed,
        "the distribution's package of the agent is installed beside sidle's releases",
        "`sidle adopt PACKAGE`",
        &[],
    ),
    of(
        "command-of-another",
        Class::Failed,
        "a command in the search path is another installation's",
        "`sidle run PACKAGE COMMAND -- …`",
        &["command not found"],
    ),
];

/// The kinds that are known here, with the words that an agent adds.
pub fn with(own: &[Explanation]) -> Vec<(Explanation, Vec<&'static str>)> {
    let mut all: Vec<(Explanation, Vec<&'static str>)> =
        ALL.iter().map(|one| (one.clone(), one.words.to_vec())).collect();
    for one in own {
        match all.iter_mut().find(|(known, _)| known.id == one.id) {
            Some((_, words)) => words.extend(one.words),
            None => all.push((one.clone(), one.words.to_vec())),
        }
    }
    all
}

/// The class of the worst finding, for the exit code; None: nothing is worse than a note.
pub fn class(findings: &[&Finding], own: &[Explanation]) -> Option<Class> {
    let worst = findings.iter().map(|finding| finding.severity).max().filter(|worst| *worst > Severity::Note)?;
    let of_worst = findings.iter().filter(|finding| finding.severity == worst);
    let class = |id: &str| ALL.iter().chain(own).find(|one| one.id == id).map(|one| one.class);
    of_worst.map(|finding| class(finding.id).unwrap_or(Class::Failed)).min()
}

/// Whether one of the sentences is the one that a person has met: a part of it, or a line of a log that has it. Case and punctuation don't count.
pub fn is_told_by(words: &[&str], asked: &str) -> bool {
    let asked = plain(asked);
    !asked.is_empty()
        && words.iter().any(|sentence| {
            let parts: Vec<String> = sentence.split('…').map(plain).filter(|part| !part.is_empty()).collect();
            has(&parts.join(" "), &asked) || parts.iter().any(|part| has(part, &asked)) || in_order(&asked, &parts)
        })
}

/// Lower case, letters and digits alone, one blank between words.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whole words only.
fn has(text: &str, part: &str) -> bool {
    format!(" {text} ").contains(&format!(" {part} "))
}

fn in_order(text: &str, parts: &[String]) -> bool {
    let text = format!("{text} ");
    let mut rest = text.as_str();
    !parts.is_empty()
        && parts.iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_line_of_a_log_finds_what_it_tells_of() {
        let words = ["Master hostname: … not found or not responsive", "No space left on device"];
        for asked in [
            "no space left",
            "OSError: [Errno 28] No space left on device: '/var/cache/salt'",
            "2026-01-01 [ERROR] Master hostname: 'salt' not found or not responsive. Retrying in 30 seconds",
            "master hostname",
            "NOT RESPONSIVE!",
        ] {
            assert!(is_told_by(&words, asked), "{asked}");
        }
        for asked in ["", "…", "spaceship", "not found here", "responsive hostname"] {
            assert!(!is_told_by(&words, asked), "{asked}");
        }
    }

    #[test]
    fn each_kind_has_one_explanation_that_says_what_to_do() {
        let ids: BTreeSet<&str> = ALL.iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), ALL.len());
        assert!(ALL.iter().all(|one| !one.means.is_empty() && !one.remedy.is_empty()));
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
