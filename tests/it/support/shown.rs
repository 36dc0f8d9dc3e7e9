//! What a page shows of the output of its commands, in blocks of text, is what they print.

use super::salt::own_user;

/// A line without what differs from run to run, and from agent to agent: numbers, digests, times, platforms, who types.
fn constant(line: &str) -> String {
    let word = |word: &str| {
        let digest = word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
        match word {
            _ if digest => "DIGEST".to_owned(),
            _ if word.starts_with("linux-") => "PLATFORM".to_owned(),
            _ => word.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#"),
        }
    };
    let line = line.replace(&format!(" by {}:", own_user()), " by root:");
    line.split([' ', '/']).filter(|part| !part.is_empty()).map(word).collect::<Vec<_>>().join(" ")
}

/// Each line in a text block of this part of a page begins a line that was printed, apart from [`constant`]; gives how many lines there were.
#[track_caller]
pub fn prints_what_is_shown(part: &str, printed: &str) -> usize {
    let lines: Vec<String> = printed.lines().map(constant).collect();
    let shown = part.split("```").skip(1).step_by(2).flat_map(|block| block.lines().skip(1));
    let shown = shown.inspect(|line| {
        let is_printed = lines.iter().any(|printed| printed.starts_with(&constant(line)));
        assert!(is_printed, "no command prints \"{line}\":\n{printed}");
    });
    shown.count()
}
