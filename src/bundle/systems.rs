//! Which distributions have which glibc, for people: a number says little to whoever plans an upgrade. As of November 2026.

use crate::version::LibcVersion;

/// Releases of each family, oldest first, with the minor number of the glibc 2 that they bring: the first and the last one of each number.
const FAMILIES: [(&str, &[(&str, u32)]); 5] = [
    ("RHEL", &[("7", 17), ("8", 28), ("9", 34), ("10", 39)]),
    (
        "SLES",
        &[
            ("12", 19),
            ("12 SP1", 19),
            ("12 SP2", 22),
            ("12 SP5", 22),
            ("15", 26),
            ("15 SP2", 26),
            ("15 SP3", 31),
            ("15 SP5", 31),
            ("15 SP6", 38),
            ("15 SP7", 38),
        ],
    ),
    ("Ubuntu", &[("14.04", 19), ("16.04", 23), ("18.04", 27), ("20.04", 31), ("22.04", 35), ("24.04", 39)]),
    ("Debian", &[("8", 19), ("9", 24), ("10", 28), ("11", 31), ("12", 36), ("13", 41)]),
    ("Amazon Linux", &[("2", 26), ("2023", 34)]),
];

/// The systems on either side of a glibc floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Systems {
    /// The oldest release of each family that has such a glibc, or a newer one.
    pub oldest_that_fit: Vec<String>,
    /// The newest release of each family that has an older glibc.
    pub newest_that_do_not: Vec<String>,
}

impl Systems {
    /// The systems for a release that needs this glibc, or a newer one.
    pub fn with(floor: LibcVersion) -> Self {
        let fits = |minor: u32| LibcVersion { major: 2, minor } >= floor;
        let named = |family: &str, found: Option<&(&str, u32)>| found.map(|(release, _)| format!("{family} {release}"));
        let first = |(family, all): &(&str, &[(&str, u32)])| named(family, all.iter().find(|(_, minor)| fits(*minor)));
        let last = |(family, all): &(&str, &[(&str, u32)])| named(family, all.iter().rfind(|(_, minor)| !fits(*minor)));
        Self {
            oldest_that_fit: FAMILIES.iter().filter_map(first).collect(),
            newest_that_do_not: FAMILIES.iter().filter_map(last).collect(),
        }
    }

    /// For people, as `RHEL 9, Debian 12 and later; not RHEL 8, Debian 11 and earlier`.
    pub fn words(&self) -> String {
        let yes = format!("{} and later", self.oldest_that_fit.join(", "));
        let no = format!("not {} and earlier", self.newest_that_do_not.join(", "));
        match (self.oldest_that_fit.is_empty(), self.newest_that_do_not.is_empty()) {
            (true, _) => no,
            (false, true) => yes,
            (false, false) => format!("{yes}; {no}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(floor: &str) -> String {
        Systems::with(floor.parse().unwrap()).words()
    }

    #[test]
    fn a_floor_is_told_by_the_systems_on_either_side_of_it() {
        assert_eq!(words("2.17"), "RHEL 7, SLES 12, Ubuntu 14.04, Debian 8, Amazon Linux 2 and later");
        assert_eq!(
            words("2.36"),
            "RHEL 10, SLES 15 SP6, Ubuntu 24.04, Debian 12 and later; \
             not RHEL 9, SLES 15 SP5, Ubuntu 22.04, Debian 11, Amazon Linux 2023 and earlier"
        );
        assert_eq!(words("2.99"), "not RHEL 10, SLES 15 SP7, Ubuntu 24.04, Debian 13, Amazon Linux 2023 and earlier");
    }

    #[test]
    fn each_family_goes_from_old_to_new() {
        for (family, all) in FAMILIES {
            assert!(all.is_sorted_by_key(|(_, minor)| *minor), "{family}: {all:?}");
        }
    }
}
