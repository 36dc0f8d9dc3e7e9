//! The pages say what is so: links lead somewhere, every setting, finding and phase has its line, every command parses, and what is generated is
//! what the program writes.

use clap::error::ErrorKind;
use sidle::agent::examination::Examiner as _;
use sidle::cli::manual;
use sidle::config::keys::SECTIONS;
use sidle::doctor::explanations;
use sidle::salt::doctor::SALT;
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
fn the_table_of_settings_has_what_is_parsed_and_nothing_else() {
    let (config, repository) = (text("src/config.rs"), text("src/config/repository.rs"));
    let documented = |table: &str| {
        let sections = SECTIONS.iter().filter(|section| section.table == table);
        sections.flat_map(|section| section.keys).map(|key| key.name.to_owned()).collect::<BTreeSet<_>>()
    };
    let mut top = fields(&config, "Settings");
    assert!(top.remove("repository") && top.remove("instances"), "{top:?}");
    assert_eq!(documented(""), top);
    assert_eq!(documented("[instances.NAME]"), fields(&config, "InstanceFragment"));
    assert_eq!(documented("[repository]"), fields(&repository, "RepositoryFragment"));
    let of_mirrors = SECTIONS.iter().flat_map(|section| section.keys).filter(|key| key.of_a_mirror);
    let of_mirrors: BTreeSet<String> = of_mirrors.map(|key| key.name.to_owned()).collect();
    assert_eq!(of_mirrors, fields(&repository, "MirrorTable"));
}

/// The rows of tables in a part of a page, each with its first cell.
fn rows(part: &str) -> Vec<(&str, &str)> {
    part.lines().filter_map(|line| Some((line.strip_prefix("| `")?.split_once("` |")?.0, line))).collect()
}

/// Each has one row between two lines of the page, and each row there is of one of them. A missing row is seen, wherever else the page has the word.
fn one_row_for_each((from, to): (&str, &str), ids: &[&str]) {
    let page = text("docs/operations.md");
    let part =
        page.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap_or_else(|| panic!("no {from}, {to}")).0;
    let told = |part: &str| {
        let mut cells: Vec<&str> = rows(part).into_iter().map(|(cell, _)| cell).collect();
        cells.sort_unstable();
        cells.join("\n")
    };
    let mut wanted = ids.to_vec();
    wanted.sort_unstable();
    let wanted = wanted.join("\n");
    assert_eq!(told(part), wanted, "docs/operations.md, from {from} to {to}");
    for (cell, row) in rows(part) {
        assert_ne!(told(&part.replacen(row, "", 1)), wanted, "the row of {cell} is not looked at");
    }
}

fn phases() -> Vec<String> {
    sidle::switch::Phase::ALL.map(|phase| serde_json::to_value(phase).unwrap().as_str().unwrap().to_owned()).to_vec()
}

/// The words with which a line of Python compares the phase or the result of a switch.
fn compared(line: &str) -> Vec<&str> {
    let keys = ["[\"phase\"]", "[\"result\"]", "get(\"phase\")", "get(\"result\")"];
    if !keys.iter().any(|key| line.contains(key)) {
        return Vec::new();
    }
    let sides = ["== ", "!= ", " in "].into_iter().flat_map(|operator| line.split(operator).skip(1));
    let words = sides.flat_map(|side| match side.strip_prefix('(') {
        Some(several) => several.split(')').next().unwrap().split('"').skip(1).step_by(2).collect::<Vec<_>>(),
        None => side.strip_prefix('"').and_then(|one| one.split('"').next()).into_iter().collect(),
    });
    words.collect()
}

/// A word that no phase had (`rolled_back`) never matched, unseen.
#[test]
fn the_salt_extension_calls_the_phases_as_the_program_does() {
    let (known, mut seen) = (phases(), BTreeSet::new());
    for file in files(&root().join("packaging/saltext-sidle/src"), &["py"]) {
        let content = fs::read_to_string(&file).unwrap();
        for word in content.lines().flat_map(compared) {
            assert!(known.iter().any(|phase| phase == word), "{}: {word} is no phase", file.display());
            seen.insert(word.to_owned());
        }
    }
    assert!(seen.len() >= 8, "{seen:?}");
    assert_eq!(compared("if live[\"phase\"] == \"gone\" or x in (\"a\", \"b\"):"), ["gone", "a", "b"]);
}

#[test]
fn every_phase_has_its_row() {
    let words = phases();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    one_row_for_each(("\n## Phases that `status` shows\n", "\nOther lines of `status`:\n"), &words);
}

#[test]
fn the_generated_pages_are_what_the_program_writes() {
    let pages = manual::pages();
    let documents: Vec<_> = pages.iter().filter(|page| page.directory == "docs").collect();
    assert_eq!(documents.len(), 3);
    for page in documents {
        let same = text(&format!("docs/{}", page.name)) == page.text;
        assert!(
            same,
            "docs/{} is not what the program writes: \
             cargo run --quiet -- manual target/manual && cp target/manual/docs/*.md docs/",
            page.name
        );
    }
}

/// The files below a directory whose names end so.
fn files(directory: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files(&path, ends));
        } else if path.extension().is_some_and(|extension| ends.iter().any(|end| extension == *end)) {
            found.push(path);
        }
    }
    found
}

