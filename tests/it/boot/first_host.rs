//! docs/first-host.md, command by command, on a booted Debian without sidle: only the placeholders are replaced.

use crate::support::boot::Machine;
use crate::support::release::release_file;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/first-host.md";
/// The placeholder for the fingerprint.
const FINGERPRINT: &str = "SHA256";

/// The sections of the page with the commands of their code blocks.
fn sections() -> Vec<(String, Vec<String>)> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let of = |section: &str| {
        let commands = section.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned);
        (section.lines().next().unwrap().to_owned(), commands.collect())
    };
    page.split("\n## ").skip(1).map(of).collect()
}

/// Somebody who types the page's commands as root, in /root.
struct Newcomer {
    machine: Machine,
    fingerprint: String,
}

impl Newcomer {
    fn types(&self, line: &str) -> String {
        // The demonstration agent, where the page has the Salt minion, which `setup` takes by default.
        let line = line.replace("sidle setup", "sidle setup --package demo-agent");
        let line = line.replace("salt-minion", "demo-agent").replace(FINGERPRINT, &self.fingerprint);
        // 3: nothing to do. The second way of section 3 finds what the first way did.
        let (well, said) = self.machine.try_inside(&["sh", "-c", &format!("cd /root; {line} 2>&1 || [ $? = 3 ]")]);
        assert!(well, "# {line}\n{said}");
        said
    }
}

#[test]
fn a_newcomer_goes_from_an_empty_root_to_a_running_agent_and_back_by_the_pages_commands_alone() {
    let mut machine = Machine::bare("bookworm");
    let package = release_file("deb");
    let name = package.file_name().unwrap().to_str().unwrap();
    fs::copy(&package, machine.path("root").join(name)).unwrap();
    let bundles = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles");
    let copied = Command::new("cp").arg("-r").arg(bundles).arg(machine.path("root/bundles")).status().unwrap();
    assert!(copied.success());
    machine.boot_until(&["sh", "-c", "systemctl is-system-running | grep -qE 'running|degraded'"]);
    let before = leftovers(&machine);
    let mut newcomer = Newcomer { machine, fingerprint: String::new() };
    let mut typed = 0;
    for (section, commands) in sections() {
        assert!(!commands.is_empty(), "{section} has no commands");
        if section.starts_with("4.") {
            // "Write the configuration first"; and a short probation, so that the test needs no patience.
            fs::create_dir_all(newcomer.machine.path("etc/demo-agent")).unwrap();
            fs::write(newcomer.machine.path("etc/sidle/conf.d/test.toml"), "probation = \"1s\"\n").unwrap();
        }
        for line in &commands {
            let said = newcomer.types(line);
            typed += 1;
            if line.starts_with("sidle repo init") {
                let word = said.lines().find_map(|line| line.strip_prefix("fingerprint")).expect("a fingerprint");
                newcomer.fingerprint = word.trim().to_owned();
            }
        }
        if matches!(section.as_bytes()[0], b'4'..=b'6') {
            newcomer.machine.serves("3006.30-1");
        }
    }
    assert!(typed > 20, "{typed} commands");
    assert_eq!(leftovers(&newcomer.machine), before, "nothing is left");
    let running = newcomer.machine.inside(&["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"]);
    assert!(!running.contains("demo-agent"), "{running}");
}

/// What lies in the root under the name of sidle.
fn leftovers(machine: &Machine) -> String {
    machine.inside(&[
        "sh",
        "-c",
        "find /usr /etc /opt /var/lib /var/cache -path '*sidle*' ! -path '/var/lib/dpkg/*' | sort",
    ])
}

#[test]
fn a_newcomer_installs_the_package_as_the_page_of_installs_says() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md")).unwrap();
    let install = sections()[0].1[0].clone();
    assert!(page.contains(&format!("`{install}`")), "{install}");
    assert!(release_file("deb").ends_with(install.rsplit("./").next().unwrap()), "{install}");
}
