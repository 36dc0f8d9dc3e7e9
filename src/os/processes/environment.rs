//! The environment variables of this process.

use std::ffi::OsString;

/// The value of a variable, where it is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Beginnings of names by which the loader, the allocator and interpreters take code, files and options from elsewhere.
const OBEYED_PREFIXES: [&str; 5] = ["LD_", "MALLOC_", "PYTHON", "PERL5", "RUBY"];
/// Whole names of the same kind.
const OBEYED: [&str; 13] = [
    "BASH_ENV",
    "CLASSPATH",
    "ENV",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "JAVA_TOOL_OPTIONS",
    "LOCPATH",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERLLIB",
    "RES_OPTIONS",
];
/// The beginning of names that processes of ours tell each other.
const OWN_PREFIX: &str = "SIDLE_";

/// Whose variables are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Ours, too.
    Included,
    /// Not ours: who is started is to have them.
    Excluded,
}

/// The variables of this process that a program from elsewhere should not have: they would let it load what is not its own.
pub fn obeyed(own: Own) -> Vec<OsString> {
    let is_obeyed = |name: &OsString| {
        let name = name.to_string_lossy();
        OBEYED.contains(&&*name)
            || OBEYED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || (own == Own::Included && name.starts_with(OWN_PREFIX))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_obeyed).collect()
}
