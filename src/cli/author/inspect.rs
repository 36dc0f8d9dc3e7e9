//! `sidle inspect`: what a bundle, manifest or metadata file holds, and what this host would say of it. It changes nothing.

use crate::bundle::contents;
use crate::bundle::file::{BundleReader, BundledRelease, Head};
use crate::bundle::host_versions;
use crate::bundle::limits::{MANIFEST_COMPRESSED_MAXIMUM_BYTES, TARGETS_MAXIMUM_BYTES};
use crate::bundle::manifest::{Guard, Manifest};
use crate::bundle::member::MetadataName;
use crate::bundle::systems::Systems;
use crate::cli::facts::{Facts, size};
use crate::cli::output::Lines;
use crate::cli::{Context, Ended, input, usage};
use crate::config::Settings;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::trust::canonical::Json;
use crate::trust::{MetadataFiles, TrustedTargets, target};
use crate::trust_store::{Judge, Persist, TrustStore, TrustStoreError};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;

/// Largest metadata file shown.
const METADATA_BYTES_MAXIMUM: u64 = TARGETS_MAXIMUM_BYTES;
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const EXPECTED: &str = "a bundle file, a packed manifest.json.zst, or a file of metadata";

/// `sidle inspect FILE`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A bundle file, a packed manifest.json.zst, or a file of metadata
    file: PathBuf,
}

/// An open file, and its first bytes, by which its kind is known.
fn begun(path: &std::path::Path, expected: &str) -> Result<(impl std::io::Read + use<>, Vec<u8>), Report> {
    let mut file = input::open(path, expected)?;
    let failed = |source| Report::from(crate::os::OsError::new("read", path, source));
    let mut start = Vec::new();
    file.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok((file, start))
}

/// `sidle inspect`
pub fn inspect(context: &Context, arguments: &InspectArguments) -> Result<Ended, Report> {
    let path = &arguments.file;
    let (file, start) = begun(path, EXPECTED)?;
    if start == ZSTD_MAGIC {
        let bytes = input::read(path, MANIFEST_COMPRESSED_MAXIMUM_BYTES, EXPECTED)?;
        let manifest = Manifest::decompressed(&bytes)?;
        let text = Lines::from(manifest_facts(&manifest));
        let text = text.and("nothing vouches for a manifest alone: only its form was checked");
        context.output.result(text, json!({"kind": "manifest", "manifest": manifest_value(&manifest)}));
    } else if start.first() == Some(&b'{') {
        metadata(context, &input::read(path, METADATA_BYTES_MAXIMUM, EXPECTED)?, path)?;
    } else {
        let (head, reader) = BundleReader::open(std::io::BufReader::with_capacity(1 << 20, file))?;
        reader.finish()?;
        bundle(context, head)?;
    }
    Ok(Ended::Well)
}

/// The manifests of a bundle's releases, which this host must trust, or the manifest in a file of its own, for which nothing vouches.
pub fn manifests(context: &Context, path: &std::path::Path) -> Result<Vec<Manifest>, Report> {
    const EXPECTED: &str = "a bundle file, or a packed manifest.json.zst";
    let (file, start) = begun(path, EXPECTED)?;
    if start == ZSTD_MAGIC {
        let bytes = input::read(path, MANIFEST_COMPRESSED_MAXIMUM_BYTES, EXPECTED)?;
        return Ok(vec![Manifest::decompressed(&bytes)?]);
    }
    let (Head { metadata, releases }, _) = BundleReader::open(std::io::BufReader::with_capacity(1 << 20, file))?;
    let verdict = verdict(context, metadata)?;
    let read = |bundled: &BundledRelease| {
        standing(&verdict, bundled).map_err(|why| {
            Report::of(Class::NotTrusted, format!("cannot use {}: {}: {why}", path.display(), bundled.id))
                .hint("`sidle trust show` shows what this host trusts")
        })?;
        Ok(Manifest::decompressed(&bundled.manifest)?)
    };
    releases.iter().map(read).collect()
}

