//! Generated repositories, good and evil, judged by three clients that share no code: sidle's workflow, an unmodified python-tuf, and the crate
//! sigstore-tuf. They agree, or the reason why not stands here. The seed is fixed: every run sees the same cases.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make real files, and run python")]

use super::python_tuf::python;
use crate::support::team::refresh;
use ed25519_dalek::{Signer as _, SigningKey};
use jiff::{SignedDuration, Timestamp};
use sha2::Digest as _;
use sidle::digest::Digest;
use sidle::trust::canonical::{Json, Object};
use sidle::trust::publish::{self, Delegation, Edition, RoleKeys, describe};
use sidle::trust::{Answer, DelegatedFiles, Floor, MetadataFiles, PublicKey, Role, SignError, Signer, TrustError};
use sigstore_tuf::transport::{FetchFuture, Repository};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

const SEED: u64 = 20_260_101;
const CASES: usize = 240;
/// What is looked up: listed by the targets, by the delegated role, by nobody.
const TARGETS: [&str; 3] = ["top/a", "team/a", "nobody/a"];

/// splitmix64: a fixed sequence.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

struct Key(SigningKey);

impl Signer for Key {
    fn public(&self) -> PublicKey {
        self.0.verifying_key().into()
    }
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], SignError> {
        Ok(self.0.sign(message).to_bytes())
    }
}

fn keys(role: usize, count: u64) -> Vec<Key> {
    (0..count)
        .map(|number| {
            Key(SigningKey::from_bytes(&[u8::try_from(role * 16).unwrap() + u8::try_from(number).unwrap() + 1; 32]))
        })
        .collect()
}

/// What is wrong with the second set that a client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evil {
    Nothing,
    DroppedSignature,
    WrongKey,
    SignedTwice,
    FlippedSignature,
    SignatureNoHex,
    VersionBack,
    VersionJump,
    Expired,
    OtherHash,
    OtherLength,
    OtherNamedVersion,
    ThresholdZero,
    ThresholdTooHigh,
    WrongType,
    ExtraField,
    OtherSpec,
    Garbage,
    Missing,
    NotNamed,
    ChangedAfterSigning,
}

const EVILS: [Evil; 21] = [
    Evil::Nothing,
    Evil::DroppedSignature,
    Evil::WrongKey,
    Evil::SignedTwice,
    Evil::FlippedSignature,
    Evil::SignatureNoHex,
    Evil::VersionBack,
    Evil::VersionJump,
    Evil::Expired,
    Evil::OtherHash,
    Evil::OtherLength,
    Evil::OtherNamedVersion,
    Evil::ThresholdZero,
    Evil::ThresholdTooHigh,
    Evil::WrongType,
    Evil::ExtraField,
    Evil::OtherSpec,
    Evil::Garbage,
    Evil::Missing,
    Evil::NotNamed,
    Evil::ChangedAfterSigning,
];

/// Whose file it is wrong with.
const ROLES: [&str; 5] = ["root", "timestamp", "snapshot", "targets", "team"];

/// One generated repository: how many keys, how many are needed, and what is wrong with it.
#[derive(Debug)]
struct Case {
    counts: [u64; 5],
    thresholds: [u64; 5],
    evil: Evil,
    role: &'static str,
    target: &'static str,
    /// True when the client has seen the first set before.
    seen: bool,
    terminating: bool,
    now: Timestamp,
}

impl Case {
    fn keys(&self, role: &str) -> Vec<Key> {
        let place = ROLES.iter().position(|one| *one == role).unwrap();
        keys(place, self.counts[place])
    }

    fn rule(&self, role: &str) -> RoleKeys {
        let place = ROLES.iter().position(|one| *one == role).unwrap();
        RoleKeys { keys: self.keys(role).iter().map(Signer::public).collect(), threshold: self.thresholds[place] }
    }

    fn edition(&self, version: u64) -> Edition {
        Edition { version, signed: self.now, lifetime: SignedDuration::from_hours(24 * 10) }
    }

