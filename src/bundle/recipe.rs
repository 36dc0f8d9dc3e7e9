//! The recipe: an author's description of a package, once for all its releases.

use super::manifest::Guard;
use super::path::BundlePath;
use super::written;
use crate::agent::AgentKind;
use crate::failure::Class;
use crate::name::PackageName;
use crate::version::{LibcVersion, Version};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr as _;

/// The schema that this sidle reads.
pub const SCHEMA: u32 = 1;

/// A recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// The package.
    pub package: PackageName,
    /// The implementation that supervises it.
    pub agent: AgentKind,
    /// The origin of its tree.
    pub build: Build,
    /// Packages beside the agent's own, each `NAME==VERSION`.
    pub extras: Vec<String>,
    /// Commands for `sidle run`, and their files.
    pub commands: BTreeMap<String, BundlePath>,
    /// Its service.
    pub service: super::manifest::Service,
    /// Requirements that its binaries don't show.
    pub requires: Requires,
    /// The guard in its tree that gives each job to one of two processes, if any.
    pub guard: Option<Guard>,
}

/// The origin of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Build {
    /// A program and its arguments, run in the recipe's directory; it fills the directory `SIDLE_TREE`.
    Command(Vec<String>),
    /// A finished directory, relative to the recipe's directory.
    Tree(PathBuf),
}

/// Requirements of a package that its binaries don't show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requires {
    /// Libraries that it opens at run time: sonames.
    pub libraries: Vec<String>,
    /// The oldest counterpart it works with.
    pub masters: Option<Version>,
    /// Memory of a second process during an overlap; 0: unknown.
    pub overlap_memory_bytes: u64,
    /// The oldest glibc on which the release has to start. A tree that needs a newer one is refused.
    pub glibc: Option<LibcVersion>,
}

/// Why a recipe can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// Not TOML, or with an unknown or missing field; the reader's words, with the line.
    #[error("cannot read the recipe: {0}")]
    Toml(String),
    /// A schema that this sidle doesn't know.
    #[error("cannot read the recipe: it has schema {0}, this sidle reads {SCHEMA}")]
    Schema(u32),
    /// `[build]` has neither or both of `command` and `tree`, or an empty command.
    #[error("cannot use the recipe: [build] must have a command or a tree, and only one")]
    Build,
    /// An extra is not one version of a package.
    #[error("cannot use the recipe: its extra {0:?} is not NAME==VERSION")]
    Extra(String),
    /// The first word of the service's command is none of the commands.
    #[error("cannot use the recipe: its service runs {0:?}, which is none of its commands")]
    Service(String),
}

