//! The path by which this program can be called from now on, also when `sidle upgrade sidle` has replaced and removed its release.

use crate::layout::{CURRENT, Layout};
use crate::name::SIDLE;
use crate::os::{OsError, file, process};
use std::path::PathBuf;

/// The path by which this program was started; in a release of sidle's own package: that of the current release.
pub fn path(layout: &Layout) -> Result<PathBuf, OsError> {
    Ok(through_current(layout, process::own_path()?))
}

/// A program that was started by a bare name knows only the path in its release.
fn through_current(layout: &Layout, path: PathBuf) -> PathBuf {
    let Ok(own) = SIDLE.parse() else { return path };
    let Ok(versions) = file::canonical(&layout.versions(&own)) else { return path };
    let inside: Option<PathBuf> = path.strip_prefix(&versions).ok().map(|below| below.iter().skip(1).collect());
    inside.map_or(path, |inside| layout.package(&own).join(CURRENT).join(inside))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make real directories")]

    use super::*;

    #[test]
    fn a_path_in_a_release_becomes_that_of_the_current_one_and_any_other_stays() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let release = layout.versions(&SIDLE.parse().unwrap()).join("1.0.0-1");
        std::fs::create_dir_all(release.join("bin")).unwrap();
        let release = std::fs::canonicalize(release).unwrap();
        let lasting = through_current(&layout, release.join("bin/sidle"));
        assert!(lasting.ends_with("opt/sidle/sidle/current/bin/sidle"), "{}", lasting.display());
        for other in ["/usr/bin/sidle", "/opt/other/versions/1.0.0-1/bin/sidle"] {
            assert_eq!(through_current(&layout, PathBuf::from(other)), PathBuf::from(other));
        }
    }
}
