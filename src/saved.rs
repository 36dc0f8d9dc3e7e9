//! Reads the files that sidle itself has saved. A file of a newer version and a broken file have different remedies, and an older program
//! must not act on a file that it understands only by half.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a saved file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The file is no JSON, or has another form.
    #[error("{0}")]
    Form(serde_json::Error),
    /// A newer program wrote the file: the part that is unknown here.
    #[error("written by a newer sidle: {0}")]
    Newer(String),
}

/// A file of one value, in form 1.
pub trait Saved: DeserializeOwned + Serialize {
    /// Its name in its directory.
    const NAME: &'static str;
    /// Longest file read.
    const LENGTH_MAXIMUM: u64;
    /// The remedy for a broken file.
    const REMEDY: &'static str;
    /// The form.
    const SCHEMA: u32 = 1;

    /// The file's content: one line of JSON.
    fn to_bytes(&self) -> Vec<u8> {
        line(self)
    }

    /// Reads the file's content.
    fn parse(bytes: &[u8]) -> Result<Self, SavedError> {
        parse(bytes, Self::SCHEMA)
    }
}

/// A value as one line of JSON.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("saved values have no map keys but names and releases");
    bytes.push(b'\n');
    bytes
}

/// Reads a file of the form `schema`. A field is unknown, at any depth, when `T` does not write it again: serde's `deny_unknown_fields`
/// cannot stand beside its `flatten`.
pub fn parse<T: DeserializeOwned + Serialize>(bytes: &[u8], schema: u32) -> Result<T, SavedError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let original: Value = serde_json::from_slice(bytes).map_err(SavedError::Form)?;
    let head = Head::deserialize(&original).map_err(SavedError::Form)?;
    if head.schema != schema {
        return Err(SavedError::Newer(format!("it has form {}, this program knows form {schema}", head.schema)));
    }
    let parsed = T::deserialize(&original).map_err(refused)?;
    let known = serde_json::to_value(&parsed).map_err(SavedError::Form)?;
    match unknown_field(&original, &known) {
        Some(name) => Err(SavedError::Newer(format!("unknown field `{name}`"))),
        None => Ok(parsed),
    }
}

/// The error of a type that refuses unknown fields or variants itself, in serde's words and without its list of all known names.
fn refused(error: serde_json::Error) -> SavedError {
    let text = error.to_string();
    if text.starts_with("unknown field") || text.starts_with("unknown variant") {
        return SavedError::Newer(text.split(", expected").next().unwrap_or_default().to_owned());
    }
    SavedError::Form(error)
}

/// The first key of `original` that `known` lacks.
fn unknown_field<'a>(original: &'a Value, known: &Value) -> Option<&'a str> {
    match (original, known) {
        (Value::Object(original), Value::Object(known)) => original
            .iter()
            .find_map(|(name, value)| known.get(name).map_or(Some(name.as_str()), |known| unknown_field(value, known))),
        (Value::Array(original), Value::Array(known)) => {
            original.iter().zip(known).find_map(|(original, known)| unknown_field(original, known))
        }
        _ => None,
    }
}

impl SavedError {
    /// The remedy. `broken`: the remedy for a broken file.
    pub fn hint(&self, broken: &str) -> Option<String> {
        Some(match self {
            Self::Form(_) => broken.to_owned(),
            Self::Newer(_) => {
                "install the version of sidle that wrote it, or a newer one; the file is left as it is".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Part {
        name: String,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct File {
        schema: u32,
        #[serde(flatten)]
        part: Part,
        parts: Vec<Part>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    enum Kind {
        Known,
    }

    fn refusal(text: &str) -> Option<String> {
        parse::<File>(text.as_bytes(), 1).err().map(|error| error.to_string())
    }

    #[test]
    fn an_unknown_field_is_refused_at_any_depth_and_beside_a_flattened_part() {
        assert_eq!(refusal(r#"{"schema":1,"name":"a","parts":[{"name":"b"}],"kind":"Known"}"#), None);
        for unknown in [
            r#"{"schema":1,"name":"a","parts":[],"new":null}"#,
            r#"{"schema":1,"name":"a","parts":[{"name":"b"},{"name":"c","new":1}]}"#,
        ] {
            assert_eq!(refusal(unknown).as_deref(), Some("written by a newer sidle: unknown field `new`"), "{unknown}");
        }
        let variant = refusal(r#"{"schema":1,"name":"a","parts":[],"kind":"Other"}"#);
        assert_eq!(variant.as_deref(), Some("written by a newer sidle: unknown variant `Other`"));
        let form = refusal(r#"{"schema":2}"#);
        assert_eq!(form.as_deref(), Some("written by a newer sidle: it has form 2, this program knows form 1"));
        assert!(refusal(r#"{"schema":1,"parts":[]}"#).is_some_and(|text| text.starts_with("missing field `name`")));
    }
}
