//! Hosts and their repository, through the program: what is fetched, what is not, and what happens when it can't be.

use crate::support::come_last;
use crate::support::mirrors::{Certificates, Handmade, Nginx, Tunnel};
use crate::support::release::static_program;
use crate::support::repositories::snapshot_of;
use crate::support::stage::{Author, DEMO, Host, SIDLE, sidle, text};
use crate::support::trees;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Clients that fetch at once.
const FLEET: usize = 60;
/// Bytes a second that each of them may receive.
const FLEET_LIMIT: u64 = 256 * 1024;
/// What a process may take.
const MEMORY_KIBIBYTES: u64 = 32 * 1024;
/// How much more memory a bundle of ten times the size may take: who reads and who unpacks differ from run to run by a frame and its content for each of
/// two threads, 4 MiB each.
const GROWTH_KIBIBYTES: u64 = 16 * 1024;

/// An author's repository behind a real web server.
struct Site {
    author: Author,
    certificates: Certificates,
    nginx: Nginx,
}

impl Site {
    fn new() -> Self {
        let (author, certificates) = (Author::new(), Certificates::new());
        let nginx = Nginx::start(&author.repository(), &certificates, "");
        Self { author, certificates, nginx }
    }

    /// A host whose settings name the repository.
    fn host(&self, more: &str) -> Host {
        let host = Host::new(&self.author);
        let (url, ca) = (self.nginx.url(), self.certificates.file("ca.pem"));
        let settings =
            format!("[repository]\nurl = \"{url}\"\nca_file = \"{}\"\nsystem_ca = false\n{more}", ca.display());
        fs::write(host.path("etc/sidle/conf.d/repository.toml"), settings).unwrap();
        host
    }
}

fn bytes(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} in {value}"))
}

#[test]
fn a_host_installs_and_upgrades_from_its_repository_and_never_goes_back_to_what_was_left() {
    let site = Site::new();
    site.author.release("1.0", "good");
    let host = site.host("");
    let first = host.sidle(&["--json", "install", DEMO]).json();
    assert_eq!((&first["release"], &first["fresh"]), (&json!("1.0-1"), &json!(true)));
    let source = site.author.repository().parent().unwrap().join("tree-1.0");
    let installed = host.path(&format!("opt/sidle/{DEMO}/versions/1.0-1"));
    assert_eq!(trees::contents(&installed), trees::contents(&source));
    host.sidle(&["verify", DEMO, "--full"]).ok();
    assert_eq!(host.sidle(&["install", DEMO]).code, Some(3));
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO]).ok();

    site.author.release("1.1", "good");
    let rehearsed = host.sidle(&["install", DEMO, "--dry-run"]).ok();
    assert!(rehearsed.contains("would install  demo-agent 1.1-1") && rehearsed.contains("to fetch"), "{rehearsed}");
    host.sidle(&["upgrade", DEMO]).ok();
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    assert_eq!(host.sidle(&["upgrade", DEMO]).code, Some(3));
    host.sidle(&["rollback", DEMO]).ok();
    let again = host.sidle(&["upgrade", DEMO]);
    assert_eq!((again.code, host.current().as_deref()), (Some(3), Some("1.0-1")), "{again:?}");
    // A person who names it means it.
    host.sidle(&["upgrade", &format!("{DEMO}@1.1-1")]).ok();
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_proxy_of_the_environment_leads_to_the_repository_unless_it_is_excepted() {
    const NONE: [(&str, &str); 8] = [
        ("HTTPS_PROXY", ""),
        ("https_proxy", ""),
        ("HTTP_PROXY", ""),
        ("http_proxy", ""),
        ("ALL_PROXY", ""),
        ("all_proxy", ""),
        ("NO_PROXY", ""),
        ("no_proxy", ""),
    ];
    let site = Site::new();
    site.author.release("1.0", "good");
    let host = site.host("attempts = 1\n");
    let tunnel = Tunnel::new();
    let at = tunnel.url();
    let install = |variables: &[(&str, &str)]| host.sidle_with(&["install", DEMO], &[&NONE, variables].concat());
    install(&[("HTTPS_PROXY", &at), ("NO_PROXY", "other.example,127.0.0.1")]).ok();
    assert_eq!(install(&[("HTTP_PROXY", &at), ("http_proxy", &at)]).code, Some(3));
    assert_eq!(tunnel.asked(), [""; 0], "what is excepted, or is for other URLs, went through it");
    site.author.release("1.1", "good");
    install(&[("HTTPS_PROXY", &at), ("NO_PROXY", "other.example")]).ok();
    let (asked, wanted) = (tunnel.asked(), format!("CONNECT 127.0.0.1:{}", site.nginx.port()));
    assert!(!asked.is_empty() && asked.iter().all(|asked| *asked == wanted), "{asked:?}");
    drop(tunnel);
    site.author.release("1.2", "good");
    let closed = install(&[("HTTPS_PROXY", &at)]);
    assert_eq!(closed.code, Some(1), "it went around the proxy: {closed:?}");
    let settings = host.path("etc/sidle/conf.d/repository.toml");
    let around = fs::read_to_string(&settings).unwrap() + "proxy = \"none\"\n";
    fs::write(settings, around).unwrap();
    install(&[("HTTPS_PROXY", &at)]).ok();
}

