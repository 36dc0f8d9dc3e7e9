//! The search through delegated roles: who is asked, in which order, and how far.

use super::delegated::{Tree, all, delegations, keys, last, simple, to};
use super::*;
use crate::trust::DelegatedFiles;
use crate::trust::limits::{DELEGATION_DEPTH_MAXIMUM, DELEGATIONS_FOLLOWED_MAXIMUM};

#[test]
fn roles_are_asked_in_order_depth_first_each_once_and_a_terminating_one_is_the_last() {
    let order = |top: &[String], below: &[(&str, Vec<String>)]| {
        let mut tree = Tree::new(&delegations(top));
        for name in ["u", "v", "w", "x", "y"] {
            tree.role(name, &[], None);
        }
        for (name, roles) in below {
            tree.role(name, &[], Some(&delegations(roles)));
        }
        let (found, asked) = tree.search("a", &mut DelegatedFiles::new());
        assert_eq!(found, Ok(None));
        asked.concat()
    };
    assert_eq!(order(&[all("x"), all("y")], &[]), "xy");
    assert_eq!(order(&[all("x"), all("y")], &[("x", vec![all("u"), all("v")]), ("u", vec![all("w")])]), "xuwvy");
    assert_eq!(order(&[all("x"), last("y"), all("u")], &[]), "xy");
    assert_eq!(order(&[all("x"), all("y")], &[("x", vec![last("u"), all("v")]), ("u", vec![all("w")])]), "xuw");
    assert_eq!(order(&[all("x"), all("y")], &[("x", vec![all("y")]), ("y", vec![all("x"), all("w")])]), "xyw");
    assert_eq!(order(&[all("x")], &[("x", vec![all("x")])]), "x", "a role that delegates to itself");
    let elsewhere = to("x", r#""paths":["b*"]"#).replace("false", "true");
    assert_eq!(order(&[elsewhere, all("y")], &[]), "y", "what doesn't speak for the target ends nothing");
}

#[test]
fn a_role_speaks_only_for_what_is_delegated_to_it() {
    let mut tree = Tree::new(&delegations(&[to("x", r#""paths":["x/*","?.txt"]"#)]));
    tree.role("x", &["x/1", "y/1", "x/1/2", "1.txt", "11.txt"], None);
    for (target, is_found) in [("x/1", true), ("y/1", false), ("x/1/2", false), ("1.txt", true), ("11.txt", false)] {
        let (found, asked) = tree.search(target, &mut DelegatedFiles::new());
        assert_eq!((found.unwrap().is_some(), asked.len()), (is_found, usize::from(is_found)), "{target}");
    }
    // SHA-256 of `a` is ca97…, of `b` 3e23….
    for (prefixes, is_found) in [
        (r#""ca""#, true),
        (r#""3e","ca978""#, true),
        (r#""c""#, true),
        (r#""3e""#, false),
        (r#""cb""#, false),
        ("", false),
        (r#""a978""#, false),
    ] {
        let mut tree = Tree::new(&delegations(&[to("x", &format!(r#""path_hash_prefixes":[{prefixes}]"#))]));
        tree.role("x", &["a"], None);
        let (found, asked) = tree.search("a", &mut DelegatedFiles::new());
        assert_eq!((found.unwrap().is_some(), asked.len()), (is_found, usize::from(is_found)), "{prefixes}");
    }
}

#[test]
fn what_a_role_may_not_speak_for_it_cannot_pass_on() {
    let mut tree = Tree::new(&delegations(&[to("x", r#""paths":["x/*"]"#)]));
    tree.role("x", &[], Some(&delegations(&[to("y", r#""paths":["*","*/*"]"#)]))).role("y", &["x/1", "a"], None);
    assert_eq!(tree.found("x/1"), Ok(Some("y".to_owned())));
    assert_eq!(tree.search("a", &mut DelegatedFiles::new()), (Ok(None), Vec::new()));
}

#[test]
fn hash_bins_are_named_by_the_first_bits_of_the_digest() {
    let keyid = test_key(delegated::ROLE).public().keyid();
    for (bits, target, bin) in [
        (1, "a", "bin-1"),
        (1, "b", "bin-0"),
        (4, "a", "bin-c"),
        (5, "a", "bin-19"),
        (5, "b", "bin-07"),
        (8, "b", "bin-3e"),
        (14, "b", "bin-0f88"),
        (32, "a", "bin-ca978112"),
    ] {
        let rule = format!(r#""keyids":["{keyid}"],"threshold":1,"bit_length":{bits},"name_prefix":"bin""#);
        let mut tree = Tree::new(&format!(r#"{{"keys":{{{}}},"succinct_roles":{{{rule}}}}}"#, keys()));
        tree.role(bin, &[target], None);
        assert_eq!(tree.found(target), Ok(Some(bin.to_owned())), "{bits}");
        let unsigned = tree.sign(1, &[target], None, &[99]);
        tree.file(bin, 1, unsigned);
        assert!(matches!(tree.refused(target), TrustError::UnsignedDelegated { .. }));
    }
}

#[test]
fn a_search_is_bounded_in_depth_and_in_roles() {
    let chain = |length: usize| {
        let mut tree = Tree::new(&delegations(&[all("r1")]));
        for place in 1..length {
            tree.named.insert(format!("r{place}.json"), describe(1, b""));
            let next = delegations(&[all(&format!("r{}", place + 1))]);
            let bytes = tree.sign(1, &[], Some(&next), &[delegated::ROLE]);
            tree.named.insert(format!("r{place}.json"), describe(1, &bytes));
            tree.roles.insert(format!("1.r{place}.json"), bytes);
        }
        tree.role(&format!("r{length}"), &["a"], None);
        tree.found("a")
    };
    assert_eq!(chain(DELEGATION_DEPTH_MAXIMUM), Ok(Some(format!("r{DELEGATION_DEPTH_MAXIMUM}"))));
    assert!(matches!(chain(DELEGATION_DEPTH_MAXIMUM + 1), Err(TrustError::TooDeep { .. })));
    let wide = |count: usize| {
        let names: Vec<String> = (1..=count).map(|number| format!("r{number}")).collect();
        let mut tree = Tree::new(&delegations(&names.iter().map(|name| all(name)).collect::<Vec<_>>()));
        let empty = tree.sign(1, &[], None, &[delegated::ROLE]);
        for name in &names[1..] {
            tree.named.insert(format!("{name}.json"), describe(1, &empty));
            tree.roles.insert(format!("1.{name}.json"), empty.clone());
        }
        tree.role("r1", &[], None).role(&names[count - 1], &["a"], None);
        tree.found("a")
    };
    assert_eq!(wide(DELEGATIONS_FOLLOWED_MAXIMUM), Ok(Some(format!("r{DELEGATIONS_FOLLOWED_MAXIMUM}"))));
    assert!(matches!(wide(DELEGATIONS_FOLLOWED_MAXIMUM + 1), Err(TrustError::TooManyDelegations { .. })));
}

#[test]
fn names_of_roles_lead_nowhere_else() {
    for (name, segment) in [
        ("../x", "1...%2Fx.json"),
        ("/x", "1.%2Fx.json"),
        ("x?y#z", "1.x%3Fy%23z.json"),
        ("%2e", "1.%252e.json"),
        ("ü x\\n", "1.%C3%BC%20x%0A.json"),
    ] {
        let name = name.replace("\\n", "\n");
        let mut tree = Tree::new(&delegations(&[all(&name.replace('\n', "\\n"))]));
        tree.role(&name, &["a"], None);
        let refresh = tree.refresh(&tree.repo.pinned()).unwrap();
        let mut kept = DelegatedFiles::new();
        let search = refresh.search("a", &mut kept).unwrap();
        assert_eq!(search.request().unwrap().url_segment(), segment);
        assert_eq!(tree.found("a"), Ok(Some(name)));
    }
}

#[test]
fn delegated_files_have_no_version_in_their_names_where_consistent_snapshots_are_off() {
    let mut tree = simple();
    tree.repo.forge("1.root.json", &[ROOT], |signed| {
        signed.insert("consistent_snapshot".to_owned(), Json::Bool(false));
    });
    let newest = tree.repo.versions[1];
    for (from, to) in
        [(format!("{newest}.snapshot.json"), "snapshot.json"), ("1.targets.json".to_owned(), "targets.json")]
    {
        let bytes = tree.repo.files.remove(&from).unwrap();
        tree.repo.files.insert(to.to_owned(), bytes);
    }
    assert!(matches!(tree.refused("a"), TrustError::Missing { .. }));
    let bytes = tree.roles.remove("1.x.json").unwrap();
    tree.roles.insert("x.json".to_owned(), bytes);
    assert_eq!(tree.found("a"), Ok(Some("x".to_owned())));
    assert_eq!(crate::trust::target::stored("d/a", &signed_target("a").hashes, false), "d/a");
    let digest = Digest::of(b"a");
    assert_eq!(crate::trust::target::stored("d/a", &signed_target("a").hashes, true), format!("d/{digest}.a"));
}
