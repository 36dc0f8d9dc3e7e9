//! Rates and pauses: pure over times that the caller reads from a clock.

use jiff::Timestamp;
use std::time::Duration;

/// Least average rate of a mirror, bytes a second. Stops a mirror that keeps a host waiting for years with a byte now and then (slow retrieval).
pub const BYTES_PER_SECOND_MINIMUM: u64 = 1024;

/// Longest pause after failures of a mirror.
pub const PAUSE_MAXIMUM: Duration = Duration::from_secs(60);

/// Longest pause that a mirror may ask for. Stops a mirror that says "come back in a year".
pub const RETRY_AFTER_MAXIMUM: Duration = Duration::from_secs(5 * 60);

/// Keeps received bytes below a rate: each byte costs time, and the next read waits until it has passed.
#[derive(Debug, Clone)]
pub struct Bucket {
    bytes_per_second: u64,
    paid_until: Duration,
}

impl Bucket {
    /// A limit in bytes a second; 0 is read as 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid_until: Duration::ZERO }
    }

    /// Counts received bytes, at the time `now`.
    pub fn take(&mut self, bytes: u64, now: Duration) {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.paid_until = self.paid_until.max(now).saturating_add(cost);
    }

    /// The wait at the time `now` before the next read.
    pub fn wait(&self, now: Duration) -> Duration {
        self.paid_until.saturating_sub(now)
    }
}

/// Detects a mirror that trickles.
#[derive(Debug, Clone)]
pub struct Pace {
    window: Duration,
    waited: Duration,
    received: u64,
}

impl Pace {
    /// Judges once per `window` of waiting.
    pub fn new(window: Duration) -> Self {
        Self { window, waited: Duration::ZERO, received: 0 }
    }

    /// Counts bytes and the wait for them. False: the mirror is too slow.
    pub fn add(&mut self, bytes: u64, waited: Duration) -> bool {
        self.received += bytes;
        self.waited += waited;
        if self.waited < self.window {
            return true;
        }
        let least = self.waited.as_secs_f64() * precise(BYTES_PER_SECOND_MINIMUM);
        let enough = precise(self.received) >= least;
        (self.waited, self.received) = (Duration::ZERO, 0);
        enough
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
fn precise(count: u64) -> f64 {
    count as f64
}

/// The pause after `failures` failures in a row: `first`, doubled with each further failure, up to a limit. The caller adds jitter.
pub fn pause(first: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(doubled.max(1)).min(PAUSE_MAXIMUM)
}

/// The pause in a `Retry-After` header (RFC 9110 §10.2.3): seconds, or a date. None if it is unreadable.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let asked = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds is a long time.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
        Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO)
    };
    Some(asked.min(RETRY_AFTER_MAXIMUM))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn no_stretch_of_time_gets_more_bytes_than_the_limit() {
        let mut bucket = Bucket::new(1000);
        let (mut now, mut received) = (7 * SECOND, 0);
        let start = now;
        let since = |now: Duration| now.saturating_sub(start);
        for bytes in [100, 5000, 1, 0, 2500, 2500] {
            now += bucket.wait(now);
            assert!(
                received <= u64::try_from(since(now).as_millis()).unwrap(),
                "{received} bytes after {:?}",
                since(now)
            );
            bucket.take(bytes, now);
            received += bytes;
        }
        now += bucket.wait(now);
        assert_eq!(since(now), Duration::from_millis(10_101));
        // Time in which nothing was received isn't saved up.
        bucket.take(1000, now + 60 * SECOND);
        assert_eq!(bucket.wait(now + 60 * SECOND), SECOND);
    }

    #[test]
    fn a_trickle_is_too_slow_and_our_own_waits_do_not_count() {
        let mut pace = Pace::new(10 * SECOND);
        assert!((0..9).all(|_| pace.add(1, SECOND)));
        assert!(!pace.add(1, SECOND));
        let mut pace = Pace::new(10 * SECOND);
        assert!((0..100).all(|_| pace.add(BYTES_PER_SECOND_MINIMUM, SECOND)));
        assert!((0..100).all(|_| pace.add(1, Duration::ZERO)));
    }

    #[test]
    fn pauses_double_and_end() {
        let first = Duration::from_millis(500);
        let seconds: Vec<_> = [0, 1, 2, 3, 8, 32, 33, 1000].map(|n| pause(first, n).as_secs_f64()).to_vec();
        assert_eq!(seconds, [0.5, 0.5, 1.0, 2.0, 60.0, 60.0, 60.0, 60.0]);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_capped() {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
        assert_eq!(retry_after(" 7 ", now), Some(7 * SECOND));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(37 * SECOND));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:48:37 GMT", now), Some(Duration::ZERO));
        for long in ["99999999999999999999999999", "86400", "Sat, 06 Nov 2094 08:49:37 GMT"] {
            assert_eq!(retry_after(long, now), Some(RETRY_AFTER_MAXIMUM), "{long}");
        }
        for bad in ["", "-1", "soon", "1.5"] {
            assert_eq!(retry_after(bad, now), None, "{bad}");
        }
    }
}
