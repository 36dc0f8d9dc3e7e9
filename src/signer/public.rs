//! Public keys as people see them: PEM and fingerprint.

use super::SignerError;
use crate::digest::Digest;
use crate::trust::PublicKey;
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::pkcs8::{DecodePublicKey as _, EncodePublicKey, PublicKeyBytes};
use pkcs8::LineEnding;
use pkcs8::der::Document;
use std::path::Path;

const PEM_LABEL: &str = "PUBLIC KEY";

/// The Ed25519 key in PEM text, as [`public_pem`] and `openssl pkey -pubout` write it; None when the text is no public key. `path` is for messages.
pub fn public_from_pem(path: &Path, text: &str) -> Result<Option<PublicKey>, SignerError> {
    let text = text.get(text.find("-----BEGIN").unwrap_or(0)..).unwrap_or(text);
    if !text.starts_with("-----BEGIN PUBLIC KEY-----") {
        return Ok(None);
    }
    let key = VerifyingKey::from_public_key_pem(text.trim_end()).ok();
    let key = key.and_then(|key| PublicKey::from_bytes(key.as_bytes()));
    key.map(Some).ok_or_else(|| SignerError::unreadable(path, "it holds no Ed25519 key"))
}

/// A public key as PEM, which `openssl pkeyutl -verify -pubin` takes.
pub fn public_pem(key: &PublicKey) -> String {
    let document: Document = PublicKeyBytes(*key.as_bytes()).to_public_key_der().expect("32 bytes always encode");
    document.to_pem(PEM_LABEL, LineEnding::LF).expect("a short document always encodes")
}

/// What people compare keys by: SHA-256 of the 32 raw bytes.
pub fn fingerprint(key: &PublicKey) -> Digest {
    Digest::of(key.as_bytes())
}
