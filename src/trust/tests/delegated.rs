//! Delegated roles: each check that stands between a role's file and a target.

use super::*;
use crate::trust::{Answer, DelegatedFiles, Expiry, Refresh};

/// The key of the delegated roles, unless a test says otherwise.
pub(super) const ROLE: u8 = 30;

/// A repository with delegated roles: each is signed by `ROLE` and lists what it is given.
pub(super) struct Tree {
    pub(super) repo: Repo,
    pub(super) roles: BTreeMap<String, Vec<u8>>,
    pub(super) named: BTreeMap<String, MetaFile>,
}

/// A delegation as it stands in the delegating role.
pub(super) fn to(name: &str, scope: &str) -> String {
    let keyid = test_key(ROLE).public().keyid();
    format!(r#"{{"name":"{name}","keyids":["{keyid}"],"threshold":1,"terminating":false,{scope}}}"#)
}

pub(super) fn all(name: &str) -> String {
    to(name, r#""paths":["*"]"#)
}

pub(super) fn last(name: &str) -> String {
    all(name).replace("false", "true")
}

/// `delegations` with the keys 30 to 32.
pub(super) fn delegations(roles: &[String]) -> String {
    format!(r#"{{"keys":{{{}}},"roles":[{}]}}"#, keys(), roles.join(","))
}

pub(super) fn keys() -> String {
    let key = |seed| {
        let public = test_key(seed).public();
        format!(r#""{}":{}"#, public.keyid(), String::from_utf8(public.to_json().text()).unwrap())
    };
    [30, 31, 32].map(key).join(",")
}

impl Tree {
    /// The top-level targets list nothing and delegate so.
    pub(super) fn new(delegations: &str) -> Self {
        let mut repo = Repo::new();
        repo.publish(&[]);
        let mut tree = Self { repo, roles: BTreeMap::new(), named: BTreeMap::new() };
        tree.repo.forge("1.targets.json", &[TARGETS], |signed| {
            signed.insert("delegations".to_owned(), Json::parse(delegations.as_bytes()).unwrap());
        });
        tree.named.insert("targets.json".to_owned(), describe(1, &tree.repo.files["1.targets.json"]));
        tree.publish();
        tree
    }

    /// A role's file: its version, what it lists, whom it delegates to, who signs it.
    pub(super) fn sign(&self, version: u64, targets: &[&str], delegations: Option<&str>, seeds: &[u8]) -> Vec<u8> {
        let list = targets.iter().map(|name| ((*name).to_owned(), signed_target(name))).collect();
        let plain = publish::targets(self.repo.edition(Role::Targets, version), &list, &[]).unwrap();
        forged(&plain, seeds, |signed| {
            if let Some(delegations) = delegations {
                signed.insert("delegations".to_owned(), Json::parse(delegations.as_bytes()).unwrap());
            }
        })
    }

    pub(super) fn role(&mut self, name: &str, targets: &[&str], delegations: Option<&str>) -> &mut Self {
        let bytes = self.sign(1, targets, delegations, &[ROLE]);
        self.file(name, 1, bytes)
    }

    /// Publishes this file as that version of a role.
    pub(super) fn file(&mut self, name: &str, version: u64, bytes: Vec<u8>) -> &mut Self {
        self.named.insert(format!("{name}.json"), describe(version, &bytes));
        self.roles.insert(format!("{version}.{name}.json"), bytes);
        self.publish()
    }

    /// What the snapshot says of a role.
    pub(super) fn named(&mut self, name: &str, named: MetaFile) -> &mut Self {
        self.named.insert(format!("{name}.json"), named);
        self.publish()
    }

    fn publish(&mut self) -> &mut Self {
        self.repo.versions = [1, self.repo.versions[1] + 1, self.repo.versions[2] + 1];
        let named: Vec<(&str, MetaFile)> =
            self.named.iter().map(|(name, file)| (name.as_str(), file.clone())).collect();
        self.repo.snapshot(&named);
        self
    }

    pub(super) fn refresh(&self, floor: &Floor) -> Result<Refresh, TrustError> {
        self.refresh_at(floor, 1)
    }

    fn refresh_at(&self, floor: &Floor, days: i64) -> Result<Refresh, TrustError> {
        let mut refresh = Refresh::start(floor, day(days), Expiry::Strict)?;
        while let Some(request) = refresh.request() {
            refresh.answer(self.repo.files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes)))?;
        }
        Ok(refresh)
    }

    /// The role that lists the target, and the roles asked for.
    pub(super) fn search(
        &self,
        target: &str,
        kept: &mut DelegatedFiles,
    ) -> (Result<Option<String>, TrustError>, Vec<String>) {
        self.search_with(&self.refresh(&self.repo.pinned()).unwrap(), target, kept)
    }

    fn search_with(
        &self,
        refresh: &Refresh,
        target: &str,
        kept: &mut DelegatedFiles,
    ) -> (Result<Option<String>, TrustError>, Vec<String>) {
        let mut asked = Vec::new();
        let mut found = || {
            let mut search = refresh.search(target, kept)?;
            while let Some(request) = search.request() {
                asked.push(request.role);
                search.answer(self.roles.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes)))?;
            }
            let listed = search.listed();
            assert!(listed.is_none_or(|listed| listed.target == signed_target(target)));
            Ok(listed.map(|listed| listed.role.clone()))
        };
        (found(), asked)
    }

    pub(super) fn found(&self, target: &str) -> Result<Option<String>, TrustError> {
        self.search(target, &mut DelegatedFiles::new()).0
    }

    pub(super) fn refused(&self, target: &str) -> TrustError {
        self.found(target).unwrap_err()
    }
}

