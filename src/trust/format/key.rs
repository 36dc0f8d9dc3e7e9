//! Public keys and signatures as TUF writes them. Keyids are opaque names; the key itself counts.

use crate::digest::Digest;
use crate::trust::canonical::{Json, object};
use crate::trust::limits::{NAME_BYTES_MAXIMUM, SIGNATURE_BYTES_MAXIMUM};
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of an Ed25519 public key.
pub const PUBLIC_KEY_BYTES: usize = 32;
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The name of a key in TUF metadata. Opaque: compared and shown, never computed from the key by a reader (TAP 12).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// A keyid of metadata. None when empty or too long for a message.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= NAME_BYTES_MAXIMUM).then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A public key that this version can verify with. In saved files: its bytes in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// A key from its 32 bytes. None when they are not on the curve, or of small order (anybody could sign for such a key).
    pub fn from_bytes(bytes: &[u8; PUBLIC_KEY_BYTES]) -> Option<Self> {
        VerifyingKey::from_bytes(bytes).ok().filter(|key| !key.is_weak()).map(Self)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        self.0.as_bytes()
    }

    /// True when `signature` over `message` is this key's. Strict: no second encoding, no weak point.
    pub fn verifies(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.0.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }

    /// The key object of TUF §4.3.
    pub fn to_json(self) -> Json {
        object([
            ("keytype", "ed25519".into()),
            ("keyval", object([("public", Json::String(to_hex(self.as_bytes())))])),
            ("scheme", "ed25519".into()),
        ])
    }

    /// The keyid of this key: SHA-256 of the canonical key object, as every TUF tool computes it.
    pub fn keyid(&self) -> KeyId {
        KeyId(Digest::of(&self.to_json().canonical()).to_string())
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<String> for PublicKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let key = from_hex(&text).and_then(|bytes| Self::from_bytes(&bytes));
        key.ok_or_else(|| format!("{text:?} is not an Ed25519 key"))
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        to_hex(key.as_bytes())
    }
}

impl From<VerifyingKey> for PublicKey {
    fn from(key: VerifyingKey) -> Self {
        Self(key)
    }
}

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Exactly `N` bytes from hexadecimal of either case.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() == N * 2 { hex_bytes(text)?.try_into().ok() } else { None }
}

/// Bytes from hexadecimal of either case; None for anything else, and for more than any key or signature has.
pub fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let text = text.as_bytes();
    if text.len() % 2 != 0 || text.len() > SIGNATURE_BYTES_MAXIMUM * 2 {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_exact() {
        assert_eq!(from_hex::<2>("0aFF"), Some([10, 255]));
        for bad in ["", "0a", "0aff0", "0aff00", "0axx", "0 af", "+1+1"] {
            assert_eq!(from_hex::<2>(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_weak_key_is_no_key() {
        // The neutral element: with it, one fixed signature would fit every message under lax verification.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(PublicKey::from_bytes(&neutral).is_none());
    }
}
