//! Trust: a pinned root, metadata that still counts, and a clock that agrees with what was signed.

use crate::agent::examination::{Group, Severity};
use crate::config::Settings;
use crate::failure::{Report, moment};
use crate::layout::Layout;
use crate::trust_store::{TrustStore, TrustStoreError, Trusted};
use jiff::{SignedDuration, Timestamp};

/// How long before its end it is told that root or targets metadata expires: a person with a key has to sign anew.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Looks at it. `settings`: None: they can't be read.
pub fn check(layout: &Layout, settings: Option<&Settings>, now: Timestamp) -> Group {
    let mut group = Group::new("trust");
    match TrustStore::open(&layout.trust()).and_then(|trust_store| trust_store.load()) {
        Ok(trusted) => tell(&mut group, &trusted, settings, now),
        Err(error @ TrustStoreError::Unpinned { .. }) => {
            let hint = error.hint().unwrap_or_default();
            let what = "no repository's root is pinned: nothing can be installed";
            group.find(Severity::Warning, "trust-unpinned", what, hint);
        }
        Err(TrustStoreError::Os(error)) => group.unknown("what this host trusts", error, "run it as root"),
        Err(error) => {
            let report = Report::from(error);
            let remedy = report.hint.clone().unwrap_or_default();
            group.find(Severity::Error, "trust-damaged", report.to_string(), remedy);
        }
    }
    group
}

fn tell(group: &mut Group, trusted: &Trusted, settings: Option<&Settings>, now: Timestamp) {
    clock(group, trusted, now);
    let headers = match trusted.headers() {
        Ok(headers) => headers,
        Err(error) => {
            let remedy = "restore /var/lib/sidle/trust from a backup";
            return group.find(Severity::Error, "trust-damaged", error.to_string(), remedy);
        }
    };
    let fetches = settings.is_some_and(Settings::names_a_repository);
    let grace = settings.and_then(|settings| SignedDuration::try_from(settings.by_hand_grace).ok());
    let grace = grace.unwrap_or(crate::trust::BY_HAND_GRACE);
    let mut good = Vec::new();
    for (role, header) in headers {
        let (version, expires) = (header.version, header.expires);
        let by_person = matches!(role, "root" | "targets");
        let late = now.duration_since(expires);
        let what = format!("{role} metadata version {version} expired at {expires}");
        if late.is_negative() && by_person && -late < SOON {
            let what = format!(
                "{role} metadata version {version} expires at {expires}: from then on no new release is accepted"
            );
            let remedy = "the repository's keyholder signs anew (`sidle repo status` and `sidle repo sign` there), then fetch or carry it here";
            group.find(Severity::Warning, "trust-expires", what, remedy);
        } else if late.is_negative() {
            good.push(format!("{role} until {expires}"));
        } else if by_person {
            let remedy = "the repository's keyholder signs anew, then fetch or carry it here; what is installed starts all the same";
            group.find(Severity::Error, "trust-expired", format!("{what}: no new release is accepted"), remedy);
        } else if fetches {
            // A newer one comes with the next fetch; this one only says when the last was.
            let remedy = "none, if releases are fetched seldom: the next fetch brings a newer one";
            group.find(Severity::Note, "trust-late", format!("{what}: nothing was fetched since"), remedy);
        } else if late < grace {
            let what = format!("{what}: a bundle with no newer one is accepted until {}", expires + grace);
            group.find(Severity::Note, "trust-late", what, "none, while newer bundles come");
        } else {
            let what = format!("{what}, longer ago than the grace for what is carried by hand");
            group.find(Severity::Warning, "trust-late", what, "export a bundle from the repository as it is now");
        }
    }
    if !good.is_empty() {
        group.good(good.join(", "));
    }
}

/// The clock against what was surely signed before now.
fn clock(group: &mut Group, trusted: &Trusted, now: Timestamp) {
    match trusted.floor.last_seen {
        Some(seen) if now < seen => {
            let (now, seen) = (moment(now), moment(seen));
            let what = format!("this host's clock shows {now}, and metadata was signed at {seen}: the clock is behind");
            let remedy = "set the clock (`timedatectl set-ntp true`); if the signature's date was wrong: `sidle trust reset-clock`";
            group.find(Severity::Error, "clock-behind", what, remedy);
        }
        Some(seen) => group.good(format!("the clock is past the latest signature ({})", moment(seen))),
        None => group.good("no signature seen yet to compare the clock with"),
    }
}
