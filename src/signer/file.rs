//! Keys in files, as OpenSSL reads and writes them: private keys as PKCS#8 PEM, plain or encrypted; public keys as PEM.

use super::SignerError;
use crate::digest::Digest;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::{file, random};
use crate::trust::key::SIGNATURE_BYTES;
use crate::trust::{PublicKey, SignError, Signer};
use ed25519_dalek::pkcs8::{
    DecodePublicKey as _, EncodePrivateKey, EncodePublicKey as _, KeypairBytes, PublicKeyBytes,
};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use pkcs8::der::pem::PemLabel as _;
use pkcs8::pkcs5::{pbes2, scrypt};
use pkcs8::{DecodePrivateKey as _, EncryptedPrivateKeyInfoRef, LineEnding, PrivateKeyInfoRef, SecretDocument};
use std::ffi::OsStr;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Largest key file read. A PEM key has some 200 bytes; more is another file.
pub(super) const KEY_FILE_BYTES_MAXIMUM: u64 = 16 * 1024;
const PUBLIC_PEM_LABEL: &str = "PUBLIC KEY";
/// scrypt's cost, as a power of two: 2^14. OpenSSL refuses to spend more than 32 MiB, which 2^15 needs.
const SCRYPT_LOG_N: u8 = 14;
const SCRYPT_R: u32 = 8;
const SCRYPT_P: u32 = 1;
const SALT_BYTES: usize = 16;
const IV_BYTES: usize = 16;
/// Permission bits that a key must not have, as with ssh: any reader could sign in its owner's name.
const FORBIDDEN_MODE: u32 = 0o077;

/// A private key from a file.
pub struct FileSigner {
    key: SigningKey,
    path: PathBuf,
}

impl fmt::Debug for FileSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileSigner").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Signer for FileSigner {
    fn public(&self) -> PublicKey {
        self.key.verifying_key().into()
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SignError> {
        Ok(self.key.sign(message).to_bytes())
    }
}

impl FileSigner {
    /// Returns the directory of the new file `path`, and its name there; refuses a file that exists.
    pub fn check_new(path: &Path) -> Result<(Dir, &OsStr), SignerError> {
        let (directory, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            _ => return Err(SignerError::NoFile { path: path.to_owned() }),
        };
        let directory = Dir::open(directory)?;
        if directory.stat(name)?.is_some() {
            return Err(SignerError::Exists { path: path.to_owned() });
        }
        directory.check_writable().map_err(|source| OsError::new("create", path, source))?;
        Ok((directory, name))
    }

    /// Creates a key in the new file `path`, mode 0600, encrypted if a passphrase is given. Never overwrites.
    pub fn create(path: &Path, passphrase: Option<&[u8]>) -> Result<Self, SignerError> {
        let mut seed = [0; 32];
        random::fill(&mut seed).map_err(|error| SignerError::Random { reason: error.to_string() })?;
        let key = SigningKey::from_bytes(&seed);
        let pem = to_pem(&key, passphrase).map_err(|error| SignerError::encoding(path, &error))?;
        let (directory, name) = Self::check_new(path)?;
        let mut file = directory.create_file(name, 0o600)?;
        let written = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
        if let Err(source) = written {
            directory.remove_file(name)?; // half a key is no key
            return Err(OsError::new("write", path, source).into());
        }
        directory.sync()?;
        Ok(Self { key, path: path.to_owned() })
    }

