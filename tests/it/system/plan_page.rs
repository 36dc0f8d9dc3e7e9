//! The page of a plan, as a browser shows it: with its filter, without scripts, and with hosts that would inject markup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const HOSTS: usize = 2000;

/// A fleet as values: each tenth host is held, and one has an id that is markup.
const FLEET: &str = r#"
import sys
from saltext.sidle.fleet import page
from saltext.sidle.fleet import plan as planning

def status(hold):
    return {"instance": "salt-minion", "current": "3006.30-1", "installed": ["3006.30-1", "3007.17-1"], "supervisor": {}, "hold": hold,
            "switch": None, "last": None} | {"supervisor": {"version": "1"}}

hold = {"by": "ann", "reason": "<script>document.title='injected'</script>"}
names = [f"host{number:04}" for number in range(int(sys.argv[1]) - 1)] + ["<img src=x onerror=document.title='injected'>"]
facts = {name: {"family": ["RedHat", "Suse"][number % 2], "unseen_days": 0, "releases": [], "status": status(hold if number % 10 == 0 else None)}
         for number, name in enumerate(names)}
plan = planning.make(facts, planning.Wanted("salt-minion", "3007.17-1", canary=4))
open(sys.argv[2], "w").write(page.render(plan, "* (glob)", "2026-11-24 09:12:00 UTC"))
"#;

struct Browser {
    place: TempDir,
}

impl Browser {
    /// The document as it is once the page has loaded.
    fn shows(&self, page: &Path, fragment: &str) -> String {
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.arg(format!("--user-data-dir={}", self.place.path().join("profile").display()));
        let output =
            command.arg("--dump-dom").arg(format!("file://{}#{fragment}", page.display())).output().expect("chromium");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn page(place: &Path) -> PathBuf {
    let page = place.join("plan.html");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/saltext-sidle/src");
    let made = Command::new("python3")
        .args(["-B", "-c", FLEET, &HOSTS.to_string()])
        .arg(&page)
        .env("PYTHONPATH", source)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    page
}

/// The table's rows of hosts that can be seen.
fn seen(document: &str) -> Vec<&str> {
    let rows = document.split("<tr data-verdict=").skip(1);
    rows.filter(|row| !row.split('>').next().unwrap().contains("hidden")).collect()
}

#[test]
fn a_browser_shows_the_plan_of_a_large_fleet_and_finds_in_it_and_runs_nothing_of_a_host() {
    let browser = Browser { place: tempfile::tempdir().unwrap() };
    let page = page(browser.place.path());
    assert_eq!(fs::read_to_string(&page).unwrap().matches("http").count(), 1, "only http-equiv: no other files");

    let all = browser.shows(&page, "");
    assert_eq!(seen(&all).len(), HOSTS);
    assert!(all.contains(">2000 hosts</caption>"), "the script has run");
    assert!(all.contains("<title>Plan: salt-minion 3007.17-1</title>") && !all.contains("<img"), "markup of a host");
    assert_eq!(all.matches("<script").count(), 1, "a script of a host");

    let found = browser.shows(&page, "verdict=refused&family=RedHat&find=host001+ANN");
    let hosts = seen(&found);
    assert!(found.contains(">1 of 2000 hosts</caption>"), "{}", hosts.len());
    assert!(hosts.len() == 1 && hosts[0].contains("host0010") && hosts[0].contains("held by ann"), "{hosts:?}");
    assert_eq!(seen(&browser.shows(&page, "wave=1")).len(), 4, "the canaries");

    // Without its script it is all there, and offers no filter that does nothing.
    let written = fs::read_to_string(&page).unwrap();
    let (before, after) = (written.split_once("<script").unwrap().0, written.rsplit_once("</script>").unwrap().1);
    fs::write(&page, [before, after].concat()).unwrap();
    let plain = browser.shows(&page, "verdict=refused");
    assert_eq!(seen(&plain).len(), HOSTS);
    assert!(plain.contains("<form class=\"find\" role=\"search\" hidden"), "a filter without a script");
}