    /// Makes the file of a role: its body, what is wrong with it, its signatures. None: it is not there.
    fn finish(&self, role: &str, is_evil: bool, unsigned: &[u8]) -> Option<Vec<u8>> {
        let evil = if is_evil && role == self.role { self.evil } else { Evil::Nothing };
        let Ok(Json::Object(mut file)) = Json::parse(unsigned) else { panic!() };
        let Some(Json::Object(mut signed)) = file.remove("signed") else { panic!() };
        edit(evil, role, &mut signed);
        let mut signers = self.keys(role);
        match evil {
            Evil::DroppedSignature => drop(signers.pop()),
            Evil::WrongKey => signers = keys(9, 1),
            _ => {}
        }
        let message = Json::Object(signed.clone()).canonical();
        let mut signatures: Vec<Json> = signers.iter().map(|key| signature(key, &message, evil)).collect();
        match evil {
            Evil::SignedTwice => signatures.push(signatures[0].clone()),
            Evil::ChangedAfterSigning => drop(signed.insert("more".to_owned(), Json::Bool(true))),
            Evil::Garbage => return Some(b"{\"signed\": 1".to_vec()),
            Evil::Missing => return None,
            _ => {}
        }
        file.insert("signed".to_owned(), Json::Object(signed));
        file.insert("signatures".to_owned(), Json::Array(signatures));
        Some(Json::Object(file).text())
    }

    /// A set of this version; the second is the evil one.
    fn set(&self, version: u64) -> MetadataFiles {
        let is_evil = version == 2;
        let mut files = MetadataFiles::new();
        let rules = Role::ALL.into_iter().map(|role| (role, self.rule(role.as_str()))).collect();
        for root in 1..=version {
            let body = publish::root(self.edition(root), &rules, &[]).unwrap();
            files.extend(self.finish("root", root == 2, &body).map(|bytes| (format!("{root}.root.json"), bytes)));
        }
        let target = |name: &str| (name.to_owned(), publish::target(1, Digest::of(name.as_bytes())));
        let mut meta = BTreeMap::new();
        let put = |role: &str, version: u64, unsigned: &[u8], meta: &mut BTreeMap<_, _>, files: &mut MetadataFiles| {
            let bytes = self.finish(role, is_evil, unsigned);
            let mut named = describe(version, bytes.as_deref().unwrap_or(b"gone"));
            if is_evil && role == self.role {
                match self.evil {
                    Evil::OtherHash => named = describe(version, b"other"),
                    Evil::OtherLength => named.length = named.length.map(|length| length - 1),
                    Evil::OtherNamedVersion => named.version += 1,
                    _ => {}
                }
                if self.evil == Evil::OtherHash {
                    named.length = bytes.as_ref().map(|bytes| bytes.len() as u64);
                }
            }
            let (version, is_named) = (named.version, !(is_evil && role == self.role && self.evil == Evil::NotNamed));
            if is_named || role != "team" {
                meta.insert(format!("{role}.json"), named);
            }
            files.extend(bytes.map(|bytes| (format!("{version}.{role}.json"), bytes)));
        };
        let team = publish::targets(self.edition(version), &[target("team/a")].into(), &[]).unwrap();
        put("team", version, &team, &mut meta, &mut files);
        let delegation = Delegation {
            name: "team".to_owned(),
            keys: self.rule("team"),
            paths: vec!["team/*".to_owned()],
            terminating: self.terminating,
        };
        let list = [target("top/a")].into();
        let targets = publish::delegating_targets(self.edition(version), &list, &[delegation], &[]).unwrap();
        put("targets", version, &targets, &mut meta, &mut files);
        let snapshot = publish::snapshot(self.edition(version), &meta, &[]).unwrap();
        let mut above = BTreeMap::new();
        put("snapshot", version, &snapshot, &mut above, &mut files);
        let timestamp = publish::timestamp(self.edition(version), &above["snapshot.json"], &[]).unwrap();
        files.extend(self.finish("timestamp", is_evil, &timestamp).map(|bytes| ("timestamp.json".to_owned(), bytes)));
        files
    }
}

fn signature(key: &Key, message: &[u8], evil: Evil) -> Json {
    let mut value = key.sign(message).unwrap();
    if evil == Evil::FlippedSignature {
        value[9] ^= 1;
    }
    let mut text = sidle::trust::key::to_hex(&value);
    if evil == Evil::SignatureNoHex {
        text.replace_range(..1, "x");
    }
    let member = |name: &str, value: &str| (name.to_owned(), Json::String(value.to_owned()));
    Json::Object([member("keyid", key.public().keyid().as_str()), member("sig", &text)].into())
}