/// Metadata as it stands in the file; whether it is to be trusted depends on the rest of its repository.
fn metadata(context: &Context, bytes: &[u8], path: &std::path::Path) -> Result<(), Report> {
    let file = Json::parse(bytes).ok();
    let Some(signed) = file.as_ref().and_then(|file| member(file, "signed")).filter(|signed| has_type(signed)) else {
        return Err(usage(format!("cannot tell what {} is", path.display()), format!("name {EXPECTED}")));
    };
    let text = |field: &str| match member(signed, field) {
        Some(Json::String(text)) => text.clone(),
        other => String::from_utf8_lossy(&other.unwrap_or(&Json::Null).canonical()).into_owned(),
    };
    let mut facts = Facts::new()
        .with("role", text("_type"))
        .with("version", text("version"))
        .with("expires", text("expires"))
        .with("fingerprint", Digest::of(bytes));
    if let Some(Json::Object(targets)) = member(signed, "targets") {
        targets.keys().for_each(|name| facts.add("lists", name));
    }
    let text = Lines::from(facts).and("the signatures were not verified: that takes the rest of the repository");
    context.output.result(text, Shown { kind: "metadata", fingerprint: Digest::of(bytes), metadata: file.as_ref() });
    Ok(())
}

/// The same for programs.
#[derive(Serialize)]
struct Shown<'a> {
    kind: &'static str,
    fingerprint: Digest,
    metadata: Option<&'a Json>,
}

fn member<'a>(of: &'a Json, name: &str) -> Option<&'a Json> {
    if let Json::Object(members) = of { members.get(name) } else { None }
}

fn has_type(signed: &Json) -> bool {
    matches!(member(signed, "_type"), Some(Json::String(_)))
}

fn bundle(context: &Context, Head { metadata, releases: bundled }: Head) -> Result<(), Report> {
    let noted: Vec<(String, String)> =
        metadata.iter().map(|(name, bytes)| (name.to_string(), note(name, bytes))).collect();
    let verdict = verdict(context, metadata)?;
    let mut facts = Facts::new();
    let mut releases = Vec::new();
    for bundled in &bundled {
        facts.add("release", &bundled.id);
        if let Some(part) = &bundled.part {
            facts.add("  has", format!("only what changed since {}", part.since()));
        }
        let standing = standing(&verdict, bundled);
        facts.add("  signature", standing.as_ref().map_or_else(Clone::clone, |()| "trusted by this host".to_owned()));
        if let (Ok(()), Ok(targets)) = (&standing, &verdict) {
            facts.add("  minisign", minisigned(targets, bundled));
        }
        // Unverified bytes don't reach the decompressor: details are shown of what this host trusts.
        let manifest = if standing.is_ok() { Some(Manifest::decompressed(&bundled.manifest)?) } else { None };
        if let Some(manifest) = &manifest {
            for (name, value) in details(manifest) {
                facts.add(&format!("  {name}"), value);
            }
        }
        releases.push(json!({
            "release": bundled.id.to_string(), "since": bundled.part.as_ref().map(|part| &part.since), "trusted": standing.is_ok(), "refusal": standing.err(),
            "manifest": manifest.as_ref().map(manifest_value),
        }));
    }
    for (name, note) in &noted {
        facts.add("metadata", format!("{name}{note}"));
    }
    facts.add(
        "whole",
        "yes: every name, size, digest and form; of signatures those that count were compared, see above",
    );
    let names: Vec<String> = noted.into_iter().map(|(name, _)| name).collect();
    context.output.result(facts, json!({"kind": "bundle", "releases": releases, "metadata": names}));
    Ok(())
}

/// The fingerprint of the root that a host pins.
fn note(name: &MetadataName, bytes: &[u8]) -> String {
    if *name == MetadataName::Root(1) { format!("  fingerprint {}", Digest::of(bytes)) } else { String::new() }
}

/// What this host makes of the bundle's metadata, without taking any of it up.
fn verdict(
    context: &Context,
    metadata: Vec<(MetadataName, Vec<u8>)>,
) -> Result<Result<TrustedTargets, String>, Report> {
    let files: MetadataFiles = metadata.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect();
    let unpinned = || Ok(Err("not verified: this host has no root pinned".to_owned()));
    let trust_store = match TrustStore::open(&context.layout.trust()) {
        Err(TrustStoreError::Unpinned { .. }) => return unpinned(),
        other => other?,
    };
    let expiry = Settings::read(&context.layout)?.expiry_by_hand();
    let judge = Judge { trust_store: &trust_store, now: clock::now(), expiry, persist: Persist::Forget };
    match judge.verification(&files) {
        Err(TrustStoreError::Unpinned { .. }) => unpinned(),
        Err(error) => Err(error.into()),
        Ok(verification) => Ok(verification.targets.map_err(|error| format!("refused by this host: {error}"))),
    }
}

