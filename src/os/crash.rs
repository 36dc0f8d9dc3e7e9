//! Named instants at which a test can kill or stop the program. Compiled to nothing without the feature `crash-points`.

/// An instant between two effects. With the feature `crash-points` and `SIDLE_CRASH_AT=name` (or `name#3`: the third pass) in the
/// environment the process kills itself here, as `kill -9` would; `SIDLE_CRASH_TRACE=FILE` lists the names passed; with
/// `SIDLE_CRASH_ONCE=FILE` only one of several processes dies. With `SIDLE_STOP_AT=name` it stops here, while there is a file at
/// `SIDLE_STOP_WHILE`; SIGCONT lets it go on.
#[macro_export]
macro_rules! crash_point {
    ($name:expr) => {
        #[cfg(feature = "crash-points")]
        $crate::os::crash::pass($name);
    };
}

/// Passes the instant `name`.
#[cfg(feature = "crash-points")]
pub fn pass(name: &str) {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSES: AtomicU64 = AtomicU64::new(0);
    if let Some(trace) = std::env::var_os("SIDLE_CRASH_TRACE") {
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(trace) {
            // A test aid: a trace that can't be written shows as a missing name in the test.
            // In one write: the agent that is being started passes instants, too.
            let _ = file.write_all(format!("{name}\n").as_bytes());
        }
    }
    hold(name);
    let Some(wanted) = std::env::var_os("SIDLE_CRASH_AT") else { return };
    let wanted = wanted.to_string_lossy().into_owned();
    let (point, pass) = wanted.split_once('#').unwrap_or((&wanted, "1"));
    let spent = || {
        let marker = std::env::var_os("SIDLE_CRASH_ONCE");
        marker.is_some_and(|marker| std::fs::OpenOptions::new().write(true).create_new(true).open(marker).is_err())
    };
    if point == name && PASSES.fetch_add(1, Ordering::SeqCst) + 1 == pass.parse().unwrap_or(1) && !spent() {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

#[cfg(feature = "crash-points")]
fn hold(name: &str) {
    let wanted = std::env::var_os("SIDLE_STOP_AT").is_some_and(|wanted| wanted == name);
    if wanted && std::env::var_os("SIDLE_STOP_WHILE").is_some_and(|file| std::path::Path::new(&file).exists()) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    }
}
