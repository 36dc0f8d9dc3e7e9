//! Several people sign: nothing is published that too few have signed, nothing is lost, and nobody signs what they weren't shown.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::repositories::{day, snapshot_of};
use crate::support::stage::{sidle, text};
use crate::support::team::{Team, finds, metadata, refresh};
use sidle::failure::Class;
use sidle::repository::{Change, Renewal, Repository, RepositoryError, SignedRole, Withdrawal};
use sidle::signer::FileSigner;
use sidle::trust::publish::Lifetimes;
use sidle::trust::{PublicKey, SignError, Signer, TrustError, minisign};
use std::fs;
use std::path::Path;

fn copy_tree(from: &Path, to: &Path) {
    for (path, bytes) in snapshot_of(from) {
        fs::create_dir_all(to.join(&path).parent().unwrap()).unwrap();
        fs::write(to.join(path), bytes).unwrap();
    }
}

#[test]
fn two_of_three_sign_at_different_places_and_one_alone_publishes_nothing() {
    let team = Team::new(day(0));
    let id = team.add("1.0");
    let served = metadata(&team.path());
    assert!(team.open().stage(&Lifetimes::default(), day(0)).unwrap().is_empty());
    let waiting = team.open().waiting().unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(
        (waiting[0].role.clone(), waiting[0].changes.clone()),
        (SignedRole::Targets, vec![Change::Lists(id.to_string())])
    );

    // The third has a copy of author/ and metadata/ at another machine; the signature is one small file.
    let away = team.builder.directory.path().join("away");
    for part in ["author", "metadata"] {
        copy_tree(&team.path().join(part), &away.join(part));
    }
    let signed = Repository::open(&away).unwrap().sign(&team.people[2]).unwrap();
    assert_eq!(signed.files, ["1.targets.json"]);
    assert_eq!(team.open().sign(&team.people[0]).unwrap().files, ["1.targets.json"]);
    assert!(team.open().sign(&team.people[0]).unwrap().files.is_empty(), "once is enough");
    let refused = team.open().sign(&team.online).unwrap_err();
    assert!(matches!(refused, RepositoryError::WrongKey { .. }), "{refused}");
    let publication = team.try_publish(&[]).unwrap();
    assert!(publication.signed.is_empty());
    let need = &publication.waiting[0].needs[0];
    assert_eq!((need.valid, need.threshold), (1, 2));
    assert_eq!(need.missing.len(), 2);
    assert_eq!(metadata(&team.path()), served, "nothing was published");

    let name = format!("author/pending/1.targets.{}.sig", team.people[2].public().keyid());
    fs::copy(away.join(&name), team.path().join(&name)).unwrap();
    let publication = team.try_publish(&[]).unwrap();
    assert_eq!(publication.added, std::slice::from_ref(&id));
    assert_eq!(publication.waiting, []);
    assert!(
        fs::read_dir(team.path().join("author/pending")).unwrap().next().is_none(),
        "what is published waits no longer"
    );
    let (client, ended) = refresh(&team.host(), &team.files(), day(1));
    ended.unwrap();
    assert!(finds(&client, &team.files(), &id, None));
    let sums = team.path().join("targets").join(id.to_string());
    let [list, signature] = ["SHA256SUMS", "SHA256SUMS.minisig"].map(|name| fs::read(sums.join(name)).unwrap());
    let signature = minisign::Minisig::parse(&signature).unwrap();
    assert!(team.people.iter().any(|key| signature.verifies(&key.public(), &list)), "made where the key was");
    assert!(matches!(team.open().sign(&team.people[0]), Err(RepositoryError::NothingWaits { .. })));
}

