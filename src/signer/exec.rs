//! Keys behind a program: an HSM, a KMS, a token. The protocol suits a shell script:
//!
//! ```text
//! SIDLE_SIGN=public COMMAND            prints the public key: PEM, or 64 hexadecimal digits
//! SIDLE_SIGN=sign   COMMAND < message  prints the Ed25519 signature over the message: 64 bytes raw, or as hexadecimal, or as base64
//! ```
//!
//! It exits with 0 within two minutes (a person may have to touch a token); its standard error is shown. COMMAND is split at spaces; no
//! shell reads it. Every answer is verified before use.

use super::{SignerError, public_from_pem};
use crate::os::environment::{Need, Passed};
use crate::os::filter;
use crate::os::process::{Directory, Program};
use crate::trust::key::{SIGNATURE_BYTES, from_hex};
use crate::trust::{PublicKey, SignError, Signer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use std::time::Duration;

const TASK: &str = "SIDLE_SIGN";
/// A person may have to enter a PIN, or touch a token.
const PATIENCE: Duration = Duration::from_secs(120);
/// More than any key or signature has. Stops a program that prints without end.
const ANSWER_BYTES_MAXIMUM: usize = 16 * 1024;

/// A key behind a program.
#[derive(Debug)]
pub struct ExecSigner {
    command: String,
    public: PublicKey,
}

impl ExecSigner {
    /// Asks the program for its public key.
    pub fn find(command: &str) -> Result<Self, SignerError> {
        let refuse = |reason: String| SignerError::Exec { command: command.to_owned(), reason };
        let answer = ask(command, "public", &[]).map_err(refuse)?;
        let text = String::from_utf8_lossy(&answer);
        let hex = || from_hex(text.trim()).and_then(|bytes| PublicKey::from_bytes(&bytes));
        let public = public_from_pem(Path::new(command), &text)?.or_else(hex);
        let public = public.ok_or_else(|| refuse("it printed no Ed25519 public key".to_owned()))?;
        Ok(Self { command: command.to_owned(), public })
    }
}

impl Signer for ExecSigner {
    fn public(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SignError> {
        let failed =
            |reason: String| SignError { message: format!("cannot sign with exec:{}: {reason}", self.command) };
        let answer = ask(&self.command, "sign", message).map_err(failed)?;
        let signature = signature(&answer).ok_or_else(|| failed("it printed no signature of 64 bytes".to_owned()))?;
        let is_good = self.public.verifies(message, &signature);
        is_good.then_some(signature).ok_or_else(|| failed("its signature is not valid for its public key".to_owned()))
    }
}

fn ask(command: &str, task: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("it names no program")?;
    // Words may name files from where the person is.
    let program = words.fold(Program::new(program), Program::argument).variable(TASK, task).working(Directory::Callers);
    let passed = Passed::default().with(Need::Network).with(Need::Keys).with(Need::Person);
    let answer = filter::answer(&program.passing(passed), message, PATIENCE, ANSWER_BYTES_MAXIMUM);
    match answer.map_err(|error| error.to_string())? {
        filter::Answer::Printed(bytes) => Ok(bytes),
        filter::Answer::Failed => Err("it failed; its own messages say why".to_owned()),
        filter::Answer::TooLong => Err("it printed too much".to_owned()),
        filter::Answer::TooLate => Err(format!("it took longer than {} s", PATIENCE.as_secs())),
    }
}

fn signature(answer: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    if let Ok(raw) = answer.try_into() {
        return Some(raw);
    }
    let text = std::str::from_utf8(answer).ok()?.trim();
    from_hex(text).or_else(|| STANDARD.decode(text).ok()?.try_into().ok())
}
