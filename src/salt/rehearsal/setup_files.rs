//! The files in which a host tells the scripts of Salt's own packages where it wants a minion's places: upstream's unit need not name them.
//!
//! The scripts source both files in this order, so that the second one counts. They make the directory, and move what `salt-pip` installed into
//! it; the packaged minion looks there only if its process has the variable, too.

use super::packaged::{self, VARIABLES};
use crate::agent::AgentError;
use crate::agent::adoption::{HostSetting, RunningAgent};
use crate::os::dir::Dir;
use crate::os::ground::{self, Keeper};
use crate::os::{OsError, file, proc_fs};
use crate::rehearsal::Former;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

const DIRECTORIES: [(&str, &str); 2] = [("etc/default", "salt-setup"), ("etc/sysconfig", "salt-minion-setup")];
/// Such a file has a few lines; a larger one is something else.
const BYTES_MAXIMUM: u64 = 1 << 16;
/// What a directory's name may have beside letters and digits; anything else may mean something to a shell or to systemd.
const PLAIN: &str = "/._-+:@,";

/// The variables that these files name, and that the process of a running minion does not have.
pub(in crate::salt) fn of(root: &Path, found: &RunningAgent) -> Result<Vec<HostSetting>, AgentError> {
    let named = read(root)?;
    let tree = match packaged::of(&found.leader) {
        Former::Packaged(part, _) => Some(part.tree),
        Former::Nothing | Former::Release(_) | Former::Unknown(_) => None,
    };
    let mut settings = Vec::new();
    for variable in VARIABLES {
        let own = proc_fs::environment_variable(found.leader.pid, variable)?.filter(|value| !value.is_empty());
        let Some((value, file)) = named.get(variable).filter(|_| own.is_none()) else { continue };
        // The packaged minion looks there by itself, and the rehearsal compares it.
        if tree.as_deref().is_none_or(|tree| !is_extras_of(tree, Path::new(value))) {
            let refusal = refusal(variable, value)?;
            settings.push(HostSetting { variable, value: value.clone(), file: file.clone(), refusal });
        }
    }
    Ok(settings)
}

/// The variables with a value, each with its file.
fn read(root: &Path) -> Result<BTreeMap<String, (String, PathBuf)>, OsError> {
    let mut named = BTreeMap::new();
    for (directory, name) in DIRECTORIES {
        let directory = root.join(directory);
        let Some(bytes) =
            Dir::open_if_exists(&directory)?.map_or(Ok(None), |open| open.read_if_exists(name, BYTES_MAXIMUM))?
        else {
            continue;
        };
        for (variable, value) in parse(&String::from_utf8_lossy(&bytes)) {
            if value.is_empty() {
                named.remove(&variable);
            } else {
                named.insert(variable, (value, directory.join(name)));
            }
        }
    }
    Ok(named)
}

/// True for the directory in which `salt-pip` of this tree installs without a variable.
fn is_extras_of(tree: &Path, directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.parent() == Some(tree) && name.starts_with("extras-")
}

/// Why a release must not get a variable; None: nothing forbids it.
fn refusal(variable: &str, value: &str) -> Result<Option<String>, OsError> {
    let is_plain = value.chars().all(|one| one.is_alphanumeric() || PLAIN.contains(one)) && !value.contains("..");
    if !is_plain || !value.starts_with('/') {
        return Ok(Some(
            "it is not the plain path of a directory: write that path there before the adoption".to_owned(),
        ));
    }
    // Root's minion imports from there, whoever owns it; of SALT_HOME it imports nothing.
    let imports = variable == VARIABLES[0];
    let is_roots = !imports || ground::keeper(present(Path::new(value)))? == Keeper::Nobody;
    Ok((!is_roots).then(|| {
        format!("other users than root can write there, and root's minion would run their code: give it to root before the adoption (`chown -R root: {value}`, `chmod -R go-w {value}`)")
    }))
}

/// The directory, or the first one above it that is there.
fn present(path: &Path) -> &Path {
    path.ancestors().find(|path| file::canonical(path).is_ok()).unwrap_or(path)
}

/// Reads assignments as systemd does from an `EnvironmentFile` (systemd.exec(5)), and as the shell does that sources them: also after `export`.
fn parse(text: &str) -> Vec<(String, String)> {
    let (mut characters, mut assignments) = (text.chars().peekable(), Vec::new());
    while characters.peek().is_some() {
        let mut name = String::new();
        let end = loop {
            match characters.next() {
                Some(one) if one != '=' && one != '\n' => name.push(one),
                end => break end,
            }
        };
        let is_comment = name.trim_start().starts_with(['#', ';']);
        if is_comment && end == Some('=') {
            characters.by_ref().find(|one| *one == '\n');
        } else if end == Some('=') {
            let name = name.trim();
            let name = name.strip_prefix("export ").map_or(name, str::trim);
            assignments.push((name.to_owned(), value(&mut characters)));
        }
    }
    assignments
}

