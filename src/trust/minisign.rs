//! minisign's files, made and verified with a repository's targets key: checksum lists can be checked without sidle.
//!
//! Rule: minisign's manual, "Signature format" and "Public key format". Prehashed (`ED`, BLAKE2b-512), which minisign reads from 0.6 on.
//! All comments are fixed, so a signature has one spelling; any other file is refused.

use super::key::{PUBLIC_KEY_BYTES, PublicKey, SIGNATURE_BYTES};
use super::publish::{SignError, Signer};
use crate::digest::Digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use blake2::{Blake2b512, Digest as _};

const UNTRUSTED_COMMENT: &str = "untrusted comment: signature from a sidle repository's targets key";
const TRUSTED_COMMENT_PREFIX: &str = "trusted comment: ";
const TRUSTED_COMMENT: &str = "sidle SHA256SUMS";
const PREHASHED: &[u8; 2] = b"ED";
const KEY_ALGORITHM: &[u8; 2] = b"Ed";
const KEY_NUMBER_BYTES: usize = 8;

/// minisign's number of a key: the first 8 bytes of SHA-256 over the raw public key. (minisign itself draws it at random.)
pub fn key_number(key: &PublicKey) -> [u8; KEY_NUMBER_BYTES] {
    let digest = Digest::of(key.as_bytes());
    *digest.as_bytes().first_chunk().expect("a digest has more than 8 bytes")
}

/// The one line that `minisign -P` takes.
pub fn public_key_line(key: &PublicKey) -> String {
    let mut bytes = Vec::with_capacity(2 + KEY_NUMBER_BYTES + PUBLIC_KEY_BYTES);
    bytes.extend_from_slice(KEY_ALGORITHM);
    bytes.extend_from_slice(&key_number(key));
    bytes.extend_from_slice(key.as_bytes());
    BASE64.encode(bytes)
}

/// The text of a `.pub` file for `minisign -p`.
pub fn public_key_file(key: &PublicKey) -> String {
    let number = u64::from_le_bytes(key_number(key));
    format!("untrusted comment: minisign public key {number:016X}\n{}\n", public_key_line(key))
}

/// The text of the `.minisig` file of `message`. The same key and message always give the same text.
pub fn sign(signer: &dyn Signer, message: &[u8]) -> Result<String, SignError> {
    let signature = signer.sign(&prehash(message))?;
    let global = signer.sign(&globally_signed(&signature))?;
    Ok(Minisig { key_number: key_number(&signer.public()), signature, global }.text())
}

/// A parsed signature file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minisig {
    key_number: [u8; KEY_NUMBER_BYTES],
    signature: [u8; SIGNATURE_BYTES],
    global: [u8; SIGNATURE_BYTES],
}

impl Minisig {
    /// Reads a signature file; an error when it isn't exactly as `sign` writes it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let wrong = || "its minisign signature is not in the form that sidle writes".to_owned();
        let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
        let lines: Vec<&str> = text.lines().collect();
        let [_, signature, _, global] = lines.as_slice() else { return Err(wrong()) };
        let signature = BASE64.decode(signature).map_err(|_| wrong())?;
        let global = BASE64.decode(global).map_err(|_| wrong())?;
        let key_number = signature.get(PREHASHED.len()..).and_then(|rest| rest.first_chunk());
        let value = signature.get(PREHASHED.len() + KEY_NUMBER_BYTES..).and_then(|rest| rest.try_into().ok());
        let (Some(key_number), Some(value), Ok(global)) = (key_number, value, global.try_into()) else {
            return Err(wrong());
        };
        let read = Self { key_number: *key_number, signature: value, global };
        // Everything that is not read above (algorithm, comments, line ends, spare bits of base64) must be as we write it.
        if read.text() == text { Ok(read) } else { Err(wrong()) }
    }

    /// The number of the key that it claims.
    pub fn key_number(&self) -> [u8; KEY_NUMBER_BYTES] {
        self.key_number
    }

    /// True when both signatures are `key`'s: over the message, and over the first signature with the comment.
    pub fn verifies(&self, key: &PublicKey, message: &[u8]) -> bool {
        key.verifies(&prehash(message), &self.signature)
            && key.verifies(&globally_signed(&self.signature), &self.global)
    }

    fn text(&self) -> String {
        let mut bytes = PREHASHED.to_vec();
        bytes.extend_from_slice(&self.key_number);
        bytes.extend_from_slice(&self.signature);
        let (signature, global) = (BASE64.encode(bytes), BASE64.encode(self.global));
        format!("{UNTRUSTED_COMMENT}\n{signature}\n{TRUSTED_COMMENT_PREFIX}{TRUSTED_COMMENT}\n{global}\n")
    }
}

fn prehash(message: &[u8]) -> Vec<u8> {
    Blake2b512::digest(message).to_vec()
}

fn globally_signed(signature: &[u8; SIGNATURE_BYTES]) -> Vec<u8> {
    [signature.as_slice(), TRUSTED_COMMENT.as_bytes()].concat()
}
