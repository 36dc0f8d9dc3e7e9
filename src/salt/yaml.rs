//! YAML as Salt's loader (`PyYAML`, YAML 1.1) reads it, as far as a minion's own options need it.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::collections::BTreeMap;

/// A value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A truth value: YAML 1.1 has more words for them than 1.2.
    Bool(bool),
    /// Any other scalar, as written.
    Text(String),
    /// A sequence.
    List(Vec<Value>),
    /// A mapping with scalar keys, in the order written; a later key replaces an earlier one, as in `PyYAML`.
    Map(Vec<(String, Value)>),
}

/// Nesting that no configuration has; a deeper document would exhaust the stack.
const DEPTH_MAX: usize = 64;

/// Values that one file may hold once its aliases are expanded: a few nested aliases grow without bound ("billion laughs").
const VALUES_MAX: usize = 100_000;

/// Why a text can't be understood, and the line where that shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct YamlError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub cause: String,
}

impl Value {
    /// Reads one document. An empty one is Null.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        let mut reader = Reader { events: Parser::new_from_str(text), line: 1, anchors: BTreeMap::new(), values: 0 };
        let mut document = None;
        while let Some(event) = reader.next()? {
            match event {
                Event::DocumentStart(_) if document.is_some() => return Err(reader.wrong("a second document begins")),
                Event::DocumentStart(_) => {
                    let first = reader.expect_event()?;
                    document = Some(reader.value(first, 0)?);
                }
                Event::StreamEnd => break,
                _ => {}
            }
        }
        Ok(document.unwrap_or(Self::Null))
    }

    /// The value of a mapping's key; None where there is none.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Sets a key of a mapping; anything else is left alone.
    pub fn set(&mut self, key: &str, value: Self) {
        if let Self::Map(pairs) = self {
            match pairs.iter_mut().find(|(name, _)| name == key) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key.to_owned(), value)),
            }
        }
    }

    /// What this is called in a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

struct Reader<'text> {
    events: Parser<'text, StrInput<'text>>,
    line: usize,
    anchors: BTreeMap<usize, Value>,
    values: usize,
}

impl<'text> Reader<'text> {
    fn wrong(&self, cause: impl Into<String>) -> YamlError {
        YamlError { line: self.line, cause: cause.into() }
    }

    fn next(&mut self) -> Result<Option<Event<'text>>, YamlError> {
        let found: Option<Result<(Event<'text>, Span), ScanError>> = self.events.next();
        match found.transpose() {
            Ok(None) => Ok(None),
            Ok(Some((event, span))) => {
                self.line = span.start.line();
                Ok(Some(event))
            }
            Err(error) => Err(YamlError { line: error.marker().line(), cause: error.info().to_owned() }),
        }
    }

    fn expect_event(&mut self) -> Result<Event<'text>, YamlError> {
        self.next()?.ok_or_else(|| self.wrong("the text ends too early"))
    }

    fn value(&mut self, event: Event<'text>, depth: usize) -> Result<Value, YamlError> {
        self.values += 1;
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("it is nested deeper than {DEPTH_MAX} levels")));
        }
        if self.values > VALUES_MAX {
            return Err(self.wrong(format!("it holds more than {VALUES_MAX} values")));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                (if plain { resolve(&text) } else { Value::Text(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| self.wrong("an alias refers to what is not complete"))?;
                self.values += size(&value);
                return if self.values > VALUES_MAX {
                    Err(self.wrong(format!("it holds more than {VALUES_MAX} values")))
                } else {
                    Ok(value)
                };
            }
            _ => return Err(self.wrong("a value is missing")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.expect_event()? {
                Event::SequenceEnd => return Ok(Value::List(items)),
                event => items.push(self.value(event, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut map = Value::Map(Vec::new());
        let mut merged = Vec::new();
        loop {
            let key = match self.expect_event()? {
                Event::MappingEnd => break,
                // The key is a word even where it looks like a truth value: `on:`.
                Event::Scalar(text, _, _, _) => text.into_owned(),
                _ => return Err(self.wrong("a key is not a word")),
            };
            let event = self.expect_event()?;
            let value = self.value(event, depth + 1)?;
            if key == "<<" { merged.push(value) } else { map.set(&key, value) }
        }
        for source in merged {
            merge_keys(&mut map, source);
        }
        Ok(map)
    }
}

/// `<<: *anchor`: keys that the mapping itself has win, then those of the first source.
fn merge_keys(map: &mut Value, source: Value) {
    match source {
        Value::Map(pairs) => {
            for (key, value) in pairs {
                if map.get(&key).is_none() {
                    map.set(&key, value);
                }
            }
        }
        Value::List(sources) => sources.into_iter().for_each(|source| merge_keys(map, source)),
        Value::Null | Value::Bool(_) | Value::Text(_) => {}
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Text(_) => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(pairs) => 1 + pairs.iter().map(|(_, value)| size(value)).sum::<usize>(),
    }
}

/// A plain scalar, by the words of `PyYAML`'s resolver. Numbers stay text: the options that are numbers are parsed where they are used.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        _ => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_values_are_those_of_yaml_1_1_and_quotes_take_the_magic_away() {
        let value = Value::parse("a: yes\nb: Off\nc: 'no'\nd: y\ne: ~\non: 1\n").unwrap();
        assert_eq!(value.get("a"), Some(&Value::Bool(true)));
        assert_eq!(value.get("b"), Some(&Value::Bool(false)));
        assert_eq!(value.get("c"), Some(&Value::Text("no".to_owned())));
        assert_eq!(value.get("d"), Some(&Value::Text("y".to_owned())));
        assert_eq!(value.get("e"), Some(&Value::Null));
        assert_eq!(value.get("on"), Some(&Value::Text("1".to_owned())));
    }

    #[test]
    fn a_later_key_wins_and_aliases_and_merge_keys_are_followed() {
        let value = Value::parse("base: &b {x: 1, y: 2}\nm:\n  <<: *b\n  y: 3\nm2: *b\nx: 1\nx: 2\n").unwrap();
        assert_eq!(value.get("x"), Some(&Value::Text("2".to_owned())));
        let merged = value.get("m").unwrap();
        assert_eq!(merged.get("x"), Some(&Value::Text("1".to_owned())));
        assert_eq!(merged.get("y"), Some(&Value::Text("3".to_owned())));
        assert_eq!(value.get("m2").unwrap().get("y"), Some(&Value::Text("2".to_owned())));
    }

    #[test]
    fn what_is_not_yaml_is_named_with_its_line() {
        assert_eq!(Value::parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err().line, 3);
        assert_eq!(Value::parse("a: 1\n---\nb: 1\n").unwrap_err().cause, "a second document begins");
        assert_eq!(Value::parse("").unwrap(), Value::Null);
    }

    #[test]
    fn aliases_that_grow_without_bound_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..8 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            let line = format!("a{level}: &a{level} [{aliases}]\n");
            text.push_str(&line);
        }
        assert!(Value::parse(&text).unwrap_err().cause.contains("more than"));
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        assert!(Value::parse(&deep).is_err());
    }
}
