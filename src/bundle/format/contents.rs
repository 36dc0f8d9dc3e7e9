//! What a release brings beside its agent: extras and kept modules, its bill of materials, and what each kind of its loader offers.

use crate::bundle::limits::{LIST_MAXIMUM, TEXT_MAXIMUM_BYTES};
use crate::bundle::problems::Problems;
use crate::bundle::wire;
use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Modules of each kind: kind → names.
type Named = BTreeMap<String, Vec<String>>;

/// What a release says of itself when it is packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Packages that the recipe added.
    pub extras: Vec<Extra>,
    /// Modules of an older release.
    pub kept: Vec<Kept>,
    /// The bill of materials.
    pub sbom: Option<Sbom>,
    /// What its loader offers.
    pub offers: Offers,
}

/// A package that the recipe added to the agent's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// Its normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The digest of the file that the index gave, as the lock has it.
    pub sha256: Digest,
    /// Its licence, in its author's words; empty: it names none.
    pub licence: String,
    /// True: the recipe names it; false: another extra needs it.
    pub requested: bool,
    /// The modules of each kind that the release's loader finds in it.
    #[serde(deserialize_with = "wire::unique_map")]
    pub provides: Named,
}

impl fmt::Display for Extra {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.version)
    }
}

/// A module that an older release had and this one's agent dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its kind, as the loaders call it.
    pub kind: String,
    /// Its file, relative to the directory of the packages.
    pub file: String,
    /// The digest of this file.
    pub sha256: Digest,
    /// Where it comes from: `salt 3006.30`.
    pub origin: String,
    /// Its licence.
    pub licence: String,
    /// Files that it imports and that came along.
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub helpers: Vec<String>,
    /// What stands for something that moved: `salt.ext.tornado is tornado`.
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub shims: Vec<String>,
}

/// A bill of materials: the part of `CycloneDX` 1.5 that a release needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "CycloneDX describes the fields")]
pub struct Sbom {
    pub bom_format: String,
    pub spec_version: String,
    pub version: u32,
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub components: Vec<Component>,
}

/// A component of a bill of materials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "CycloneDX describes the fields")]
pub struct Component {
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purl: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub licenses: Vec<Licensed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub hashes: Vec<Hash>,
}

/// A licence of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "CycloneDX describes the fields")]
pub struct Licensed {
    pub license: Licence,
}

/// The name of a licence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "CycloneDX describes the fields")]
pub struct Licence {
    pub name: String,
}

/// A digest of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "CycloneDX describes the fields")]
pub struct Hash {
    pub alg: String,
    pub content: String,
}

/// What each kind of a release's loader offers, whatever host it is on: kind → its modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offers(#[serde(deserialize_with = "wire::unique_map")] pub BTreeMap<String, Offer>);

/// The modules of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Functions of each module, by the name of its file.
    #[serde(deserialize_with = "wire::unique_map")]
    pub modules: Named,
    /// All names by which a module is called, where that is not its file's name alone: several files may have one name on different hosts.
    #[serde(default, deserialize_with = "wire::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub names: Named,
}

impl Offers {
    /// True when nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The functions of each kind as programs call them: kind → module → functions.
    pub fn functions(&self) -> BTreeMap<&str, BTreeMap<&str, std::collections::BTreeSet<&str>>> {
        let mut all: BTreeMap<&str, BTreeMap<&str, std::collections::BTreeSet<&str>>> = BTreeMap::new();
        for (kind, offer) in &self.0 {
            let of_kind = all.entry(kind).or_default();
            for (file, functions) in &offer.modules {
                let own = std::slice::from_ref(file);
                for name in offer.names.get(file).map_or(own, Vec::as_slice) {
                    of_kind.entry(name).or_default().extend(functions.iter().map(String::as_str));
                }
            }
        }
        all
    }
}

