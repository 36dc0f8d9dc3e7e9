//! The program at a terminal.

use super::stage::SIDLE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

/// What the program prints at a terminal with so many columns, standard error included. Without the variables of the caller that choose colours.
pub fn sidle_at(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
    tcsetwinsize(&side, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut command = Command::new(SIDLE);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").envs(variables.iter().copied()).args(arguments);
    command.stdin(Stdio::null()).stdout(side.try_clone().unwrap()).stderr(side);
    let mut child = command.spawn().unwrap();
    // The last copies of the program's side are the command's.
    drop(command);
    let mut printed = Vec::new();
    // A terminal whose other side is closed answers with an error, after all that was printed.
    let _ = File::from(terminal).read_to_end(&mut printed);
    child.wait().unwrap();
    String::from_utf8(printed).unwrap().replace("\r\n", "\n")
}
