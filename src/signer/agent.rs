//! Keys in an ssh-agent (draft-ietf-sshm-ssh-agent): plain Ed25519 signatures over the message. The private key stays in the agent.

use super::SignerError;
use crate::digest::Digest;
use crate::os::dir::Dir;
use crate::os::{environment, socket};
use crate::trust::key::{PUBLIC_KEY_BYTES, SIGNATURE_BYTES};
use crate::trust::{PublicKey, SignError, Signer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// The variable that names the agent's socket.
const SOCKET: &str = "SSH_AUTH_SOCK";
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const ED25519: &[u8] = b"ssh-ed25519";
/// How long an agent may take: a person may have to confirm.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest message, as in OpenSSH's agent. Stops an endless answer.
const MESSAGE_BYTES_MAXIMUM: usize = 256 * 1024;
/// Most keys read; an agent has a few.
const KEYS_MAXIMUM: u32 = 1_024;

/// A key in an agent.
#[derive(Debug)]
pub struct AgentSigner {
    socket: PathBuf,
    public: PublicKey,
    name: String,
}

impl AgentSigner {
    /// Finds the Ed25519 key with this fingerprint (`SHA256:…`, as `ssh-add -l` prints it) or comment in the agent of `SSH_AUTH_SOCK`.
    pub fn find(name: &str) -> Result<Self, SignerError> {
        let refuse = |reason: &str| SignerError::Agent { key: name.to_owned(), reason: reason.to_owned() };
        let socket = environment::variable(SOCKET).filter(|path| !path.is_empty());
        let socket = PathBuf::from(socket.ok_or_else(|| refuse("SSH_AUTH_SOCK names no agent"))?);
        let answer = ask(&socket, &[REQUEST_IDENTITIES]).map_err(|reason| refuse(&reason))?;
        let keys = identities(&answer).ok_or_else(|| refuse("its list of keys can't be read"))?;
        let fits = |(blob, comment): &(&[u8], &[u8])| comment == &name.as_bytes() || fingerprint(blob) == name;
        let found: Vec<PublicKey> = keys.iter().filter(|key| fits(key)).filter_map(|key| public_key(key.0)).collect();
        match found.as_slice() {
            [public] => Ok(Self { socket, public: *public, name: name.to_owned() }),
            [] => Err(refuse("it holds no Ed25519 key of that fingerprint or comment")),
            _ => Err(refuse("several of its keys have that comment: name the fingerprint")),
        }
    }
}

impl Signer for AgentSigner {
    fn public(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SignError> {
        let failed =
            |reason: &str| SignError { message: format!("cannot sign with ssh-agent:{}: {reason}", self.name) };
        let mut request = vec![SIGN_REQUEST];
        put(&mut request, &blob(&self.public));
        put(&mut request, message);
        request.extend([0; 4]); // flags: none of them is about Ed25519
        let answer = ask(&self.socket, &request).map_err(|reason| failed(&reason))?;
        let signature = signature(&answer).ok_or_else(|| failed("the agent gave no signature"))?;
        let is_good = self.public.verifies(message, &signature);
        is_good.then_some(signature).ok_or_else(|| failed("the agent's signature is not valid"))
    }
}

/// Sends a message; returns the answer, its type first.
fn ask(path: &std::path::Path, message: &[u8]) -> Result<Vec<u8>, String> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_BYTES_MAXIMUM);
    let length = length.ok_or("an agent takes 256 KiB at most: sign this file with a key file, or with exec:")?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err("SSH_AUTH_SOCK names no socket".to_owned());
    };
    let directory = Dir::open(parent).map_err(|error| error.to_string())?;
    let stream = socket::connect(&directory, name, PATIENCE).map_err(|error| error.to_string())?;
    let mut stream = stream.ok_or_else(|| format!("no agent listens on {}", path.display()))?;
    let failed = |error: std::io::Error| format!("the agent doesn't answer ({error})");
    stream.write_all(&[&length.to_be_bytes(), message].concat()).map_err(failed)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(failed)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAXIMUM {
        return Err("the agent's answer is too long".to_owned());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).map_err(failed)?;
    Ok(answer)
}

/// The keys of an answer: each a blob and a comment.
fn identities(answer: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (kind, mut rest) = answer.split_first()?;
    let count = u32::from_be_bytes(*take(&mut rest, 4)?.first_chunk()?);
    if *kind != IDENTITIES_ANSWER || count > KEYS_MAXIMUM {
        return None;
    }
    (0..count).map(|_| Some((text(&mut rest)?, text(&mut rest)?))).collect()
}

fn signature(answer: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let (kind, mut rest) = answer.split_first()?;
    let mut signature = text(&mut rest)?;
    let is_ours = *kind == SIGN_RESPONSE && text(&mut signature)? == ED25519;
    if is_ours { text(&mut signature)?.try_into().ok() } else { None }
}

fn public_key(mut blob: &[u8]) -> Option<PublicKey> {
    if text(&mut blob)? != ED25519 {
        return None;
    }
    PublicKey::from_bytes(<&[u8; PUBLIC_KEY_BYTES]>::try_from(text(&mut blob)?).ok()?)
}

fn blob(key: &PublicKey) -> Vec<u8> {
    let mut blob = Vec::new();
    put(&mut blob, ED25519);
    put(&mut blob, key.as_bytes());
    blob
}

fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Digest::of(blob).as_bytes()))
}

/// A string of the protocol (RFC 4251 §5): four bytes of length, then the bytes.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_be_bytes(*take(rest, 4)?.first_chunk()?);
    take(rest, usize::try_from(length).ok()?)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn put(message: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX); // what is longer than a message may be is refused before it is sent
    message.extend(length.to_be_bytes());
    message.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_lies_about_its_lengths_is_no_answer() {
        let key = PublicKey::from_bytes(&ed25519_dalek::SigningKey::from_bytes(&[7; 32]).verifying_key().to_bytes());
        let key = key.expect("a key");
        let mut answer = vec![IDENTITIES_ANSWER, 0, 0, 0, 1];
        put(&mut answer, &blob(&key));
        put(&mut answer, b"comment");
        let keys = identities(&answer).expect("a list");
        assert_eq!((public_key(keys[0].0), keys[0].1), (Some(key), b"comment".as_slice()));
        for end in 0..answer.len() {
            assert!(identities(&answer[..end]).is_none(), "{end}");
        }
        answer[5] = 0xff;
        assert!(identities(&answer).is_none());
        assert!(signature(&[SIGN_RESPONSE]).is_none() && signature(&[5]).is_none());
    }
}