    /// Opens a key as written by `create` or by OpenSSL, if only its owner has access. Asks for `passphrase` only if the key is encrypted.
    pub fn open(
        path: &Path,
        passphrase: &mut dyn FnMut() -> Result<Vec<u8>, SignerError>,
    ) -> Result<Self, SignerError> {
        let file = file::open(path)?;
        let mode = file::mode(&file, path)?;
        let bytes = file::read_open(file, path, KEY_FILE_BYTES_MAXIMUM)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| SignerError::unreadable(path, "it is not PEM text"))?;
        // OpenSSL 1.x writes text before the PEM block.
        let (label, document) =
            SecretDocument::from_pem(text.get(text.find("-----BEGIN").unwrap_or(0)..).unwrap_or(text))
                .map_err(|_| SignerError::unreadable(path, "it is not PEM text"))?;
        let is_private = [PrivateKeyInfoRef::PEM_LABEL, EncryptedPrivateKeyInfoRef::PEM_LABEL].contains(&label);
        if is_private && mode & FORBIDDEN_MODE != 0 {
            return Err(SignerError::Exposed { path: path.to_owned(), mode });
        }
        let document = match label {
            PrivateKeyInfoRef::PEM_LABEL => document,
            EncryptedPrivateKeyInfoRef::PEM_LABEL => {
                let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes());
                let encrypted = encrypted.map_err(|_| SignerError::unreadable(path, "its encryption is unknown"))?;
                encrypted.decrypt(passphrase()?).map_err(|_| SignerError::Passphrase { path: path.to_owned() })?
            }
            _ => return Err(SignerError::unreadable(path, &format!("it holds a {label}, not a private key"))),
        };
        let pair = KeypairBytes::from_pkcs8_der(document.as_bytes());
        let pair = pair.map_err(|_| SignerError::unreadable(path, "it holds no Ed25519 key"))?;
        let key = SigningKey::from_bytes(&pair.secret_key);
        if pair.public_key.is_some_and(|public| public.to_bytes() != key.verifying_key().to_bytes()) {
            return Err(SignerError::unreadable(path, "its public half is another key's"));
        }
        Ok(Self { key, path: path.to_owned() })
    }
}

/// PKCS#8 version 1: OpenSSL 3.0 can't read version 2, which carries the public key.
fn to_pem(key: &SigningKey, passphrase: Option<&[u8]>) -> pkcs8::Result<String> {
    let plain = KeypairBytes { secret_key: key.to_bytes(), public_key: None }.to_pkcs8_der()?;
    let Some(passphrase) = passphrase else {
        return Ok(plain.to_pem(PrivateKeyInfoRef::PEM_LABEL, LineEnding::LF)?.to_string());
    };
    let mut drawn = [0; SALT_BYTES + IV_BYTES];
    random::fill(&mut drawn).map_err(|_| pkcs8::pkcs5::Error::EncryptFailed)?;
    let (salt, iv) = drawn.split_at(SALT_BYTES);
    let iv = iv.try_into().expect("the rest has the length of an initialisation vector");
    let cost = scrypt::Params::new(SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P).expect("the constants are valid");
    let parameters = pbes2::Parameters::generate_scrypt_aes256cbc(cost, salt, iv)?;
    let encrypted = PrivateKeyInfoRef::try_from(plain.as_bytes())?.encrypt_with_params(parameters, passphrase)?;
    Ok(encrypted.to_pem(EncryptedPrivateKeyInfoRef::PEM_LABEL, LineEnding::LF)?.to_string())
}

/// The Ed25519 key in PEM text, as [`public_pem`] and `openssl pkey -pubout` write it; None for other text. Errors name `path`.
pub fn public_from_pem(path: &Path, text: &str) -> Result<Option<PublicKey>, SignerError> {
    let text = text.get(text.find("-----BEGIN").unwrap_or(0)..).unwrap_or(text);
    if !text.starts_with("-----BEGIN PUBLIC KEY-----") {
        return Ok(None);
    }
    let key = VerifyingKey::from_public_key_pem(text.trim_end()).ok();
    let key = key.and_then(|key| PublicKey::from_bytes(key.as_bytes()));
    key.map(Some).ok_or_else(|| SignerError::unreadable(path, "it holds no Ed25519 key"))
}

/// A public key as PEM, for `openssl pkeyutl -verify -pubin`.
pub fn public_pem(key: &PublicKey) -> String {
    let document = PublicKeyBytes(*key.as_bytes()).to_public_key_der().expect("32 bytes always encode");
    document.to_pem(PUBLIC_PEM_LABEL, LineEnding::LF).expect("a short document always encodes")
}

/// The fingerprint for people to compare: SHA-256 of the 32 raw bytes.
pub fn fingerprint(key: &PublicKey) -> Digest {
    Digest::of(key.as_bytes())
}
