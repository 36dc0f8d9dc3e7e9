//! The commands of this program that a supervisor starts: their words, and what their exit codes mean.

use super::terminal::exit::CODES;
use crate::failure::Class;
use crate::switch::process::own_commands::OwnCommands;

/// In the words of a process that becomes an agent later.
const AWAIT_START: &str = "--await-start";

/// After them: the agent gets all variables.
const ALL_VARIABLES: &str = "--all-variables";

/// The commands.
pub const COMMANDS: OwnCommands = OwnCommands {
    run: |package, instance, release| {
        words(&[
            "run",
            package.as_str(),
            "--release",
            &release.to_string(),
            "--instance",
            instance.as_str(),
            AWAIT_START,
        ])
    },
    all_variables: ALL_VARIABLES,
    is_run: |words| words.iter().any(|word| word == AWAIT_START),
    repair: |package, release| words(&["--quiet", "repair", package.as_str(), &release.to_string(), "--watch"]),
    scrub: |package| words(&["--quiet", "scrub", package.as_str()]),
    check: "--check",
    class: |code| {
        usize::try_from(code).ok().and_then(|code| CODES.get(code)).map_or(Some(Class::Failed), |code| code.class)
    },
};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    #[test]
    fn the_command_line_understands_its_own_words() {
        let (package, instance) = ("demo".parse().unwrap(), "demo-2".parse().unwrap());
        let release = "1.0-1".parse().unwrap();
        let mut with_all = (COMMANDS.run)(&package, &instance, &release);
        with_all.push(COMMANDS.all_variables.to_owned());
        let all = [
            (COMMANDS.run)(&package, &instance, &release),
            with_all,
            (COMMANDS.repair)(&package, &release),
            (COMMANDS.scrub)(&package),
            words(&["supervise", "demo", COMMANDS.check]),
        ];
        for words in all {
            let line = ["sidle", "--root", "/"].map(str::to_owned).into_iter().chain(words.clone());
            assert!(Cli::try_parse_from(line).is_ok(), "{words:?}");
        }
        assert!((COMMANDS.is_run)(&(COMMANDS.run)(&package, &instance, &release)));
    }

    #[test]
    fn exit_codes_mean_what_they_are_written_as() {
        let class = COMMANDS.class;
        assert_eq!((class(0), class(3), class(12)), (None, Some(Class::NothingToDo), Some(Class::Conflict)));
        assert_eq!((class(77), class(-1)), (Some(Class::Failed), Some(Class::Failed)));
    }
}
