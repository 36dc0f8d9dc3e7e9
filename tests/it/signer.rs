//! Private keys: what sidle writes OpenSSL reads, and the other way round. Needs the `openssl` program.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and run openssl"
)]

use sidle::failure::Class;
use sidle::signer::{FileSigner, SignerError, public_pem};
use sidle::trust::{PublicKey, Signer as _};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output =
        Command::new("openssl").args(arguments).output().expect("cannot start openssl: apt-get install openssl");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn open(path: &Path, passphrase: &str) -> Result<FileSigner, SignerError> {
    FileSigner::open(path, &mut || Ok(passphrase.as_bytes().to_vec()))
}

fn openssl_public(path: &Path) -> String {
    let output = openssl(&["pkey", "-in", path.to_str().unwrap(), "-passin", "pass:secret words", "-pubout"]);
    String::from_utf8(output).unwrap()
}

#[test]
fn openssl_reads_our_keys_plain_and_encrypted_and_so_do_we() {
    let directory = tempfile::tempdir().unwrap();
    for (name, passphrase) in [("plain", None), ("encrypted", Some(b"secret words".as_slice()))] {
        let path = directory.path().join(name);
        let key = FileSigner::create(&path, passphrase).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(openssl_public(&path), public_pem(&key.public()));
        assert_eq!(open(&path, "secret words").unwrap().public(), key.public());
        let (message, signature, public) =
            (directory.path().join("message"), directory.path().join("signature"), directory.path().join("public"));
        fs::write(&message, b"hello").unwrap();
        fs::write(&signature, key.sign(b"hello").unwrap()).unwrap();
        fs::write(&public, public_pem(&key.public())).unwrap();
        let [message, signature, public] = [&message, &signature, &public].map(|path| path.to_str().unwrap());
        openssl(&["pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", message, "-sigfile", signature]);
    }
    let text = fs::read_to_string(directory.path().join("encrypted")).unwrap();
    assert!(text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"));
    let dump = openssl(&["asn1parse", "-in", directory.path().join("encrypted").to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&dump).contains(":4000"), "scrypt's cost is 2^14: openssl refuses more");
}

#[test]
fn keys_made_by_openssl_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", &path("plain")]);
    let public = openssl_public(Path::new(&path("plain")));
    for (name, extra) in [("pbkdf2", &["-v2", "aes-256-cbc", "-iter", "10000"][..]), ("scrypt", &["-scrypt"])] {
        let (input, output) = (path("plain"), path(name));
        let base = ["pkcs8", "-topk8", "-in", &input, "-out", &output, "-passout", "pass:secret words"];
        openssl(&[&base[..], extra].concat());
    }
    for name in ["plain", "pbkdf2", "scrypt"] {
        assert_eq!(public_pem(&open(Path::new(&path(name)), "secret words").unwrap().public()), public, "{name}");
    }
    openssl(&["genpkey", "-algorithm", "x25519", "-out", &path("other")]);
    let error = open(Path::new(&path("other")), "").unwrap_err();
    assert!(error.to_string().ends_with("it holds no Ed25519 key"), "{error}");
}

#[test]
fn a_key_file_is_never_overwritten_and_a_wrong_passphrase_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let key = FileSigner::create(&path, Some(b"right")).unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(FileSigner::create(&path, None).unwrap_err().class(), Class::Conflict);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(matches!(open(&path, "wrong"), Err(SignerError::Passphrase { .. })));
    assert!(!format!("{key:?}").contains("secret"));
    fs::write(&path, public_pem(&key.public())).unwrap();
    assert!(open(&path, "").unwrap_err().to_string().contains("it holds a PUBLIC KEY, not a private key"));
    fs::write(&path, "nothing").unwrap();
    assert!(matches!(open(&path, ""), Err(SignerError::Unreadable { .. })));
    let other: PublicKey = FileSigner::create(&directory.path().join("other"), None).unwrap().public();
    assert_ne!(other, key.public());
}
