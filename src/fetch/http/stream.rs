//! Reads bodies: never more than wanted, within the rate limit and the time limits, and counts every byte.

use crate::fetch::fault::Fault;
use crate::fetch::pace::{Bucket, Pace};
use crate::fetch::reply::Body;
use crate::fetch::settings::Patience;
use crate::os::clock;
use std::time::Duration;

/// Time limit for the end of a complete body: a late end only costs the connection.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// The limits and counters of a run.
#[derive(Debug)]
pub(in crate::fetch) struct Meter {
    bucket: Option<Bucket>,
    stall: Duration,
    deadline: Duration,
    wire_bytes: u64,
}

impl Meter {
    pub(in crate::fetch) fn new(rate_limit: Option<u64>, patience: &Patience) -> Self {
        let deadline = clock::since_boot().saturating_add(patience.total);
        Self { bucket: rate_limit.map(Bucket::new), stall: patience.stall, deadline, wire_bytes: 0 }
    }

    /// Extends the run's time limit by `pause`.
    pub(in crate::fetch) fn extend(&mut self, pause: Duration) {
        self.deadline = self.deadline.saturating_add(pause);
    }

    /// Body bytes received so far.
    pub(in crate::fetch) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// The rest of the run's time; None: it is over.
    pub(in crate::fetch) fn time_left(&self) -> Option<Duration> {
        self.deadline.checked_sub(clock::since_boot()).filter(|left| !left.is_zero())
    }

    /// Time limit until the next byte.
    pub(in crate::fetch) fn patience(&self) -> Result<Duration, Fault> {
        self.time_left().map(|left| left.min(self.stall)).ok_or(Fault::OutOfTime)
    }
}

/// A body that is being read.
#[derive(Debug)]
pub(in crate::fetch) struct Stream {
    body: Box<dyn Body>,
    /// Received and not used yet.
    ahead: Vec<u8>,
    used: usize,
    pace: Pace,
}

impl Stream {
    pub(in crate::fetch) fn new(body: Box<dyn Body>, patience: &Patience) -> Self {
        Self { body, ahead: Vec::new(), used: 0, pace: Pace::new(patience.stall) }
    }

    /// Appends bytes to `into` until it has `length`. Bytes before a fault stay there.
    pub(in crate::fetch) fn fill(&mut self, meter: &mut Meter, into: &mut Vec<u8>, length: u64) -> Result<(), Fault> {
        while (into.len() as u64) < length {
            if !self.receive(meter)? {
                return Err(Fault::temporary(format!(
                    "the connection ended {} bytes too early",
                    length - into.len() as u64
                )));
            }
            let bytes = self.take(length - into.len() as u64);
            into.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Skips `count` bytes.
    pub(in crate::fetch) fn skip(&mut self, meter: &mut Meter, count: &mut u64) -> Result<(), Fault> {
        while *count > 0 {
            if !self.receive(meter)? {
                return Err(Fault::temporary(format!("the connection ended {count} bytes too early")));
            }
            *count -= self.take(*count).len() as u64;
        }
        Ok(())
    }

    /// Appends the whole body to `into`; more than `maximum` bytes are an error.
    pub(in crate::fetch) fn read_all(
        &mut self,
        meter: &mut Meter,
        into: &mut Vec<u8>,
        maximum: u64,
    ) -> Result<(), Fault> {
        while self.receive(meter)? {
            if into.len() as u64 == maximum {
                return Err(Fault::wrong(format!("it sends more than the {maximum} bytes that are allowed")));
            }
            let bytes = self.take(maximum - into.len() as u64);
            into.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads the end of a body, so that its connection serves again.
    pub(in crate::fetch) fn finish(mut self) {
        if self.used == self.ahead.len() {
            let _ = self.body.next(END_PATIENCE);
        }
    }

    /// Received and unused bytes.
    pub(in crate::fetch) fn ahead(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    /// Uses at most `most` of these bytes.
    pub(in crate::fetch) fn take(&mut self, most: u64) -> &[u8] {
        let there = self.ahead.len() - self.used;
        let count = usize::try_from(most).unwrap_or(there).min(there);
        self.used += count;
        &self.ahead[self.used - count..self.used]
    }

    /// Receives bytes if none are unused. False: the body has ended.
    pub(in crate::fetch) fn receive(&mut self, meter: &mut Meter) -> Result<bool, Fault> {
        if self.used < self.ahead.len() {
            return Ok(true);
        }
        if let Some(bucket) = &meter.bucket {
            let wait = bucket.wait(clock::since_boot());
            clock::sleep(wait.min(meter.time_left().ok_or(Fault::OutOfTime)?));
        }
        let patience = meter.patience()?;
        let begun = clock::since_boot();
        let Some(bytes) = self.body.next(patience)? else { return Ok(false) };
        let now = clock::since_boot();
        meter.wire_bytes += bytes.len() as u64;
        if let Some(bucket) = &mut meter.bucket {
            bucket.take(bytes.len() as u64, now);
        }
        if !self.pace.add(bytes.len() as u64, now.saturating_sub(begun)) {
            return Err(Fault::temporary("it sends too slowly"));
        }
        (self.ahead, self.used) = (bytes, 0);
        Ok(true)
    }
}
