//! `--dry-run`: which commands have it, and whether this one runs with it.

use crate::store::collect::Effect;
use clap::{ArgMatches, Args};

/// The option of every verb that changes something.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DryRun {
    /// Show what would be done; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Whether this command line changes anything.
pub(super) fn effect_of(matches: &ArgMatches) -> Effect {
    let mut verb = matches;
    while let Some((_, below)) = verb.subcommand() {
        verb = below;
    }
    let is_dry_run = verb.try_get_one::<bool>("dry_run").ok().flatten().copied().unwrap_or(false);
    if is_dry_run { Effect::DryRun } else { Effect::Apply }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    /// The verbs without `--dry-run`, and why.
    const WITHOUT: &[(&str, &str)] = &[
        ("doctor", "reads"),
        ("history", "reads"),
        ("inspect", "reads"),
        ("job", "reads"),
        ("key show", "reads"),
        ("list", "reads"),
        ("manual", "for the build: writes pages into a named directory"),
        ("may-start", "reads; asked by units"),
        ("metrics", "reads; without --output it prints what it would write"),
        ("missed", "reads"),
        ("rehearse", "reads; writes only below /run, and lock files"),
        ("repo status", "reads"),
        ("run", "executes a program: what that changes is the program's"),
        ("status", "reads"),
        ("supervise", "a service"),
        ("test-flip", "for tests"),
        ("trust show", "reads"),
        ("try", "keeps nothing: the release is removed again"),
        ("uses", "reads"),
    ];

    fn without(command: &Command, above: &str, found: &mut Vec<String>) {
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let name = format!("{above}{}", verb.get_name());
            if verb.has_subcommands() {
                without(verb, &format!("{name} "), found);
            } else if !verb.get_arguments().any(|argument| argument.get_id() == "dry_run") {
                found.push(name);
            }
        }
    }

    #[test]
    fn each_verb_that_changes_something_has_a_dry_run() {
        let mut found = Vec::new();
        without(&crate::cli::Cli::command(), "", &mut found);
        found.sort();
        let known: Vec<&str> = WITHOUT.iter().map(|(name, _)| *name).collect();
        let is_built = |name: &&str| *name != "test-flip" || cfg!(feature = "test-hooks");
        assert_eq!(found, known.into_iter().filter(is_built).collect::<Vec<_>>());
    }
}
