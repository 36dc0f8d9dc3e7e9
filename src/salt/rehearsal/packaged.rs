//! The minion of a distribution's package, or of Salt's own: the Python that its process executes, and the tree around it.

use crate::os::account::Rights;
use crate::os::ground::{self, Keeper};
use crate::os::process::{self, Identity, Program};
use crate::os::{again, file, proc_fs};
use crate::rehearsal::{Former, Part};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variables by which a minion's Python finds what `salt-pip` has installed: of its unit, or of `/etc/default`.
pub(super) const VARIABLES: [&str; 2] = ["SALT_EXTRAS_DIR", "SALT_HOME"];

/// Prints the version of a tree's Salt.
const VERSION: &str = "import salt.version; print(salt.version.__version__)";
/// How long a Python may take to load one module of Salt, on a slow host.
const VERSION_WAIT: Duration = Duration::from_secs(30);

/// The minion whose first process this is.
pub(super) fn of(leader: &Identity) -> Former {
    asked(leader).map_or_else(Former::Unknown, |(part, rights)| Former::Packaged(part, rights))
}

fn asked(leader: &Identity) -> Result<(Part, Rights), String> {
    let said = |error: crate::os::OsError| error.to_string();
    let rights = Rights::of(leader.pid).map_err(said)?;
    let rights = rights.ok_or_else(|| format!("the rights of {leader} are not one user's"))?;
    let executed = proc_fs::program(leader.pid).ok_or_else(|| format!("cannot tell what {leader} executes"))?;
    let executed = proc_fs::without_deleted(&executed);
    let tree = named_tree(leader, &executed)
        .or_else(|| tree_of(&executed))
        .ok_or_else(|| format!("{leader} executes {}, which is no Python of a tree", executed.display()))?;
    // What another user could have written is started with his rights, never with those of this program. But Salt's packages give a whole tree to
    // their own user, and their unit starts it as root: that user already has the rights with which it is started here.
    let python = python_of(&tree);
    if rights.user == process::user() && ground::keeper(&python).map_err(said)? == Keeper::Others {
        return Err(format!("other users can change {}, or where it leads", python.display()));
    }
    let mut environment = Vec::new();
    for name in VARIABLES {
        environment.extend(proc_fs::environment_variable(leader.pid, name).map_err(said)?.map(|to| (name.into(), to)));
    }
    // Whoever it is may have replaced his process meanwhile.
    let is_same = leader.is_alive().map_err(said)? && Rights::of(leader.pid).map_err(said)?.as_ref() == Some(&rights);
    if is_same { Ok((Part { tree, environment }, rights)) } else { Err(format!("{leader} is another one now")) }
}

/// A tree's Python, to be looked at: `SaltRehearser::program` starts it.
fn python_of(tree: &Path) -> PathBuf {
    tree.join("bin").join("python3")
}

/// The tree of the link by which the process was started, such as the Python of a virtual environment, which is another program's file.
fn named_tree(leader: &Identity, executed: &Path) -> Option<PathBuf> {
    let command = again::words(proc_fs::command_line(leader.pid).ok()??);
    let named = Path::new(command.first()?);
    tree_of(named).filter(|_| named.is_absolute() && file::canonical(named).is_ok_and(|path| path == executed))
}

/// The version of its Salt, such as 3005.5; None: it does not say. It is asked with the rights of its process.
pub(in crate::salt) fn version(leader: &Identity) -> Option<String> {
    let (part, rights) = asked(leader).ok()?;
    let mut program = Program::python(python_of(&part.tree)).argument("-c").argument(VERSION);
    program.environment = part.environment;
    program.rights = Some(rights).filter(|rights| rights.user != process::user());
    let said = program.answer_within(VERSION_WAIT).ok()?.filter(|said| said.success)?;
    Some(said.output.lines().last()?.trim().to_owned())
}

/// The tree of `TREE/bin/python3.10`, which has a `bin/python3`, too.
fn tree_of(executed: &Path) -> Option<PathBuf> {
    let is_python = executed.file_name()?.to_str()?.starts_with("python3");
    let tree = executed.parent().filter(|programs| programs.ends_with("bin"))?.parent()?;
    (is_python && file::is_input(&python_of(tree))).then(|| tree.to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test makes real files")]
mod tests {
    use super::*;
    use crate::os::process::{Input, end_group};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Instant;

    /// Copies a program to where a tree has its Python, and starts it.
    fn started(tree: &Path, name: &str) -> (std::process::Child, Identity) {
        fs::create_dir_all(tree.join("bin")).unwrap();
        let program = tree.join("bin").join(name);
        fs::copy("/bin/sleep", &program).unwrap();
        let start = Program::new(&program).argument("60").variable("SALT_EXTRAS_DIR", "/srv/extras");
        let child = start.start(Input::Null).unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        // The kernel names the new program before its variables can be read.
        let has_variables = || proc_fs::environment_variable(child.id(), "SALT_EXTRAS_DIR").unwrap().is_some();
        while proc_fs::program(child.id()) != Some(program.clone()) || !has_variables() {
            assert!(Instant::now() < end, "it does not start");
            std::thread::yield_now();
        }
        (child, identity)
    }

    /// An adoption had nothing to compare with: what `salt-pip` had installed for the packaged minion was gone without a word.
    #[test]
    fn a_packaged_minion_is_the_tree_of_its_python_with_its_own_rights() {
        let place = tempfile::tempdir().unwrap();
        let tree = file::canonical(place.path()).unwrap().join("opt/salt");
        let (mut child, leader) = started(&tree, "python3.10");
        assert!(matches!(of(&leader), Former::Unknown(why) if why.contains("no Python of a tree")), "no bin/python3");
        symlink("python3.10", python_of(&tree)).unwrap();
        let environment = vec![("SALT_EXTRAS_DIR".into(), "/srv/extras".into())];
        let rights = Rights::of(std::process::id()).unwrap().unwrap();
        assert_eq!(of(&leader), Former::Packaged(Part { tree: tree.clone(), environment }, rights));
        // Anybody could put his own program there.
        fs::set_permissions(tree.join("bin"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(of(&leader), Former::Unknown(why) if why.contains("other users can change")));
        end_group(&mut child).unwrap();
        assert!(matches!(of(&leader), Former::Unknown(_)), "it is gone");
        // A virtual environment has links to the Python of another tree, and its own packages.
        fs::set_permissions(tree.join("bin"), fs::Permissions::from_mode(0o755)).unwrap();
        let venv = file::canonical(place.path()).unwrap().join("srv/venv");
        fs::create_dir_all(venv.join("bin")).unwrap();
        symlink(tree.join("bin/python3"), python_of(&venv)).unwrap();
        let mut child = Program::new(python_of(&venv)).argument("60").start(Input::Null).unwrap();
        let leader = Identity::of(child.id()).unwrap().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !matches!(of(&leader), Former::Packaged(Part { tree, .. }, _) if tree == venv) {
            assert!(Instant::now() < end, "{:?}", of(&leader));
            std::thread::yield_now();
        }
        assert_eq!(version(&leader), None, "it is no Salt");
        end_group(&mut child).unwrap();
        let (mut other, leader) = started(&tree, "minion");
        assert!(matches!(of(&leader), Former::Unknown(why) if why.contains("no Python")));
        end_group(&mut other).unwrap();
    }
}
