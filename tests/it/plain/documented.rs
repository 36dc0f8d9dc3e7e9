//! The commands of the pages, really run in their order: an author's, then a host's, with the demonstration agent in place of the Salt minion.

use crate::support::shown::prints_what_is_shown;
use crate::support::stage::{Host, SIDLE, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The settings of a host: short times, and the repository beside it.
const SETTINGS: &str = "probation = \"300ms\"\nstart_timeout = \"8s\"\nstop_timeout = \"4s\"\n";

/// A directory in which somebody follows a page.
struct Reader {
    directory: TempDir,
    root: PathBuf,
    /// What stands in the page, and what this reader types instead.
    instead: Vec<(String, String)>,
}

impl Reader {
    fn new(root: PathBuf) -> Self {
        let directory = tempfile::Builder::new().prefix("reader").tempdir().unwrap();
        let programs = directory.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let script = format!("#!/bin/sh\nexec {SIDLE} --root {} \"$@\"\n", text(&root));
        for (name, script) in [("sidle", script.as_str()), ("systemctl", "#!/bin/sh\n")] {
            fs::write(programs.join(name), script).unwrap();
            fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles"), directory.path().join("bundles")).unwrap();
        Self { directory, root, instead: vec![("salt-minion".to_owned(), "demo-agent".to_owned())] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn types_instead(&mut self, written: &str, typed: &str) {
        self.instead.push((written.to_owned(), typed.to_owned()));
    }

    /// Runs a line; gives its exit code and what it said.
    fn run(&self, line: &str) -> (Option<i32>, String) {
        let line = self.instead.iter().fold(line.to_owned(), |line, (written, typed)| line.replace(written, typed));
        let path = format!("{}:{}", text(&self.path("bin")), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(self.directory.path()).env("PATH", path).stdin(Stdio::null());
        let output = shell.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), format!("{line}\n{}", String::from_utf8_lossy(&said)))
    }

    /// Runs a line that does what it says, or finds that nothing is to be done (3).
    fn follows(&self, line: &str) {
        let (code, said) = self.run(line);
        assert!(matches!(code, Some(0 | 3)), "{code:?}: {said}");
    }

    /// Runs a line that does what it says.
    fn does(&self, line: &str) {
        let (code, said) = self.run(line);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// The commands of a section's code blocks.
fn lines(page: &str, section: &str) -> Vec<String> {
    let content = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let (_, rest) = content.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("{page}: {section}"));
    commands(rest, &format!("{page}: {section}"))
}

/// The commands before the first heading of the second rank.
fn first_lines(page: &str) -> Vec<String> {
    let content = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    commands(&content, page)
}

fn commands(text: &str, what: &str) -> Vec<String> {
    let body = text.split("\n## ").next().unwrap().replace(" \\\n", " ");
    let code = body.lines().filter_map(|line| line.strip_prefix("    ")).map(str::trim_start);
    let commands = code.filter(|line| line.starts_with("sidle ")).map(str::to_owned).collect::<Vec<_>>();
    assert!(!commands.is_empty(), "{what}");
    commands
}

/// An author who has followed the first section: a key, a repository, a bundle of 3007.17 in it.
fn author() -> Reader {
    let reader = Reader::new("/".into());
    for line in lines("docs/authors.md", "One person, one key") {
        reader.does(&line);
    }
    assert!(reader.path("demo-agent-3007.17.sidle").exists());
    reader
}

#[test]
fn one_person_publishes_and_takes_back_as_the_authors_guide_says() {
    let mut reader = author();
    reader.types_instead("TEXT", "'a mistake'");
    for line in lines("docs/authors.md", "Take a release back") {
        reader.does(&line);
    }
    let targets = fs::read_to_string(reader.path("repository/metadata/2.targets.json")).unwrap();
    assert!(!targets.contains("3007.17-1"), "{targets}");
}

#[test]
fn several_people_sign_rotate_and_delegate_as_the_authors_guide_says() {
    let mut reader = Reader::new("/".into());
    for name in ["anna", "bert", "carl", "dora", "timer", "new-timer", "site"] {
        reader.does(&format!("sidle key new {name}.pem && sidle key show --pem {name}.pem >{name}.pub"));
    }
    for (written, typed) in
        [("RECIPE", "bundles/demo-agent/demo-agent.toml"), ("VERSION", "3007.17"), ("DIR", "packed")]
    {
        reader.types_instead(written, typed);
    }
    // "bert does the same".
    let signed_by_two = |line: &str| {
        for name in ["anna.pem", "bert.pem"].into_iter().filter(|_| line.contains(".pem")) {
            let signed = line.replace("anna.pem", name).replace("bert.pem", name);
            reader.does(&signed);
        }
        if !line.contains(".pem") {
            reader.does(line);
        }
    };
    let follow = |lines: Vec<String>| {
        for line in lines {
            if line.starts_with("sidle repo sign") { signed_by_two(&line) } else { reader.follows(&line) }
        }
    };
    follow(lines("docs/authors.md", "Several people"));
    assert!(fs::read_to_string(reader.path("repository/metadata/1.targets.json")).unwrap().contains("3007.17-1"));
    follow(lines("docs/authors.md", "A timer"));
    let publish = |keys: &str| {
        signed_by_two("sidle repo sign repository --key bert.pem");
        reader.does(&format!("sidle repo publish repository {keys}"));
    };
    follow(lines("docs/authors.md", "Rotate keys"));
    publish("--online-key timer.pem --online-key new-timer.pem");
    follow(lines("docs/authors.md", "Delegate"));
}

#[test]
fn a_first_boot_follows_the_example_for_cloud_init() {
    let author = author();
    let fingerprint = sidle::digest::Digest::of(&fs::read(author.path("repository/metadata/1.root.json")).unwrap());
    let host = Host::bare();
    let mut reader = Reader::new(host.root());
    let url = format!("file://{}", text(&author.path("repository")));
    for (written, typed) in [
        ("https://repo.example/sidle\"", &format!("{url}\"")),
        ("SHA256", &fingerprint.to_string()),
        ("setup", &"setup --package demo-agent".to_owned()),
    ] {
        reader.types_instead(written, typed);
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cloud-init.yaml")).unwrap();
    assert!(page.starts_with("#cloud-config\n"));
    sidle::salt::yaml::Value::parse(&page).unwrap();
    fs::create_dir_all(host.path("etc/sidle/conf.d")).unwrap();
    fs::create_dir_all(host.path("etc/demo-agent")).unwrap();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), SETTINGS).unwrap();
    let list = |line: &str| line.trim().strip_prefix("- [")?.strip_suffix(']').map(|words| words.replace(", ", " "));
    let lines: Vec<String> = page.lines().filter_map(list).filter(|line| line.starts_with("sidle ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    // Only Salt has keys: salt::first_minion runs this very line to its end.
    reader.does(&format!("{} --dry-run", lines[0]));
    reader.does(lines[0].split(" --start").next().unwrap());
    let _supervisor = host.supervise();
    reader.does("sidle switch salt-minion");
    assert_eq!(host.current().as_deref(), Some("3007.17-1"));
}

/// Types each line of the administrators' guide.
fn follows_the_guide(reader: &mut Reader, author: &Reader) {
    for section in [
        "1. Trust the repository (once per host)",
        "3. Install",
        "4. Run and switch",
        "5. Hold, windows, splay",
        "6. Verify, repair, scrub",
        "7. Collect",
        "8. Mirrors",
    ] {
        if section == "7. Collect" {
            // With two newer releases current and previous, the oldest one may go.
            let typed = "--version 3008.5 --repo repository --key author.pem --output new.sidle";
            author.does(&format!("sidle pack bundles/salt-minion/salt-minion.toml {typed}"));
            reader.follows("sidle switch salt-minion 3007.17-1");
            reader.does("sidle upgrade salt-minion");
        }
        for line in lines("docs/hosts.md", section) {
            reader.follows(&line);
        }
    }
}

#[test]
fn a_host_goes_through_the_readme_and_the_administrators_guide() {
    let host = Host::bare();
    let author = author();
    author.does("sidle pack bundles/salt-minion/salt-minion.toml --version 3006.30 --repo repository --key author.pem --output old.sidle");
    author.does("sidle export repository salt-minion@3006.30-1 salt-minion@3007.17-1 --output bundle.sidle");
    let root = author.path("repository/metadata/1.root.json");
    let fingerprint = sidle::digest::Digest::of(&fs::read(&root).unwrap()).to_string();

    let mut reader = Reader::new(host.root());
    for file in ["demo-agent-3007.17.sidle", "bundle.sidle", "old.sidle"] {
        fs::copy(author.path(file), reader.path(file)).unwrap();
    }
    fs::copy(&root, reader.path("1.root.json")).unwrap();
    for directory in ["etc/sidle", "etc/demo-agent"] {
        fs::create_dir_all(host.path(directory)).unwrap();
    }
    let settings = format!("{SETTINGS}[repository]\nurl = \"file://{}\"\n", text(&author.path("repository")));
    fs::write(host.path("etc/sidle/sidle.toml"), settings).unwrap();
    assert_eq!(reader.root, host.root());
    let mirror = reader.path("mirror");
    for (written, typed) in [
        ("SHA256", fingerprint.as_str()),
        ("/srv/sidle", text(&mirror)),
        (" FILE", " bundle.sidle"),
        ("--id 7", "--id 1"),
    ] {
        reader.types_instead(written, typed);
    }
    reader.types_instead("demo-agent-3008.5", "demo-agent-3007.17");
    reader.types_instead("rehearse demo-agent 3008.5-1", "rehearse demo-agent 3006.30-1");
    reader.does("sidle trust pin 1.root.json --fingerprint SHA256");
    let mut supervisor = None;
    for line in first_lines("README.md") {
        if line.starts_with("sidle switch ") {
            supervisor = Some(host.supervise());
        }
        reader.does(&line);
    }
    assert_eq!(host.current().as_deref(), Some("3007.17-1"));
    reader.does("sidle install old.sidle");
    reader.does("sidle switch salt-minion 3006.30-1");
    reader.does("sidle rollback salt-minion");
    assert_eq!(host.current().as_deref(), Some("3007.17-1"));
    follows_the_guide(&mut reader, &author);
    reader.does("sidle verify salt-minion --full");
    assert!(mirror.join("metadata/timestamp.json").exists());
    drop(supervisor);
}

/// Types the commands of a section; gives what they print.
fn types_section(reader: &Reader, section: &str, mut before: impl FnMut(&str)) -> String {
    let code = section.lines().filter_map(|line| line.strip_prefix("    "));
    code.map(|line| {
        before(line);
        let (code, said) = reader.run(line);
        assert!(matches!(code, Some(0 | 3)), "{code:?}: {said}");
        said
    })
    .collect()
}

#[test]
fn the_page_of_the_first_host_shows_what_its_commands_print() {
    let host = Host::bare();
    let mut reader = Reader::new(host.root());
    for directory in ["etc/sidle/conf.d", "etc/demo-agent"] {
        fs::create_dir_all(host.path(directory)).unwrap();
    }
    fs::write(host.path("etc/sidle/conf.d/test.toml"), SETTINGS).unwrap();
    let url = format!("file://{}", text(&reader.path("repository")));
    reader.types_instead("file:///root/repository", &url);
    reader.types_instead("sidle setup", "sidle setup --package demo-agent");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/first-host.md")).unwrap();
    let (mut supervisor, mut shown) = (None, 0);
    for section in page.split("\n## ").filter(|section| matches!(section.as_bytes()[0], b'2'..=b'5')) {
        let said = types_section(&reader, section, |line| {
            if line.starts_with("systemctl enable") {
                supervisor = Some(host.supervise());
            }
        });
        // `sidle key new` prints the fingerprint of the key; the last one is the repository's.
        if let Some(fingerprint) = said.lines().rev().find_map(|line| line.strip_prefix("fingerprint")) {
            reader.types_instead("SHA256", fingerprint.trim());
        }
        let said = said.replace(&url, "file:///root/repository").replace(text(&reader.root), "");
        let said = said.replace("demo-agent", "salt-minion");
        shown += prints_what_is_shown(section, &said);
    }
    drop(supervisor);
    assert!(shown > 20, "{shown}");
}