#[test]
fn the_next_release_costs_the_frames_of_what_has_changed() {
    let site = Site::new();
    let tree = site.author.repository().parent().unwrap().join("tree-1.0");
    site.author.release_with("1.0", |tree| trees::put(tree, "share/large", &trees::noise(1, 3 << 20), 0o644));
    let host = site.host("");
    let first = host.sidle(&["--json", "install", DEMO]).json();
    assert!(bytes(&first, "received_bytes") > 3 << 20, "{first}");
    site.author.release_with("1.1", |next| {
        fs::copy(tree.join("share/large"), next.join("share/large")).unwrap();
    });
    let second = host.sidle(&["--json", "install", DEMO]).json();
    assert_eq!(second["release"], "1.1-1");
    assert!(bytes(&second, "payload_bytes") > 3 << 20, "{second}");
    assert!(bytes(&second, "received_bytes") < 64 * 1024, "{second}");
    host.sidle(&["verify", DEMO, "--full"]).ok();
    // The cache holds nothing that is of no more use.
    assert_eq!(fs::read_dir(host.path("var/cache/sidle/partial")).unwrap().count(), 0);
}

#[test]
fn a_patch_that_a_mirror_lacks_costs_the_manifest_and_nothing_else() {
    let site = Site::new();
    let files = |tree: &Path| {
        for number in 0..300 {
            trees::put(tree, &format!("share/file{number}"), &trees::noise(number, 64), 0o644);
        }
    };
    site.author.release_with("1.0", files);
    let host = site.host("");
    host.sidle(&["install", DEMO]).ok();
    let other = host.copy();
    site.author.release_with("1.1", files);
    let patched = host.sidle(&["--json", "install", DEMO]).json();
    let targets = site.author.repository().join("targets");
    let is_patch = |path: &Path| text(path).ends_with(".patch.zst");
    let patch = snapshot_of(&targets).into_iter().map(|(path, _)| path).find(|path| is_patch(path)).unwrap();
    fs::remove_file(targets.join(patch)).unwrap();
    let whole = other.sidle(&["--json", "install", DEMO]).json();
    assert_eq!(whole["release"], "1.1-1");
    assert!(bytes(&whole, "received_bytes") > bytes(&patched, "received_bytes") + 1000, "{whole} {patched}");
}

