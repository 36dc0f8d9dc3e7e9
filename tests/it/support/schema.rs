//! docs/schema/sidle.json against what the program prints: strictly, so that a key that no schema names fails the test that printed it.

use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};

/// The published schemas.
pub const PUBLISHED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema/sidle.json"));

/// Global options that take a value in the next word.
const WITH_VALUE: [&str; 2] = ["--root", "--config"];

/// Verbs with verbs of their own.
const FAMILIES: [&str; 4] = ["key", "repo", "rollout", "trust"];

/// Hidden verbs print for nobody's programs; what `run` runs prints what it likes.
const WITHOUT: [&str; 4] = ["manual", "may-start", "test-flip", "run"];

/// Which schemas the printed lines of this process had; `error` for a failure.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The schemas that were made so far.
static VALIDATORS: LazyLock<Mutex<BTreeMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// The verb of a command line, as the schemas name it: `repo-publish`.
pub fn verb(arguments: &[&str]) -> Option<String> {
    let mut words = arguments.iter();
    let mut verb: Option<String> = None;
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(word) {
            words.next();
        } else if let (Some(family), false) = (&verb, word.starts_with('-')) {
            return Some(format!("{family}-{word}"));
        } else if !word.starts_with('-') && FAMILIES.contains(word) {
            verb = Some((*word).to_owned());
        } else if !word.starts_with('-') {
            return Some((*word).to_owned());
        }
    }
    verb
}

/// Panics if a line that a `--json` command printed is not as its schema says.
pub fn check(arguments: &[&str], stdout: &str) {
    let options = arguments.split(|word| *word == "--").next().unwrap_or_default();
    let Some(verb) = verb(options).filter(|verb| options.contains(&"--json") && !WITHOUT.contains(&verb.as_str()))
    else {
        return;
    };
    for line in stdout.lines() {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: no JSON ({error}): {line}"));
        let name = if value.get("error").is_some() { "error" } else { &verb };
        let wrong = complaints(name, &value);
        assert!(wrong.is_empty(), "{arguments:?}: not as docs/schema/sidle.json says:\n{}\n{line}", wrong.join("\n"));
        SEEN.lock().unwrap().insert(name.to_owned());
    }
}

/// The schemas of lines that were checked in this process.
pub fn seen() -> BTreeSet<String> {
    SEEN.lock().unwrap().clone()
}

/// What a value lacks, or has too much, for this schema.
pub fn complaints(name: &str, value: &Value) -> Vec<String> {
    let mut all = VALIDATORS.lock().unwrap();
    let validator = all.entry(name.to_owned()).or_insert_with(|| Arc::new(strict(name))).clone();
    drop(all);
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// One verb's schema that allows no key which it does not name.
fn strict(name: &str) -> Validator {
    let mut document: Value = serde_json::from_str(PUBLISHED).expect("the schemas are JSON");
    assert!(document["$defs"].get(name).is_some(), "docs/schema/sidle.json has no schema for {name}");
    document.as_object_mut().expect("an object").remove("anyOf");
    document["$ref"] = json!(format!("#/$defs/{name}"));
    close(&mut document["$defs"]);
    jsonschema::validator_for(&document).expect("the schemas are as JSON Schema says")
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("type") == Some(&json!("object")) && fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(close),
        _ => {}
    }
}
