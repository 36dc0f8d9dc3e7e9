//! The verbs for a host's releases: install, list, verify, collect, run.

mod collect;
mod install;
mod list;
mod marks;
mod repair;
mod repository;
mod run;
mod scrub;
mod verify;

pub use collect::{CollectArguments, RemoveArguments, collect, remove};
pub use install::{InstallArguments, PlaceArguments, Source, from_file, install};
pub use list::{ListArguments, list};
pub use marks::marks;
pub use repair::{RepairArguments, repair};
pub use repository::{FetchArguments, install as install_from_repository, notices, open as open_repository};
pub use run::{RunArguments, run};
#[cfg(feature = "test-hooks")]
pub use run::{TestFlipArguments, test_flip};
pub use scrub::{ScrubArguments, scrub};
pub use verify::{VerifyArguments, verify};

use super::Context;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::store::{self, Store};

/// The packages that have releases: the named one, or all. A name that nothing is installed of is an error.
fn packages(context: &Context, named: Option<&PackageName>) -> Result<Vec<PackageName>, Report> {
    let mut installed = Vec::new();
    for package in store::packages(&context.layout)? {
        if !Store::new(&context.layout, &package).releases()?.is_empty() {
            installed.push(package);
        }
    }
    match named {
        None => Ok(installed),
        Some(name) if installed.contains(name) => Ok(vec![name.clone()]),
        Some(name) => Err(unknown(name, &installed)),
    }
}

fn unknown(name: &PackageName, installed: &[PackageName]) -> Report {
    let names: Vec<&str> = installed.iter().map(PackageName::as_str).collect();
    let there = if names.is_empty() { "no package is".to_owned() } else { format!("{} is", names.join(", ")) };
    Report {
        class: Class::Failed,
        message: format!("cannot find the package {name}: it is not installed here, {there}"),
        causes: Vec::new(),
        hint: Some("`sidle install FILE` installs a release; `sidle list` shows what is installed".to_owned()),
    }
}
