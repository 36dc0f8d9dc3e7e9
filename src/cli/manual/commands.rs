//! `docs/commands.md`: every verb with its options, and the exit codes.

use super::{GENERATED, built, verbs_of};
use crate::cli::exit::CODES;
use clap::{Arg, Command};
use std::fmt::Write as _;

pub(super) fn document() -> String {
    let command = built();
    let mut page = format!(
        "# Commands\n\n{GENERATED}\n\n`sidle VERB --help` and `man sidle-VERB` say the same.\n\n| verb | what it does |\n|---|---|\n"
    );
    let verbs = verbs_of(&command);
    for verb in &verbs {
        let name = name(verb);
        let _ = writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), about(verb));
    }
    page.push_str("\n## Global options\n\nEvery verb takes these.\n");
    let global = command.get_arguments().filter(|argument| argument.is_global_set());
    options(&mut page, global);
    page.push_str("\n## Exit codes\n\n");
    page.push_str(&exit_codes());
    for mut verb in verbs {
        let usage = verb.render_usage().to_string();
        let _ =
            write!(page, "\n## {}\n\n{}.\n\n    {}\n", name(&verb), about(&verb), usage.trim_start_matches("Usage: "));
        let own = |argument: &&Arg| !argument.is_global_set() && !argument.is_hide_set() && argument.get_id() != "help";
        options(&mut page, verb.get_arguments().filter(own));
        if let Some(more) = verb.get_after_help() {
            let _ = write!(page, "\n{more}\n");
        }
    }
    page
}

/// The table of exit codes.
pub(super) fn exit_codes() -> String {
    let mut table = String::from("| code | meaning | what to do |\n|---|---|---|\n");
    for (number, code) in CODES.iter().enumerate() {
        let _ = writeln!(table, "| {number} | {} | {} |", code.meaning, code.remedy);
    }
    table
}

fn name(verb: &Command) -> String {
    verb.get_bin_name().unwrap_or_else(|| verb.get_name()).to_owned()
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<String> = arguments.map(row).collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| argument or option | meaning |\n|---|---|\n{}", rows.concat());
    }
}

fn row(argument: &Arg) -> String {
    let names: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values());
    let value = if takes { names.join(" ") } else { String::new() };
    let written = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long} {value}"),
        (Some(long), None) => format!("--{long} {value}"),
        (None, Some(short)) => format!("-{short} {value}"),
        (None, None) if argument.is_required_set() => value,
        (None, None) => format!("[{value}]"),
    };
    let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults = argument.get_default_values().iter().filter(|value| takes && !value.is_empty());
    for default in defaults {
        let _ = write!(meaning, " [default: {}]", default.to_string_lossy());
    }
    for possible in argument.get_possible_values().iter().filter(|_| takes) {
        let help = possible.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        let _ = write!(meaning, "; `{}`{help}", possible.get_name());
    }
    format!("| `{}` | {} |\n", written.trim().replace('|', "\\|"), meaning.replace('|', "\\|"))
}
