//! Keys and signatures of every scheme, good, damaged and unknown.

use super::vectors::{
    ECDSA, ECDSA_SIGNATURE, P384, POINT, POINT_COMPRESSED, RSA, RSA_SHORT_SALT, RSA_SIGNATURE, RSA_V15, RSA_WEAK,
    RSA_WEAK_SIGNATURE, SECP256K1,
};
use super::*;
use crate::trust::key::hex_bytes;

const MESSAGE: &[u8] = b"sidle";

fn parsed(keytype: &str, scheme: &str, public: &str) -> Key {
    let object = object([
        ("keytype", keytype.into()),
        ("keyval", super::object([("public", public.into())])),
        ("scheme", scheme.into()),
        ("x-unknown", Json::Integer(1)),
    ]);
    let Json::Object(object) = object else { unreachable!() };
    Key::from_json(&object).unwrap()
}

fn ecdsa(public: &str) -> Key {
    parsed("ecdsa", "ecdsa-sha2-nistp256", public)
}

fn rsa(public: &str) -> Key {
    parsed("rsa", "rsassa-pss-sha256", public)
}

#[test]
fn ecdsa_p256_and_rsa_pss_verify_and_any_other_byte_does_not() {
    for (key, signature) in [(ecdsa(ECDSA), ECDSA_SIGNATURE), (rsa(RSA), RSA_SIGNATURE)] {
        let good = hex_bytes(signature).unwrap();
        assert!(key.verifies(MESSAGE, &good));
        assert!(!key.verifies(b"sidlf", &good));
        assert!(!key.verifies(MESSAGE, b""));
        assert!(!key.verifies(MESSAGE, &[good.as_slice(), &[0]].concat()));
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(!key.verifies(MESSAGE, &bad), "{place}");
        }
    }
    assert!(!rsa(RSA).verifies(MESSAGE, &hex_bytes(RSA_SHORT_SALT).unwrap()));
    assert!(!rsa(RSA).verifies(MESSAGE, &hex_bytes(RSA_V15).unwrap()));
    assert!(!rsa(RSA_WEAK).verifies(MESSAGE, &hex_bytes(RSA_WEAK_SIGNATURE).unwrap()), "1024 bits");
}

#[test]
fn one_key_in_two_spellings_is_one_key() {
    assert_eq!(ecdsa(ECDSA), ecdsa(POINT));
    assert_eq!(ecdsa(ECDSA), parsed("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256", &POINT.to_uppercase()));
    assert_eq!(ecdsa(ECDSA), ecdsa(ECDSA.trim_end()));
    assert_eq!(ecdsa(POINT_COMPRESSED), Key::Unknown, "a second spelling with other bytes");
}

#[test]
fn a_key_of_another_scheme_curve_or_form_is_unknown_and_never_counts() {
    let ed25519 = to_hex(test_key(1).public().as_bytes());
    for (keytype, scheme, public) in [
        ("ecdsa", "ecdsa-sha2-nistp256", P384),
        ("ecdsa", "ecdsa-sha2-nistp256", SECP256K1),
        ("ecdsa", "ecdsa-sha2-nistp256", RSA),
        ("ecdsa", "ecdsa-sha2-nistp256", ""),
        ("ecdsa", "ecdsa-sha2-nistp256", &POINT[2..]),
        ("ecdsa", "ecdsa-sha2-nistp384", P384),
        ("ecdsa", "rsassa-pss-sha256", ECDSA),
        ("rsa", "rsassa-pss-sha256", ECDSA),
        ("rsa", "rsassa-pss-sha256", &RSA.replace("PUBLIC", "PRIVATE")),
        ("rsa", "rsassa-pss-sha256", &RSA[..RSA.len() / 2]),
        ("rsa", "rsa-pkcs1v15-sha256", RSA),
        ("rsa", "rsassa-pss-sha512", RSA),
        ("ed25519", "ed25519ph", &ed25519),
        ("ed25519", "ed25519", &ed25519[2..]),
        ("", "", ""),
    ] {
        assert_eq!(parsed(keytype, scheme, public), Key::Unknown, "{keytype} {scheme}");
    }
    assert!(!Key::Unknown.verifies(MESSAGE, b""));
    assert!(matches!(parsed("ed25519", "ed25519", &ed25519), Key::Ed25519(_)));
}

#[test]
fn what_is_no_key_object_is_refused() {
    for text in [
        r#"{"keytype":"ed25519","keyval":{"public":"00"}}"#,
        r#"{"keytype":"ed25519","scheme":"ed25519"}"#,
        r#"{"keytype":"ed25519","scheme":"ed25519","keyval":""}"#,
        r#"{"keytype":1,"scheme":"ed25519","keyval":{"public":"00"}}"#,
    ] {
        let Json::Object(object) = Json::parse(text.as_bytes()).unwrap() else { unreachable!() };
        assert!(Key::from_json(&object).is_err(), "{text}");
    }
}