#[test]
fn an_upgrade_never_leads_to_an_older_release_by_itself() {
    let site = Site::new();
    site.author.release("1.0", "good");
    site.author.release("1.1", "good");
    let host = site.host("");
    host.sidle(&["install", DEMO]).ok();
    host.sidle(&["test-flip", DEMO, "1.1-1"]).ok();
    let (repository, key) = (site.author.repository(), site.author.key());
    sidle(&["repo", "withdraw", text(&repository), &format!("{DEMO}@1.1-1")], &[]).ok();
    sidle(&["repo", "publish", text(&repository), "--key", text(&key)], &[]).ok();
    let nothing = host.sidle(&["upgrade", DEMO]);
    assert!(nothing.code == Some(3) && nothing.stderr.contains("nothing newer"), "{nothing:?}");
    assert!(!host.path(&format!("opt/sidle/{DEMO}/versions/1.0-1")).exists());
}

#[test]
fn a_host_stays_with_the_releases_that_its_settings_admit_unless_another_is_named() {
    let site = Site::new();
    for version in ["1.0", "1.1", "2.0"] {
        site.author.release(version, "good");
    }
    let host = site.host(&format!("releases = [\"{DEMO}/1.*/*\"]\n"));
    assert_eq!(host.sidle(&["--json", "install", DEMO]).json()["release"], "1.1-1");
    host.sidle(&["test-flip", DEMO, "1.1-1"]).ok();
    let kept = host.sidle(&["upgrade", DEMO]);
    assert!(kept.code == Some(3) && kept.stdout.contains("1.1-1"), "{kept:?}");
    site.author.release("1.2", "good");
    assert_eq!(host.sidle(&["--json", "install", DEMO]).json()["release"], "1.2-1");
    assert_eq!(host.sidle(&["--json", "install", &format!("{DEMO}@2.0-1")]).json()["release"], "2.0-1");

    let none = site.host(&format!("releases = [\"{DEMO}/3.*/*\"]\n"));
    let refused = none.sidle(&["install", DEMO]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("`releases` in the settings admits none"),
        "{refused:?}"
    );
    // A misspelt package is said: nothing holds the host then.
    let other = site.host("releases = [\"demo_agent/1.*/*\"]\n");
    let warned = other.sidle(&["--json", "install", DEMO]);
    assert!(
        warned.stderr.contains("has no pattern for demo-agent") && warned.json()["release"] == "2.0-1",
        "{warned:?}"
    );
    let wrong = site.host("releases = [\"3006.*\"]\n").sidle(&["install", DEMO]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("PACKAGE/RELEASE/PLATFORM"), "{wrong:?}");
}

#[test]
fn a_damaged_release_is_mended_from_the_repository_and_from_a_bundle_file() {
    let site = Site::new();
    let bundle = site.author.release("1.0", "good");
    let host = site.host("");
    host.sidle(&["install", DEMO]).ok();
    let broken = host.path(&format!("opt/sidle/{DEMO}/versions/1.0-1/share/demo-agent/release"));
    let damage = || fs::write(&broken, "9.9\n").unwrap();
    damage();
    let offline = host.sidle(&["repair", DEMO, "--offline"]);
    assert_eq!(offline.code, Some(6), "{offline:?}");
    assert!(offline.stdout.contains("share/demo-agent/release has other content"), "{offline:?}");
    host.sidle(&["repair", DEMO]).ok();
    assert_eq!(fs::read_to_string(&broken).unwrap(), "1.0\n");
    assert_eq!(host.sidle(&["repair", DEMO]).code, Some(3));
    damage();
    drop(site.nginx);
    let alone = host.sidle(&["repair", DEMO]);
    assert_eq!(alone.code, Some(6), "{alone:?}");
    host.sidle(&["repair", DEMO, "--from", text(&bundle)]).ok();
    host.sidle(&["verify", DEMO, "--full"]).ok();
}