impl RecipeError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        Class::Usage
    }

    /// A remedy for the author.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Build => {
                Some("write `command = [\"./build-tree\"]` or `tree = \"directory\"` below [build]".to_owned())
            }
            Self::Extra(_) => Some("name one version: extras = [\"saltext-vault==1.8.0\"]".to_owned()),
            Self::Service(name) => Some(format!("add `{name} = \"bin/...\"` below [commands]")),
            Self::Toml(_) => Some("correct the line; docs/authors.md describes recipes".to_owned()),
            Self::Schema(_) => Some("use a newer sidle, or write the recipe in this form".to_owned()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: u32,
    package: PackageName,
    agent: AgentKind,
    build: BuildTable,
    commands: BTreeMap<String, BundlePath>,
    service: ServiceTable,
    #[serde(default)]
    requires: Requires,
    guard: Option<Guard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildTable {
    command: Option<Vec<String>>,
    tree: Option<PathBuf>,
    #[serde(default)]
    extras: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    command: Vec<String>,
    config: String,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

impl Recipe {
    /// Reads a recipe. An unknown word is an error: it is usually a typing mistake.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        #[derive(Deserialize)]
        struct Only {
            schema: u32,
        }
        let document: Document = match toml::from_str(text) {
            Ok(document) => document,
            Err(error) => match toml::from_str::<Only>(text) {
                Ok(Only { schema }) if schema != SCHEMA => return Err(RecipeError::Schema(schema)),
                _ => return Err(RecipeError::Toml(written::problem(text, &error))),
            },
        };
        if document.schema != SCHEMA {
            return Err(RecipeError::Schema(document.schema));
        }
        let build = match (document.build.command, document.build.tree) {
            (Some(command), None) if !command.is_empty() => Build::Command(command),
            (None, Some(tree)) => Build::Tree(tree),
            _ => return Err(RecipeError::Build),
        };
        let extras = document.build.extras;
        if let Some(wrong) = extras.iter().find(|extra| !is_pin(extra)) {
            return Err(RecipeError::Extra(wrong.clone()));
        }
        let ServiceTable { command, config, environment } = document.service;
        let program = command.first().cloned().unwrap_or_default();
        if !document.commands.contains_key(&program) {
            return Err(RecipeError::Service(program));
        }
        Ok(Self {
            package: document.package,
            agent: document.agent,
            build,
            extras,
            commands: document.commands,
            service: super::manifest::Service { command, config, environment },
            requires: document.requires,
            guard: document.guard,
        })
    }

    /// A recipe for a tree without one: one command, for a service of that name.
    pub fn of_tree(package: PackageName, agent: AgentKind, tree: PathBuf, program: &str) -> Result<Self, RecipeError> {
        let path = BundlePath::from_str(program).map_err(|_| RecipeError::Service(program.to_owned()))?;
        let name = path.split().1.to_owned();
        let service = super::manifest::Service {
            command: vec![name.clone(), "-c".to_owned(), "{config}".to_owned()],
            config: format!("/etc/{package}"),
            environment: BTreeMap::new(),
        };
        let commands = BTreeMap::from([(name, path)]);
        Ok(Self {
            package,
            agent,
            build: Build::Tree(tree),
            extras: Vec::new(),
            commands,
            service,
            requires: Requires::default(),
            guard: None,
        })
    }
}

/// True for `NAME==VERSION`, without ranges, markers and options.
fn is_pin(text: &str) -> bool {
    let sane = |part: &str, others: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    text.split_once("==").is_some_and(|(name, version)| sane(name, "._-") && sane(version, ".!+_-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        schema = 1
        package = "salt-minion"
        agent = "salt"
        [build]
        command = ["./build-tree"]
        [commands]
        salt-minion = "bin/salt-minion"
        [service]
        command = ["salt-minion", "-c", "{config}"]
        config = "/etc/salt"
        environment = { A = "1" }
        [requires]
        libraries = []
        masters = "3006.0"
        overlap_memory_bytes = 268435456
    "#;

    #[test]
    fn a_recipe_that_cannot_be_read_is_told_in_one_line_with_a_remedy() {
        let broken = GOOD.replace("config = \"/etc/salt\"", "config = \"/etc/salt");
        let error = Recipe::parse(&broken).unwrap_err();
        let message = error.to_string();
        assert!(!message.contains('\n') && message.contains("line 11, config = \"/etc/salt: "), "{message}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn a_recipe_says_all_or_is_refused() {
        let recipe = Recipe::parse(GOOD).unwrap();
        assert_eq!(recipe.build, Build::Command(vec!["./build-tree".to_owned()]));
        assert_eq!(recipe.requires.masters.unwrap().as_str(), "3006.0");
        for (from, to) in [
            ("schema = 1", "schema = 2"),
            ("bin/salt-minion", "../bin/salt-minion"),
            ("command = [\"./build-tree\"]", "command = []"),
            ("command = [\"./build-tree\"]", "command = [\"a\"]\ntree = \"b\""),
            ("[build]", "[build]\nextras = [\"saltext-vault>=1\"]"),
            ("[build]", "[build]\nextras = [\"saltext-vault==1.0 --index-url=x\"]"),
            ("[\"salt-minion\",", "[\"salt\","),
            ("masters =", "master ="),
            ("package = \"salt-minion\"", "package = \"../x\""),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            assert!(Recipe::parse(&text).is_err(), "{to}");
        }
        assert!(matches!(Recipe::parse("schema = 7\nnew = true"), Err(RecipeError::Schema(7))));
    }
}
