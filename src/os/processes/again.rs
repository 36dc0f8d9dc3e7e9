//! A process that this program did not start, started again: as the user that it ran as. As root only what nobody but root could have written: a
//! process's own command line is the word of its user.

use super::account::{ROOT, Rights};
use super::environment::{Need, Passed, SEARCH_PATH};
use super::process::Identity;
use super::program::Program;
use crate::os::{Result, file, ground, proc_fs};
use std::path::{Path, PathBuf};

/// Set-user-ID and set-group-ID: such a program is told by one user what to do with the rights of another.
const LENDS_RIGHTS: u32 = 0o6000;

/// How a running process was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The rights of the process; None: they are not one user's, or its program is not the one that its command line names.
    pub rights: Option<Rights>,
}

impl Start {
    /// How a process was started; None: it is gone.
    pub fn of(process: &Identity) -> Result<Option<Self>> {
        // Before and after: a process may take a user's rights, and with them a user's command line, at any time.
        let before = Rights::of(process.pid)?;
        let command = words(proc_fs::command_line(process.pid)?.unwrap_or_default());
        let is_its_own = executes(process.pid, &command);
        let rights = Rights::of(process.pid)?.filter(|rights| before.as_ref() == Some(rights) && is_its_own);
        Ok(process.is_alive()?.then_some(Self { command, rights }))
    }
}

/// The words of a command line: setproctitle(3) may have made one word of them all.
pub fn words(command: Vec<String>) -> Vec<String> {
    match &command[..] {
        [title] if title.contains(' ') && !Path::new(title).exists() => title.split(' ').map(str::to_owned).collect(),
        _ => command,
    }
}

fn executes(pid: u32, command: &[String]) -> bool {
    let Some(named) = command.first().and_then(|word| found(word)) else { return false };
    let executed = proc_fs::program(pid).map(|path| proc_fs::without_deleted(&path));
    // A package's upgrade replaces the file: then the path is the same.
    executed.is_some_and(|executed| file::canonical(&named).is_ok_and(|named| named == executed))
}

/// The file of a command's first word.
fn found(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_absolute());
    }
    SEARCH_PATH.split(':').map(|directory| Path::new(directory).join(word)).find(|path| file::is_input(path))
}

/// The program that starts a process again, or why this process must not start it.
pub fn program(command: &[String], rights: Option<&Rights>) -> std::result::Result<Program, String> {
    let Some(rights) = rights else {
        return Err("it is not known for certain which user started it, and how".to_owned());
    };
    let own = rustix::process::geteuid().as_raw();
    let Some((first, arguments)) = command.split_first() else { return Err("its command line is empty".to_owned()) };
    let path = found(first).ok_or_else(|| format!("{first} is not a whole path, nor in {SEARCH_PATH}"))?;
    if rights.user == own {
        check(&path, arguments)?;
    } else if own != ROOT {
        return Err(format!("it ran as another user: {}", super::account::user_name(rights.user)));
    }
    let passed = Passed::default().with(Need::Network);
    let program = arguments.iter().fold(Program::new(path).passing(passed), Program::argument);
    Ok(Program { rights: Some(rights.clone()).filter(|rights| rights.user != own), ..program })
}

/// Refuses files that another user could have written: the program, and each file that an argument names, such as an interpreter's script.
fn check(path: &Path, arguments: &[String]) -> std::result::Result<(), String> {
    let scripts = arguments.iter().map(Path::new).filter(|path| path.is_absolute() && file::is_input(path));
    for path in std::iter::once(path).chain(scripts) {
        match ground::trusted(path) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("other users can change {}, or where it leads", path.display())),
            Err(error) => return Err(error.to_string()),
        }
    }
    let mode = file::stat(path).map_err(|error| error.to_string())?.map_or(0, |stat| stat.mode);
    if mode & LENDS_RIGHTS != 0 {
        return Err(format!("{} lends the rights of its owner to every user", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::{Input, end_group};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn of(words: &[&str], rights: Option<&Rights>) -> std::result::Result<Program, String> {
        program(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), rights)
    }

    #[test]
    fn only_what_nobody_else_could_have_written_is_started_with_own_rights() {
        let own = Rights::of(std::process::id()).unwrap().unwrap();
        let root = tempfile::tempdir().unwrap();
        let script = root.path().join("salt-minion");
        fs::write(&script, "").unwrap();
        let text = script.to_str().unwrap();
        assert!(of(&["/bin/sh", text, "-c", "/etc"], Some(&own)).unwrap().rights.is_none());
        fs::set_permissions(&script, fs::Permissions::from_mode(0o666)).unwrap();
        let refused = of(&["/bin/sh", text], Some(&own)).unwrap_err();
        assert!(refused.contains("other users can change") && refused.contains(text), "{refused}");
        assert!(of(&[text], Some(&own)).unwrap_err().contains("other users can change"));
        assert!(of(&["./salt-minion"], Some(&own)).unwrap_err().contains("not a whole path"));
        assert!(of(&["/bin/sh", "-c", "id"], None).unwrap_err().contains("not known for certain"));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(of(&[text], Some(&own)).unwrap_err().contains("lends the rights"));
    }

    #[test]
    fn another_users_command_gets_that_users_rights_or_is_refused() {
        let nobody = Rights { user: 65534, group: 65534, groups: vec![] };
        let started = of(&["/bin/sh", "/home/me/pwn"], Some(&nobody));
        if rustix::process::geteuid().is_root() {
            assert_eq!(started.unwrap().rights, Some(nobody));
        } else {
            assert!(started.unwrap_err().contains("another user"));
        }
    }

    #[test]
    fn a_running_process_tells_its_command_and_its_rights() {
        let mut child = Program::new("/bin/sleep").argument("60").start(Input::Null).unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        // Between fork and exec it is this program.
        let start = loop {
            let start = Start::of(&identity).unwrap().unwrap();
            if start.command.first().is_some_and(|first| first == "/bin/sleep") {
                break start;
            }
            std::thread::yield_now();
        };
        assert_eq!(start.command, ["/bin/sleep", "60"]);
        assert_eq!(start.rights, Rights::of(std::process::id()).unwrap());
        end_group(&mut child).unwrap();
        assert_eq!(Start::of(&identity).unwrap(), None);
    }
}
