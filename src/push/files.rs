//! What comes to a host with the program, as `packaging/package/install.sh` brings it: units, tmpfiles.d, a preset, the example of the settings.

use super::probe::{INSTALLED, PROGRAM};
use super::quote::quoted;
use std::fmt::Write as _;

macro_rules! packaged {
    ($($place:literal $file:literal),+ $(,)?) => {
        [$(($place, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/", $file)))),+]
    };
}

/// The files below /usr, and their content.
const FILES: [(&str, &str); 10] = packaged! {
    "lib/systemd/system/sidle@.service" "systemd/sidle@.service",
    "lib/systemd/system/sidle-fetch@.service" "systemd/sidle-fetch@.service",
    "lib/systemd/system/sidle-fetch@.timer" "systemd/sidle-fetch@.timer",
    "lib/systemd/system/sidle-metrics.service" "systemd/sidle-metrics.service",
    "lib/systemd/system/sidle-metrics.timer" "systemd/sidle-metrics.timer",
    "lib/systemd/system/sidle-scrub.service" "systemd/sidle-scrub.service",
    "lib/systemd/system/sidle-scrub.timer" "systemd/sidle-scrub.timer",
    "lib/tmpfiles.d/sidle.conf" "systemd/sidle.conf",
    "lib/systemd/system-preset/90-sidle.preset" "package/90-sidle.preset",
    "share/doc/sidle/examples/sidle.toml" "package/sidle.toml",
};
const POSTINSTALL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/package/postinstall"));
/// Ends a file within the script; no line of a file is the same.
const END: &str = "SIDLE_END_OF_FILE";

/// The script that makes the arrived program, `digest` at `part`, the host's program. The program's own name comes last: a host that has it has all.
pub fn script(part: &str, digest: &str) -> String {
    let mut script = format!(
        "set -eu\numask 022\nPATH=${{PATH:-}}:/usr/sbin:/usr/bin:/sbin:/bin\npart={part}\n\
         fail() {{ echo \"$1\" >&2; exit 1; }}\n\
         sum=$(sha256sum <\"$part\") || fail 'sha256sum is missing on the host'\n\
         [ \"${{sum%% *}}\" = {digest} ] || {{ rm -f \"$part\"; fail 'the bytes of the program are damaged'; }}\n\
         put() {{ mkdir -p \"${{1%/*}}\"; cat >\"$1.new\"; chmod 0644 \"$1.new\"; mv -f \"$1.new\" \"$1\"; }}\n\
         mkdir -p /usr/lib/sidle/conf.d /etc/sidle/conf.d\n",
        part = quoted(part),
    );
    let mut list = format!("{PROGRAM}\n");
    for (place, content) in FILES {
        let end = if content.ends_with('\n') { "" } else { "\n" };
        let _ = write!(script, "put {} <<'{END}'\n{content}{end}{END}\n", quoted(&format!("/usr/{place}")));
        let _ = writeln!(list, "/usr/{place}");
    }
    let _ = write!(script, "put {INSTALLED} <<'{END}'\n{list}{END}\n");
    script += "chmod 0755 \"$part\"\nsync\n";
    let _ = writeln!(script, "mv -f \"$part\" {PROGRAM}\nsync\nrm -f /usr/bin/.sidle-*.part");
    // fapolicyd's own list of this program; those of releases are sidle's.
    let _ = write!(
        script,
        "if [ -d /etc/fapolicyd/trust.d ]; then\n\
         printf '%s %s %s\\n' {PROGRAM} \"$(wc -c <{PROGRAM} | tr -d ' ')\" {digest} >/etc/fapolicyd/trust.d/sidle\n\
         fapolicyd-cli --update >/dev/null 2>&1 || :\nfi\n"
    );
    // It ends with its own exit.
    let _ = writeln!(script, "({POSTINSTALL}) </dev/null >&2");
    script
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;

    #[test]
    fn the_script_brings_what_install_sh_brings() {
        for (place, content) in FILES {
            assert!(content.lines().all(|line| line != END), "{place}");
        }
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
        let units =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let units: Vec<String> = units.filter(|name| name.starts_with("sidle") && name != "sidle.conf").collect();
        assert_eq!(units.len(), FILES.iter().filter(|(place, _)| place.contains("/system/")).count());
        let script = script("/usr/bin/.sidle-0.part", &"0".repeat(64));
        let (program, list) =
            (script.find("mv -f \"$part\"").unwrap(), script.find("put /usr/lib/sidle/installed").unwrap());
        assert!(list < program, "the program comes last");
    }
}