fn edit(evil: Evil, role: &str, signed: &mut Object) {
    let mut set = |name: &str, value: Json| drop(signed.insert(name.to_owned(), value));
    match evil {
        Evil::VersionBack => set("version", Json::Integer(1)),
        Evil::VersionJump => set("version", Json::Integer(4)),
        Evil::Expired => set("expires", "2020-01-01T00:00:00Z".into()),
        Evil::WrongType => set("_type", if role == "targets" { "root" } else { "targets" }.into()),
        Evil::ExtraField => set("x-new", Json::Array(vec![Json::Null, Json::Integer(3), "ü\"\\\n".into()])),
        Evil::OtherSpec => set("spec_version", "2.0.0".into()),
        Evil::ThresholdZero | Evil::ThresholdTooHigh => {
            let threshold = Json::Integer(if evil == Evil::ThresholdZero { 0 } else { 9 });
            if let Some(Json::Object(roles)) = signed.get_mut("roles") {
                for rule in roles.values_mut() {
                    let Json::Object(members) = rule else { panic!() };
                    members.insert("threshold".to_owned(), threshold.clone());
                }
            }
        }
        _ => {}
    }
}

/// What a client says: `listed SHA256`, `none`, or `refused`.
fn by_sidle(steps: &[MetadataFiles], case: &Case) -> (String, String) {
    let mut floor = Floor::new(steps[0]["1.root.json"].clone());
    let mut verdict = (String::new(), String::new());
    for files in steps {
        let (client, ended) = refresh(&floor, files, case.now);
        floor = client.floor();
        let looked = ended.and_then(|()| {
            let mut delegated = DelegatedFiles::new();
            let mut search = client.search(case.target, &mut delegated)?;
            while let Some(request) = search.request() {
                let answer = files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
                search.answer(answer)?;
            }
            Ok::<_, TrustError>(search.listed().cloned())
        });
        verdict = match looked {
            Err(error) => ("refused".to_owned(), error.to_string()),
            Ok(None) => ("none".to_owned(), String::new()),
            Ok(Some(listed)) => (format!("listed {}", listed.target.hashes.sha256.unwrap()), String::new()),
        };
    }
    verdict
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<MetadataFiles>>);

impl Repository for Memory {
    fn fetch_metadata<'a>(&'a self, name: &'a str, _: u64) -> FetchFuture<'a> {
        let found = self.0.lock().unwrap().get(name).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }
    fn fetch_target<'a>(&'a self, _: &'a str, _: u64) -> FetchFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// The hashes and the one kind of signature that the cases need.
#[derive(Debug)]
struct Provider;

struct Sha256(sha2::Sha256);

impl sigstore_crypto::HashContext for Sha256 {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

impl sigstore_crypto::CryptoProvider for Provider {
    fn hash(&self, _: sigstore_types::HashAlgorithm) -> sigstore_crypto::Result<Box<dyn sigstore_crypto::HashContext>> {
        Ok(Box::new(Sha256(sha2::Sha256::new())))
    }
    fn verify_raw(
        &self,
        _: sigstore_crypto::SigningScheme,
        key: &[u8],
        data: &[u8],
        signature: &[u8],
    ) -> sigstore_crypto::Result<()> {
        let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, key);
        key.verify(data, signature).map_err(|_| sigstore_crypto::Error::Verification("no".to_owned()))
    }
    fn verify_prehashed(
        &self,
        _: sigstore_crypto::SigningScheme,
        _: &[u8],
        _: &[u8],
        _: &[u8],
    ) -> sigstore_crypto::Result<()> {
        Err(sigstore_crypto::Error::Verification("not needed here".to_owned()))
    }
}

/// All futures here are ready at once: nothing waits for a network.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a future from memory is not ready"),
    }
}