/// `sidle.toml(5)`, `man:sidle(8)` and `man sidle-repo` in units, messages and pages.
#[test]
fn every_manual_that_is_named_exists() {
    let there: BTreeSet<String> =
        manual::pages().into_iter().filter(|page| page.directory == "man").map(|page| page.name).collect();
    let stems: BTreeSet<&str> = there.iter().filter_map(|name| name.rsplit_once('.')).map(|(stem, _)| stem).collect();
    let mut sources = files(&root().join("src"), &["rs"]);
    sources.extend(files(&root().join("packaging"), &["service", "timer", "conf", "md"]));
    sources.extend(pages());
    let mut named = 0;
    for source in sources {
        let content = fs::read_to_string(&source).unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        for section in ["(5)", "(8)"] {
            for (place, _) in content.match_indices(section) {
                let name = content[..place].rsplit(|c| !is_word(c)).next().unwrap();
                if name.starts_with("sidle") {
                    let page = format!("{name}.{}", section.trim_matches(['(', ')']));
                    assert!(there.contains(&page), "{} names {page}", source.display());
                    named += 1;
                }
            }
        }
        for (place, word) in content.match_indices("`man sidle") {
            let name: String =
                content[place + word.len() - "sidle".len()..].chars().take_while(|c| is_word(*c)).collect();
            assert!(stems.contains(name.as_str()) || name == "sidle-VERB", "{} names {name}", source.display());
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
}

/// The words of a command line, up to a comment, a redirection or the next command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => return words,
            (None, '|' | '>' | ';' | '&') => {
                words.extend(Some(word).filter(|word| !word.is_empty()));
                return words;
            }
            (None, ' ') => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            (_, c) => word.push(c),
        }
    }
    words
}

/// What stands for a placeholder, so that the types of arguments take it.
fn filled(word: &str) -> String {
    let bare = word.trim_matches(['[', ']']);
    let replaced = [
        ("PACKAGE[@RELEASE]", "salt-minion"),
        ("FILE|PACKAGE", "salt-minion"),
        ("PACKAGE", "salt-minion"),
        ("INSTANCE", "salt-minion"),
        ("RELEASE", "3007.17-1"),
        ("VERSION", "3007.17"),
        ("NAME", "name"),
        ("TIME", "5m"),
    ];
    let mut filled = bare.to_owned();
    for (placeholder, value) in replaced {
        filled = filled.replace(placeholder, value);
    }
    if filled == "N" { "1".to_owned() } else { filled }
}

/// Each command line of `sidle` in code of a page; `whole`: in a block, where nothing may be left out.
fn commands(page: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let joined = page.replace(" \\\n", " ");
    for line in joined.lines().filter_map(|line| line.strip_prefix("    ")) {
        let line = line.trim_start().trim_start_matches("$ ");
        if line.starts_with("sidle ") {
            found.push((line.to_owned(), true));
        }
    }
    let prose: Vec<&str> = page.lines().filter(|line| !line.starts_with("    ")).collect();
    let prose = prose.join(" ");
    let code = prose.split('`').skip(1).step_by(2).filter(|code| code.starts_with("sidle "));
    found.extend(code.map(|code| (code.to_owned(), false)));
    found
}

/// The first bytes of files: no commands.
const MAGIC: [&str; 3] = ["sidle bundle 1", "sidle frames 1", "sidle index 2"];

#[test]
fn every_command_of_the_pages_parses() {
    let (mut parsed, mut wrong) = (0, Vec::new());
    // A generated usage is the grammar's own.
    for page in pages().into_iter().filter(|page| !page.ends_with("docs/commands.md")) {
        let content = fs::read_to_string(&page).unwrap();
        for (command, whole) in commands(&content) {
            let is_magic = MAGIC.iter().any(|magic| command.starts_with(magic));
            if is_magic || command.contains('…') || command.contains("VERB") {
                continue;
            }
            let arguments: Vec<String> = words(&command).iter().map(|word| filled(word)).collect();
            let Err(error) = manual::grammar().try_get_matches_from(&arguments) else {
                parsed += 1;
                continue;
            };
            // Prose names a verb, or an option of it, without the rest.
            let left_out = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::MissingSubcommand,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ];
            let valueless = error.to_string().contains("a value is required");
            let asks = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
            if !asks && (whole || !(valueless || left_out.contains(&error.kind()))) {
                let why = error.to_string();
                wrong.push(format!("{}: {command}: {}", page.display(), why.lines().next().unwrap_or_default()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(parsed > 100, "{parsed}");
}

/// What `doctor --find` explains has a row; whatever `doctor` may find is explained: the first word that its sources give to a finding.
#[test]
fn every_finding_of_doctor_has_its_row() {
    let known = explanations::with(SALT.explanations());
    let ids: Vec<&str> = known.iter().map(|(known, _)| known.id).collect();
    let severities = ["ERROR", "warning", "not checked", "note"];
    one_row_for_each(("\n## What each doctor finding means\n", "\n## Metrics\n"), &[&ids[..], &severities].concat());
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
        assert!(ids.contains(&id), "`sidle doctor --find` does not explain the finding {id}");
    }
}

#[test]
fn the_acceptance_test_looks_for_a_word_that_doctor_prints() {
    use sidle::agent::examination::Severity;
    let page = text("docs/acceptance.md");
    let step = page.lines().find(|line| line.contains("`sidle doctor")).expect("a step runs doctor");
    assert!(step.contains(&format!("no line that begins with `{}`", Severity::Error.word())), "{step}");
}
