//! What was done to files, and what was synced: on record, so that a test can replay it as a power cut would leave it. Compiled in by the feature
//! `crash-points`.

/// An effect that has just succeeded. With the feature `crash-points` and `SIDLE_EFFECTS=FILE` in the environment it is appended to that file as
/// one JSON line, after what was written meanwhile into the files that were made before.
#[macro_export]
macro_rules! effect {
    ($($effect:tt)*) => {
        #[cfg(feature = "crash-points")]
        $crate::os::effects::note(&$crate::os::effects::Effect::$($effect)*);
    };
}

#[cfg(feature = "crash-points")]
pub use recorder::{Effect, note};

#[cfg(feature = "crash-points")]
mod recorder {
    use serde_json::{Value, json};
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::fd::{AsRawFd as _, BorrowedFd};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};

    /// What was done; a directory and a name in it.
    pub enum Effect<'a> {
        /// With this mode.
        MakeDirectory(BorrowedFd<'a>, &'a OsStr, u32),
        /// With this mode; the open file.
        CreateFile(BorrowedFd<'a>, &'a OsStr, u32, BorrowedFd<'a>),
        /// To this target.
        MakeLink(BorrowedFd<'a>, &'a OsStr, &'a Path),
        /// From here to there.
        Rename((BorrowedFd<'a>, &'a OsStr), (BorrowedFd<'a>, &'a OsStr)),
        /// A file, a link or an empty directory.
        Remove(BorrowedFd<'a>, &'a OsStr),
        /// fsync of a file or a directory.
        Sync(BorrowedFd<'a>),
        /// syncfs.
        SyncAll,
    }

    /// A file that was made and is not synced yet: opened once more, since who made it will close it; its length and time when it was last noted.
    struct Made(File, (u64, i64, i64));

    /// The present path of the open file.
    fn place(fd: BorrowedFd<'_>) -> PathBuf {
        fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
    }

    /// Notes an effect. A record that can't be written shows as a missing effect in the test.
    pub fn note(effect: &Effect<'_>) {
        static UNSYNCED: Mutex<Vec<Made>> = Mutex::new(Vec::new());
        let Some(log) = std::env::var_os("SIDLE_EFFECTS") else { return };
        let mut unsynced = UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = written(&mut unsynced);
        lines.push(match effect {
            Effect::MakeDirectory(directory, name, mode) => {
                json!({"make_directory": [place(*directory).join(name), mode]})
            }
            Effect::CreateFile(directory, name, mode, file) => {
                if let Ok(file) = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())) {
                    unsynced.push(Made(file, (0, 0, 0)));
                }
                json!({"create_file": [place(*directory).join(name), mode]})
            }
            Effect::MakeLink(directory, name, target) => json!({"make_link": [place(*directory).join(name), target]}),
            Effect::Rename((from, old), (to, new)) => {
                json!({"rename": [place(*from).join(old), place(*to).join(new)]})
            }
            Effect::Remove(directory, name) => json!({"remove": place(*directory).join(name)}),
            Effect::Sync(fd) => {
                let synced = place(*fd);
                unsynced.retain(|Made(file, _)| place(std::os::fd::AsFd::as_fd(file)) != synced);
                json!({"sync": synced})
            }
            Effect::SyncAll => {
                unsynced.clear();
                json!("sync_all")
            }
        });
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let text = lines.join("\n") + "\n";
        if let Ok(mut file) = fs::OpenOptions::new().append(true).create(true).open(log) {
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// What was written since it was last noted: of each file all of it.
    fn written(unsynced: &mut [Made]) -> Vec<Value> {
        let mut lines = Vec::new();
        for Made(file, noted) in unsynced {
            let Ok(stat) = file.metadata() else { continue };
            let now = (stat.len(), stat.mtime(), stat.mtime_nsec());
            let path = place(std::os::fd::AsFd::as_fd(file));
            if now == *noted || stat.len() == 0 || stat.nlink() == 0 {
                continue;
            }
            *noted = now;
            let content = fs::read(&path).unwrap_or_default();
            lines.push(json!({"write": [path, content]}));
        }
        lines
    }
}
