//! The keys of metadata, of every scheme of TUF §4.2, their signatures, and the number that a role needs. An unknown key never counts.

use crate::trust::canonical::{Json, Object};
use crate::trust::key::{KeyId, PublicKey, SIGNATURE_BYTES, from_hex, hex_bytes};
use crate::trust::limits;
use crate::trust::reader::{Fields, Reason};
use pkcs8::Document;
use pkcs8::spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};
use ring::signature::{ECDSA_P256_SHA256_ASN1, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of an uncompressed point on P-256.
const POINT_BYTES: usize = 65;
/// The first byte of an uncompressed point (SEC 1 §2.3.3). The compressed form would be a second name of the same key.
const UNCOMPRESSED: u8 = 4;
/// id-ecPublicKey and prime256v1 (RFC 5480 §2.1.1), rsaEncryption (RFC 3279 §2.3.1).
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const PRIME256V1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// A key of metadata. An unknown key is kept, and never counts. Equality ignores keyids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `ed25519`
    Ed25519(PublicKey),
    /// `ecdsa-sha2-nistp256`: the uncompressed point.
    EcdsaP256(Vec<u8>),
    /// `rsassa-pss-sha256`: the DER of an `RSAPublicKey` (RFC 8017 §A.1.1), 2048 to 8192 bits.
    RsaPss(Vec<u8>),
    /// An unknown type, scheme or value.
    Unknown,
}

impl Key {
    /// Reads a key object (TUF §4.2). An unknown key becomes `Unknown`; only a malformed object is an error.
    pub fn from_json(object: &Object) -> Result<Self, &'static str> {
        let text = |name: &str| match object.get(name) {
            Some(Json::String(text)) => Ok(text.as_str()),
            _ => Err("a key has no keytype, scheme or keyval"),
        };
        let (keytype, scheme) = (text("keytype")?, text("scheme")?);
        let Some(Json::Object(value)) = object.get("keyval") else {
            return Err("a key has no keytype, scheme or keyval");
        };
        let Some(Json::String(public)) = value.get("public") else { return Ok(Self::Unknown) };
        let key = match (keytype, scheme) {
            ("ed25519", "ed25519") => {
                from_hex(public).and_then(|bytes| PublicKey::from_bytes(&bytes)).map(Self::Ed25519)
            }
            // Older repositories wrote the second keytype, some with the bare point.
            ("ecdsa" | "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256") => {
                point(public).filter(|point| is_point(point)).map(Self::EcdsaP256)
            }
            ("rsa", "rsassa-pss-sha256") => rsa(public).map(Self::RsaPss),
            _ => None,
        };
        Ok(key.unwrap_or(Self::Unknown))
    }

    /// True when `signature` over `message` is this key's: 64 bytes for Ed25519, DER for ECDSA, modulus length for RSA (salt of 32 bytes).
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => {
                <&[u8; SIGNATURE_BYTES]>::try_from(signature).is_ok_and(|signature| key.verifies(message, signature))
            }
            Self::EcdsaP256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature).is_ok()
            }
            Self::RsaPss(der) => {
                UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, der).verify(message, signature).is_ok()
            }
            Self::Unknown => false,
        }
    }
}

fn is_point(bytes: &[u8]) -> bool {
    bytes.len() == POINT_BYTES && bytes[0] == UNCOMPRESSED
}

fn point(public: &str) -> Option<Vec<u8>> {
    if !public.starts_with("-----BEGIN") {
        return hex_bytes(public);
    }
    let document = spki(public)?;
    let info = SubjectPublicKeyInfoRef::try_from(document.as_bytes()).ok()?;
    let curve = info.algorithm.parameters_oid().ok()?;
    let is_p256 = info.algorithm.oid == EC_PUBLIC_KEY && curve == PRIME256V1;
    if is_p256 { info.subject_public_key.as_bytes().map(<[u8]>::to_vec) } else { None }
}

fn rsa(public: &str) -> Option<Vec<u8>> {
    let document = spki(public)?;
    let info = SubjectPublicKeyInfoRef::try_from(document.as_bytes()).ok()?;
    let is_rsa = info.algorithm.oid == RSA_ENCRYPTION;
    if is_rsa { info.subject_public_key.as_bytes().map(<[u8]>::to_vec) } else { None }
}

fn spki(public: &str) -> Option<Document> {
    // Some tools omit the last line end, some write two.
    let (label, document) = Document::from_pem(public.trim_end()).ok()?;
    (label == "PUBLIC KEY").then_some(document)
}

/// One signature on a metadata file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The keyid it claims.
    pub keyid: KeyId,
    /// The raw signature; None when it isn't hexadecimal, or is too long: it never counts.
    pub value: Option<Vec<u8>>,
}

/// The keys of a role, and the number of signatures that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// The keys that count.
    pub keyids: BTreeSet<KeyId>,
    /// At least 1; distinct keys count.
    pub threshold: u64,
}

pub(in crate::trust) fn keyid(text: &str) -> Result<KeyId, Reason> {
    KeyId::new(text).ok_or_else(|| Reason("a keyid is empty or too long".to_owned()))
}

pub(in crate::trust) fn keys(fields: &Fields<'_>) -> Result<BTreeMap<KeyId, Key>, Reason> {
    fields
        .object("keys", limits::KEYS_MAXIMUM)?
        .iter()
        .map(|(id, key)| {
            let key =
                Key::from_json(Fields::of(key, "a key")?.members()).map_err(|reason| Reason(reason.to_owned()))?;
            Ok((keyid(id)?, key))
        })
        .collect()
}

/// A threshold of 0 would let anyone sign; a keyid named twice must not look like two keys.
pub(in crate::trust) fn key_rule(fields: &Fields<'_>) -> Result<KeyRule, Reason> {
    let mut keyids = BTreeSet::new();
    for item in fields.array("keyids", limits::KEYS_MAXIMUM)? {
        let Json::String(text) = item else { return Err(Reason("a keyid is not a string".to_owned())) };
        if !keyids.insert(keyid(text)?) {
            return Err(Reason(format!("{} names the keyid {text} twice", fields.name())));
        }
    }
    Ok(KeyRule { keyids, threshold: fields.count("threshold", 1)? })
}
