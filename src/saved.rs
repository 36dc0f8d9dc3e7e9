//! Files that sidle itself has saved: read whole, or refused. What another version wrote is told apart from what is broken: the remedies differ,
//! and an older program must not act on what it understands by half.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// Why a saved file can't be read.
#[derive(Debug)]
pub enum SavedError {
    /// It is no JSON, or not of this form.
    Form(serde_json::Error),
    /// A newer program wrote it: what of it is unknown here.
    Newer(String),
}

/// Reads a file of the form `schema`.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], schema: u32) -> Result<T, SavedError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_slice(bytes).map_err(SavedError::Form)?;
    if head.schema != schema {
        return Err(SavedError::Newer(format!("it has form {}, this program knows form {schema}", head.schema)));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // serde's words for what `deny_unknown_fields` and an enum refuse.
        let is_unknown = text.starts_with("unknown field") || text.starts_with("unknown variant");
        // Not what it would have known: a list of all fields helps nobody.
        let what = text.split(", expected").next().unwrap_or_default().to_owned();
        if is_unknown { SavedError::Newer(what) } else { SavedError::Form(error) }
    })
}

impl SavedError {
    /// What to do about it. `broken`: where it is broken.
    pub fn hint(&self, broken: &str) -> Option<String> {
        Some(match self {
            Self::Form(_) => broken.to_owned(),
            Self::Newer(_) => {
                "install the version of sidle that wrote it, or a newer one; the file is left as it is".to_owned()
            }
        })
    }
}

impl fmt::Display for SavedError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(error) => error.fmt(formatter),
            Self::Newer(what) => write!(formatter, "written by a newer sidle: {what}"),
        }
    }
}

impl std::error::Error for SavedError {}
