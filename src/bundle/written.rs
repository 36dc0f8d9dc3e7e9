//! What is wrong with a file in TOML that a person has written (a recipe, settings), in one line and in that person's words.

/// Longest part of a wrong line that is shown, characters.
const LINE_CHARACTERS_MAXIMUM: usize = 120;

/// Which line is wrong, what stands there, and what is wrong with it.
pub fn problem(text: &str, error: &toml::de::Error) -> String {
    let said = error.message().trim();
    let span = error.span().and_then(|span| Some((text.get(..span.start)?, text.get(span).unwrap_or_default())));
    let Some((before, value)) = span else { return plain_words(said, "") };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let shown: String = line.chars().take(LINE_CHARACTERS_MAXIMUM).collect();
    let cut = if shown.len() < line.len() { "…" } else { "" };
    format!("line {number}, {shown}{cut}: {}", plain_words(said, value))
}

/// The parser's words, where they speak of Rust or of the grammar of TOML instead of the file.
fn plain_words(said: &str, value: &str) -> String {
    const QUOTES: &str = "there is no value after `=`, or a text without quotes: write NAME = \"TEXT\"";
    let of_grammar = [
        "expected literal string",
        "expected `nan`",
        "expected `inf`",
        "invalid float",
        "string values must be quoted",
    ];
    if of_grammar.iter().any(|words| said.contains(words)) {
        return QUOTES.to_owned();
    }
    let Some((found, expected)) = said.strip_prefix("invalid type: ").and_then(|said| said.split_once(", expected "))
    else {
        return said.replace('\n', "; ");
    };
    let is_date = value.len() >= 8 && value.starts_with(|c: char| c.is_ascii_digit());
    let found = match found.split_once(' ').unwrap_or((found, "")) {
        ("map", _) if is_date => "a date or time",
        ("map", _) => "a table",
        ("sequence", _) => "a list",
        ("string", _) => "a text",
        ("boolean", _) => "true or false without quotes",
        ("integer" | "floating", _) => "a number",
        _ => found,
    };
    let expected = match expected {
        "usize" | "u64" | "u32" | "u16" | "u8" | "i64" | "an integer" => "a whole number",
        "path string" | "a string" | "a borrowed string" | "string" => "a text in quotes",
        "a boolean" => "true or false, without quotes",
        "a sequence" => "a list: [\"A\", \"B\"]",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("it is {found}; expected is {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Example {
        attempts: Option<u32>,
        mirrors: Vec<String>,
        keep: Option<usize>,
        config: Option<std::path::PathBuf>,
        proxy: Option<String>,
        restore: bool,
        last: u32,
    }

    #[test]
    fn the_words_are_of_the_file_and_not_of_the_program() {
        for (text, words) in [
            ("attempts =", "there is no value after `=`"),
            ("proxy =none\"", "a text without quotes"),
            ("mirrors = 1979-05-27", "it is a date or time; expected is a list"),
            ("keep = \"x\"", "it is a text; expected is a whole number"),
            ("config = true", "it is true or false without quotes; expected is a text in quotes"),
            ("proxy = 5", "it is a number; expected is a text in quotes"),
            ("restore = \"yes\"", "it is a text; expected is true or false"),
            ("unknown = 1", "unknown field `unknown`"),
            ("proxy = \"x", "invalid basic string"),
        ] {
            let text = format!("\n{text}\nlast = 1\n");
            let found = problem(&text, &toml::from_str::<Example>(&text).unwrap_err());
            let line = text.lines().nth(1).unwrap();
            assert!(found.starts_with(&format!("line 2, {line}: ")) && found.contains(words), "{text}: {found}");
            assert!(!found.contains('\n') && !found.contains("usize"), "{found}");
        }
        let long = format!("proxy = {}", "5".repeat(300));
        assert!(problem(&long, &toml::from_str::<Example>(&long).unwrap_err()).contains("5…: "));
    }
}
