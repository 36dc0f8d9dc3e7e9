//! The man pages render, and shells take the completions.

use sidle::cli::manual::{Page, pages};
use std::fs;
use std::path::Path;
use std::process::Command;

fn written(directory: &Path, kind: &str) -> Vec<Page> {
    let pages: Vec<Page> = pages().into_iter().filter(|page| page.directory == kind).collect();
    for page in &pages {
        fs::write(directory.join(&page.name), &page.text).unwrap();
    }
    pages
}

#[test]
fn every_man_page_renders_without_a_warning_and_has_the_usual_sections() {
    let directory = tempfile::tempdir().unwrap();
    let pages = written(directory.path(), "man");
    assert!(pages.len() > 40, "{}", pages.len());
    for page in pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-P-cbou", "-rHY=0"]).arg(directory.path().join(&page.name));
        let output = groff.output().expect("cannot start groff: apt-get install groff-base");
        let warned = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warned.is_empty(), "{}: {warned}", page.name);
        let text = String::from_utf8_lossy(&output.stdout);
        let sections: &[&str] = if page.name.ends_with(".8") {
            &["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"]
        } else {
            &["NAME", "DESCRIPTION", "SEE ALSO"]
        };
        for section in sections {
            assert!(text.lines().any(|line| line.trim_end() == *section), "{} has no {section}: {text}", page.name);
        }
        assert!(!text.contains('`'), "{} shows marks of its source: {text}", page.name);
    }
}

#[test]
fn shells_take_the_completions() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), "completions");
    let complete = "source ./sidle; COMP_WORDS=(sidle rollb); COMP_CWORD=1; COMPREPLY=(); _sidle sidle rollb sidle; echo \"${COMPREPLY[@]}\"";
    let shell = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).current_dir(directory.path()).output()
    };
    let bash = shell("bash", &["--norc", "-c", complete]).expect("cannot start bash: apt-get install bash");
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "rollback", "{bash:?}");
    let others: [(&str, &[&str]); 2] = [
        ("zsh", &["-f", "-c", "autoload -U compinit && compinit -D && source ./_sidle"]),
        (
            "fish",
            &["--no-config", "-c", "source ./sidle.fish; complete -C 'sidle rollb' | string match -q 'rollback*'"],
        ),
    ];
    for (program, arguments) in others {
        // Few hosts have them; those that do are asked.
        let Ok(output) = shell(program, arguments) else { continue };
        assert!(output.status.success() && output.stderr.is_empty(), "{program}: {output:?}");
    }
}
