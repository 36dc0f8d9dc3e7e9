//! `sidle key`: makes and shows signing keys, and opens them for the verbs that sign.

use crate::cli::dry_run::DryRun;
use crate::cli::facts::Facts;
use crate::cli::output::Lines;
use crate::cli::{Context, Ended, input};
use crate::failure::{Class, Report};
use crate::os::place::Place;
use crate::repository::PublishKeys;
use crate::signer::{FileSigner, KeySource, OpenedKey, SignerError, fingerprint, public_pem};
use crate::store::collect::Effect;
use crate::trust::{PublicKey, Signer, minisign};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Largest passphrase file read; a passphrase is a line.
const PASSPHRASE_BYTES_MAXIMUM: u64 = 4096;

/// Largest file signed, since it is signed in memory. Bigger files go into a list of digests, which is signed.
const SIGNED_BYTES_MAXIMUM: u64 = 64 << 20;

/// `sidle key`
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a new key in a new file that only its owner may read
    New(KeyFile),
    /// Show the public half of a key; --pem prints it as a file for `repo init` and `repo rotate`
    Show(ShownKey),
    /// Sign a file, and write FILE.minisig beside it: `minisign -V` verifies it
    Sign(SignedFile),
}

/// `sidle key sign KEY FILE`
#[derive(Debug, Args)]
pub struct SignedFile {
    /// The key that signs: a key file, `ssh-agent:NAME` or `exec:COMMAND`
    key: KeySource,
    /// The file to sign, such as SHA256SUMS
    file: PathBuf,
    #[command(flatten)]
    passphrase: Passphrase,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle key show KEY`
#[derive(Debug, Args)]
pub struct ShownKey {
    /// The key: a file, private or public
    key: KeySource,
    /// Print the public key as PEM, and nothing else
    #[arg(long)]
    pem: bool,
    #[command(flatten)]
    passphrase: Passphrase,
}

/// The key that a verb is about.
#[derive(Debug, Args)]
pub struct KeyFile {
    /// The key file
    file: PathBuf,
    #[command(flatten)]
    passphrase: Passphrase,
    #[command(flatten)]
    dry: DryRun,
}

#[derive(Debug, Args)]
struct Passphrase {
    /// A file whose first line is the passphrase that encrypts or decrypts the key
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

    /// Opens a key, as far as it is at hand.
    fn open(&self, source: &KeySource) -> Result<OpenedKey, Report> {
        let passphrase = self.read()?;
        let mut give = || {
            let missing = || SignerError::NoPassphrase { reason: "its passphrase was not given".to_owned() };
            passphrase.clone().ok_or_else(missing)
        };
        source.open(&mut give).map_err(|error| match error {
            SignerError::Os(error) => input::explained(error, "a key file that `sidle key new` made"),
            SignerError::NoPassphrase { .. } | SignerError::Passphrase { .. } => {
                let hint = "name a file that holds the key's passphrase in its first line with --passphrase-file";
                Report { hint: Some(hint.to_owned()), ..Report::from(error) }
            }
            error => Report::from(error),
        })
    }

    /// Opens a key that has to sign.
    fn signer(&self, source: &KeySource) -> Result<Box<dyn Signer>, Report> {
        match self.open(source)? {
            OpenedKey::Signer(signer) => Ok(signer),
            OpenedKey::Public(_) => Err(crate::cli::usage(
                format!("cannot sign with {source}: it holds a public key"),
                "name the private key, which `sidle key new FILE` made",
            )),
        }
    }
}

/// The keys of a verb that publishes.
#[derive(Debug, Args)]
pub struct SigningArguments {
    /// The key that signs: a key file, `ssh-agent:NAME` or `exec:COMMAND`
    #[arg(long, value_name = "KEY")]
    key: Option<KeySource>,
    /// The key of the targets role, if it is another key
    #[arg(long, value_name = "KEY")]
    targets_key: Option<KeySource>,
    /// The key of the snapshot and timestamp roles, if it is another key
    #[arg(long, value_name = "KEY")]
    online_key: Option<KeySource>,
    #[command(flatten)]
    passphrase: Passphrase,
}

/// The keys, opened.
pub struct SigningKeys {
    key: Box<dyn Signer>,
    targets: Option<Box<dyn Signer>>,
    online: Option<Box<dyn Signer>>,
}

impl SigningArguments {
    /// True where no key was named.
    pub fn is_empty(&self) -> bool {
        self.key.is_none()
    }

    /// Opens the keys.
    pub fn open(&self) -> Result<SigningKeys, Report> {
        let Some(key) = &self.key else {
            return Err(crate::cli::usage(
                "cannot sign without a key",
                "name it with --key FILE; `sidle key new FILE` makes one",
            ));
        };
        let other = |key: &Option<KeySource>| key.as_ref().map(|key| self.passphrase.signer(key)).transpose();
        Ok(SigningKeys {
            key: self.passphrase.signer(key)?,
            targets: other(&self.targets_key)?,
            online: other(&self.online_key)?,
        })
    }
}

impl SigningKeys {
    /// The keys that publish.
    pub fn publish(&self) -> PublishKeys<'_> {
        let [targets, online] = [&self.targets, &self.online].map(|key| key.as_ref().unwrap_or(&self.key).as_ref());
        PublishKeys { targets, online }
    }
}

/// Several keys of one option, and the file that opens those that are encrypted.
#[derive(Debug, Args)]
pub struct KeyOpener {
    #[command(flatten)]
    passphrase: Passphrase,
}

impl KeyOpener {
    /// Opens keys, as far as they are at hand.
    pub fn open(&self, sources: &[KeySource]) -> Result<Vec<OpenedKey>, Report> {
        sources.iter().map(|source| self.passphrase.open(source)).collect()
    }

    /// The public halves of keys.
    pub fn public(&self, sources: &[KeySource]) -> Result<Vec<PublicKey>, Report> {
        Ok(self.open(sources)?.iter().map(OpenedKey::public).collect())
    }

    /// Opens keys that have to sign.
    pub fn signers(&self, sources: &[KeySource]) -> Result<Vec<Box<dyn Signer>>, Report> {
        sources.iter().map(|source| self.passphrase.signer(source)).collect()
    }
}

/// `sidle key`.
pub fn key(context: &Context, verb: &KeyVerb) -> Result<Ended, Report> {
    let (public, file, next) = match verb {
        KeyVerb::New(arguments) => {
            let passphrase = arguments.passphrase.read()?;
            if context.effect == Effect::DryRun {
                return new_key(context, &arguments.file);
            }
            let signer = FileSigner::create(&arguments.file, passphrase.as_deref())?;
            let next = format!("sidle repo init DIR --key {}", arguments.file.display());
            (signer.public(), arguments.file.display().to_string(), Some(next))
        }
        KeyVerb::Show(arguments) => {
            (arguments.passphrase.open(&arguments.key)?.public(), arguments.key.to_string(), None)
        }
        KeyVerb::Sign(arguments) => return sign(context, arguments),
    };
    let mut facts = key_facts(Facts::new().with("file", &file), &public);
    if let Some(next) = next {
        facts.add("back up", "a lost key cannot be made again: copy the file to a safe place that only you can read");
        facts.add("next", next);
    }
    let value = json!({
        "file": file, "keyid": public.keyid().as_str(), "fingerprint": fingerprint(&public),
        "minisign": minisign::public_key_line(&public), "pem": public_pem(&public),
    });
    let is_pem = matches!(verb, KeyVerb::Show(arguments) if arguments.pem);
    let pem = || public_pem(&public).lines().map(str::to_owned).collect::<Vec<_>>();
    let text = if is_pem { Lines::verbatim(&pem()) } else { Lines::from(facts) };
    context.output.result(text, value);
    Ok(Ended::Well)
}

fn sign(context: &Context, arguments: &SignedFile) -> Result<Ended, Report> {
    let bytes = input::read(&arguments.file, SIGNED_BYTES_MAXIMUM, "a file to sign")?;
    let signer = arguments.passphrase.signer(&arguments.key)?;
    let signature =
        minisign::sign(signer.as_ref(), &bytes).map_err(|error| Report::new(Class::Failed, &error, None))?;
    let (directory, name) = match (arguments.file.parent(), arguments.file.file_name()) {
        (Some(directory), Some(name)) if directory.as_os_str().is_empty() => (Path::new("."), name),
        (Some(directory), Some(name)) => (directory, name),
        _ => return Err(crate::cli::usage("cannot sign this: it names no file", "name the file itself")),
    };
    let mut name = name.to_owned();
    name.push(".minisig");
    Place::open_or_create(directory, 0o755, context.effect)?.write(&name, signature.as_bytes(), (0o644, 0o755))?;
    let written = directory.join(name);
    let line = minisign::public_key_line(&signer.public());
    let check = format!("minisign -Vm {} -P {line}", arguments.file.display());
    let facts = Facts::new().with("signature", written.display()).with("verify with", check);
    context.output.result(facts, json!({ "signature": written, "minisign": line }));
    Ok(Ended::Well)
}

/// What `key new` would do.
fn new_key(context: &Context, path: &Path) -> Result<Ended, Report> {
    FileSigner::check_new(path)?;
    context.output.result(Facts::new().with("would make", path.display()), json!({"file": path}));
    Ok(Ended::Well)
}

fn key_facts(facts: Facts, public: &PublicKey) -> Facts {
    facts
        .with("key id", public.keyid())
        .with("fingerprint", fingerprint(public))
        .with("minisign", minisign::public_key_line(public))
}