/// What the checksum list's signature is worth to who checks with minisign.
fn minisigned(targets: &TrustedTargets, bundled: &BundledRelease) -> String {
    match targets.check_sums_signature(&bundled.checksums, &bundled.signature) {
        Ok(None) => "SHA256SUMS is signed by a key that signs for this repository".to_owned(),
        Ok(Some(warning)) => warning.to_string(),
        Err(error) => format!("refused by this host: {error}"),
    }
}

fn standing(verdict: &Result<TrustedTargets, String>, bundled: &BundledRelease) -> Result<(), String> {
    let targets = verdict.as_ref().map_err(Clone::clone)?;
    let files = [
        (target::manifest(&bundled.id), bundled.manifest_digest),
        (target::payload(&bundled.id), bundled.payload_digest),
    ];
    let required = files.iter().try_for_each(|(name, digest)| targets.require(name, digest).map(|_| ()));
    required.map_err(|error| format!("refused by this host: {error}"))
}

fn manifest_facts(manifest: &Manifest) -> Facts {
    let mut facts = Facts::new().with("package", &manifest.package).with("release", manifest.release());
    facts.add("platform", &manifest.platform);
    for (name, value) in details(manifest) {
        facts.add(name, value);
    }
    facts
}

fn details(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let mut details = vec![
        ("agent", manifest.agent.to_string()),
        ("files", format!("{} in {} entries", size(manifest.space.content_bytes), manifest.entries.len())),
        ("payload", format!("{} in {} frames", size(manifest.payload.length), manifest.frames.len())),
        ("commands", manifest.commands.keys().cloned().collect::<Vec<_>>().join(", ")),
    ];
    if let Some(floor) = manifest.libc_floor {
        details.push(("needs glibc", format!("{floor} or newer")));
        details.push(("starts on", Systems::with(floor).words()));
    }
    details.extend(host_versions::of_machine(manifest.kernel_floor, manifest.x86_64_level));
    if !manifest.host_libraries.is_empty() {
        details.push(("needs libraries", host_versions::in_words(&manifest.host_libraries, &manifest.host_versions)));
    }
    if let Some(masters) = &manifest.masters {
        details.push(("masters", format!("{masters} or newer")));
    }
    if manifest.space.overlap_memory_bytes > 0 {
        details.push(("overlap memory", size(manifest.space.overlap_memory_bytes)));
    }
    details.extend(contents::words(&manifest.extras, &manifest.kept));
    if let Some(sbom) = &manifest.sbom {
        details.push(("bill of materials", format!("{} components (--json has them)", sbom.components.len())));
    }
    if let Some(guard) = &manifest.guard {
        details.push(("guard", guarded(guard)));
    }
    details
}

fn guarded(guard: &Guard) -> String {
    let tried =
        if guard.tried.is_empty() { String::new() } else { format!(" (tried with {})", guard.tried.join(", ")) };
    format!("protocol {}: it can overlap{tried}", guard.protocol)
}

fn manifest_value(manifest: &Manifest) -> Value {
    json!({
        "package": manifest.package, "release": manifest.release(), "platform": manifest.platform, "agent": manifest.agent,
        "content_bytes": manifest.space.content_bytes, "allocated_bytes": manifest.space.allocated_bytes,
        "inodes": manifest.space.inodes, "payload_bytes": manifest.payload.length, "payload_sha256": manifest.payload.sha256,
        "libc_floor": manifest.libc_floor, "host_libraries": manifest.host_libraries, "host_versions": manifest.host_versions,
        "kernel_floor": manifest.kernel_floor, "x86_64_level": manifest.x86_64_level, "masters": manifest.masters,
        "commands": manifest.commands.keys().collect::<Vec<_>>(), "service": manifest.service,
        "generations": manifest.generations, "guard": manifest.guard,
        "extras": manifest.extras, "kept": manifest.kept, "sbom": manifest.sbom, "offers": manifest.offers,
    })
}
