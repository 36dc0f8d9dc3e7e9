//! The members of a JSON object, sorted by key: a list, as a tree would take ten times the memory for the many small objects of metadata.

use super::canonical::Json;

/// The members of a JSON object, each key once. Sorted by code point, as the canonical form wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// The object with these members; the key that is there twice, if one is.
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

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Sets the value of `key`; gives the one that it had.
    pub fn insert(&mut self, key: String, value: Json) -> Option<Json> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// Takes `key` out; gives the value that it had.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.place(key).ok().map(|place| self.0.remove(place).1)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members by key.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Json)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Json> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(key, _)| key)
    }
}

impl FromIterator<(String, Json)> for Object {
    /// Of two members with the same key the last one stays.
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