fn by_sigstore(steps: &[MetadataFiles], case: &Case, store: &Path) -> (String, String) {
    let memory = Memory::default();
    let mut verdict = (String::new(), String::new());
    for files in steps {
        *memory.0.lock().unwrap() = files.clone();
        let looked = sigstore_tuf::Updater::new(memory.clone(), &steps[0]["1.root.json"]).and_then(|updater| {
            let mut updater = updater.with_store(sigstore_tuf::FileStore::new(store));
            now_or_never(updater.refresh(case.now))?;
            now_or_never(updater.get_target_info(case.target, case.now))
        });
        verdict = match looked {
            Err(error) => ("refused".to_owned(), error.to_string()),
            Ok(None) => ("none".to_owned(), String::new()),
            Ok(Some(target)) => (format!("listed {}", target.hashes["sha256"]), String::new()),
        };
    }
    verdict
}

fn by_python(cases: &[Vec<MetadataFiles>], targets: &[&str]) -> Vec<(String, String)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tuf_judge.py");
    let mut command = Command::new("timeout");
    command.arg("120").arg(python()).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut judge = command.spawn().unwrap();
    let mut input = judge.stdin.take().unwrap();
    let lines: Vec<String> = cases
        .iter()
        .zip(targets)
        .map(|(steps, target)| {
            let text = |files: &MetadataFiles| -> BTreeMap<String, String> {
                files.iter().map(|(name, bytes)| (name.clone(), String::from_utf8(bytes.clone()).unwrap())).collect()
            };
            serde_json::json!({"steps": steps.iter().map(text).collect::<Vec<_>>(), "target": target}).to_string()
        })
        .collect();
    let writer = std::thread::spawn(move || lines.iter().for_each(|line| writeln!(input, "{line}").unwrap()));
    let output = judge.wait_with_output().unwrap();
    writer.join().unwrap();
    let verdicts = String::from_utf8(output.stdout).unwrap();
    verdicts.lines().map(|line| line.split_once('\t').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap()).collect()
}

/// Where sigstore-tuf decides otherwise, and why sidle's verdict stands: a delegated role that the snapshot doesn't name is taken for one that
/// lists nothing. What a role says that may speak for a target can't be known then, so sidle refuses (TUF §5.6.7.2: its file is fetched as that of
/// targets, whose absence is a failure). python-tuf never decides otherwise.
fn is_known_difference(case: &Case, ours: &str, theirs: &str) -> bool {
    let is_unnamed = case.evil == Evil::NotNamed && case.role == "team" && case.target.starts_with("team/");
    is_unnamed && (ours, theirs) == ("refused", "none")
}

#[test]
fn three_clients_that_share_no_code_give_the_same_verdicts() {
    let _ = sigstore_crypto::install_default_provider(&Provider);
    let mut dice = Dice(SEED);
    let mut cases = Vec::new();
    for number in 0..CASES {
        let counts: [u64; 5] = std::array::from_fn(|_| 1 + dice.roll(3));
        let thresholds = counts.map(|count| 1 + dice.roll(count));
        cases.push(Case {
            counts,
            thresholds,
            evil: EVILS[number % EVILS.len()],
            role: ROLES[(number / EVILS.len()) % ROLES.len()],
            target: TARGETS[usize::try_from(dice.roll(3)).unwrap()],
            seen: dice.roll(2) == 0,
            terminating: dice.roll(2) == 0,
            now: Timestamp::now(),
        });
    }
    let steps: Vec<Vec<MetadataFiles>> =
        cases.iter().map(|case| if case.seen { vec![case.set(1), case.set(2)] } else { vec![case.set(2)] }).collect();
    let python = by_python(&steps, &cases.iter().map(|case| case.target).collect::<Vec<_>>());
    assert_eq!(python.len(), cases.len());
    let stores = tempfile::tempdir().unwrap();
    let mut differences = Vec::new();
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for (number, ((case, steps), python)) in cases.iter().zip(&steps).zip(&python).enumerate() {
        let ours = by_sidle(steps, case);
        let theirs = by_sigstore(steps, case, &stores.path().join(number.to_string()));
        *tally.entry(ours.0.split(' ').next().unwrap().to_owned()).or_default() += 1;
        let differs = ours.0 != theirs.0 && !is_known_difference(case, &ours.0, &theirs.0);
        if ours.0 != python.0 || differs {
            differences
                .push(format!("{number} {case:?}\n  sidle {ours:?}\n  python {python:?}\n  sigstore {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Neither side of the question may run empty: that would compare nothing.
    assert!(tally["refused"] > 60 && tally["listed"] > 40 && tally["none"] > 15, "{tally:?}");
}
