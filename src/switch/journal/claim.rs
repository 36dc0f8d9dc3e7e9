//! A claim: an instance belongs to one rollout of a fleet, and refuses the orders of another one.
//!
//! The fence of fencing tokens: a driver of the rollout that was taken for dead has an older epoch, and its late orders are refused.

use crate::failure::{Class, Reason, Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::saved::Saved;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest id, in characters: it is a part of names of files and of messages.
const ID_LENGTH_MAXIMUM: usize = 128;
/// The most by which one claim raises the epoch: each driver raises it by one, and a runner that tries every five minutes for the 90 days of a late
/// rollout stays far below. Without it, one claim with the highest number would end all later drivers of the rollout.
pub const EPOCH_STEP_MAXIMUM: u64 = 1_000_000;

/// The id of a rollout: letters, digits, `.`, `_` and `-`, beginning with a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RolloutId(String);

impl FromStr for RolloutId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if begins && plain && text.len() <= ID_LENGTH_MAXIMUM {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "the id of a rollout has letters, digits, '.', '_' and '-', begins with a letter or a digit, and has at most {ID_LENGTH_MAXIMUM} characters"
        ))
    }
}

crate::as_text!(RolloutId);

impl fmt::Display for RolloutId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A claim of one rollout on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    schema: u32,
    /// The rollout.
    pub id: RolloutId,
    /// Counts the drivers of the rollout: the higher one counts.
    pub epoch: u64,
    /// Since when.
    pub at: Timestamp,
    /// Its end: a rollout that nobody ends must not claim a host for ever.
    pub until: Timestamp,
}

impl Saved for Claim {
    const NAME: &'static str = "rollout";
    // one claim.
    const LENGTH_MAXIMUM: u64 = 4096;
    const REMEDY: &'static str = "move the file away: the next order of a rollout writes it again";
}

impl Claim {
    /// Makes a claim that begins at `at`.
    pub fn new(id: RolloutId, epoch: u64, at: Timestamp, until: Timestamp) -> Self {
        Self { schema: Self::SCHEMA, id, epoch, at, until }
    }

    /// True until it expires.
    pub fn is_on(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// This claim after `former`: an order within a rollout does not shorten the claim. Refuses another rollout, an older epoch, and one that no driver
    /// of this rollout can have reached.
    pub fn after(self, former: Option<&Self>, instance: &InstanceName, package: &PackageName) -> Result<Self, Report> {
        let former = former.filter(|former| former.is_on(self.at));
        let known = former.filter(|former| former.id == self.id).map_or(0, |former| former.epoch);
        if former.is_none_or(|former| former.id == self.id) && self.epoch > known.saturating_add(EPOCH_STEP_MAXIMUM) {
            let message = format!(
                "cannot use {instance} for rollout {}: epoch {} is more than {EPOCH_STEP_MAXIMUM} above {known}, the epoch that this host knows",
                self.id, self.epoch
            );
            return Err(Report::of(Class::Conflict, message)
                .hint("each driver of a rollout raises the epoch by one: give the epoch of the rollout's record"));
        }
        let Some(former) = former else { return Ok(self) };
        if former.id != self.id {
            let message = format!("cannot use {instance} for rollout {}: it belongs to rollout {former}", self.id);
            let hint = format!(
                "end that rollout first; `sidle rollout unclaim {package} {}` takes this host out of it",
                former.id
            );
            return Err(Report::of(Class::Conflict, message).reason(Reason::OtherRollout).hint(hint));
        }
        if self.epoch < former.epoch {
            let message = format!(
                "cannot use {instance} for rollout {}: epoch {} is over, another driver goes on with epoch {}",
                self.id, self.epoch, former.epoch
            );
            return Err(Report::of(Class::Conflict, message)
                .hint("the driver of the newer epoch gives the orders; stop this one"));
        }
        Ok(Self { at: former.at, until: self.until.max(former.until), ..self })
    }
}

/// `r1 (epoch 2), until …`
impl fmt::Display for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (epoch {}), until {}", self.id, self.epoch, moment(self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str, epoch: u64, at: i64, until: i64) -> Claim {
        let time = |second| Timestamp::from_second(second).unwrap();
        Claim::new(id.parse().unwrap(), epoch, time(at), time(until))
    }

    fn after(new: Claim, former: &Claim) -> Result<Claim, Class> {
        let package: PackageName = "demo-agent".parse().unwrap();
        let instance: InstanceName = "demo-agent".parse().unwrap();
        new.after(Some(former), &instance, &package).map_err(|report| report.class)
    }

    #[test]
    fn one_rollout_at_a_time_and_no_older_epoch() {
        let former = claim("r1", 3, 0, 100);
        assert_eq!(after(claim("r1", 3, 10, 50), &former), Ok(claim("r1", 3, 0, 100)), "it is not shortened");
        assert_eq!(after(claim("r1", 4, 10, 200), &former), Ok(claim("r1", 4, 0, 200)));
        assert_eq!(after(claim("r1", 2, 10, 200), &former), Err(Class::Conflict));
        assert_eq!(after(claim("r2", 9, 10, 200), &former), Err(Class::Conflict));
        assert_eq!(
            after(claim("r2", 1, 100, 200), &former),
            Ok(claim("r2", 1, 100, 200)),
            "the former one has expired"
        );
    }

    #[test]
    fn no_claim_ends_all_later_drivers() {
        let former = claim("r1", 3, 0, 100);
        let highest = claim("r1", u64::MAX, 10, 50);
        assert_eq!(after(highest.clone(), &former), Err(Class::Conflict));
        let (package, instance): (PackageName, InstanceName) =
            ("demo-agent".parse().unwrap(), "demo-agent".parse().unwrap());
        assert!(highest.clone().after(None, &instance, &package).is_err(), "the first claim, too");
        assert!(claim("r1", EPOCH_STEP_MAXIMUM, 0, 100).after(None, &instance, &package).is_ok());
        let last = claim("r1", 3 + EPOCH_STEP_MAXIMUM, 10, 100);
        assert_eq!(after(last.clone(), &former), Ok(Claim { at: former.at, ..last }));
        assert_eq!(after(claim("r1", 4 + EPOCH_STEP_MAXIMUM, 10, 100), &former), Err(Class::Conflict));
        // A claim that an older sidle took is obeyed, and gives way when it ends.
        assert!(after(highest.clone(), &claim("r1", u64::MAX, 0, 100)).is_ok());
        assert_eq!(after(claim("r2", 1, 100, 200), &highest), Ok(claim("r2", 1, 100, 200)));
    }

    #[test]
    fn an_id_is_a_plain_name() {
        for good in ["r1", "salt-minion-3007.17-1-20261124-091200", "A_b"] {
            assert!(good.parse::<RolloutId>().is_ok(), "{good}");
        }
        for bad in ["", "-r", ".r", "a/b", "a b", "ä", &"r".repeat(129)] {
            assert!(bad.parse::<RolloutId>().is_err(), "{bad}");
        }
    }
}
