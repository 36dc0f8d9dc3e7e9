//! Reads a manifest from JSON: lists and maps within limits, entries as small arrays, as there are 15,000 of them. `judge` checks the
//! content.

use crate::bundle::limits::LIST_MAXIMUM;
use crate::digest::Digest;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// An entry as written, not yet judged.
#[derive(Debug)]
pub struct RawEntry {
    pub path: String,
    pub kind: RawKind,
}

/// The rest of an entry as written.
#[derive(Debug)]
pub enum RawKind {
    Directory { mode: u32 },
    File { mode: u32, size: u64, sha256: Digest, frame: u32 },
    Link { target: String },
    Unknown(String),
}

impl<'de> Deserialize<'de> for RawEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = RawEntry;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[path, \"d\", mode], [path, \"f\", mode, size, sha256, frame] or [path, \"l\", target]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<RawEntry, A::Error> {
        fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(elements: &mut A, index: usize) -> Result<T, A::Error> {
            elements.next_element()?.ok_or_else(|| A::Error::invalid_length(index, &EntryVisitor))
        }
        let path = next(&mut elements, 0)?;
        let kind: String = next(&mut elements, 1)?;
        let kind = match kind.as_str() {
            "d" => RawKind::Directory { mode: next(&mut elements, 2)? },
            "f" => RawKind::File {
                mode: next(&mut elements, 2)?,
                size: next(&mut elements, 3)?,
                sha256: next(&mut elements, 4)?,
                frame: next(&mut elements, 5)?,
            },
            "l" => RawKind::Link { target: next(&mut elements, 2)? },
            _ => {
                while elements.next_element::<IgnoredAny>()?.is_some() {}
                RawKind::Unknown(kind)
            }
        };
        Ok(RawEntry { path, kind })
    }
}

/// A list of at most `MAXIMUM` items. A longer list is refused while it is read, before it is in memory.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAXIMUM: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T, const MAXIMUM: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAXIMUM: usize> Visitor<'de> for Bounded<T, MAXIMUM> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAXIMUM {
                    return Err(A::Error::custom(format_args!(
                        "a list is too long: it may have at most {MAXIMUM} items"
                    )));
                }
                list.push(item);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_seq(Bounded::<T, MAXIMUM>(PhantomData))
}

/// A map of at most `LIST_MAXIMUM` unique keys. serde's own maps keep the last of two equal keys; another reader might keep the first.
pub fn unique_map<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct Unique<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = entries.next_entry::<String, V>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
                }
                if map.len() == LIST_MAXIMUM {
                    return Err(A::Error::custom(format_args!(
                        "a map is too long: it may have at most {LIST_MAXIMUM} entries"
                    )));
                }
                map.insert(key, value);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}

/// A list of at most `LIST_MAXIMUM` items, or null, as older manifests have it: nothing.
pub fn list_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Listed<T>(Vec<T>);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            list::<_, _, LIST_MAXIMUM>(deserializer).map(Self)
        }
    }
    Ok(Option::<Listed<T>>::deserialize(deserializer)?.map_or_else(Vec::new, |Listed(items)| items))
}
