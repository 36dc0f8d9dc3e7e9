//! `sidle try` with real Salt: what starts here is told from what does not, and neither stays.

use crate::support::minions;
use crate::support::salt::{copy_renamed, tree};
use crate::support::stage::{Host, text};
use std::fs;

#[test]
fn a_release_that_starts_is_told_from_one_that_lacks_a_module_and_neither_stays() {
    let author = minions::author_of(&minions::LONG_TERM);
    let host = Host::new(&author);
    let works = host.sidle(&["try", text(&author.salt("3008.5"))]).ok();
    for line in
        ["works  salt-minion --version: salt-minion 3008.5 (Argon)", "works  salt-call --local test.ping: local: True"]
    {
        assert!(works.contains(line), "{works}");
    }
    let copy = author.directory().join("broken");
    copy_renamed(&tree("3006.30"), &copy, None);
    // What the listing of its modules, at pack time, does without, and every minion needs.
    let libraries = fs::read_dir(copy.join("lib")).unwrap();
    let mut needed = libraries.map(|entry| entry.unwrap().path().join("site-packages/salt/cli/daemons.py"));
    fs::remove_file(needed.find(|path| path.exists()).expect("Salt needs it")).unwrap();
    let fails = host.sidle(&["try", text(&author.salt_from("3006.90", &copy))]);
    assert_eq!(fails.code, Some(1), "{fails:?}");
    assert!(fails.stdout.contains("fails") && fails.stdout.contains("salt.cli.daemons"), "{fails:?}");
    let left: Vec<_> = fs::read_dir(host.path("opt/sidle")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
