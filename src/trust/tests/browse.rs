//! The round through all roles that may speak for names below a directory.

use super::delegated::{self, Tree, delegations, keys, to};
use super::*;
use crate::trust::limits::DELEGATIONS_FOLLOWED_MAXIMUM;
use crate::trust::{Answer, DelegatedFiles};

/// The roles brought for what lies below `directory`, in order.
fn browse(tree: &Tree, directory: &str, kept: &mut DelegatedFiles) -> Result<Vec<String>, TrustError> {
    let refresh = tree.refresh(&tree.repo.pinned())?;
    let mut asked = Vec::new();
    let mut browse = refresh.browse(directory, kept)?;
    while let Some(request) = browse.request() {
        asked.push(request.role);
        browse.answer(tree.roles.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes)))?;
    }
    Ok(asked)
}

#[test]
fn every_role_that_may_speak_for_a_directory_is_brought_once_and_no_other() {
    let ends = to("z", r#""paths":["*/*"]"#).replace("false", "true");
    let roles = [
        ends,
        to("x", r#""paths":["p/*"]"#),
        to("y", r#""paths":["q/*","*"]"#),
        to("h", r#""path_hash_prefixes":["0"]"#),
    ];
    let mut tree = Tree::new(&delegations(&roles));
    for name in ["w", "y", "z", "h"] {
        tree.role(name, &[], None);
    }
    tree.role("x", &[], Some(&delegations(&[to("w", r#""paths":["p/a"]"#), to("x", r#""paths":["p/*"]"#)])));
    let mut kept = DelegatedFiles::new();
    assert_eq!(browse(&tree, "p", &mut kept).unwrap(), ["z", "x", "w", "h"]);
    assert_eq!(kept.len(), 4);
    assert_eq!(browse(&tree, "p", &mut kept).unwrap(), [""; 0], "what is kept is not asked for again");
    assert_eq!(browse(&tree, "q", &mut DelegatedFiles::new()).unwrap(), ["z", "y", "h"]);
    let unsigned = tree.sign(1, &[], None, &[99]);
    tree.file("w", 1, unsigned);
    let refused = browse(&tree, "p", &mut DelegatedFiles::new());
    assert!(matches!(refused, Err(TrustError::UnsignedDelegated { .. })), "{refused:?}");
}

#[test]
fn a_round_brings_every_bin_up_to_a_limit() {
    let keyid = test_key(delegated::ROLE).public().keyid();
    let bins = |bits: u32, there: u32| {
        let rule = format!(r#""keyids":["{keyid}"],"threshold":1,"bit_length":{bits},"name_prefix":"bin""#);
        let mut tree = Tree::new(&format!(r#"{{"keys":{{{}}},"succinct_roles":{{{rule}}}}}"#, keys()));
        for bin in 0..there {
            tree.role(&format!("bin-{bin:x}"), &[], None);
        }
        browse(&tree, "p", &mut DelegatedFiles::new())
    };
    assert_eq!(bins(2, 4).unwrap(), ["bin-0", "bin-1", "bin-2", "bin-3"]);
    assert!(matches!(bins(2, 3), Err(TrustError::Missing { .. })));
    for bits in [8, 32] {
        let limit = DELEGATIONS_FOLLOWED_MAXIMUM;
        assert!(matches!(bins(bits, 0), Err(TrustError::TooManyDelegations { limit: found, .. }) if found == limit));
    }
}
