//! A report of a release that has worked here, after the host has changed under it: does it still come up, and what no longer finds its
//! libraries.

use super::report::{How, LoadError, RehearsalReport};
use super::words::{broken, called, counted, listed, plain, said};
use crate::rehearsal::Rehearsal;
use std::collections::BTreeMap;

/// The dynamic linker's words for what a change of the host does to a compiled module (glibc's `elf/dl-load.c`, `dl-version.c`,
/// `dl-lookup.c`). What else keeps a module from loading was there before, or comes from the configuration.
const LINKER_WORDS: [&str; 7] = [
    "cannot open shared object file",
    "undefined symbol",
    "symbol lookup error",
    "' not found (required by",
    "invalid ELF header",
    "file too short",
    "wrong ELF class",
];

/// What the report says. Only what keeps the minion from coming up blocks; a module that is lost is told.
pub fn judge(report: &RehearsalReport) -> Rehearsal {
    if let Some(failure) = &report.failure {
        return Rehearsal { blocking: vec![plain(&said(failure))], ..Rehearsal::default() };
    }
    let unlinked =
        |error: &&LoadError| error.how == How::Import && LINKER_WORDS.iter().any(|words| error.reason.contains(words));
    let (own, theirs): (Vec<_>, Vec<_>) = report.errors.iter().filter(unlinked).partition(|error| error.own);
    let mut notes: Vec<String> = own.into_iter().map(broken).collect();
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for error in theirs {
        kinds.entry(&error.kind).or_default().push(format!("{} ({})", error.name, error.reason));
    }
    for (kind, names) in kinds {
        let of = counted(names.len(), &called(kind));
        notes.push(format!("{of} cannot be loaded: {}", listed(names.into_iter())));
    }
    Rehearsal { notes: notes.iter().map(|text| plain(text)).collect(), ..Rehearsal::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salt::rehearsal::report::Failure;

    fn error(name: &str, own: bool, reason: &str) -> LoadError {
        let (kind, file) = ("module".to_owned(), format!("/x/{name}.py"));
        LoadError { kind, name: name.to_owned(), file, own, how: How::Import, reason: reason.to_owned() }
    }

    #[test]
    fn rehearsal_after_a_change_of_the_host_counts_what_that_can_have_caused() {
        let gone = "ImportError: libgit2.so.1: cannot open shared object file: No such file or directory";
        let errors = vec![
            error("mine", true, "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /x/y.so)"),
            error("old", true, "ModuleNotFoundError: No module named 'six'"),
            error("gitfs", false, gone),
        ];
        let found = judge(&RehearsalReport { errors, ..RehearsalReport::default() });
        assert!(!found.refuses());
        assert!(found.notes[0].starts_with("the custom execution module mine (/x/mine.py) cannot be imported: "));
        assert_eq!(found.notes[1..], [format!("1 execution module cannot be loaded: gitfs ({gone})")]);
        let failure = Failure { stage: "modules".to_owned(), reason: gone.to_owned() };
        let found = judge(&RehearsalReport { failure: Some(failure), ..RehearsalReport::default() });
        assert_eq!(found.blocking, [format!("cannot load the modules: {gone}")]);
    }
}