#[test]
fn a_change_after_a_signature_makes_it_void_and_a_foreign_one_never_counts() {
    let team = Team::new(day(0));
    team.add("1.0");
    team.open().stage(&Lifetimes::default(), day(0)).unwrap();
    team.open().sign(&team.people[0]).unwrap();
    let old = snapshot_of(&team.path().join("author/pending"));
    assert!(team.open().stage(&Lifetimes::default(), day(1)).unwrap().is_empty(), "a later day changes nothing");
    assert_eq!(snapshot_of(&team.path().join("author/pending")), old);

    team.add("2.0");
    let discarded = team.open().stage(&Lifetimes::default(), day(1)).unwrap();
    assert_eq!(discarded.len(), 1);
    assert_eq!(
        (discarded[0].file.as_str(), discarded[0].keys.clone()),
        ("1.targets.json", vec![team.people[0].public()])
    );
    // The old signature comes back from another machine: it is one of the file as it was.
    let (name, bytes) = old.iter().find(|(name, _)| name.to_str().unwrap().contains(".sig")).unwrap();
    fs::write(team.path().join("author/pending").join(name), bytes).unwrap();
    team.open().sign(&team.people[1]).unwrap();
    let publication = team.try_publish(&[]).unwrap();
    assert!(publication.signed.is_empty(), "{publication:?}");
    assert_eq!(publication.waiting[0].signed, [team.people[1].public()]);
    // Somebody edits what waits: whoever has signed has signed something else.
    team.open().sign(&team.people[0]).unwrap();
    let draft = team.path().join("author/pending/1.targets.json");
    let edited = fs::read_to_string(&draft).unwrap().replacen("\"length\":", "\"length\":1", 1);
    fs::write(&draft, edited).unwrap();
    assert!(team.open().waiting().unwrap()[0].signed.is_empty());
    let publication = team.try_publish(&[]).unwrap();
    assert!(publication.signed.is_empty() && publication.waiting[0].signed.is_empty());
    assert_eq!(team.publish().added.len(), 2);
}

#[test]
fn a_root_that_waits_is_a_repository_that_serves_nothing() {
    let team = Team::new(day(0));
    let path = team.builder.directory.path().join("young");
    let at = |name: &str| team.builder.directory.path().join(name).to_str().unwrap().to_owned();
    let (anna, bert, carl, online) = (at("anna.pub"), at("bert.pub"), at("carl.pub"), at("timer.pub"));
    let keys = [
        "--root-key",
        &anna,
        "--root-key",
        &bert,
        "--root-threshold",
        "2",
        "--targets-key",
        &carl,
        "--online-key",
        &online,
    ];
    let init = |extra: &[&str]| sidle(&[&["repo", "init", text(&path)], &keys[..], extra].concat(), &[]);
    assert_eq!(init(&["--targets-threshold", "2"]).code, Some(2), "nobody could meet it");
    assert!(!path.exists());
    let told = init(&[]).ok();
    assert!(told.contains("0 of 2 signatures by root version 1"), "{told}");
    assert_eq!(init(&[]).code, Some(12));
    assert!(fs::read_dir(path.join("metadata")).unwrap().next().is_none());
    let repo = |arguments: &[&str]| sidle(&[&["repo", arguments[0], text(&path)], &arguments[1..]].concat(), &[]);
    assert!(repo(&["status"]).ok().contains("none yet"));
    repo(&["sign", "--key", &at("anna.pem")]).ok();
    let early = repo(&["publish", "--online-key", &at("timer.pem")]);
    assert_eq!(early.code, Some(1));
    assert!(early.stderr.contains("1.root.json has 1 of the 2 signatures that root version 1 asks for"), "{early:?}");
    assert!(early.stderr.contains("hint:"), "{early:?}");
    assert_eq!(repo(&["sign", "--key", &at("bert.pub")]).code, Some(2), "a public key signs nothing");
    repo(&["sign", "--key", &at("bert.pem")]).ok();
    let published = repo(&["publish", "--online-key", &at("timer.pem")]).ok();
    assert!(published.contains("metadata/1.root.json") && published.contains("fingerprint"), "{published}");
    repo(&["publish", "--online-key", &at("timer.pem"), "--key", &at("carl.pem")]).ok();
    let files = metadata(&path);
    refresh(&sidle::trust::Floor::new(files["1.root.json"].clone()), &files, jiff::Timestamp::now()).1.unwrap();
}

