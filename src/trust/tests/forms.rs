//! What is refused for its form alone, and that what is published is the same every time.

use super::*;
use crate::trust::delegation::{Delegated, Scope};
use crate::trust::minisign::{Minisig, key_number, public_key_file, sign};

fn one_target() -> Vec<u8> {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    repo.files["1.targets.json"].clone()
}

fn parse(text: &str) -> Result<Signed<Targets>, TrustError> {
    Signed::parse("x.json", text.as_bytes())
}

#[test]
fn malformed_files_are_refused() {
    let good = String::from_utf8(one_target()).unwrap();
    assert!(parse(&good).is_ok());
    for (from, to) in [
        ("\"version\":1", "\"version\":1.0"),
        ("\"version\":1", "\"version\":0"),
        ("\"version\":1", "\"version\":-1"),
        ("\"version\":1", "\"version\":\"1\""),
        ("\"version\":1", "\"version\":1, \"version\":1"),
        ("\"version\":1", "\"version\":99999999999999999999"),
        ("\"_type\":\"targets\"", "\"_type\":\"snapshot\""),
        ("\"spec_version\":\"1.0.31\"", "\"spec_version\":\"2.0.0\""),
        ("\"spec_version\":\"1.0.31\"", "\"spec_version\":\"1\""),
        ("\"spec_version\":\"1.0.31\"", "\"spec_version\":\"1.x\""),
        ("\"expires\":\"2027-01-01T00:00:00Z\"", "\"expires\":\"2027-01-01T00:00:00+00:00\""),
        ("\"expires\":\"2027-01-01T00:00:00Z\"", "\"expires\":\"2027-13-01T00:00:00Z\""),
        ("\"expires\":\"2027-01-01T00:00:00Z\"", "\"expires\":1"),
        ("\"length\":1", "\"length\":-1"),
        ("\"length\":1", "\"length\":1099511627777"),
        ("\"sha256\"", "\"md5\""),
        ("\"sha256\":\"6", "\"sha256\":\"x"),
        ("\"signatures\":[", "\"signatures\":[1,"),
        ("\"signatures\"", "\"signature\""),
        ("\"sig\"", "\"signature\""),
    ] {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        assert!(matches!(parse(&bad), Err(TrustError::Malformed { .. })), "{to}");
    }
    assert!(matches!(parse(&format!("{good}x")), Err(TrustError::Malformed { .. })));
    for cut in 0..good.len() - 1 {
        assert!(parse(&good[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn a_file_of_another_role_is_refused() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let targets = repo.files["1.targets.json"].clone();
    repo.files.insert("timestamp.json".to_owned(), targets);
    let error = refusal(&repo, &repo.pinned(), 1);
    assert_eq!(error.to_string(), "cannot read timestamp.json: it is \"targets\" metadata, not \"timestamp\"");
}

#[test]
fn what_an_author_has_written_otherwise_is_not_blamed_on_the_transit() {
    let repo = Repo::new();
    let mut evil = repo.clone();
    evil.forge("1.root.json", &[ROOT], |signed| {
        signed.insert("expires".to_owned(), Json::String("2030-01-01T00:00:00.123456Z".to_owned()));
    });
    let error = refusal(&evil, &evil.pinned(), 1);
    assert!(error.to_string().contains("in whole seconds"), "{error}");
    assert!(error.hint().unwrap().contains("its author wrote it so"), "{error:?}");
}

#[test]
fn root_rules_are_whole_and_need_a_signature() {
    let repo = Repo::new();
    let edit = |edit: fn(&mut Object)| {
        let mut evil = repo.clone();
        evil.forge("1.root.json", &[ROOT], |signed| {
            let Some(Json::Object(roles)) = signed.get_mut("roles") else { unreachable!() };
            edit(roles);
        });
        refusal(&evil, &evil.pinned(), 1)
    };
    let zero = edit(|roles| {
        let Some(Json::Object(rule)) = roles.get_mut("targets") else { unreachable!() };
        rule.insert("threshold".to_owned(), Json::Integer(0));
    });
    assert!(matches!(zero, TrustError::Malformed { .. }), "{zero}");
    let twice = edit(|roles| {
        let Some(Json::Object(rule)) = roles.get_mut("targets") else { unreachable!() };
        let Some(Json::Array(keyids)) = rule.get_mut("keyids") else { unreachable!() };
        keyids.push(keyids[0].clone());
    });
    assert!(matches!(twice, TrustError::Malformed { .. }), "{twice}");
    let missing = edit(|roles| {
        roles.remove("snapshot");
    });
    assert!(matches!(missing, TrustError::Malformed { .. }), "{missing}");
}

#[test]
fn sizes_and_counts_are_limited() {
    let huge = vec![b' '; Role::Timestamp.bytes_maximum() + 1];
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    repo.files.insert("timestamp.json".to_owned(), huge);
    assert!(matches!(refusal(&repo, &repo.pinned(), 1), TrustError::TooLarge { .. }));
    let many: Vec<String> = (0..65).map(|number| format!(r#"{{"keyid":"k{number}","sig":""}}"#)).collect();
    let signatures = |many: &[String]| {
        let good = String::from_utf8(one_target()).unwrap();
        let start = good.find("\"signatures\":[").unwrap() + "\"signatures\":[".len();
        let end = good.find("],\"signed\"").unwrap();
        format!("{}{}{}", &good[..start], many.join(","), &good[end..])
    };
    assert!(parse(&signatures(&many[..64])).is_ok());
    assert!(matches!(parse(&signatures(&many)), Err(TrustError::Malformed { .. })));
}

#[test]
fn unknown_fields_are_signed_and_kept() {
    let bytes = forged(&one_target(), &[TARGETS], |signed| {
        signed.insert("zzz".to_owned(), Json::parse(br#"{"b":[1],"a":"\n"}"#).unwrap());
    });
    let parsed: Signed<Targets> = Signed::parse("x", &bytes).unwrap();
    assert_eq!(parsed.bytes, bytes);
    let signature = parsed.signatures[0].value.as_ref().unwrap();
    assert!(Key::Ed25519(test_key(TARGETS).public()).verifies(&parsed.canonical, signature));
}

#[test]
fn sha512_alone_is_checked_but_a_release_needs_sha256() {
    let bytes = forged(&one_target(), &[TARGETS], |signed| {
        let list = r#"{"a":{"length":3,"hashes":{"sha512":"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"}}}"#;
        signed.insert("targets".to_owned(), Json::parse(list.as_bytes()).unwrap());
    });
    let parsed: Signed<Targets> = Signed::parse("x", &bytes).unwrap();
    assert!(parsed.body.targets["a"].hashes.fit(b"abc"));
    assert!(!parsed.body.targets["a"].hashes.fit(b"abd"));
    let mut repo = Repo::new();
    repo.publish(&[]);
    repo.files.insert("1.targets.json".to_owned(), bytes);
    let named = describe(1, &repo.files["1.targets.json"]);
    repo.snapshot(&[("targets.json", named)]);
    let (_, targets) = trusted(&repo, &repo.pinned(), 1);
    assert!(matches!(targets.require("a", &Digest::of(b"abc")), Err(TrustError::Unknown { .. })));
}

#[test]
fn delegations_are_parsed_whole() {
    let with = |text: &str| {
        let json = Json::parse(text.as_bytes()).unwrap();
        let bytes = forged(&one_target(), &[TARGETS], |signed| {
            signed.insert("delegations".to_owned(), json);
        });
        Signed::<Targets>::parse("x", &bytes).map(|parsed| parsed.body.delegations.unwrap().roles)
    };
    let role = |name: &str, scope: &str| {
        format!(
            r#"{{"keys":{{}},"roles":[{{"name":"{name}","keyids":["k"],"threshold":1,"terminating":true,{scope}}}]}}"#
        )
    };
    let Delegated::Named(roles) = with(&role("a", r#""path_hash_prefixes":["00"]"#)).unwrap() else { unreachable!() };
    assert_eq!(roles[0].scope, Scope::HashPrefixes(vec!["00".to_owned()]));
    assert!(roles[0].terminating);
    let succinct = r#"{"keys":{},"succinct_roles":{"keyids":["k"],"threshold":1,"bit_length":8,"name_prefix":"bin"}}"#;
    assert!(matches!(with(succinct).unwrap(), Delegated::Succinct { bit_length: 8, .. }));
    for bad in [
        role("snapshot", r#""paths":["*"]"#),
        role("", r#""paths":["*"]"#),
        role("a", r#""paths":["*"],"path_hash_prefixes":["00"]"#),
        role("a", r#""x":1"#),
        role("a", r#""paths":[1]"#),
        r#"{"keys":{}}"#.to_owned(),
        succinct.replace(":8", ":33"),
        succinct.replace(":8", ":0"),
        succinct.replace("\"threshold\":1", "\"threshold\":0"),
    ] {
        assert!(matches!(with(&bad), Err(TrustError::Malformed { .. })), "{bad}");
    }
}

#[test]
fn publishing_is_deterministic() {
    let make = || {
        let mut repo = Repo::new();
        repo.publish(&[("b", "2"), ("a", "1")]).publish(&[("a", "1")]);
        repo.files
    };
    assert_eq!(make(), make());
    let keyid = test_key(ROOT).public().keyid();
    assert!(key::from_hex::<32>(keyid.as_str()).is_some());
}

#[test]
fn a_minisig_has_one_spelling_and_both_signatures_count() {
    let (key, message) = (test_key(TARGETS), b"list\n");
    let text = sign(&key, message).unwrap();
    assert_eq!(text, sign(&key, message).unwrap());
    let public = key.public();
    let good = Minisig::parse(text.as_bytes()).unwrap();
    assert!(good.verifies(&public, message) && good.key_number() == key_number(&public));
    assert!(!good.verifies(&public, b"list"));
    assert!(!good.verifies(&test_key(ROOT).public(), message));
    assert_eq!(public_key_file(&public).lines().count(), 2);
    for position in 0..text.len() {
        for bit in [1, 32] {
            let mut flipped = text.clone().into_bytes();
            flipped[position] ^= bit;
            let accepted = Minisig::parse(&flipped)
                .is_ok_and(|read| read.key_number() == key_number(&public) && read.verifies(&public, message));
            assert!(!accepted, "{position}");
        }
    }
    for bad in [text.replace('\n', "\r\n"), format!("{text}\n"), text.trim_end().to_owned(), String::new()] {
        assert!(Minisig::parse(bad.as_bytes()).is_err());
    }
}

#[test]
fn a_list_signed_by_another_key_is_a_warning_and_a_bad_signature_a_refusal() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (_, targets) = trusted(&repo, &repo.pinned(), 1);
    let signature = |seed| sign(&test_key(seed), b"list").unwrap();
    assert_eq!(targets.check_sums_signature(b"list", signature(TARGETS).as_bytes()), Ok(None));
    assert_eq!(targets.check_sums_signature(b"list", signature(99).as_bytes()), Ok(Some(Warning::UnknownSumsKey)));
    let bad = [(b"other".as_slice(), signature(TARGETS)), (b"list", "x".to_owned())];
    for (list, signature) in bad {
        assert!(matches!(targets.check_sums_signature(list, signature.as_bytes()), Err(TrustError::Minisign { .. })));
    }
}
