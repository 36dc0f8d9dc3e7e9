//! `sidle trust`: which repository this host trusts.

use super::facts::Facts;
use super::{Context, Ended, input, usage};
use crate::bundle::file::{BundleError, BundleReader};
use crate::bundle::member::MetadataName;
use crate::digest::Digest;
use crate::failure::{Class, Report, moment};
use crate::os::clock;
use crate::trust_store::{Pinned, TrustStore};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};

/// Largest root file read.
const ROOT_BYTES_MAXIMUM: u64 = 1024 * 1024;
const EXPECTED: &str = "a root.json, or a bundle file that carries it";

/// `sidle trust`
#[derive(Debug, Subcommand)]
pub enum TrustVerb {
    /// Trust the repository to which this root.json belongs
    Pin(PinArguments),
    /// Show what this host trusts
    Show,
    /// Forget the newest date of a signature: for use after somebody signed with a wrong date in the future, so that good metadata looks expired
    ResetClock(ResetClockArguments),
}

/// `sidle trust reset-clock`
#[derive(Debug, Args)]
pub struct ResetClockArguments {
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle trust pin FILE --fingerprint SHA256`
#[derive(Debug, Args)]
pub struct PinArguments {
    /// A root.json, or a bundle file that contains it
    file: PathBuf,
    /// SHA-256 of root.json (`sha256sum 1.root.json`), even if FILE is a bundle. Get it from the repository's owner, over another channel than FILE
    #[arg(long, value_name = "SHA256")]
    fingerprint: String,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle trust …`
pub fn trust(context: &Context, verb: &TrustVerb) -> Result<Ended, Report> {
    match verb {
        TrustVerb::Pin(arguments) => pin(context, arguments),
        TrustVerb::Show => show(context),
        TrustVerb::ResetClock(arguments) => reset_clock(context, arguments),
    }
}

fn pin(context: &Context, arguments: &PinArguments) -> Result<Ended, Report> {
    let fingerprint = fingerprint(&arguments.fingerprint)?;
    let root = root_of(&arguments.file, &fingerprint)?;
    let path = context.layout.trust();
    let pinned = if arguments.dry_run {
        TrustStore::would_pin(&path, &root, &fingerprint)
    } else {
        TrustStore::open_or_create(&path).and_then(|trust_store| trust_store.lock()?.pin(&root, &fingerprint))
    };
    let pinned = pinned.map_err(|error| {
        let mut report = Report::from(error);
        report.causes.push(format!("the file is {}", arguments.file.display()));
        report
    })?;
    if arguments.dry_run && pinned == Pinned::Now {
        let facts = Facts::new().with("would be trusted", fingerprint);
        context.output.result(facts, json!({"dry_run": true, "fingerprint": fingerprint, "pinned": true}));
        return Ok(Ended::Well);
    }
    let (word, ended) = match pinned {
        Pinned::Now => ("trusted from now on", Ended::Well),
        Pinned::Already => ("trusted already", Ended::As(Class::NothingToDo)),
    };
    let seen = TrustStore::open(&path)?.load()?.floor.last_seen;
    if let Some(seen) = seen.filter(|seen| clock::now() < *seen) {
        context.output.warning(&format!(
            "this host's clock shows {}, before the root was signed ({seen}): the later time counts; set the clock (`timedatectl set-ntp true`)",
            clock::now()
        ));
    }
    let facts = Facts::new().with(word, fingerprint).with("next", "sidle install FILE|PACKAGE");
    context.output.result(facts, json!({"fingerprint": fingerprint, "pinned": pinned == Pinned::Now}));
    Ok(ended)
}

/// The fingerprint of a root as a person wrote it.
pub(super) fn fingerprint(text: &str) -> Result<Digest, Report> {
    text.to_ascii_lowercase().parse().map_err(|_| {
        let message = format!("cannot use {text:?} as a fingerprint: it is not 64 hexadecimal digits");
        usage(message, "take what `sha256sum metadata/1.root.json` or `sidle repo init` printed")
    })
}

/// The root in a file: the file itself, or the one of a bundle's roots that has the fingerprint; if none has, the first.
fn root_of(path: &Path, fingerprint: &Digest) -> Result<Vec<u8>, Report> {
    let mut file = input::open(path, EXPECTED)?;
    let failed = |source| Report::from(crate::os::OsError::new("read", path, source));
    let mut first = [0];
    let count = file.read(&mut first).map_err(failed)?;
    file.rewind().map_err(failed)?;
    if count == 1 && first[0] == b'{' {
        return input::read(path, ROOT_BYTES_MAXIMUM, EXPECTED);
    }
    let (head, _) = BundleReader::open(std::io::BufReader::new(file)).map_err(|error| match error {
        BundleError::NotABundle => usage(
            format!("cannot pin {}: it is neither a root.json nor a bundle file", path.display()),
            "fetch the repository's metadata/1.root.json, and look at its content: a server may have sent an error page",
        ),
        other => Report::from(other),
    })?;
    let mut roots =
        head.metadata.into_iter().filter(|(name, _)| matches!(name, MetadataName::Root(_))).map(|(_, bytes)| bytes);
    let first = roots.next().unwrap_or_default();
    if Digest::of(&first) == *fingerprint {
        Ok(first)
    } else {
        Ok(roots.find(|bytes| Digest::of(bytes) == *fingerprint).unwrap_or(first))
    }
}

fn show(context: &Context) -> Result<Ended, Report> {
    let trusted = TrustStore::open(&context.layout.trust())?.load()?;
    let mut facts =
        Facts::new().with("pinned root", format!("{} (version {})", trusted.pin.fingerprint, trusted.pin.version));
    let mut roles = serde_json::Map::new();
    for (role, header) in trusted.headers()? {
        let expired = if header.expires <= clock::now() { ", expired" } else { "" };
        facts.add(role, format!("version {}, until {}{expired}", header.version, moment(header.expires)));
        roles.insert(role.to_owned(), json!({"version": header.version, "expires": header.expires.to_string()}));
    }
    if let Some(seen) = trusted.floor.last_seen {
        facts.add("latest signature", moment(seen));
    }
    let seen = trusted.floor.last_seen.map(|seen| seen.to_string());
    let value = json!({"fingerprint": trusted.pin.fingerprint, "roles": Value::Object(roles), "last_seen": seen});
    context.output.result(facts, value);
    Ok(Ended::Well)
}

fn reset_clock(context: &Context, arguments: &ResetClockArguments) -> Result<Ended, Report> {
    let trust_store = TrustStore::open(&context.layout.trust())?;
    let locked = if arguments.dry_run { None } else { Some(trust_store.lock()?) };
    let Some(seen) = trust_store.load()?.floor.last_seen else {
        context.output.result("no signed time is known: nothing to forget", json!({"forgotten": null}));
        return Ok(Ended::As(Class::NothingToDo));
    };
    if let Some(locked) = &locked {
        locked.reset_clock()?;
    }
    let facts = Facts::new()
        .with(if arguments.dry_run { "would forget" } else { "forgotten" }, moment(seen))
        .with("from now on", "this host's own clock counts, until the next signature");
    context.output.result(facts, json!({"dry_run": arguments.dry_run, "forgotten": seen.to_string()}));
    Ok(Ended::Well)
}
