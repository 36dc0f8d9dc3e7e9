//! The one place that writes words for a shell. ssh joins its words with blanks and gives them to the user's shell on the host, so each word is quoted.

/// `word` as one word of a POSIX shell, whatever it contains.
pub fn quoted(word: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_bare) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command line of these words.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::Program;

    #[test]
    fn a_shell_reads_each_word_as_it_was() {
        let words = [
            "plain",
            "",
            "two words",
            "it's",
            "'",
            "''",
            "$HOME",
            "`id`",
            "$(id)",
            "a;b",
            "a\nb",
            "\\",
            "\\n",
            "*",
            "~",
            "-n",
            "#x",
            "A=b",
            "!x",
            "für 東京",
            "\"",
            "a&b|c>d<e",
            "{a,b}",
            "\t",
        ];
        let line = format!("printf '%s\\0' {}", command(words));
        let (success, output) = Program::new("/bin/sh").argument("-c").argument(&line).output().unwrap();
        let expected: String = words.iter().flat_map(|word| [word, "\0"]).collect();
        assert!(success);
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn a_quoted_line_is_a_word_of_another_line() {
        let inner = command(["printf", "%s", "it's $HOME"]);
        let (_, output) =
            Program::new("/bin/sh").argument("-c").argument(command(["sh", "-c", &inner])).output().unwrap();
        assert_eq!(output, b"it's $HOME");
    }
}
