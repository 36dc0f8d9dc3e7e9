//! Reads typed fields from a JSON object; errors are for people.

use crate::trust::canonical::{Json, Object};
use jiff::Timestamp;

/// An error in a file, after "cannot read FILE: ".
#[derive(Debug)]
pub struct Reason(pub String);

/// The members of one object, and its name for messages.
#[derive(Debug)]
pub struct Fields<'a> {
    members: &'a Object,
    name: &'a str,
}

impl<'a> Fields<'a> {
    /// The fields of `json`, which `name` names in messages.
    pub fn of(json: &'a Json, name: &'a str) -> Result<Self, Reason> {
        match json {
            Json::Object(members) => Ok(Self { members, name }),
            _ => Err(Reason(format!("{name} is not an object"))),
        }
    }

    /// All members.
    pub fn members(&self) -> &'a Object {
        self.members
    }

    /// The object's name in messages.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// A required field.
    pub fn get(&self, field: &str) -> Result<&'a Json, Reason> {
        self.members.get(field).ok_or_else(|| Reason(format!("{} has no {field}", self.name)))
    }

    /// An optional field.
    pub fn optional(&self, field: &str) -> Option<&'a Json> {
        self.members.get(field)
    }

    /// A string.
    pub fn text(&self, field: &str) -> Result<&'a str, Reason> {
        match self.get(field)? {
            Json::String(text) => Ok(text),
            _ => Err(self.wrong(field, "a string")),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, field: &str) -> Result<bool, Reason> {
        match self.get(field)? {
            Json::Bool(value) => Ok(*value),
            _ => Err(self.wrong(field, "true or false")),
        }
    }

    /// A whole number of at least `least`.
    pub fn count(&self, field: &str, least: u64) -> Result<u64, Reason> {
        let number = match self.get(field)? {
            Json::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        number
            .filter(|number| *number >= least)
            .ok_or_else(|| self.wrong(field, &format!("a whole number of at least {least}")))
    }

    /// A time in the form of TUF §4.2: `2030-01-01T00:00:00Z`.
    pub fn time(&self, field: &str) -> Result<Timestamp, Reason> {
        let text = self.text(field)?;
        let plain = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit() || b"-:TZ".contains(&byte));
        let time = if plain { text.parse::<Timestamp>().ok() } else { None };
        time.ok_or_else(|| self.wrong(field, "a time in whole seconds such as 2030-01-01T00:00:00Z"))
    }

    /// An array of at most `limit` items.
    pub fn array(&self, field: &str, limit: usize) -> Result<&'a [Json], Reason> {
        match self.get(field)? {
            Json::Array(items) if items.len() <= limit => Ok(items),
            Json::Array(_) => Err(self.wrong(field, &format!("a list of at most {limit}"))),
            _ => Err(self.wrong(field, "a list")),
        }
    }

    /// An array of at most `limit` strings.
    pub fn texts(&self, field: &str, limit: usize) -> Result<Vec<String>, Reason> {
        let text = |item: &Json| match item {
            Json::String(text) => Ok(text.clone()),
            _ => Err(self.wrong(field, "a list of strings")),
        };
        self.array(field, limit)?.iter().map(text).collect()
    }

    /// An object of at most `limit` members.
    pub fn object(&self, field: &str, limit: usize) -> Result<&'a Object, Reason> {
        match self.get(field)? {
            Json::Object(members) if members.len() <= limit => Ok(members),
            Json::Object(_) => Err(self.wrong(field, &format!("an object of at most {limit} members"))),
            _ => Err(self.wrong(field, "an object")),
        }
    }

    fn wrong(&self, field: &str, expected: &str) -> Reason {
        Reason(format!("the {field} of {} is not {expected}", self.name))
    }
}