#[test]
fn a_start_mends_what_a_sibling_has_and_refuses_what_nobody_has() {
    let site = Site::new();
    site.author.release("1.0", "good");
    let host = site.host("");
    host.sidle(&["install", DEMO]).ok();
    site.author.release("1.1", "good");
    host.sidle(&["install", DEMO]).ok();
    let path = |name: &str| host.path(&format!("opt/sidle/{DEMO}/versions/1.1-1/{name}"));
    fs::remove_file(path("bin/demo-agent")).unwrap();
    host.sidle(&["test-flip", DEMO, "1.1-1"]).ok();
    let supervisor = host.supervise();
    assert_eq!(host.answering("mended"), "1.1");
    assert!(host.status().to_string().contains("damaged, and repaired"), "{}", host.status());
    assert_eq!(supervisor.end(), Some(0));
    fs::write(path("share/demo-agent/release"), "9.9\n").unwrap();
    let refused = host.sidle(&["run", DEMO]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("sidle repair demo-agent 1.1-1"), "{refused:?}");
}

#[test]
fn a_fetch_that_is_killed_goes_on_with_what_it_has() {
    let site = Site::new();
    site.author.release_with("1.0", |tree| {
        for number in 0..4 {
            trees::put(tree, &format!("share/large{number}"), &trees::noise(number, 7 << 20), 0o644);
        }
    });
    let host = site.host("rate_limit = \"4MiB\"\n");
    let mut fetching = Command::new(SIDLE);
    fetching.args(["--root", text(&host.path("")), "install", DEMO]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut fetching = fetching.spawn().unwrap();
    crate::support::eventually(60, "two frames are there", || {
        let kept = fs::read_dir(host.path("var/cache/sidle/partial")).map_or(0, Iterator::count);
        if kept >= 2 { Ok(()) } else { Err(kept.to_string()) }
    });
    fetching.kill().unwrap();
    fetching.wait().unwrap();
    let after = host.sidle(&["--json", "install", DEMO]).json();
    let (received, payload) = (bytes(&after, "received_bytes"), bytes(&after, "payload_bytes"));
    assert!(received + (7 << 20) <= payload, "{received} of {payload}");
    host.sidle(&["verify", DEMO, "--full"]).ok();
}

#[test]
fn of_three_mirrors_the_third_serves_and_the_evil_one_is_named() {
    let site = Site::new();
    site.author.release("1.0", "good");
    // The evil one has true metadata, and another byte in everything else.
    let evil = site.author.repository().with_file_name("evil");
    for (path, mut bytes) in snapshot_of(&site.author.repository()) {
        if path.starts_with("targets") {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        fs::create_dir_all(evil.join(&path).parent().unwrap()).unwrap();
        fs::write(evil.join(&path), bytes).unwrap();
    }
    let evil = format!("file://{}", text(&evil));
    let silent = Handmade::new(|_, line| line.hold());
    let host = site.host("");
    let settings = format!(
        "[repository]\nmirrors = [\"{evil}\", \"{}\", {{ url = \"{}\", ca_file = \"{}\" }}]\nstall_timeout = \"1s\"\nattempts = 2\n",
        silent.url(),
        site.nginx.url(),
        site.certificates.file("ca.pem").display()
    );
    fs::write(host.path("etc/sidle/conf.d/repository.toml"), settings).unwrap();
    let installed = host.sidle(&["install", DEMO]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.stderr.contains(&format!("the mirror {evil} is refused")), "{installed:?}");
    assert!(!installed.stderr.contains(&format!("{} is refused", silent.url())), "{installed:?}");
    host.sidle(&["verify", DEMO, "--full"]).ok();
}

#[test]
fn what_can_t_be_fetched_says_why_and_changes_nothing() {
    let site = Site::new();
    site.author.release("1.0", "good");
    let host = site.host("attempts = 1\n");
    let missing = host.sidle(&["install", "other-agent"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("no release of that package; it lists demo-agent"), "{missing:?}");
    let release = host.sidle(&["install", &format!("{DEMO}@3.0-1")]);
    assert!(release.code == Some(7) && release.stderr.contains("the repository lists 1.0-1"), "{release:?}");
    let nonsense = host.sidle(&["install", "No Package"]);
    assert_eq!(nonsense.code, Some(2), "{nonsense:?}");
    // From a directory by the command line, without any settings.
    let plain = Host::new(&site.author);
    let unnamed = plain.sidle(&["install", DEMO]);
    assert!(unnamed.code == Some(2) && unnamed.stderr.contains("sidle.toml"), "{unnamed:?}");
    let url = format!("file://{}", text(&site.author.repository()));
    plain.sidle(&["install", DEMO, "--repository", &url]).ok();
    drop(site.nginx);
    let gone = host.sidle(&["install", DEMO]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("https://127.0.0.1"), "{gone:?}");
    assert!(!host.path("opt/sidle").exists() || trees::contents(&host.path("opt/sidle")).is_empty());
}

/// Runs the program that is given away, and measures it: its exit code, and the most memory it had, in KiB. Of the one that tests are run with, half
/// of that is its own unoptimised text.
fn measured(host: &Host, arguments: &[&str]) -> Command {
    const MEASURE: &str = "import resource, subprocess, sys\n\
        done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n\
        print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n";
    let mut command = Command::new("python3");
    command.args(["-c", MEASURE, text(&static_program()), "--root", text(&host.path(""))]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn memory_of(output: &std::process::Output) -> u64 {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let (code, memory) = told.trim().split_once(' ').unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(code, "0", "{errors}");
    memory.parse().unwrap()
}

#[test]
fn sixty_clients_fetch_at_once_and_none_exceeds_its_limit_or_32_mib() {
    come_last();
    let site = Site::new();
    site.author.release_with("1.0", |tree| trees::put(tree, "share/large", &trees::noise(5, 768 * 1024), 0o644));
    let limit = format!("rate_limit = \"{}KiB\"\n", FLEET_LIMIT / 1024);
    let hosts: Vec<Host> = (0..FLEET).map(|_| site.host(&limit)).collect();
    let begun: Vec<_> = hosts
        .iter()
        .map(|host| (Instant::now(), measured(host, &["--json", "install", DEMO]).spawn().unwrap()))
        .collect();
    let mut ended = Vec::new();
    for (start, client) in begun {
        let output = client.wait_with_output().unwrap();
        ended.push((start.elapsed(), memory_of(&output)));
    }
    // One burst is allowed: a second's worth.
    let least = Duration::from_secs_f64(768.0 * 1024.0 / f64::from(u32::try_from(FLEET_LIMIT).unwrap()) - 1.0);
    assert!(ended.iter().all(|(time, _)| *time >= least), "{ended:?}");
    let most = ended.iter().map(|(_, memory)| *memory).max().unwrap();
    assert!(most <= MEMORY_KIBIBYTES, "{most} KiB");
    for host in &hosts {
        host.sidle(&["verify", DEMO, "--full"]).ok();
    }
}

#[test]
fn memory_does_not_grow_with_the_bundle() {
    let site = Site::new();
    let memory = |version: &str, files: u64| {
        site.author.release_with(version, |tree| {
            for number in 0..files {
                trees::put(tree, &format!("share/large{number}"), &trees::noise(number, 12 << 20), 0o644);
            }
        });
        let host = site.host("");
        let output = measured(&host, &["install", &format!("{DEMO}@{version}-1")]).output().unwrap();
        let last = format!("opt/sidle/{DEMO}/versions/{version}-1/share/large{}", files - 1);
        assert!(Path::new(&host.path(&last)).exists());
        memory_of(&output)
    };
    let (few, many) = (memory("1.0", 2), memory("1.1", 20));
    assert!(many <= few + GROWTH_KIBIBYTES, "{few} KiB for two files, {many} KiB for twenty");
}
