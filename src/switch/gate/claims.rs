//! Whether a process of an instance has claimed a job: the guards' claims, for whoever asks later. [`crate::agent::gate`] has their place.

use crate::agent::gate::CLAIMS_NAME;
use crate::digest::Digest;
use crate::os::OsError;
use crate::os::dir::Dir;
use jiff::{SignedDuration, Timestamp};
use std::path::Path;

/// A guard keeps a claim for an hour from the time at which it first sees the claim (`KEPT_SECONDS` of the guard's `claims.py`); less, since clocks are set.
const KEPT: SignedDuration = SignedDuration::from_mins(50);
/// The peer in the name of the second claim of each job: whichever peer the job came through.
const ANY_PEER: &str = "any";
/// So many hexadecimal digits of the digest name a claim.
const NAME_LENGTH: usize = 32;

/// The name of a job's claim: the same in each release.
fn name(peer: &str, job: &str) -> String {
    Digest::of(format!("{peer}\n{job}").as_bytes()).to_string()[..NAME_LENGTH].to_owned()
}

/// Whether a process has claimed the job, which was published at this time; None: not known, or no longer. `peers`: as claims name them.
pub fn is_claimed(
    gate: &Path,
    (job, published): (&str, Option<Timestamp>),
    peers: &[String],
    now: Timestamp,
) -> Result<Option<bool>, OsError> {
    let Some(claims) = Dir::open_if_exists(&gate.join(CLAIMS_NAME))? else { return Ok(None) };
    for peer in peers.iter().map(String::as_str).chain([ANY_PEER]) {
        if claims.stat(name(peer, job))?.is_some() {
            return Ok(Some(true));
        }
    }
    // Claims from before and after show that claims were made then, and are still there: an agent without a guard makes none.
    let mut made = Vec::new();
    for claim in claims.names()? {
        made.extend(claims.stat(&claim)?.and_then(|stat| time(stat.mtime)));
    }
    let Some(published) = published else { return Ok(None) };
    let is_kept = made.iter().any(|made| *made < published) && now.duration_since(published) < KEPT;
    Ok((is_kept && made.iter().any(|made| *made > published)).then_some(false))
}

/// To the nanosecond: a job may be asked about within the second of its publication.
fn time((seconds, nanoseconds): (i64, u32)) -> Option<Timestamp> {
    Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::clock;
    use jiff::ToSpan as _;
    use std::fs::OpenOptions;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_claim_is_named_as_the_guard_names_it() {
        // python3 -c 'import claims; print(claims.name("any", "20261124091200123456"))'
        assert_eq!(name(ANY_PEER, "20261124091200123456"), "b8690df793260f1d2bb319c719215d2e");
    }

    #[test]
    fn a_claim_is_found_and_its_lack_tells_something_only_while_claims_are_kept() {
        let gate = tempfile::tempdir().unwrap();
        let now = clock::now();
        let ago = |seconds: i64| Some(now.checked_sub(seconds.seconds()).unwrap());
        let peers = ["tcp://m:4506".to_owned()];
        let asked = |job: &str, published| is_claimed(gate.path(), (job, published), &peers, now).unwrap();
        assert_eq!(asked("1", ago(0)), None, "no gate");
        let claims = Dir::open_or_create(&gate.path().join(CLAIMS_NAME), 0o755).unwrap();
        assert_eq!(asked("1", ago(0)), None, "no claim");
        let claim = |peer, job, seconds: u64| {
            claims.create_file(name(peer, job), 0o600).unwrap();
            let made = SystemTime::from(now) - Duration::from_secs(seconds);
            let file = gate.path().join(CLAIMS_NAME).join(name(peer, job));
            OpenOptions::new().write(true).open(file).unwrap().set_modified(made).unwrap();
        };
        claim("tcp://m:4506", "1", 100);
        claim("tcp://other:4506", "3", 90);
        assert_eq!(asked("3", ago(60)), None, "no claim since: the package's agent ran it, which makes none");
        claim(ANY_PEER, "2", 10);
        assert_eq!((asked("1", None), asked("2", ago(9000))), (Some(true), Some(true)));
        assert_eq!(asked("3", ago(120)), None, "published before the oldest claim");
        assert_eq!((asked("3", ago(60)), asked("3", None)), (Some(false), None));
        let milliseconds = |number: i64| Some(ago(100).unwrap().checked_sub(number.milliseconds()).unwrap());
        assert_eq!(asked("4", milliseconds(1)), None, "published a moment before the oldest claim");
        assert_eq!(asked("4", milliseconds(-1)), Some(false), "and a moment after it");
        let much_later = now.checked_add(3700.seconds()).unwrap();
        assert_eq!(
            is_claimed(gate.path(), ("3", ago(60)), &peers, much_later).unwrap(),
            None,
            "claims are not kept for so long"
        );
    }
}