/// Reads a value up to the end of its line. White space at its ends counts only in quotes.
fn value(characters: &mut Peekable<Chars<'_>>) -> String {
    let (mut value, mut kept, mut quote) = (String::new(), 0, None);
    while characters.next_if(|one| *one == ' ' || *one == '\t').is_some() {}
    while let Some(one) = characters.next() {
        match (quote, one) {
            (None, '\n') => break,
            (None, '"' | '\'') => quote = Some(one),
            (Some(open), _) if open == one => quote = None,
            (None | Some('"'), '\\') => match characters.next() {
                Some('\n') | None => continue,
                Some(next) => {
                    if quote.is_some() && !"\"\\`$".contains(next) {
                        value.push(one);
                    }
                    value.push(next);
                }
            },
            (None, _) if one.is_whitespace() => {
                value.push(one);
                continue;
            }
            (None | Some(_), _) => value.push(one),
        }
        kept = value.len();
    }
    value.truncate(kept);
    value
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make real files")]
mod tests {
    use super::*;
    use crate::os::again::Start;
    use crate::os::process::Identity;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn assignments_are_read_as_systemd_and_the_shell_read_them() {
        let text = "# SALT_HOME=/no\n ; A=no\nno assignment\n\nSALT_HOME= /srv/home \nB=\"a b\\\"c\\d\"x\nexport C='a\\b'\nD=/srv/\\\nmore\nE=\nF=/x # y\nG=";
        let expected = [
            ("SALT_HOME", "/srv/home"),
            ("B", "a b\"c\\dx"),
            ("C", "a\\b"),
            ("D", "/srv/more"),
            ("E", ""),
            ("F", "/x # y"),
            ("G", ""),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), expected);
    }

    fn write(root: &Path, index: usize, text: &str) -> PathBuf {
        let (directory, name) = DIRECTORIES[index];
        fs::create_dir_all(root.join(directory)).unwrap();
        fs::write(root.join(directory).join(name), text).unwrap();
        root.join(directory).join(name)
    }

    /// This process as a minion: it has neither variable.
    fn minion() -> RunningAgent {
        let leader = Identity::of(std::process::id()).unwrap().unwrap();
        let start = Start::of(&leader).unwrap().unwrap();
        RunningAgent { main: leader.clone(), leader, start, configuration: PathBuf::from("/etc/salt"), user: None }
    }

    /// They count for the scripts of the packages alone: what stood there was lost at an adoption without a word.
    #[test]
    fn a_variable_that_the_running_minion_lacks_is_named_with_its_file_and_the_later_file_counts() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert_eq!(of(root, &minion()).unwrap(), []);
        let extras = root.join("extras").display().to_string();
        let first = write(root, 0, &format!("SALT_ONEDIR_HARDEN=1\nSALT_EXTRAS_DIR={extras}\nSALT_HOME=/srv/home\n"));
        let second = write(root, 1, "SALT_HOME='/srv/other'\n");
        let found = of(root, &minion()).unwrap();
        let told: Vec<_> = found.iter().map(|found| (found.variable, found.value.as_str(), &found.file)).collect();
        assert_eq!(told, [("SALT_EXTRAS_DIR", extras.as_str(), &first), ("SALT_HOME", "/srv/other", &second)]);
        write(root, 1, "SALT_HOME=\nSALT_EXTRAS_DIR=\n");
        assert_eq!(of(root, &minion()).unwrap(), [], "the later file takes it back");
    }

    #[test]
    fn a_release_gets_a_plain_directory_in_which_nobody_but_root_can_write() {
        let place = tempfile::tempdir().unwrap();
        let extras = place.path().join("extras").display().to_string();
        assert_eq!(refusal(VARIABLES[0], &extras).unwrap(), None, "it is not there yet");
        fs::create_dir(&extras).unwrap();
        fs::set_permissions(&extras, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(VARIABLES[0], &extras).unwrap().unwrap().contains(&format!("`chown -R root: {extras}`")));
        assert_eq!(refusal(VARIABLES[1], &extras).unwrap(), None, "no code comes from there");
        for wrong in ["$HOME/extras", "extras", "/srv/a b", "/srv/../tmp"] {
            assert!(refusal(VARIABLES[0], wrong).unwrap().unwrap().contains("plain path"), "{wrong}");
        }
        let tree = Path::new("/opt/saltstack/salt");
        assert!(is_extras_of(tree, &tree.join("extras-3.11")) && !is_extras_of(tree, &tree.join("other")));
    }
}
