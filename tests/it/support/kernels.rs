//! Older kernels, as far as their tables of system calls go: a filter answers what came later as an old kernel does, or as an old container
//! runtime does. What a program starts has the same filter.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The answer to a system call that an older kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel's own.
    NoSuchCall,
    /// That of container runtimes whose list of allowed calls is older than the program.
    NotPermitted,
}

/// A kernel's version, and its first system call that is not there yet (`arch/x86/entry/syscalls/syscall_64.tbl`).
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub version: &'static str,
    first_missing: u32,
}

/// Without `sched_setattr`, renameat2, getrandom and all that came later: RHEL 7.
pub const KERNEL_3_10: Kernel = Kernel { version: "3.10", first_missing: 314 };
/// Without `copy_file_range` (4.5), statx (4.11): Ubuntu 16.04, SLES 12.
pub const KERNEL_4_4: Kernel = Kernel { version: "4.4", first_missing: 326 };
/// Without `io_pgetevents`, rseq (4.18): SLES 15.
pub const KERNEL_4_12: Kernel = Kernel { version: "4.12", first_missing: 333 };
/// Without `pidfd_open`, clone3, openat2, faccessat2 (5.1 and later): RHEL 8.
pub const KERNEL_4_18: Kernel = Kernel { version: "4.18", first_missing: 335 };

/// Somebody who is not root.
pub const NOBODY: u32 = 65534;
/// `clone3(2)`. The C library of this host takes only ENOSYS for "not there" and breaks off at EPERM, whatever the program.
const CLONE3: u32 = 435;
/// `AUDIT_ARCH_X86_64` (linux/audit.h).
const ARCHITECTURE: u32 = 0xc000_003e;
/// Where `struct seccomp_data` has the number of the call, and the architecture.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

impl Answer {
    fn value(self) -> u32 {
        let errno = match self {
            Self::NoSuchCall => libc::ENOSYS,
            Self::NotPermitted => libc::EPERM,
        };
        libc::SECCOMP_RET_ERRNO | u32::try_from(errno).expect("error numbers are small")
    }
}

/// Whether the C library of the programs meets EPERM in place of clone3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clone3 {
    /// It is told that the call is not there.
    Missing,
    /// As every other call.
    AsOthers,
}

/// The program's command on such a kernel, without root's rights.
pub fn command_on(kernel: Kernel, answer: Answer, clone3: Clone3, program: &Path) -> Command {
    let filter = filter(kernel, answer, clone3);
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    confine(&mut command, filter);
    command
}

#[expect(unsafe_code, reason = "a filter is set between fork and exec, and no library has a safe call for it")]
fn confine(command: &mut Command, filter: Vec<libc::sock_filter>) {
    let set = move || {
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).expect("the filter is short"),
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: prctl reads the program and its instructions, which outlive the calls; nothing else happens here.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two system calls and nothing else.
    unsafe { command.pre_exec(set) };
}

fn filter(kernel: Kernel, answer: Answer, clone3: Clone3) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("codes of instructions are small"),
        jt,
        jf,
        k,
    };
    let of_clone3 = if clone3 == Clone3::Missing { Answer::NoSuchCall } else { answer };
    vec![
        step(LOAD, 0, 0, ARCHITECTURE_OFFSET),
        // Calls of another architecture are not this table's.
        step(EQUAL, 0, 3, ARCHITECTURE),
        step(LOAD, 0, 0, NUMBER_OFFSET),
        step(EQUAL, 3, 0, CLONE3),
        step(AT_LEAST, 1, 0, kernel.first_missing),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, answer.value()),
        step(RETURN, 0, 0, of_clone3.value()),
    ]
}
