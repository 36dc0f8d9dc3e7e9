//! The requirements of a binary: architecture, oldest C library, shared libraries.

use crate::version::{KernelVersion, LibcVersion};
use goblin::elf::{Elf, header, note, program_header};
use std::collections::BTreeSet;

/// The requirements of one binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The kernel's name of its architecture: `x86_64`.
    pub architecture: &'static str,
    /// The libraries it is linked with.
    pub libraries: Vec<String>,
    /// Its own name as a library.
    pub soname: Option<String>,
    /// The newest glibc symbol version it needs.
    pub glibc: Option<LibcVersion>,
    /// The symbol versions that it needs, each with the library that has to define it: `libstdc++.so.6`, `GLIBCXX_3.4.21`.
    pub versions: Vec<(String, String)>,
    /// The symbol versions that it defines as a library.
    pub defines: BTreeSet<String>,
    /// The oldest kernel with which a loader takes it, if it is a library that is marked, or a static program.
    pub kernel: Option<KernelVersion>,
    /// The level of x86-64 that it is marked with, from 2 on.
    pub x86_64_level: Option<u8>,
    /// Whether address and file offset of a loaded segment differ modulo its alignment: glibc before 2.35 refuses to load the file.
    pub misaligned: bool,
    /// True when it is linked with musl.
    pub musl: bool,
}

/// Why a binary can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file begins like an ELF file and is damaged; the reader's words.
    #[error("cannot read it as an ELF file: {0}")]
    Malformed(String),
    /// An architecture that sidle has no name for.
    #[error("cannot name its architecture: ELF machine {0}")]
    Machine(u16),
}

/// The first bytes of every ELF file.
pub const MAGIC: &[u8] = b"\x7fELF";

/// Binaries with these relocations (new in glibc 2.36) need them by this version name, which has no number.
const PACKED_RELOCATIONS: &str = "GLIBC_ABI_DT_RELR";
const PACKED_RELOCATIONS_SINCE: LibcVersion = LibcVersion { major: 2, minor: 36 };

/// A version that may be missing (`VER_FLG_WEAK`): the linker warns and goes on.
const WEAK: u16 = 2;

/// The requirements of the binary `bytes`; None for anything but an ELF program or library.
pub fn read(bytes: &[u8]) -> Result<Option<Needs>, ElfError> {
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    let elf = Elf::parse(bytes).map_err(|error| ElfError::Malformed(error.to_string()))?;
    if !matches!(elf.header.e_type, header::ET_EXEC | header::ET_DYN) {
        return Ok(None);
    }
    let libraries: Vec<String> = elf.libraries.iter().map(|name| (*name).to_owned()).collect();
    let versioned = elf.dynamic.as_ref().is_some_and(|dynamic| dynamic.info.verneed != 0);
    if versioned && elf.verneed.is_none() {
        return Err(ElfError::Malformed("its symbol versions can't be found".to_owned()));
    }
    Ok(Some(Needs {
        architecture: architecture(&elf)?,
        soname: elf.soname.map(str::to_owned),
        glibc: glibc(&elf),
        versions: versions(&elf),
        defines: definitions(&elf),
        kernel: kernel(&elf, bytes),
        x86_64_level: x86_64_level(&elf, bytes),
        misaligned: is_misaligned(&elf),
        musl: libraries.iter().any(|name| is_musl(name))
            || elf.interpreter.is_some_and(|path| path.contains("ld-musl")),
        libraries,
    }))
}

fn architecture(elf: &Elf<'_>) -> Result<&'static str, ElfError> {
    Ok(match elf.header.e_machine {
        header::EM_X86_64 => "x86_64",
        header::EM_AARCH64 => "aarch64",
        header::EM_386 => "i686",
        header::EM_ARM => "armv7l",
        header::EM_PPC64 if elf.little_endian => "ppc64le",
        header::EM_S390 => "s390x",
        header::EM_RISCV => "riscv64",
        machine => return Err(ElfError::Machine(machine)),
    })
}

/// The version of glibc that a host's `libc.so.6` belongs to; None for other files.
///
/// Some versions of glibc (2.31, 2.41) have new symbols in other libraries only, so that the symbols of this one name an older version. What it
/// prints when it is run as a program names its own.
pub fn glibc_of(bytes: &[u8]) -> Result<Option<LibcVersion>, ElfError> {
    let defined = defined(bytes)?;
    let newest = defined.iter().filter_map(|version| version.strip_prefix("GLIBC_")?.parse().ok()).max();
    Ok(newest.map(|newest: LibcVersion| announced(bytes).map_or(newest, |announced| announced.max(newest))))
}

/// The version in `GNU C Library (…) stable release version 2.31.`
fn announced(bytes: &[u8]) -> Option<LibcVersion> {
    const BANNER_BYTES_MAX: usize = 200;
    let begin = memchr::memmem::find(bytes, b"GNU C Library ")?;
    let banner = &bytes[begin..bytes.len().min(begin + BANNER_BYTES_MAX)];
    let line = banner.split(|byte| *byte == b'\n' || *byte == 0).next()?;
    let (_, after) = std::str::from_utf8(line).ok()?.split_once(" release version ")?;
    let mut numbers = after.split(|letter: char| !letter.is_ascii_digit());
    format!("{}.{}", numbers.next()?, numbers.next()?).parse().ok()
}

/// The symbol versions that a library defines; none for other files.
pub fn defined(bytes: &[u8]) -> Result<BTreeSet<String>, ElfError> {
    if !bytes.starts_with(MAGIC) {
        return Ok(BTreeSet::new());
    }
    Ok(definitions(&Elf::parse(bytes).map_err(|error| ElfError::Malformed(error.to_string()))?))
}

fn definitions(elf: &Elf<'_>) -> BTreeSet<String> {
    let definitions = elf.verdef.iter().flat_map(goblin::elf::symver::VerdefSection::iter);
    let names = definitions.filter_map(|definition| definition.iter().next().map(|auxiliary| auxiliary.vda_name));
    names.filter_map(|name| Some(elf.dynstrtab.get_at(name)?.to_owned())).collect()
}

fn versions(elf: &Elf<'_>) -> Vec<(String, String)> {
    let named = |index| elf.dynstrtab.get_at(index).map(str::to_owned);
    let all = elf.verneed.iter().flat_map(goblin::elf::symver::VerneedSection::iter);
    let of_library = |library: goblin::elf::symver::Verneed<'_>| {
        let versions = library.iter().filter(|version| version.vna_flags & WEAK == 0);
        let needed: Vec<_> = versions.filter_map(|version| named(version.vna_name)).collect();
        let file = named(library.vn_file);
        needed.into_iter().filter_map(move |version| Some((file.clone()?, version)))
    };
    all.flat_map(of_library).collect()
}