/// One role `x` that may speak for everything and lists `a`.
pub(super) fn simple() -> Tree {
    let mut tree = Tree::new(&delegations(&[all("x")]));
    tree.role("x", &["a"], None);
    tree
}

#[test]
fn a_delegated_role_speaks_for_its_targets_and_the_top_level_comes_first() {
    let tree = simple();
    assert_eq!(tree.found("a"), Ok(Some("x".to_owned())));
    assert_eq!(tree.found("b"), Ok(None));
    let mut both = Repo::new();
    both.publish(&[("a", "a")]);
    let tree = Tree { repo: both, roles: BTreeMap::new(), named: BTreeMap::new() };
    assert_eq!(tree.search("a", &mut DelegatedFiles::new()), (Ok(Some("targets".to_owned())), Vec::new()));
}

#[test]
fn a_delegated_role_needs_the_threshold_of_its_own_keys() {
    let ids: Vec<String> = [30, 31].map(|seed| test_key(seed).public().keyid().to_string()).into();
    let needed = format!(r#""keyids":["{}","{}","nobody"],"threshold":2"#, ids[0], ids[1]);
    let delegated = format!(r#"{{"name":"x",{needed},"terminating":false,"paths":["*"]}}"#);
    let mut tree = Tree::new(&delegations(&[delegated]));
    for (seeds, valid) in [
        (&[30, 31][..], 2),
        (&[31, 99, 30], 2),
        (&[30], 1),
        (&[30, 32], 1),
        (&[30, TARGETS], 1),
        (&[TARGETS, ROOT], 0),
        (&[], 0),
    ] {
        let bytes = tree.sign(1, &["a"], None, seeds);
        tree.file("x", 1, bytes);
        match tree.found("a") {
            Ok(found) => assert_eq!((found.as_deref(), valid), (Some("x"), 2), "{seeds:?}"),
            Err(TrustError::UnsignedDelegated { valid: counted, threshold: 2, role, by, .. }) => {
                assert_eq!((counted, role.as_str(), by.as_str()), (valid, "x", "targets"), "{seeds:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_delegated_rule_counts_a_key_once_and_never_one_it_does_not_know() {
    let (key, public) = (test_key(ROLE).public().keyid(), test_key(ROLE).public());
    let text = String::from_utf8(public.to_json().text()).unwrap();
    let alias = format!(
        r#""{key}":{text},"alias":{text},"odd":{}"#,
        text.replace("\"scheme\":\"ed25519\"", "\"scheme\":\"new\"")
    );
    let with = |keyids: &str, threshold: u64| {
        format!(
            r#"{{"keys":{{{alias}}},"roles":[{{"name":"x","keyids":[{keyids}],"threshold":{threshold},"terminating":false,"paths":["*"]}}]}}"#
        )
    };
    let signed_as = |names: &[&str], tree: &Tree| {
        let text = String::from_utf8(tree.sign(1, &["a"], None, &[ROLE])).unwrap();
        let Json::Object(mut top) = Json::parse(text.as_bytes()).unwrap() else { unreachable!() };
        let Some(Json::Array(signatures)) = top.get_mut("signatures") else { unreachable!() };
        let Json::Object(one) = signatures.remove(0) else { unreachable!() };
        for name in names {
            let mut one = one.clone();
            one.insert("keyid".to_owned(), (*name).into());
            signatures.push(Json::Object(one));
        }
        Json::Object(top).text()
    };
    for (keyids, threshold, names, is_enough) in [
        (format!(r#""{key}","alias""#), 2, vec![key.as_str(), "alias"], false),
        (r#""alias""#.to_owned(), 1, vec!["alias"], true),
        (r#""odd""#.to_owned(), 1, vec!["odd"], false),
        (format!(r#""{key}""#), 1, vec!["alias"], false),
    ] {
        let mut tree = Tree::new(&with(&keyids, threshold));
        let bytes = signed_as(&names, &tree);
        tree.file("x", 1, bytes);
        let found = tree.found("a");
        assert_eq!(found.is_ok(), is_enough, "{keyids}: {found:?}");
        assert!(is_enough || matches!(found, Err(TrustError::UnsignedDelegated { .. })));
    }
    let zero = delegations(&[all("x").replace("\"threshold\":1", "\"threshold\":0")]);
    let tree = Tree::new(&zero);
    assert!(matches!(tree.refresh(&tree.repo.pinned()), Err(TrustError::Malformed { .. })));
}

#[test]
fn a_delegated_role_must_be_the_one_that_the_snapshot_names() {
    let mut tree = simple();
    let first = tree.roles["1.x.json"].clone();
    let second = tree.sign(2, &["a", "b"], None, &[ROLE]);
    let refused = |tree: &Tree, what: &str| {
        let error = tree.refused("a");
        assert!(
            matches!(&error, TrustError::Mismatch { what: found, named_by: Role::Snapshot, .. } if *found == what),
            "{error}"
        );
    };
    tree.file("x", 2, second.clone());
    assert_eq!(tree.found("b"), Ok(Some("x".to_owned())));
    let bare = MetaFile { version: 2, length: None, hashes: None };
    tree.named("x", bare.clone());
    assert_eq!(tree.found("b"), Ok(Some("x".to_owned())));
    tree.roles.insert("2.x.json".to_owned(), first.clone());
    refused(&tree, "version");
    tree.roles.insert("2.x.json".to_owned(), second.clone());
    tree.named("x", MetaFile { length: Some(second.len() as u64 + 1), ..bare.clone() });
    refused(&tree, "length");
    tree.named("x", MetaFile { hashes: describe(2, &first).hashes, ..bare.clone() });
    refused(&tree, "digest");
    // Same content, other bytes, valid signatures.
    tree.named("x", MetaFile { hashes: describe(2, &second).hashes, ..bare });
    tree.roles.insert("2.x.json".to_owned(), [second.as_slice(), b" "].concat());
    refused(&tree, "digest");
}

#[test]
fn a_delegated_role_that_the_snapshot_does_not_name_is_not_even_asked_for() {
    let mut tree = simple();
    tree.named.remove("x.json");
    tree.publish();
    let mut kept = DelegatedFiles::from([("x".to_owned(), tree.roles["1.x.json"].clone())]);
    let (outcome, asked) = tree.search("a", &mut kept);
    let error = outcome.unwrap_err();
    assert!(matches!(&error, TrustError::Missing { file, named_by: Role::Snapshot } if file == "x.json"), "{error}");
    assert_eq!(asked, Vec::<String>::new());
}

#[test]
fn a_delegated_role_cannot_go_back_or_vanish() {
    let mut tree = simple();
    let first = tree.named["x.json"].clone();
    let second = tree.sign(2, &["a"], None, &[ROLE]);
    tree.file("x", 2, second);
    let floor = tree.refresh(&tree.repo.pinned()).unwrap().floor();
    tree.named("x", first);
    let error = tree.refresh(&floor).unwrap_err();
    assert_eq!(error, TrustError::Rollback { file: "x.json".to_owned(), trusted: 2, offered: 1 });
    tree.named.remove("x.json");
    tree.publish();
    assert_eq!(tree.refresh(&floor).unwrap_err(), TrustError::Vanished { file: "x.json".to_owned() });
}

#[test]
fn a_delegated_role_expires_also_one_that_is_kept() {
    let mut tree = simple();
    tree.repo.today = 200;
    tree.repo.next_root(&[ROOT]);
    let bytes = tree.sign(2, &["a"], Some(&delegations(&[all("y")])), &[ROLE]);
    tree.repo.publish(&[]);
    tree.repo.forge("2.targets.json", &[TARGETS], |signed| {
        signed.insert("delegations".to_owned(), Json::parse(delegations(&[all("x")]).as_bytes()).unwrap());
    });
    tree.named.insert("targets.json".to_owned(), describe(2, &tree.repo.files["2.targets.json"].clone()));
    let at = |tree: &mut Tree, days: i64, kept: &mut DelegatedFiles| {
        tree.repo.today = days;
        tree.publish();
        let refresh = tree.refresh_at(&tree.repo.pinned(), days).unwrap();
        tree.search_with(&refresh, "a", kept)
    };
    let mut kept = DelegatedFiles::new();
    assert_eq!(at(&mut tree, 364, &mut kept).0, Ok(Some("x".to_owned())));
    assert_eq!(kept.len(), 1);
    for mut kept in [kept, DelegatedFiles::new()] {
        let (outcome, _) = at(&mut tree, 365, &mut kept);
        let error = outcome.unwrap_err();
        assert!(matches!(&error, TrustError::ExpiredDelegated { role, version: 1, .. } if role == "x"), "{error}");
    }
    tree.file("x", 2, bytes);
    assert_eq!(at(&mut tree, 365, &mut DelegatedFiles::new()).0, Ok(Some("x".to_owned())));
}

#[test]
fn what_is_no_targets_metadata_or_too_large_is_no_delegated_role() {
    let mut tree = simple();
    let snapshot = forged(&tree.repo.files["1.snapshot.json"], &[ROLE], |_| ());
    tree.file("x", 1, snapshot);
    assert!(matches!(tree.refused("a"), TrustError::Malformed { .. }));
    tree.named("x", MetaFile { version: 1, length: None, hashes: None });
    tree.roles.insert("1.x.json".to_owned(), vec![b' '; Role::Targets.bytes_maximum() + 1]);
    assert!(matches!(tree.refused("a"), TrustError::TooLarge { .. }));
}

#[test]
fn a_role_that_cannot_be_had_ends_the_search_though_another_lists_the_target() {
    let mut tree = Tree::new(&delegations(&[all("x"), all("y")]));
    tree.role("x", &[], None).role("y", &["a"], None);
    assert_eq!(tree.found("a"), Ok(Some("y".to_owned())));
    let bad = tree.sign(1, &[], None, &[99]);
    let good = tree.roles["1.x.json"].clone();
    tree.file("x", 1, bad);
    assert!(matches!(tree.refused("a"), TrustError::UnsignedDelegated { .. }));
    tree.file("x", 1, good);
    tree.roles.remove("1.x.json");
    assert!(matches!(tree.refused("a"), TrustError::Missing { .. }));
    let refresh = tree.refresh(&tree.repo.pinned()).unwrap();
    let mut kept = DelegatedFiles::new();
    let mut search = refresh.search("a", &mut kept).unwrap();
    assert_eq!(search.request().unwrap().file, "1.x.json");
    let error = search.answer(Answer::Failed("HTTP 500")).unwrap_err();
    assert!(matches!(error, TrustError::Unreachable { .. }), "{error}");
    assert_eq!((search.request(), search.listed()), (None, None));
}

#[test]
fn no_delegated_role_has_a_top_level_roles_name() {
    for role in Role::ALL {
        let tree = Tree::new(&delegations(&[all(role.as_str())]));
        let error = tree.refresh(&tree.repo.pinned()).unwrap_err();
        assert!(matches!(&error, TrustError::Malformed { reason, .. } if reason.contains("is named")), "{error}");
    }
    let mut tree = Tree::new(&delegations(&[all("x")]));
    tree.role("x", &[], Some(&delegations(&[all("targets")])));
    assert!(matches!(tree.refused("a"), TrustError::Malformed { .. }));
}

#[test]
fn a_kept_role_saves_the_request_and_is_believed_no_more_than_a_new_one() {
    let mut tree = simple();
    let mut kept = DelegatedFiles::new();
    assert_eq!(tree.search("a", &mut kept).1, ["x"]);
    assert_eq!(kept["x"], tree.roles["1.x.json"], "byte for byte");
    assert_eq!(tree.search("a", &mut kept), (Ok(Some("x".to_owned())), Vec::new()));
    for other in [b"".to_vec(), tree.sign(1, &["b"], None, &[ROLE]), tree.sign(2, &["b"], None, &[ROLE])] {
        let mut kept = DelegatedFiles::from([("x".to_owned(), other)]);
        let (found, asked) = tree.search("b", &mut kept);
        assert_eq!((found, asked.len()), (Ok(None), 1), "what the snapshot doesn't name is asked for again");
        assert_eq!(kept["x"], tree.roles["1.x.json"]);
    }
    // No length and no digest: only the signatures tell.
    tree.named("x", MetaFile { version: 1, length: None, hashes: None });
    let mut kept = DelegatedFiles::from([("x".to_owned(), tree.sign(1, &["b"], None, &[99]))]);
    assert_eq!(tree.search("b", &mut kept), (Ok(None), vec!["x".to_owned()]));
}

#[test]
fn a_kept_role_is_verified_for_each_role_that_leads_to_it() {
    let other_key =
        |role: String| role.replace(test_key(30).public().keyid().as_str(), test_key(31).public().keyid().as_str());
    let mut tree = Tree::new(&delegations(&[to("x", r#""paths":["x/*"]"#), to("y", r#""paths":["y/*"]"#)]));
    tree.role("x", &[], Some(&delegations(&[to("z", r#""paths":["x/*"]"#)])));
    tree.role("y", &[], Some(&delegations(&[other_key(to("z", r#""paths":["y/*"]"#))])));
    tree.role("z", &["x/1", "y/1"], None);
    let mut kept = DelegatedFiles::new();
    assert_eq!(tree.search("x/1", &mut kept).0, Ok(Some("z".to_owned())));
    let error = tree.search("y/1", &mut kept).0.unwrap_err();
    assert!(matches!(&error, TrustError::UnsignedDelegated { role, by, .. } if role == "z" && by == "y"), "{error}");
}
