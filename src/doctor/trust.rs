//! Trust: a pinned root, metadata that has not expired, and a clock past the signatures.

use crate::agent::examination::{Group, Severity};
use crate::config::Settings;
use crate::failure::{Report, moment};
use crate::layout::Layout;
use crate::trust_store::{TrustStore, TrustStoreError, Trusted};
use jiff::{SignedDuration, Timestamp};

/// How long before its end root or targets metadata is reported: a person with a key has to sign again.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Checks the trust. `settings`: None: they cannot be read.
pub fn check(layout: &Layout, settings: Option<&Settings>, now: Timestamp) -> Group {
    let mut group = Group::new("trust");
    match TrustStore::open(&layout.trust()).and_then(|trust_store| trust_store.load()) {
        Ok(trusted) => metadata(&mut group, &trusted, settings, now),
        Err(error @ TrustStoreError::Unpinned { .. }) => {
            let hint = error.hint().unwrap_or_default();
            let what = "no repository's root is pinned: nothing can be installed";
            group.find(Severity::Warning, "trust-unpinned", what, hint);
        }
        Err(TrustStoreError::Os(error)) => group.unknown("the trust store", error, "run `sidle doctor` as root"),
        Err(error) => {
            let report = Report::from(error);
            let remedy = report.hint.clone().unwrap_or_default();
            group.find(Severity::Error, "trust-damaged", report.to_string(), remedy);
        }
    }
    group
}

fn metadata(group: &mut Group, trusted: &Trusted, settings: Option<&Settings>, now: Timestamp) {
    clock(group, trusted, now);
    let headers = match trusted.headers() {
        Ok(headers) => headers,
        Err(error) => {
            let remedy = "restore /var/lib/sidle/trust from a backup";
            return group.find(Severity::Error, "trust-damaged", error.to_string(), remedy);
        }
    };
    let fetches = settings.is_some_and(Settings::names_a_repository);
    let grace = settings.and_then(|settings| SignedDuration::try_from(*settings.by_hand_grace).ok());
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
            let remedy = "the repository's keyholder signs again (`sidle repo status` and `sidle repo sign` there), then fetch, or carry a bundle here";
            group.find(Severity::Warning, "trust-expires", what, remedy);
        } else if late.is_negative() {
            good.push(format!("{role} until {expires}"));
        } else if by_person {
            let remedy = "the repository's keyholder signs again, then fetch, or carry a bundle here; installed releases still start";
            group.find(Severity::Error, "trust-expired", format!("{what}: no new release is accepted"), remedy);
        } else if fetches {
            // The next fetch brings newer metadata.
            let remedy = "nothing to do if releases are fetched seldom: the next fetch brings newer metadata";
            group.find(Severity::Note, "trust-late", format!("{what}: nothing was fetched since"), remedy);
        } else if late < grace {
            let what = format!("{what}: a bundle without newer metadata is accepted until {}", expires + grace);
            group.find(Severity::Note, "trust-late", what, "nothing to do as long as newer bundles come");
        } else {
            let what = format!("{what}, longer ago than `by_hand_grace` allows");
            group.find(Severity::Warning, "trust-late", what, "export a new bundle from the repository");
        }
    }
    if !good.is_empty() {
        group.good(good.join(", "));
    }
}

/// Checks the clock against the latest signature.
fn clock(group: &mut Group, trusted: &Trusted, now: Timestamp) {
    match trusted.floor.last_seen {
        Some(seen) if now < seen => {
            let (now, seen) = (moment(now), moment(seen));
            let what = format!("this host's clock shows {now}, but metadata was signed at {seen}");
            let remedy = "set the clock (`timedatectl set-ntp true`); if the signature's date was wrong: `sidle trust reset-clock`";
            group.find(Severity::Error, "clock-behind", what, remedy);
        }
        Some(seen) => group.good(format!("the clock is past the latest signature ({})", moment(seen))),
        None => group.good("no signature seen yet to compare the clock with"),
    }
}
