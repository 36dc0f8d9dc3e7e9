//! Private keys: what sidle writes OpenSSL reads, and the other way round. A real ssh-agent and openssl sign, too.
//! Needs the programs `openssl`, `ssh-agent`, `ssh-add`, `ssh-keygen`.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and run openssl"
)]

use crate::support::eventually;
use crate::support::stage::{sidle, text};
use crate::support::team::{metadata, refresh};
use sidle::failure::Class;
use sidle::signer::{FileSigner, SignerError, public_pem};
use sidle::trust::{Floor, PublicKey, Signer as _};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// An ssh-agent of the test's own, in the foreground, ended when this goes.
struct Agent {
    process: std::process::Child,
    socket: std::path::PathBuf,
}

impl Agent {
    fn start(directory: &Path) -> Self {
        let socket = directory.join("agent");
        let process = Command::new("ssh-agent").args(["-D", "-a", text(&socket)]).stdout(Stdio::null()).spawn();
        let process = process.expect("cannot start ssh-agent: apt-get install openssh-client");
        let agent = Self { process, socket };
        eventually(20, "the agent listens", || {
            std::os::unix::net::UnixStream::connect(&agent.socket).map_err(|error| error.to_string())
        });
        agent
    }

    /// A new key of this type in the agent; gives its fingerprint.
    fn add(&self, directory: &Path, kind: &str, comment: &str) -> String {
        let file = directory.join(format!("{kind}-{comment}"));
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).env("SSH_AUTH_SOCK", &self.socket).output().unwrap();
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        run("ssh-keygen", &["-q", "-t", kind, "-N", "", "-C", comment, "-f", text(&file)]);
        run("ssh-add", &["-q", text(&file)]);
        fs::remove_file(&file).unwrap(); // from now on the agent alone has it
        run("ssh-keygen", &["-lf", &format!("{}.pub", text(&file))]).split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_ssh_agent_signs_for_every_role() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(directory.path());
    let fingerprint = agent.add(directory.path(), "ed25519", "release team");
    agent.add(directory.path(), "ed25519", "twice");
    fs::rename(directory.path().join("ed25519-twice.pub"), directory.path().join("other.pub")).unwrap();
    agent.add(directory.path(), "ed25519", "twice");
    agent.add(directory.path(), "rsa", "old");
    let path = directory.path().join("repo");
    let socket = [("SSH_AUTH_SOCK", text(&agent.socket))];
    let init = |key: &str, variables| sidle(&["repo", "init", text(&path), "--key", key], variables);
    for (key, words) in [
        ("ssh-agent:nobody", "holds no Ed25519 key"),
        ("ssh-agent:old", "holds no Ed25519 key"),
        ("ssh-agent:twice", "several of its keys"),
    ] {
        let refused = init(key, &socket);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(words) && refused.stderr.contains("hint: `ssh-add -l`"), "{refused:?}");
    }
    let gone = init("ssh-agent:release team", &[("SSH_AUTH_SOCK", "/nonexistent/agent")]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    init("ssh-agent:release team", &socket).ok();
    let by_fingerprint = format!("ssh-agent:{fingerprint}");
    sidle(&["repo", "publish", text(&path), "--key", &by_fingerprint], &socket).ok();
    let files = metadata(&path);
    let host = Floor::new(files["1.root.json"].clone());
    refresh(&host, &files, jiff::Timestamp::now()).1.unwrap();
    let shown = sidle(&["key", "show", "--pem", &by_fingerprint], &socket).ok();
    assert!(shown.starts_with("-----BEGIN PUBLIC KEY-----\n"), "{shown}");
}

/// An agent that has the key of `public`, and signs with `signature` whatever it is asked to. It ends with the test.
fn lying_agent(socket: &Path, public: &PublicKey, signature: [u8; 64]) {
    let text = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let pair = |content: &[u8]| text(&[text(b"ssh-ed25519"), text(content)].concat());
    let keys = [&[12, 0, 0, 0, 1][..], &pair(public.as_bytes()), &text(b"liar")].concat();
    let signed = [&[14][..], &pair(&signature)].concat();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut length) = (stream.unwrap(), [0; 4]);
            stream.read_exact(&mut length).unwrap();
            let mut message = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut message).unwrap();
            let answer = if message[0] == 11 { &keys } else { &signed };
            stream.write_all(&[&u32::try_from(answer.len()).unwrap().to_be_bytes(), &answer[..]].concat()).unwrap();
        }
    });
}

#[test]
fn what_an_agent_signs_is_verified_before_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let key = FileSigner::create(&at("key"), None).unwrap();
    // A signature of this very key, of something else; and none at all.
    for (number, signature) in [key.sign(b"something else").unwrap(), [0; 64]].into_iter().enumerate() {
        let socket = at(&format!("agent{number}"));
        lying_agent(&socket, &key.public(), signature);
        let refused =
            sidle(&["repo", "init", text(&at("repo")), "--key", "ssh-agent:liar"], &[("SSH_AUTH_SOCK", text(&socket))]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("the agent's signature is not valid"), "{refused:?}");
        assert!(!at("repo").exists(), "nothing is left behind");
    }
}

#[test]
fn a_program_signs_and_what_it_gives_is_verified() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", text(&at("key"))]);
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", text(&at("other"))]);
    let script = |name: &str, sign: &str| {
        let key = at("key");
        let script = format!(
            "#!/bin/sh\nset -e\ncase $SIDLE_SIGN in\npublic) openssl pkey -in {key} -pubout ;;\nsign) {sign} ;;\nesac\n",
            key = text(&key)
        );
        fs::write(at(name), script).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        format!("exec:{}", text(&at(name)))
    };
    let raw = |key: &str| format!("openssl pkeyutl -sign -rawin -inkey {} -in /dev/stdin", text(&at(key)));
    let good = [
        script("raw", &raw("key")),
        script("hex", &format!("{} | od -An -v -tx1 | tr -d ' \\n'", raw("key"))),
        script("base64", &format!("{} | openssl base64 -A", raw("key"))),
    ];
    for (number, key) in good.iter().enumerate() {
        let path = at(&format!("repo{number}"));
        sidle(&["repo", "init", text(&path), "--key", key], &[]).ok();
        sidle(&["repo", "publish", text(&path), "--key", key], &[]).ok();
        let files = metadata(&path);
        refresh(&Floor::new(files["1.root.json"].clone()), &files, jiff::Timestamp::now()).1.unwrap();
    }
    let path = at("refused");
    for (key, words) in [
        (script("wrong", &raw("other")), "not valid for its public key"),
        (script("short", "printf 0123"), "no signature of 64 bytes"),
        (script("long", "yes"), "it printed too much"),
        (script("fails", "exit 3"), "it failed"),
        (format!("exec:{}", text(&at("missing"))), "No such file"),
        ("exec:".to_owned(), "names no program"),
    ] {
        let refused = sidle(&["repo", "init", text(&path), "--key", &key], &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
        assert!(!path.exists(), "nothing is left behind");
    }
}
