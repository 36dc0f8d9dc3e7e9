//! The pages say what is so: links lead somewhere, and every setting, finding, phase and exit code has its line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(relative: &str) -> String {
    fs::read_to_string(root().join(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
}

/// Every page for people.
fn pages() -> Vec<PathBuf> {
    let in_directory = |directory: &str| {
        let entries = fs::read_dir(root().join(directory)).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect::<Vec<_>>()
    };
    let pages = ["", "docs", "tests"].map(in_directory).concat();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// The anchor of a heading, as the usual web pages of repositories make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let mut links = 0;
    for page in pages() {
        let content = fs::read_to_string(&page).unwrap();
        for link in content.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{} links to {link}", page.display());
            if !place.is_empty() {
                let there = fs::read_to_string(&target).unwrap();
                let found = there.lines().any(|line| line.starts_with('#') && anchor(line) == place);
                assert!(found, "{} links to {link}", page.display());
            }
        }
    }
    assert!(links > 50, "only {links}");
}

/// The names of the fields of a structure, as its source has them.
fn fields(source: &str, structure: &str) -> BTreeSet<String> {
    let (_, rest) = source.split_once(&format!("struct {structure} {{")).unwrap_or_else(|| panic!("no {structure}"));
    let (body, _) = rest.split_once("\n}").unwrap();
    let fields = body.lines().filter(|line| !line.trim_start().starts_with(['/', '#']));
    fields
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, _)| name.trim_start_matches("pub ").to_owned())
        .collect()
}

#[test]
fn every_setting_has_its_line() {
    let page = text("docs/hosts.md");
    let (config, repository) = (text("src/config.rs"), text("src/config/repository.rs"));
    let mut keys = fields(&config, "Fragment");
    keys.extend(fields(&config, "InstanceFragment"));
    keys.extend(fields(&repository, "RepositoryFragment"));
    keys.extend(fields(&repository, "MirrorTable"));
    assert!(keys.len() > 35, "{keys:?}");
    let tables = ["repository", "instances"];
    for key in keys.iter().filter(|key| !tables.contains(&key.as_str())) {
        assert!(page.contains(&format!("| `{key}`")), "docs/hosts.md has no line for the setting {key}");
    }
}

#[test]
fn every_phase_and_exit_code_has_its_line() {
    let page = text("docs/operations.md");
    for code in 0..=12 {
        assert!(page.contains(&format!("| {code} |")), "docs/operations.md has no line for exit code {code}");
    }
    for phase in sidle::switch::Phase::ALL {
        let word = serde_json::to_value(phase).unwrap();
        let word = word.as_str().unwrap();
        assert!(page.contains(&format!("`{word}`")), "docs/operations.md has no line for the phase {word}");
    }
}

/// Whatever `doctor` may find: the first word that its sources give to a finding.
#[test]
fn every_finding_of_doctor_has_its_line() {
    let page = text("docs/operations.md");
    let mut sources = Vec::new();
    for directory in ["src/doctor", "src/salt/doctor"] {
        let entries = fs::read_dir(root().join(directory)).unwrap().flatten();
        sources.extend(entries.map(|entry| fs::read_to_string(entry.path()).unwrap()));
    }
    let mut found = BTreeSet::new();
    for source in &sources {
        for call in source.split(".find(").skip(1) {
            // The id is the first text in it that is made of words and hyphens alone.
            let id = call.split('"').skip(1).step_by(2).take(1).next().unwrap_or_default();
            if id.contains('-') && id.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
                found.insert(id);
            }
        }
    }
    assert!(found.len() > 30, "{found:?}");
    for id in found {
        assert!(page.contains(&format!("`{id}`")), "docs/operations.md has no line for the finding {id}");
    }
}