/// `NT_GNU_ABI_TAG`: the system (0: Linux) and the three numbers of its version.
const ABI_TAG: u32 = 1;
/// `NT_GNU_PROPERTY_TYPE_0`: properties, each with its type, its length and its value.
const PROPERTIES: u32 = 5;
/// `GNU_PROPERTY_X86_ISA_1_NEEDED` of the x86-64 psABI: a bit for each level, from 1 on.
const X86_LEVELS_NEEDED: u32 = 0xc000_8002;
const X86_LEVELS: u32 = 0b1111;

/// The contents of the notes of this kind that GNU tools wrote.
fn notes<'a>(elf: &Elf<'a>, bytes: &'a [u8], kind: u32) -> Vec<&'a [u8]> {
    let all = elf.iter_note_headers(bytes).into_iter().flatten();
    // The first one that cannot be read ends the list: the rest is no list of notes.
    let readable = all.map_while(Result::ok);
    readable
        .filter(|found: &note::Note<'_>| found.name == "GNU" && found.n_type == kind)
        .map(|found| found.desc)
        .collect()
}

fn number(elf: &Elf<'_>, bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if elf.little_endian { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) })
}

/// The loader of glibc 2.31 opens no library that is marked for a later kernel; that of 2.36 does. Of a program neither it nor the kernel asks: its mark is
/// the version of the headers that its compiler's C library was built with, which may be later than the kernels of all its hosts.
fn kernel(elf: &Elf<'_>, bytes: &[u8]) -> Option<KernelVersion> {
    const LINUX: u32 = 0;
    if elf.interpreter.is_some() {
        return None;
    }
    let numbers = |note: &[u8]| Some([number(elf, note, 0)?, number(elf, note, 4)?, number(elf, note, 8)?]);
    let found = notes(elf, bytes, ABI_TAG).into_iter().filter_map(numbers);
    found.filter(|found| found[0] == LINUX).map(|[_, major, minor]| KernelVersion { major, minor }).max()
}

fn x86_64_level(elf: &Elf<'_>, bytes: &[u8]) -> Option<u8> {
    if elf.header.e_machine != header::EM_X86_64 {
        return None;
    }
    let highest = |levels: u32| (levels & X86_LEVELS).checked_ilog2().and_then(|bit| u8::try_from(bit + 1).ok());
    let levels = notes(elf, bytes, PROPERTIES).into_iter().filter_map(|note| property(elf, note, X86_LEVELS_NEEDED));
    levels.filter_map(highest).max().filter(|level| *level > 1)
}

/// The value of a property of four bytes. Each property begins at a multiple of 8.
fn property(elf: &Elf<'_>, note: &[u8], wanted: u32) -> Option<u32> {
    let mut at = 0;
    while let (Some(kind), Some(length)) = (number(elf, note, at), number(elf, note, at + 4)) {
        if kind == wanted && length == 4 {
            return number(elf, note, at + 8);
        }
        at = at.checked_add(8)?.checked_add(usize::try_from(length).ok()?)?.checked_next_multiple_of(8)?;
    }
    None
}

/// As the dynamic linker of glibc before 2.35 checks it (`ELF load command address/offset not properly aligned`); later ones look at pages alone.
fn is_misaligned(elf: &Elf<'_>) -> bool {
    let loaded = elf.program_headers.iter().filter(|segment| segment.p_type == program_header::PT_LOAD);
    loaded.into_iter().any(|segment| {
        segment.p_align > 1 && segment.p_vaddr.wrapping_sub(segment.p_offset) & (segment.p_align - 1) != 0
    })
}

fn glibc(elf: &Elf<'_>) -> Option<LibcVersion> {
    let mut floor = None;
    for library in elf.verneed.iter().flat_map(goblin::elf::symver::VerneedSection::iter) {
        for version in &library {
            let needed = match elf.dynstrtab.get_at(version.vna_name) {
                Some(PACKED_RELOCATIONS) => Some(PACKED_RELOCATIONS_SINCE),
                // Names without a number (GLIBC_PRIVATE) are ignored.
                Some(name) => name.strip_prefix("GLIBC_").and_then(|number| number.parse().ok()),
                None => None,
            };
            floor = floor.max(needed);
        }
    }
    floor
}

fn is_musl(library: &str) -> bool {
    library.starts_with("libc.musl-") || library.starts_with("ld-musl-")
}

/// True for the libraries of the C library itself, which the libc floor covers.
pub fn belongs_to_libc(library: &str) -> bool {
    const STEMS: [&str; 11] = [
        "libc",
        "libm",
        "libdl",
        "libpthread",
        "librt",
        "libutil",
        "libresolv",
        "libanl",
        "libmvec",
        "libBrokenLocale",
        "libthread_db",
    ];
    let stem = library.split(".so").next().unwrap_or(library);
    STEMS.contains(&stem) || library.starts_with("ld-linux") || library.starts_with("ld64.so") || is_musl(library)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test reads its own program")]
mod tests {
    use super::*;

    #[test]
    fn a_real_program_tells_its_floor() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = read(&bytes).unwrap().unwrap();
        assert_eq!(needs.architecture, std::env::consts::ARCH);
        assert!(needs.glibc.unwrap() >= LibcVersion { major: 2, minor: 17 });
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"));
        let of_libc = |(library, version): &(String, String)| library == "libc.so.6" && version.starts_with("GLIBC_2.");
        assert!(needs.versions.iter().any(of_libc), "{needs:?}");
        assert!(!needs.misaligned && needs.x86_64_level.is_none() && needs.kernel.is_none(), "{needs:?}");
        assert!(read(&bytes[..100]).is_err());
        assert_eq!(read(b"#!/bin/sh").unwrap(), None);
    }

    /// patchelf 0.18 wrote such libraries: they worked where they were built, and not on the hosts with an older loader.
    #[test]
    fn a_segment_that_lies_otherwise_than_its_alignment_asks_is_seen() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let headers = usize::try_from(Elf::parse(&bytes).unwrap().header.e_phoff).unwrap();
        let segments = Elf::parse(&bytes).unwrap().program_headers;
        for (at, segment) in
            segments.iter().enumerate().filter(|(_, segment)| segment.p_type == program_header::PT_LOAD)
        {
            assert_eq!(segment.p_vaddr % 0x1000, segment.p_offset % 0x1000);
            // `p_align` of a 64-bit program header: more than a page, where other segments are a page away from their place in the file.
            let place = headers + at * 56 + 48;
            bytes[place..place + 8].copy_from_slice(&0x20_0000_u64.to_le_bytes());
        }
        assert!(read(&bytes).unwrap().unwrap().misaligned);
    }

    #[test]
    fn a_library_tells_the_versions_that_it_defines() {
        let path = crate::os::host::library(std::path::Path::new("/"), "libc.so.6").unwrap();
        let bytes = std::fs::read(path).unwrap();
        let defined = defined(&bytes).unwrap();
        assert!(defined.contains("GLIBC_2.17") && defined.len() > 10, "{defined:?}");
        assert!(super::defined(b"#!/bin/sh").unwrap().is_empty());
    }

    #[test]
    fn a_c_library_is_of_the_version_that_it_announces() {
        for (banner, version) in [
            ("GNU C Library (Debian GLIBC 2.31-13+deb11u13) stable release version 2.31.\nCopyright", Some("2.31")),
            ("GNU C Library (GNU libc) stable release version 2.17, by Roland McGrath et al.\n", Some("2.17")),
            ("GNU C Library (GNU libc) development release version 2.39.9000.\n", Some("2.39")),
            ("GNU C Library \0 stable release version 2.31.", None),
            ("GNU C Library stable release version two", None),
        ] {
            let found = announced(format!("before\0{banner}").as_bytes());
            assert_eq!(found, version.map(|version| version.parse().unwrap()), "{banner}");
        }
        let path = crate::os::host::library(std::path::Path::new("/"), "libc.so.6").unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(glibc_of(&bytes).unwrap(), announced(&bytes));
        assert_eq!(glibc_of(b"#!/bin/sh").unwrap(), None);
    }

    #[test]
    fn only_libc_speaks_for_libc() {
        for name in ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libmvec.so.1", "libc.musl-x86_64.so.1"] {
            assert!(belongs_to_libc(name), "{name}");
        }
        for name in ["libcrypt.so.1", "libcrypto.so.3", "libz.so.1", "libstdc++.so.6", "libmagic.so.1"] {
            assert!(!belongs_to_libc(name), "{name}");
        }
    }
}