#[test]
fn refresh_renews_the_online_roles_alone_and_only_when_due() {
    let mut team = Team::new(day(0));
    team.add("1.0");
    team.publish();
    team.add("2.0");
    team.open().stage(&Lifetimes::default(), day(0)).unwrap();
    for person in &team.people[..2] {
        team.open().sign(person).unwrap(); // all that it needs, and still not for this command to publish
    }
    let waits = snapshot_of(&team.path().join("author"));
    let again =
        |team: &Team, renewal| team.open().refresh(&[&team.online], renewal, &Lifetimes::default(), team.now).unwrap();
    assert!(again(&team, Renewal::WhenDue).is_empty());
    team.now = day(4);
    assert_eq!(again(&team, Renewal::WhenDue), ["timestamp.json"]);
    assert_eq!(again(&team, Renewal::Always), ["2.snapshot.json", "timestamp.json"]);
    assert_eq!(snapshot_of(&team.path().join("author")), waits, "what waits is left alone");
    let refused = team.open().refresh(&[&team.people[0]], Renewal::Always, &Lifetimes::default(), day(4)).unwrap_err();
    assert!(matches!(refused, RepositoryError::WrongKey { .. }), "{refused}");
    refresh(&team.host(), &team.files(), day(10)).1.unwrap();
}

#[test]
fn a_withdrawn_release_is_told_so_and_never_comes_back_with_other_bytes() {
    let team = Team::new(day(0));
    let (first, second) = (team.add("1.0"), team.add("2.0"));
    team.publish();
    let (client, ended) = refresh(&team.host(), &team.files(), day(0));
    ended.unwrap();
    let floor = client.floor();
    let withdraw = |how| team.open().withdraw(std::slice::from_ref(&first), Some("broken"), how, day(1)).unwrap();
    assert!(withdraw(Withdrawal::DeleteFiles).is_empty(), "readers may be on their way to them");
    assert!(team.path().join("targets").join(first.to_string()).exists());
    let publication = team.publish();
    assert_eq!((publication.withdrawn, publication.added), (vec![first.clone()], vec![]));
    let (client, ended) = refresh(&floor, &team.files(), day(1));
    ended.unwrap();
    assert!(!finds(&client, &team.files(), &first, None) && finds(&client, &team.files(), &second, None));
    assert_eq!(withdraw(Withdrawal::DeleteFiles), std::slice::from_ref(&first));
    assert!(!team.path().join("targets").join(first.to_string()).exists());
    assert_eq!(team.open().status().unwrap().withdrawn[0].1.reason.as_deref(), Some("broken"));

    let before = snapshot_of(&team.path());
    let (packed, payload) = team.builder.pack("1.0", "other bytes");
    let error = team.open().add(&packed.manifest_bytes, &mut fs::File::open(payload).unwrap()).unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    assert_eq!(snapshot_of(&team.path()), before, "a refusal leaves nothing behind");
    // With the same bytes it comes back, also where there was another release then to make a patch of its manifest from.
    let state = team.path().join("author/repository.json");
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    let files = &mut stored["withdrawn"][first.to_string()]["files"];
    files["patch"] = serde_json::json!({ "from": files["payload"]["sha256"], "file": files["manifest"] });
    fs::write(&state, stored.to_string()).unwrap();
    let third = team.add("0.9");
    assert_eq!(team.add("1.0"), first);
    assert_eq!(team.publish().added, [third, first]);
}

/// A signer whose signatures are those of something else.
struct Confused<'a>(&'a FileSigner);

impl Signer for Confused<'_> {
    fn public(&self) -> PublicKey {
        self.0.public()
    }

    fn sign(&self, _: &[u8]) -> Result<[u8; 64], SignError> {
        self.0.sign(b"something else")
    }
}

#[test]
fn a_signature_that_is_not_valid_is_refused_where_it_is_made() {
    let team = Team::new(day(0));
    team.add("1.0");
    team.open().stage(&Lifetimes::default(), day(0)).unwrap();
    let before = snapshot_of(&team.path());
    let confused = Confused(&team.people[0]);
    let alone = team.open().sign(&confused).unwrap_err();
    let publishing = team.try_publish(&[&confused]).unwrap_err();
    for refused in [alone, publishing] {
        assert!(matches!(refused, RepositoryError::BadSignature { .. }), "{refused}");
    }
    assert_eq!(snapshot_of(&team.path()), before);
}

#[test]
fn only_published_bytes_are_trusted_never_what_waits() {
    let team = Team::new(day(0));
    team.add("1.0");
    team.open().stage(&Lifetimes::default(), day(0)).unwrap();
    team.open().sign(&team.people[0]).unwrap();
    let one: &dyn Signer = &team.people[0];
    assert!(team.try_publish(&[one]).unwrap().signed.is_empty());
    let (_, ended) = refresh(&team.host(), &team.files(), day(0));
    assert!(matches!(ended, Err(TrustError::Missing { .. })), "{ended:?}");
}
