//! The private directory of ssh's control sockets. Whoever can change a directory above a socket can listen in its place, so each of them is examined.

use crate::cli::{Context, usage};
use crate::failure::Report;
use crate::os::dir::Dir;
use crate::os::{environment, file, process};
use crate::store::owners;
use std::path::{Path, PathBuf};

/// Longest path of a socket, less what ssh adds to it while it binds it (`unix(7)`: 108).
const SOCKET_BYTES_MAXIMUM: usize = 80;

/// The directory of this process; that of an ended process of the same number is replaced.
pub(super) struct Sockets {
    parent: Dir,
    name: String,
}

impl Sockets {
    /// Below `$XDG_RUNTIME_DIR` if nobody else can change that directory, or else below sidle's own, or the user's of systemd.
    pub(super) fn make(context: &Context) -> Result<Self, Report> {
        let mut refused = Vec::new();
        if let Some(runtime) = environment::variable("XDG_RUNTIME_DIR").filter(|runtime| !runtime.is_empty()) {
            match below(Path::new(&runtime)) {
                Ok(made) => return Ok(made),
                Err(reason) => {
                    let reason = format!("{}: {reason}", Path::new(&runtime).display());
                    context.output.warning(&format!("XDG_RUNTIME_DIR is not used for ssh's sockets: {reason}"));
                    refused.push(reason);
                }
            }
        }
        let runs = context.layout.runs();
        match own(&runs) {
            Ok(made) => return Ok(made),
            Err(reason) => refused.push(format!("{}: {reason}", runs.display())),
        }
        let user = PathBuf::from(format!("/run/user/{}", process::user()));
        match below(&user) {
            Ok(made) => return Ok(made),
            Err(reason) => refused.push(format!("{}: {reason}", user.display())),
        }
        let message =
            format!("cannot make a directory for ssh's sockets that nobody else can change: {}", refused.join("; "));
        Err(usage(message, "set XDG_RUNTIME_DIR to a directory of your own with a short path, outside /tmp"))
    }

    /// Its path.
    pub(super) fn path(&self) -> PathBuf {
        self.parent.path().join(&self.name)
    }

    /// What stays after a failure is replaced or gone with the next boot.
    pub(super) fn remove(self) {
        let _ = self.parent.remove_tree(&self.name);
    }
}

/// A directory below an existing one.
fn below(runtime: &Path) -> Result<Sockets, String> {
    if !runtime.is_absolute() {
        return Err("it is no absolute path".to_owned());
    }
    let runtime = file::canonical(runtime).map_err(|error| error.to_string())?;
    require_own(&runtime)?;
    own(&runtime.join("sidle"))
}

/// A directory in this one, which is made if it is missing.
fn own(parent: &Path) -> Result<Sockets, String> {
    let opened = Dir::open_or_create(parent, 0o755).map_err(|error| error.to_string())?;
    let parent = file::canonical(opened.path()).map_err(|error| error.to_string())?;
    require_own(&parent)?;
    let parent = Dir::open(&parent).map_err(|error| error.to_string())?;
    let made = Sockets { parent, name: format!("push-{}", process::own_number()) };
    if made.path().as_os_str().len() > SOCKET_BYTES_MAXIMUM {
        return Err("the path is too long for a socket".to_owned());
    }
    let cleared = made.parent.remove_tree(&made.name).and_then(|()| made.parent.make_dir(&made.name, 0o700));
    cleared.map_err(|error| error.to_string())?;
    Ok(made)
}

fn require_own(path: &Path) -> Result<(), String> {
    match owners::check_way(path) {
        Ok(None) => Ok(()),
        Ok(Some(foreign)) => Err(foreign.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
