//! The program that is brought: static, and made for the host's machine.

use crate::bundle::elf;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::{file, process};
use std::path::{Path, PathBuf};

/// Largest program that is read. Stops a wrong file, such as an image.
const BYTES_MAXIMUM: u64 = 256 << 20;

/// A static program.
#[derive(Debug)]
pub struct StaticProgram {
    /// Its file.
    pub path: PathBuf,
    /// The kernel's name of its architecture.
    pub machine: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: Digest,
}

impl StaticProgram {
    /// Reads the program at `path`.
    pub fn read(path: &Path) -> Result<Self, Report> {
        let refuse = |reason: &str| {
            Report::of(Class::Usage, format!("cannot bring {} to hosts: {reason}", path.display()))
                .hint("name the static program with --program: `usr/bin/sidle` of sidle-VERSION-linux-MACHINE.tar.gz")
        };
        let bytes = file::read(path, BYTES_MAXIMUM)?;
        let needs = elf::read(&bytes).map_err(|error| refuse(&error.to_string()))?;
        let needs = needs.ok_or_else(|| refuse("it is no program"))?;
        if !needs.libraries.is_empty() || needs.glibc.is_some() || needs.musl {
            return Err(refuse("it is not linked statically, so hosts would need the libraries of this one"));
        }
        let digest = Digest::of(&bytes);
        Ok(Self { path: path.to_owned(), machine: needs.architecture, bytes, digest })
    }
}

/// The programs that are there to bring.
#[derive(Debug)]
pub struct Programs {
    named: Vec<StaticProgram>,
    /// Why this program itself cannot be brought.
    own: Option<Report>,
}

impl Programs {
    /// The named programs, and this very program where it is static.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Report> {
        let mut named: Vec<StaticProgram> =
            paths.iter().map(|path| StaticProgram::read(path)).collect::<Result<_, _>>()?;
        let own = match process::own_program().map_err(Report::from).and_then(|path| StaticProgram::read(&path)) {
            Ok(program) => {
                named.push(program);
                None
            }
            Err(report) => Some(report),
        };
        Ok(Self { named, own })
    }

    /// The program for a machine.
    pub fn of(&self, machine: &str) -> Result<&StaticProgram, Report> {
        if let Some(found) = self.named.iter().find(|program| program.machine == machine) {
            return Ok(found);
        }
        if let Some(own) = self.own.as_ref().filter(|_| self.named.is_empty()) {
            return Err(own.clone());
        }
        let message =
            format!("cannot bring a program to the host: its machine is {machine}, and no program here is for it");
        Err(Report::of(Class::Usage, message)
            .hint(format!("name one with --program: `usr/bin/sidle` of sidle-VERSION-linux-{machine}.tar.gz")))
    }
}
