//! `sidle manual DIRECTORY`, hidden: writes man pages, shell completions and the generated pages of `docs/`, all from what the program itself goes by.

mod bundle;
mod commands;
mod markdown;
mod phases;
mod settings;
mod verbs;

use super::{Cli, Context, Ended};
use crate::failure::Report;
use crate::os::dir::Dir;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::roff::Roff;
use serde_json::json;
use std::path::PathBuf;

/// The date of every man page: that of the release, since two builds of it are to give the same bytes. It changes with the version in Cargo.toml.
const DATE: &str = "2026-11-23";
/// What begins each generated page of `docs/`, so that nobody edits it by hand.
const GENERATED: &str = "<!-- Generated: see CONTRIBUTING.md, \"Generated pages\". -->";
/// Where man pages go.
const MAN: &str = "man";
/// Mode of the files and directories written: for everybody to read.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// `sidle manual DIRECTORY`
#[derive(Debug, Args)]
pub struct ManualArguments {
    /// The directory to write to: man/, completions/ and docs/
    directory: PathBuf,
}

/// A file that is generated.
#[derive(Debug)]
pub struct Page {
    /// The directory it belongs to.
    pub directory: &'static str,
    /// Its name there.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// Writes every page.
pub fn manual(context: &Context, arguments: &ManualArguments) -> Result<Ended, Report> {
    let pages = pages();
    let target = Dir::open_or_create(&arguments.directory, DIRECTORY_MODE)?;
    for page in &pages {
        let directory = target.child_or_create(page.directory, DIRECTORY_MODE)?;
        directory.write_atomic(&page.name, page.text.as_bytes(), FILE_MODE)?;
    }
    let text = format!("wrote {} files to {}", pages.len(), arguments.directory.display());
    context.output.result(text, json!({"files": pages.len()}));
    Ok(Ended::Well)
}

/// Every page, in the same bytes each time.
pub fn pages() -> Vec<Page> {
    let man = |name: &str, text| Page { directory: MAN, name: name.to_owned(), text };
    let document = |name: &str, text| Page { directory: "docs", name: name.to_owned(), text };
    let mut pages = verbs::pages();
    pages.push(man("sidle.toml.5", settings::man()));
    pages.push(man("sidle-bundle.5", bundle::man()));
    pages.push(document("settings.md", settings::document()));
    pages.push(document("commands.md", commands::document()));
    pages.push(document("phases.md", phases::document()));
    for (shell, name) in [(Shell::Bash, "sidle"), (Shell::Zsh, "_sidle"), (Shell::Fish, "sidle.fish")] {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut visible(&Cli::command()), "sidle", &mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        pages.push(Page { directory: "completions", name: name.to_owned(), text });
    }
    for page in pages.iter_mut().filter(|page| page.directory == MAN) {
        page.text = in_ascii(&page.text);
    }
    pages
}

/// What is no ASCII, as roff names it: not every roff reads UTF-8.
fn in_ascii(text: &str) -> String {
    let named = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    text.chars().map(named).collect()
}

/// The grammar of the command line, for tests that parse the commands of the documentation.
pub fn grammar() -> Command {
    Cli::command()
}

/// The grammar without its hidden verbs: completion offers no verb that help does not show.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let bare = Command::new("sidle").args(command.get_arguments().cloned()).subcommands(shown);
    bare.version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true)
}

/// The verbs that help shows, with their own verbs, each after its parent; all of them built, so that names and usages are complete.
fn verbs_of(command: &Command) -> Vec<Command> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.flat_map(|verb| std::iter::once(verb.clone()).chain(verbs_of(verb))).collect()
}

/// The built grammar.
fn built() -> Command {
    // The verb `help` needs no page.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// A man page that is text only.
fn text_page(name: &str, about: &str, body: &str) -> String {
    let mut roff = Roff::default();
    let source = format!("sidle {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name, "5", DATE, &source, "sidle"]);
    roff.control("SH", ["NAME"]);
    roff.text([clap_mangen::roff::roman(format!("{name} - {about}"))]);
    markdown::append(&mut roff, body);
    roff.to_roff()
}
