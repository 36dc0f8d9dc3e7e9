//! Writes the files of a tree from memory, with as many threads as there are cores, then makes them durable, and prints the seconds of that. What
//! `scripts/bench install` measures installs against: no install of these files can do less, and this one verifies and decompresses nothing.
//!
//! ```text
//! rustc --edition 2024 -O -o PROGRAM examples/floor.rs
//! PROGRAM TREE EMPTY-DIRECTORY
//! ```

#![expect(clippy::disallowed_methods, reason = "it is the bare work, without the floors of the program")]

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, thread};

/// A tree in memory; paths are relative to it.
#[derive(Default)]
struct Tree {
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, u32, Vec<u8>)>,
    links: Vec<(PathBuf, PathBuf)>,
}

fn main() -> io::Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(source), Some(into)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: floor TREE EMPTY-DIRECTORY"));
    };
    let mut tree = Tree::default();
    read(&source, Path::new(""), &mut tree)?;
    let threads = thread::available_parallelism()?.get();
    let begun = Instant::now();
    write(&tree, &into, threads)?;
    let synced = Command::new("sync").arg("-f").arg(&into).status()?;
    if !synced.success() {
        return Err(io::Error::other("sync -f failed"));
    }
    println!("{:.4}", begun.elapsed().as_secs_f64());
    Ok(())
}

fn read(source: &Path, relative: &Path, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(source.join(relative))? {
        let entry = entry?;
        let (path, from) = (relative.join(entry.file_name()), entry.path());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            tree.directories.push(path.clone());
            read(source, &path, tree)?;
        } else if kind.is_symlink() {
            tree.links.push((path, fs::read_link(from)?));
        } else {
            let mode = entry.metadata()?.permissions().mode() & 0o777;
            tree.files.push((path, mode, fs::read(from)?));
        }
    }
    Ok(())
}

fn write(tree: &Tree, into: &Path, threads: usize) -> io::Result<()> {
    for path in &tree.directories {
        fs::create_dir(into.join(path))?;
    }
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        while let Some((path, mode, content)) = tree.files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = into.join(path);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(*mode).open(&path)?;
            file.write_all(content)?;
            if *mode & 0o022 != 0 {
                // The umask may have taken these.
                fs::set_permissions(&path, Permissions::from_mode(*mode))?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })?;
    tree.links.iter().try_for_each(|(path, target)| symlink(target, into.join(path)))
}