/// For people: the extras and the kept modules of a release, if it has some.
pub fn words(extras: &[Extra], kept: &[Kept]) -> Vec<(&'static str, String)> {
    let mut words = Vec::new();
    for extra in extras.iter().filter(|extra| extra.requested) {
        let provides = extra.provides.iter().map(|(kind, names)| format!("{kind} {}", names.join(", ")));
        let provides = provides.collect::<Vec<_>>().join("; ");
        let provides = if provides.is_empty() { String::new() } else { format!(": {provides}") };
        words.push(("extra", format!("{extra}{provides}")));
    }
    let needed: Vec<String> = extras.iter().filter(|extra| !extra.requested).map(ToString::to_string).collect();
    if !needed.is_empty() {
        words.push(("extras need", needed.join(", ")));
    }
    words.extend(kept.iter().map(|module| ("kept", format!("{} {} of {}", module.kind, module.name, module.origin))));
    words
}

/// Why a description can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// Not the JSON of a description.
    #[error("cannot read what the release says of itself: {0}")]
    Json(serde_json::Error),
    /// Another form.
    #[error("cannot read what the release says of itself: it has schema {0}, this sidle reads 1")]
    Schema(u32),
}

impl Contents {
    /// Reads what a release's own program printed.
    pub fn parse(text: &[u8]) -> Result<Self, ContentsError> {
        #[derive(Deserialize)]
        struct Described {
            schema: u32,
            #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
            extras: Vec<Extra>,
            #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
            kept: Vec<Kept>,
            sbom: Option<Sbom>,
            offers: Offers,
        }
        let Described { schema, extras, kept, sbom, offers } =
            serde_json::from_slice(text).map_err(ContentsError::Json)?;
        if schema == 1 { Ok(Self { extras, kept, sbom, offers }) } else { Err(ContentsError::Schema(schema)) }
    }

    /// Refuses texts that a terminal would obey, or that are longer than any name.
    pub(in crate::bundle) fn check(extras: &[Extra], kept: &[Kept], sbom: Option<&Sbom>, problems: &mut Problems) {
        let sane = |text: &str| text.len() <= TEXT_MAXIMUM_BYTES && !text.chars().any(char::is_control);
        for extra in extras {
            let mut modules = extra.provides.iter().flat_map(|(kind, names)| names.iter().chain(Some(kind)));
            let own = [&extra.name, &extra.version, &extra.licence].into_iter().all(|text| sane(text));
            if !own || !modules.all(|text| sane(text)) {
                problems.add(
                    "extras",
                    format_args!("a text of {} is too long, or has control characters", extra.name.escape_debug()),
                );
            }
        }
        for module in kept {
            let own = [&module.name, &module.kind, &module.file, &module.origin, &module.licence];
            if !own.into_iter().chain(&module.helpers).chain(&module.shims).all(|text| sane(text)) {
                problems.add(
                    "kept",
                    format_args!("a text of {} is too long, or has control characters", module.name.escape_debug()),
                );
            }
        }
        for component in sbom.iter().flat_map(|sbom| &sbom.components) {
            let licences = component.licenses.iter().map(|licensed| &licensed.license.name);
            let texts = [&component.kind, &component.name, &component.version].into_iter().chain(&component.purl);
            if !texts.chain(licences).all(|text| sane(text)) {
                problems.add(
                    "sbom",
                    format_args!("a text of {} is too long, or has control characters", component.name.escape_debug()),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIBED: &str = r#"{"schema":1,"extras":[],"kept":[],"sbom":null,"broken":[],"offers":{"module":{
        "modules":{"aptpkg":["install","hold"],"yumpkg":["install"],"test":["ping"],"docker":["ps"]},
        "names":{"aptpkg":["pkg"],"yumpkg":["pkg"],"docker":["docker","dock"]}}}}"#;

    #[test]
    fn functions_are_listed_under_the_names_by_which_they_are_called() {
        let contents = Contents::parse(DESCRIBED.as_bytes()).unwrap();
        let functions = contents.offers.functions();
        let names: Vec<&&str> = functions["module"].keys().collect();
        assert_eq!(names, [&"dock", &"docker", &"pkg", &"test"]);
        assert_eq!(functions["module"]["pkg"].iter().copied().collect::<Vec<_>>(), ["hold", "install"]);
        let later = DESCRIBED.replacen("\"schema\":1", "\"schema\":2", 1);
        assert!(Contents::parse(later.as_bytes()).unwrap_err().to_string().contains("schema 2"));
        assert!(Contents::parse(b"{").is_err());
    }
}
