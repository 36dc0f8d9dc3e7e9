//! Keys of masters and minions, made once for all tests of a run: to make one takes a fifth of a second of the processor. They are what Salt makes with
//! `SHORT_KEY`.

use super::minions::once;
use super::shared;
use super::stage::text;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Nobody in a test has another's key. Those of another test may: masters of different tests have no minion in common.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Puts a pair of keys into a directory as NAME.pem and NAME.pub. Where tests share no place it puts nothing there, and Salt makes them itself.
pub fn put(directory: &Path, name: &str) {
    let Some(shared) = shared() else { return };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let pair = once(&shared.join(format!("keys-{number}")), &shared.join("keys-lock"), make);
    fs::create_dir_all(directory).unwrap();
    for (kind, mode) in [("pem", 0o400), ("pub", 0o644)] {
        let file = directory.join(format!("{name}.{kind}"));
        fs::copy(pair.join(kind), &file).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn make(pair: &Path) {
    fs::create_dir(pair).unwrap();
    let (private, public) = (pair.join("pem"), pair.join("pub"));
    for words in [
        &["genrsa", "-traditional", "-out", text(&private), "2048"][..],
        &["rsa", "-in", text(&private), "-pubout", "-out", text(&public)],
    ] {
        let made = Command::new("openssl").args(words).output().expect("apt-get install openssl");
        assert!(made.status.success(), "{made:?}");
    }
}
