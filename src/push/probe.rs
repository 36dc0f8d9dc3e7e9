//! The first look at a host: a script for its shell, and what the answer says.

use crate::version::{LibcVersion, Version};

/// The words before each fact: a host may print a greeting.
const MARK: &str = "sidle-push: ";
/// The last fact.
const END: &str = "end";

/// The place of the program, as `packaging/package/install.sh` has it.
pub const PROGRAM: &str = "/usr/bin/sidle";
/// The list of files that came without a package manager.
pub const INSTALLED: &str = "/usr/lib/sidle/installed";

/// What a host is like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// The kernel's name of its architecture.
    pub machine: String,
    /// The user that the commands run as.
    pub user: u32,
    /// The path and the version of the installed program; no version: it did not start.
    pub program: Option<(String, Option<Version>)>,
    /// Whether `program` is another file than [`PROGRAM`], where a push puts its own.
    pub is_elsewhere: bool,
    /// The package manager whose package the program belongs to.
    pub owner: Option<String>,
    /// Bytes of the program that an earlier push has brought.
    pub part_bytes: u64,
    /// The version of glibc; None: not known, or another C library.
    pub libc: Option<LibcVersion>,
    /// KiB free where the program goes; None: not known.
    pub free_kib: Option<u64>,
}

/// The name beside the program under which its bytes arrive. It names their digest: what is there is the beginning of the same bytes.
pub fn part(digest: &str) -> String {
    format!("/usr/bin/.sidle-{}.part", &digest[..digest.len().min(16)])
}

/// The script. It changes nothing.
pub fn script(part: &str) -> String {
    format!(
        r#"PATH=${{PATH:-}}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
say() {{ printf '{MARK}%s %s\n' "$1" "$2"; }}
say machine "$(uname -m)"
say user "$(id -u)"
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>/dev/null </dev/null)"
program=$(command -v sidle </dev/null 2>/dev/null) || program=
if [ -n "$program" ]; then
    say program "$program"
    [ "$program" -ef {PROGRAM} ] || say elsewhere yes
    say version "$("$program" --version </dev/null 2>/dev/null)"
    if dpkg-query -S "$program" >/dev/null 2>&1; then say owner dpkg
    elif rpm -qf "$program" >/dev/null 2>&1; then say owner rpm
    elif apk info --who-owns "$program" >/dev/null 2>&1; then say owner apk
    fi
fi
[ ! -f {part} ] || say part "$(wc -c <{part} | tr -d ' ')"
say free "$(df -Pk /usr/bin 2>/dev/null | awk 'NR == 2 {{ print $4 }}')"
say {END} ok
"#
    )
}

impl Probe {
    /// Takes one line of the answer; true: it was the last.
    pub fn take(&mut self, line: &str) -> bool {
        let Some((name, value)) = line.strip_prefix(MARK).and_then(|fact| fact.split_once(' ')) else { return false };
        let value = value.trim();
        match name {
            "machine" => value.clone_into(&mut self.machine),
            // Not known to be root is not root.
            "user" => self.user = value.parse().unwrap_or(u32::MAX),
            "program" => self.program = Some((value.to_owned(), None)),
            "version" => {
                let version = value.strip_prefix("sidle ").and_then(|text| text.parse().ok());
                self.program.iter_mut().for_each(|(_, known)| known.clone_from(&version));
            }
            "elsewhere" => self.is_elsewhere = true,
            "owner" => self.owner = Some(value.to_owned()),
            "libc" => self.libc = glibc_in(value),
            "part" => self.part_bytes = value.parse().unwrap_or(0),
            "free" => self.free_kib = value.parse().ok(),
            END => return true,
            _ => {}
        }
        false
    }

    /// Whether the program is there, and not older than `own`.
    pub fn has(&self, own: &Version) -> bool {
        self.program.as_ref().and_then(|(_, version)| version.as_ref()).is_some_and(|version| version >= own)
    }

    /// The path of the program, once it is there.
    pub fn path(&self) -> &str {
        self.program.as_ref().map_or(PROGRAM, |(path, _)| path)
    }
}

/// The version in what `getconf` or `ldd` say: `glibc 2.28`, `ldd (GNU libc) 2.28`.
fn glibc_in(text: &str) -> Option<LibcVersion> {
    let (named, version) = text.rsplit_once(' ')?;
    named.to_ascii_lowercase().contains("libc").then(|| version.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> (Probe, bool) {
        let mut probe = Probe { user: u32::MAX, ..Probe::default() };
        let ended = text.lines().fold(false, |_, line| probe.take(line));
        (probe, ended)
    }

    #[test]
    fn a_greeting_is_no_fact_and_an_answer_that_was_cut_off_has_no_end() {
        let text = "Welcome!\nsidle-push: machine x86_64\nsidle-push: user 0\nsidle-push: program /usr/bin/sidle\n\
                    sidle-push: version sidle 0.1.0\nsidle-push: owner dpkg\nsidle-push: part 17\nsidle-push: free 100\nsidle-push: end ok";
        let (found, ended) = probe(text);
        assert!(ended && found.has(&"0.1.0".parse().unwrap()) && !found.has(&"0.1.1".parse().unwrap()));
        assert_eq!(
            (found.machine.as_str(), found.user, found.part_bytes, found.free_kib),
            ("x86_64", 0, 17, Some(100))
        );
        assert_eq!(found.owner.as_deref(), Some("dpkg"));
        let (cut, ended) = probe("sidle-push: machine x86_64\nsidle-push: us");
        assert!(!ended && cut.user == u32::MAX);
        let (broken, _) = probe("sidle-push: program /usr/bin/sidle\nsidle-push: version \n");
        assert!(!broken.has(&"0.1.0".parse().unwrap()), "a program that does not start is not there");
        assert!(
            !found.is_elsewhere
                && probe("sidle-push: program /usr/local/bin/sidle\nsidle-push: elsewhere yes").0.is_elsewhere
        );
    }

    #[test]
    fn the_c_library_is_read_from_getconf_and_ldd_and_unknown_otherwise() {
        for (text, known) in [
            ("glibc 2.17", Some("2.17")),
            ("ldd (GNU libc) 2.28", Some("2.28")),
            ("ldd (Ubuntu GLIBC 2.31-0ubuntu9.9) 2.31", Some("2.31")),
            ("musl libc (x86_64)", None),
            ("ldd: not found", None),
            ("", None),
        ] {
            let (found, _) = probe(&format!("sidle-push: libc {text}"));
            assert_eq!(found.libc.map(|libc| libc.to_string()).as_deref(), known, "{text}");
        }
    }

    #[test]
    fn a_shell_runs_the_script() {
        use crate::os::process::Program;
        let script = script("/nonexistent/part");
        let (_, output) = Program::new("/bin/sh").argument("-c").argument(script).output().unwrap();
        let (found, ended) = probe(&String::from_utf8(output).unwrap());
        assert!(ended && found.user != u32::MAX && found.machine == crate::os::host::architecture(), "{found:?}");
        assert_eq!(found.libc, crate::store::preflight::Host::read().libc, "{found:?}");
    }
}
