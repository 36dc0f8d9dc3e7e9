//! Answers of releases, kept beside the state of the files that each rests on: nothing is asked twice while nothing has changed.

use super::answer::{Answer, Signature};
use crate::os::dir::Dir;
use crate::os::{OsError, file};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file of answers in an instance's state directory.
pub const NAME: &str = "agent-options";
/// Three answers have some ten kilobytes.
const LENGTH_MAX: u64 = 1 << 20;
/// Answers kept: the releases of a switch, and one more.
const COUNT_MAX: usize = 3;

/// The answers about one configuration directory by one release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The release's tree.
    pub tree: PathBuf,
    /// The configuration directory.
    pub directory: PathBuf,
    /// The last answer with options: what a process that runs has loaded, unless its guard says otherwise.
    pub loaded: Option<Answer>,
    /// A newer answer without options.
    pub refused: Option<Answer>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    schema: u32,
    answers: Vec<Kept>,
}

impl Kept {
    /// The newest answer.
    pub fn newest(&self) -> Option<&Answer> {
        self.refused.as_ref().or(self.loaded.as_ref())
    }

    /// The newest answer, if the files are as they were.
    pub fn fresh(&self) -> Option<&Answer> {
        self.newest().filter(|newest| is_fresh(newest))
    }

    /// The same, if the files below `from` are also those below `to`, and are as they were: another process sees them there.
    #[must_use]
    pub fn moved(&self, from: &Path, to: &Path) -> Option<Self> {
        let path = |path: &Path| path.strip_prefix(from).map_or_else(|_| path.to_owned(), |inner| to.join(inner));
        let answer = |answer: &Answer| {
            let files = answer.files.iter().flatten().map(|(name, signature)| (path(name), *signature));
            Answer { files: answer.files.as_ref().map(|_| files.collect()), ..answer.clone() }
        };
        let (loaded, refused) = (self.loaded.as_ref().map(answer), self.refused.as_ref().map(answer));
        let moved = Self { tree: self.tree.clone(), directory: path(&self.directory), loaded, refused };
        moved.fresh().is_some().then_some(moved)
    }

    /// These, and a newer answer.
    #[must_use]
    pub fn with(mut self, answer: Answer) -> Self {
        if answer.options.is_some() && answer.failure.is_none() {
            (self.loaded, self.refused) = (Some(answer), None);
        } else {
            self.refused = Some(answer);
        }
        self
    }
}

/// Whether all files are as they were when the answer was given. A file that cannot be looked at may be another one.
pub fn is_fresh(answer: &Answer) -> bool {
    let same = |(path, signature): &(PathBuf, Signature)| seen(path).is_ok_and(|found| found == *signature);
    answer.files.as_ref().is_some_and(|files| files.iter().all(same))
}

fn seen(path: &Path) -> Result<Signature, OsError> {
    let nanoseconds = |(seconds, rest): (i64, u32)| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let found = file::stat(path)?;
    Ok(found.map(|stat| (stat.device, stat.inode, stat.size, nanoseconds(stat.mtime), nanoseconds(stat.ctime))))
}

/// Reads all answers below a state directory; none where there are none, or none that can be read: they are asked for again.
pub fn read(state: &Path) -> Vec<Kept> {
    let bytes = Dir::open_if_exists(state).ok().flatten();
    let bytes = bytes.and_then(|directory| directory.read_if_exists(NAME, LENGTH_MAX).ok().flatten());
    let saved = bytes.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok()).unwrap_or_default();
    if saved.schema == 1 { saved.answers } else { Vec::new() }
}

/// Writes an answer beside the others. Who may not write there asks again the next time.
pub fn write(state: &Path, kept: &Kept) -> Result<(), OsError> {
    let Some(directory) = Dir::open_if_exists(state)? else { return Ok(()) };
    let mut answers = read(state);
    answers.retain(|known| known.tree != kept.tree || known.directory != kept.directory);
    answers.insert(0, kept.clone());
    answers.truncate(COUNT_MAX);
    let bytes = serde_json::to_vec(&Saved { schema: 1, answers }).expect("an answer has no map keys but strings");
    directory.write_atomic(NAME, &bytes, 0o644)
}

#[cfg(test)]
mod tests {
    use super::super::answer::recorded;
    use super::*;
    use tempfile::TempDir;

    fn put(root: &TempDir, name: &str, text: &str) {
        Dir::open(root.path()).unwrap().write_atomic(name, text.as_bytes(), 0o644).unwrap();
    }

    /// An answer that rests on these files.
    fn resting_on(root: &TempDir, names: &[&str]) -> Answer {
        let files = names.iter().map(|name| root.path().join(name));
        let files = files.map(|path| (path.clone(), seen(&path).unwrap())).collect();
        let (version, generated, id_file, digest) = (Some("3006.30".to_owned()), None, None, None);
        let (failure, options) = (None, Some(recorded()));
        Answer { schema: 1, version, failure, options, generated, id_file, digest, files: Some(files) }
    }

    #[test]
    fn an_answer_is_fresh_until_a_file_comes_goes_or_changes() {
        let root = tempfile::tempdir().unwrap();
        put(&root, "minion", "id: a\n");
        let all = ["minion", "minion.d", ""];
        for change in [
            (|root: &TempDir| put(root, "minion", "id: b\n")) as fn(&TempDir),
            |root| Dir::open(root.path()).unwrap().make_dir("minion.d", 0o755).unwrap(),
            |root| put(root, "grown.conf", ""),
            |root| Dir::open(root.path()).unwrap().remove_file("minion").unwrap(),
        ] {
            let answer = resting_on(&root, &all);
            assert!(is_fresh(&answer));
            change(&root);
            assert!(!is_fresh(&answer));
        }
        assert!(!is_fresh(&Answer { files: None, ..resting_on(&root, &all) }), "too many files to look at");
    }

    #[test]
    fn what_was_loaded_last_outlives_a_configuration_that_cannot_be_loaded() {
        let root = tempfile::tempdir().unwrap();
        let empty = |number: usize| Kept {
            tree: format!("/tree/{number}").into(),
            directory: "/etc/salt".into(),
            loaded: None,
            refused: None,
        };
        let good = resting_on(&root, &["minion"]);
        let bad = Answer { failure: Some("no".to_owned()), options: None, ..good.clone() };
        let kept = empty(0).with(good.clone()).with(bad.clone());
        assert_eq!((kept.fresh(), &kept.loaded), (Some(&bad), &Some(good.clone())));
        assert_eq!(kept.clone().with(good.clone()).refused, None);

        for number in 0..5 {
            write(root.path(), &empty(number).with(good.clone())).unwrap();
        }
        write(root.path(), &kept).unwrap();
        let trees: Vec<_> = read(root.path()).iter().map(|kept| kept.tree.clone()).collect();
        assert_eq!(trees, ["/tree/0", "/tree/4", "/tree/3"].map(PathBuf::from));
        assert_eq!(read(root.path())[0], kept);
        put(&root, NAME, "{");
        assert!(read(root.path()).is_empty(), "it is asked again");
        assert!(write(&root.path().join("absent"), &kept).is_ok());
    }
}
