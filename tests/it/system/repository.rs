//! What of `plain::repository` needs root or a package: see there.

use crate::plain::repository::*;
use crate::support::repositories::{RepoBuilder, day};
use sidle::trust::{Signer as _, minisign};
use std::fs;

#[test]
fn coreutils_and_minisign_agree_in_the_repository_and_in_an_unpacked_bundle() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    repo.publish();
    let bundle = repo.export(std::slice::from_ref(&id), "one.sidle");
    let unpacked = tempfile::tempdir().unwrap();
    let (listed, text) = tool(unpacked.path(), "tar", &["-xvf", bundle.to_str().unwrap()]);
    assert!(listed && text.starts_with("sidle-bundle\n"), "{text}");
    let public = unpacked.path().join("repository.pub");
    fs::write(&public, minisign::public_key_file(&repo.offline.public())).unwrap();
    let line = minisign::public_key_line(&repo.offline.public());
    for directory in [release_directory(&repo, &id), unpacked.path().join("targets").join(id.to_string())] {
        let (good, text) = tool(&directory, "sha256sum", &["--strict", "-c", "SHA256SUMS"]);
        assert!(good && text.lines().count() == 2, "{text}");
        let (good, text) = tool(&directory, "minisign", &["-V", "-m", "SHA256SUMS", "-p", public.to_str().unwrap()]);
        assert!(good && text.contains("Trusted comment: sidle SHA256SUMS"), "{text}");
        assert!(tool(&directory, "minisign", &["-V", "-m", "SHA256SUMS", "-P", &line]).0);
        let other = minisign::public_key_line(&repo.online.public());
        assert!(!tool(&directory, "minisign", &["-V", "-m", "SHA256SUMS", "-P", &other]).0);
    }
}
