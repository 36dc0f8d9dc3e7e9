//! The clocks: wall time for what people and metadata say, monotonic time for waits, the boot's identity for what a reboot ends.

use super::{OsError, Result, proc_fs};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The wall clock.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Time since boot, suspended time included: what a wait is measured with.
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Waits.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
    proc_fs::look_anew();
}

/// Makes a timer: a descriptor that is readable once its time is up. A wait for it wakes a process once; tokio's wheel of timers wakes it three times on the
/// way to 15 s.
pub fn timer() -> Result<OwnedFd> {
    let made = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
    made.map_err(|source| OsError::new("make", Path::new("a timer"), source))
}

/// Sets a timer: its time is up once, `after` from now.
pub fn set_timer(timer: impl AsFd, after: Duration) -> Result<()> {
    // Zero would stop it.
    let after = after.max(Duration::from_nanos(1));
    let value =
        Timespec { tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), tv_nsec: after.subsec_nanos().into() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    let set = rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
    set.map(|_| ()).map_err(|source| OsError::new("set", Path::new("a timer"), source))
}

/// The present, on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// For people and deadlines.
    pub wall: Timestamp,
    /// For waits.
    pub since_boot: Duration,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self { wall: now(), since_boot: since_boot() }
    }
}

/// A time zone by its name in the host's database (`Europe/Berlin`); None: the host's own. A host without /etc/localtime has UTC
/// (localtime(5)); one that names a zone which can't be read is an error, since a guess may be hours off.
pub fn zone(name: Option<&str>) -> Result<TimeZone> {
    let (zone, path) = match name {
        Some("UTC") => (Ok(TimeZone::UTC), Path::new("UTC")),
        Some(name) => (TimeZone::get(name), Path::new(name)),
        None => (TimeZone::try_system(), Path::new("/etc/localtime")),
    };
    match zone {
        Err(_) if name.is_none() && std::fs::symlink_metadata(path).is_err() => Ok(TimeZone::UTC),
        zone => zone.map_err(|error| OsError::new("use the time zone", path, io::Error::other(error))),
    }
}

/// The kernel's random identity of this boot. Read once: no process outlives its boot, and each comparison of identities asks.
pub fn boot_id() -> Result<String> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|source| OsError::new("read", path, source))?;
    Ok(KNOWN.get_or_init(|| text.trim().to_owned()).clone())
}
