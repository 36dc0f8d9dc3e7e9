//! `sidle key`: makes and shows signing keys, and opens them for the verbs that sign.

use crate::cli::facts::Facts;
use crate::cli::{Context, Ended, input};
use crate::failure::Report;
use crate::repository::PublishKeys;
use crate::signer::{FileSigner, SignerError, fingerprint, public_pem};
use crate::trust::{PublicKey, Signer as _, minisign};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Largest passphrase file read; a passphrase is a line.
const PASSPHRASE_BYTES_MAXIMUM: u64 = 4096;

/// `sidle key`
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Makes a new key in a new file that only its owner may read
    New(KeyFile),
    /// Shows the public half of a key
    Show(KeyFile),
}

/// The key that a verb is about.
#[derive(Debug, Args)]
pub struct KeyFile {
    /// The key file
    file: PathBuf,
    #[command(flatten)]
    passphrase: Passphrase,
}

#[derive(Debug, Args)]
struct Passphrase {
    /// A file whose first line encrypts the key, or opens an encrypted one
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Passphrase {
    fn read(&self) -> Result<Option<Vec<u8>>, Report> {
        let Some(path) = &self.passphrase_file else { return Ok(None) };
        let text = input::read(path, PASSPHRASE_BYTES_MAXIMUM, "a file that holds the passphrase in its first line")?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if line.is_empty() {
            let message = format!("cannot use the passphrase in {}: its first line is empty", path.display());
            return Err(crate::cli::usage(message, "write the passphrase into the file's first line"));
        }
        Ok(Some(line.to_owned()))
    }

    fn open(&self, path: &Path) -> Result<FileSigner, Report> {
        let passphrase = self.read()?;
        let mut give = || {
            let missing = || SignerError::NoPassphrase { reason: "its passphrase was not given".to_owned() };
            passphrase.clone().ok_or_else(missing)
        };
        FileSigner::open(path, &mut give).map_err(|error| match error {
            SignerError::Os(error) => input::explained(error, "a key file that `sidle key new` made"),
            SignerError::NoPassphrase { .. } | SignerError::Passphrase { .. } => {
                let hint = "name a file that holds the key's passphrase in its first line with --passphrase-file";
                Report { hint: Some(hint.to_owned()), ..Report::from(error) }
            }
            error => Report::from(error),
        })
    }
}

/// The keys of a verb that signs.
#[derive(Debug, Args)]
pub struct SigningArguments {
    /// The key that signs
    #[arg(long, value_name = "FILE", required = false)]
    key: Option<PathBuf>,
    /// The key of the targets role, where it is another one
    #[arg(long, value_name = "FILE")]
    targets_key: Option<PathBuf>,
    /// The key of the snapshot and timestamp roles, where it is another one
    #[arg(long, value_name = "FILE")]
    online_key: Option<PathBuf>,
    #[command(flatten)]
    passphrase: Passphrase,
}

/// The keys, opened.
pub struct SigningKeys {
    /// `--key`.
    pub root: FileSigner,
    targets: Option<FileSigner>,
    online: Option<FileSigner>,
}

impl SigningArguments {
    /// True where no key was named.
    pub fn is_empty(&self) -> bool {
        self.key.is_none()
    }

    /// Opens the keys.
    pub fn open(&self) -> Result<SigningKeys, Report> {
        let Some(key) = &self.key else {
            return Err(crate::cli::usage("cannot sign without a key", "name it with --key FILE; `sidle key new FILE` makes one"));
        };
        let other = |path: &Option<PathBuf>| path.as_deref().map(|path| self.passphrase.open(path)).transpose();
        Ok(SigningKeys {
            root: self.passphrase.open(key)?,
            targets: other(&self.targets_key)?,
            online: other(&self.online_key)?,
        })
    }
}

impl SigningKeys {
    /// The keys that publish.
    pub fn publish(&self) -> PublishKeys<'_> {
        let [targets, online] = [&self.targets, &self.online].map(|key| key.as_ref().unwrap_or(&self.root));
        PublishKeys { targets, online }
    }
}

/// `sidle key new` and `sidle key show`.
pub fn key(context: &Context, verb: &KeyVerb) -> Result<Ended, Report> {
    let (signer, file, next) = match verb {
        KeyVerb::New(arguments) => {
            let passphrase = arguments.passphrase.read()?;
            let signer = FileSigner::create(&arguments.file, passphrase.as_deref())?;
            let next = format!("sidle repo init DIR --key {}", arguments.file.display());
            (signer, &arguments.file, Some(next))
        }
        KeyVerb::Show(arguments) => (arguments.passphrase.open(&arguments.file)?, &arguments.file, None),
    };
    let public = signer.public();
    let mut facts = key_facts(Facts::new().with("file", file.display()), &public);
    if let Some(next) = next {
        facts.add("keep it", "only you may read it, and nobody can make it again: back it up");
        facts.add("next", next);
    }
    let value = json!({
        "file": file, "keyid": public.keyid().as_str(), "fingerprint": fingerprint(&public),
        "minisign": minisign::public_key_line(&public), "pem": public_pem(&public),
    });
    context.output.result(&facts.to_string(), value);
    Ok(Ended::Well)
}

fn key_facts(facts: Facts, public: &PublicKey) -> Facts {
    facts
        .with("key id", public.keyid())
        .with("fingerprint", fingerprint(public))
        .with("minisign", minisign::public_key_line(public))
}
