//! JSON as TUF signs it: a strict reader (no duplicate keys, no floats) and OLPC's canonical form, the bytes that signatures cover.
//!
//! Rule: TUF specification §4.1 and <http://wiki.laptop.org/go/Canonical_JSON>. It is not JCS: only `\` and `"` are escaped.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// A JSON value of which two readers cannot think differently. Keys are sorted by code point, as the canonical form wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number. Floats are refused: they have no canonical form.
    Integer(i64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Object),
}

/// The members of a JSON object.
pub type Object = BTreeMap<String, Json>;

impl Json {
    /// Reads one JSON value and nothing after it. The error says where and why, for people.
    /// Depth is limited by the parser (128), so that a few kilobytes of `[` cannot exhaust the stack.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// The canonical form. Strings stand as they are apart from `\` and `"`, so this is not always valid JSON: it is for signing only.
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_canonical(&mut bytes);
        bytes
    }

    /// The text that is published: keys sorted, no blank that hosts would fetch for nothing, newline at the end. The same value always gives the
    /// same bytes.
    pub fn text(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a value with string keys always serialises");
        bytes.push(b'\n');
        bytes
    }

    fn write_canonical(&self, into: &mut Vec<u8>) {
        match self {
            Self::Null => into.extend_from_slice(b"null"),
            Self::Bool(true) => into.extend_from_slice(b"true"),
            Self::Bool(false) => into.extend_from_slice(b"false"),
            Self::Integer(number) => into.extend_from_slice(number.to_string().as_bytes()),
            Self::String(text) => write_canonical_string(text, into),
            Self::Array(items) => {
                into.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        into.push(b',');
                    }
                    item.write_canonical(into);
                }
                into.push(b']');
            }
            Self::Object(members) => {
                into.push(b'{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        into.push(b',');
                    }
                    write_canonical_string(key, into);
                    into.push(b':');
                    value.write_canonical(into);
                }
                into.push(b'}');
            }
        }
    }
}

fn write_canonical_string(text: &str, into: &mut Vec<u8>) {
    into.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' || byte == b'\\' {
            into.push(b'\\');
        }
        into.push(byte);
    }
    into.push(b'"');
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// An object from its members.
pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| sequence.serialize_element(item))?;
                sequence.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without floats")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Json, E> {
        i64::try_from(number).map(Json::Integer).map_err(|_| E::custom("number too large"))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Json, E> {
        Err(E::custom("a number that is not whole has no canonical form"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Object::new();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            // Two readers that keep different ones of two equal keys would see two different documents under one signature.
            if members.contains_key(&key) {
                return Err(de::Error::custom(format!("duplicate key {key:?}")));
            }
            members.insert(key, value);
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_is_olpcs() {
        let json = Json::parse(b" {\"b\": [1, -2, true, null], \"a\\u00e9\": \"x\\n\\\"\\\\\\/\" } ").unwrap();
        assert_eq!(json.canonical(), "{\"a\u{e9}\":\"x\n\\\"\\\\/\",\"b\":[1,-2,true,null]}".as_bytes());
    }

    #[test]
    fn keys_sort_by_code_point() {
        let json = Json::parse("{\"\u{10000}\":1,\"\u{ffff}\":2,\"a\":3,\"Z\":4}".as_bytes()).unwrap();
        assert_eq!(json.canonical(), "{\"Z\":4,\"a\":3,\"\u{ffff}\":2,\"\u{10000}\":1}".as_bytes());
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let deep = "[".repeat(10_000);
        for bad in [
            "1.0",
            "1e3",
            "-0",
            "18446744073709551615",
            "{\"a\":1,\"a\":2}",
            "{\"a\":{\"b\":1,\"b\":1}}",
            "{\"a\":1,\"\\u0061\":2}",
            "{} {}",
            "{}x",
            "",
            "{",
            "[01]",
            "nul",
            "\"\\ud800\"",
            &deep,
        ] {
            assert!(Json::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Json::parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn the_published_text_reads_back() {
        let json = object([("b", Json::Integer(1)), ("a", Json::Array(vec!["x\n\u{1}".into()]))]);
        assert_eq!(Json::parse(&json.text()).unwrap(), json);
        assert_eq!(json.text(), json.clone().text());
    }
}
