//! JSON as TUF signs it: a strict reader (no duplicate keys, no floats) and OLPC's canonical form, the bytes that signatures cover.
//!
//! Rule: TUF specification §4.1 and <http://wiki.laptop.org/go/Canonical_JSON>. It is not JCS: only `\` and `"` are escaped.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::cell::Cell;
use std::fmt;

/// A JSON value that every reader reads alike. Keys are sorted by code point, as the canonical form wants.
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

/// Limit on the memory of one file's values. Stops a small text of many tiny values, which takes many times its own size.
const MEMORY_MAXIMUM_BYTES: usize = 16 << 20;

/// Memory of a value beside its text: itself, its key, and the allocator's share.
const VALUE_BYTES: usize = 96;

impl Json {
    /// Reads exactly one JSON value. The parser limits depth (128), so that a few kilobytes of `[` cannot exhaust the stack.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let reader = Reader { left: &Cell::new(MEMORY_MAXIMUM_BYTES) };
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let json = reader.deserialize(&mut deserializer).and_then(|json| deserializer.end().map(|()| json));
        json.map_err(|error| error.to_string())
    }

    /// The canonical form, for signing only: only `\` and `"` are escaped, so it is not always valid JSON.
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_canonical(&mut bytes);
        bytes
    }

    /// The published text: sorted keys, no blanks, a newline at the end. The same value always gives the same bytes.
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

/// The members of a JSON object, each key once, sorted by code point. A list: a tree would take ten times the memory for the many small
/// objects of metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// The object with these members; an error names a duplicate key.
    pub fn unique(mut members: Vec<(String, Json)>) -> Result<Self, String> {
        members.sort_by(|one, other| one.0.cmp(&other.0));
        if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice[0].0.clone());
        }
        members.shrink_to_fit();
        Ok(Self(members))
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(found, _)| found.as_str().cmp(key))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// The value of `key`, mutable.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Sets the value of `key`; returns the old one.
    pub fn insert(&mut self, key: String, value: Json) -> Option<Json> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.place(key).ok().map(|place| self.0.remove(place).1)
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members by key.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Json)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The values, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Json> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(key, _)| key)
    }
}

impl FromIterator<(String, Json)> for Object {
    /// The last of two members with the same key stays.
    fn from_iter<I: IntoIterator<Item = (String, Json)>>(members: I) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.reverse();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members.dedup_by(|one, other| one.0 == other.0);
        Self(members)
    }
}

impl<const N: usize> From<[(String, Json); N]> for Object {
    fn from(members: [(String, Json); N]) -> Self {
        members.into_iter().collect()
    }
}

/// Reads values while there is memory left for them.
#[derive(Clone, Copy)]
struct Reader<'a> {
    left: &'a Cell<usize>,
}

impl Reader<'_> {
    fn take<E: de::Error>(self, text: &str) -> Result<(), E> {
        let left = self.left.get().checked_sub(VALUE_BYTES + text.len());
        self.left.set(left.ok_or_else(|| E::custom("there are too many values"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without floats")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
        self.take("")?;
        Ok(Json::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
        self.take("")?;
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Json, E> {
        self.take("")?;
        Ok(Json::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Json, E> {
        self.visit_i64(i64::try_from(number).map_err(|_| E::custom("number too large"))?)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Json, E> {
        Err(E::custom("a number that is not whole has no canonical form"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Json, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Json, E> {
        self.take(&text)?;
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Json, A::Error> {
        self.take("")?;
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self)? {
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        self.take("")?;
        let mut members = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            self.take(&key)?;
            members.push((key, map.next_value_seed(self)?));
        }
        // Two readers that keep different ones of two equal keys would see two different documents under one signature.
        Object::unique(members).map(Json::Object).map_err(|key| de::Error::custom(format!("duplicate key {key:?}")))
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
