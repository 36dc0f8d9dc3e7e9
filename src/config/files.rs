//! Which files the settings come from, and in which order: as systemd reads its drop-ins.

use super::FILE_BYTES_MAXIMUM;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::{OsError, file};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The settings files of a host with their content, the first read first. Without any file: none.
pub(super) fn texts(layout: &Layout) -> Result<Vec<(PathBuf, Vec<u8>)>, Report> {
    if let Some(only) = layout.settings_file() {
        let bytes = file::read_input(only, FILE_BYTES_MAXIMUM).map_err(|error| {
            let report = unread(error);
            Report { class: Class::Usage, hint: Some("name the file with --config FILE".to_owned()), ..report }
        })?;
        return Ok(vec![(only.to_owned(), bytes)]);
    }
    let main = layout.main_settings();
    let mut texts = Vec::new();
    texts.extend(file::read_if_exists(&main, FILE_BYTES_MAXIMUM).map_err(unread)?.map(|bytes| (main, bytes)));
    for path in fragments(layout)? {
        let bytes = file::read(&path, FILE_BYTES_MAXIMUM).map_err(unread)?;
        texts.push((path, bytes));
    }
    Ok(texts)
}

/// The fragments that count, in the order of their names. A file of the administrator masks the vendor's file of the same name.
fn fragments(layout: &Layout) -> Result<Vec<PathBuf>, OsError> {
    let mut by_name: BTreeMap<OsString, Option<PathBuf>> = BTreeMap::new();
    for path in layout.fragments() {
        let Some(directory) = Dir::open_if_exists(&path)? else { continue };
        for name in directory.names()?.into_iter().filter(|name| is_fragment(Path::new(name))) {
            let path = directory.path().join(&name);
            by_name.insert(name, if is_nothing(&directory, &path)? { None } else { Some(path) });
        }
    }
    Ok(by_name.into_values().flatten().collect())
}

fn is_fragment(name: &Path) -> bool {
    name.extension().is_some_and(|end| end == "toml")
}

/// A link to `/dev/null` says that there is no file of this name. An image may have the link relative.
fn is_nothing(directory: &Dir, path: &Path) -> Result<bool, OsError> {
    let Some(name) = path.file_name() else { return Ok(false) };
    let is_link = directory.stat(name)?.is_some_and(|stat| stat.kind == crate::os::dir::FileKind::Symlink);
    Ok(is_link && directory.read_link(name)?.is_some_and(|target| target.ends_with("dev/null")))
}

/// A file that can't be read as settings; one that is too large is a wrong use like any other.
fn unread(error: OsError) -> Report {
    if error.kind() != std::io::ErrorKind::FileTooLarge {
        return Report::from(error);
    }
    let hint = format!("write settings into the file, or move it out of the directory; {}", super::DOCUMENTED);
    Report { class: Class::Usage, hint: Some(hint), ..Report::from(error) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read(layout: &Layout) -> Vec<(String, String)> {
        let relative = |path: &Path| path.strip_prefix(layout.root()).unwrap().to_string_lossy().into_owned();
        let texts = texts(layout).unwrap().into_iter();
        texts.map(|(path, bytes)| (relative(&path), String::from_utf8(bytes).unwrap())).collect()
    }

    #[test]
    fn a_fragment_of_the_administrator_masks_the_vendors_of_its_name_and_all_stand_in_the_order_of_names() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        assert_eq!(read(&layout), []);
        let (vendor, own) = (root.path().join("usr/lib/sidle/conf.d"), root.path().join("etc/sidle/conf.d"));
        fs::create_dir_all(&vendor).unwrap();
        for name in ["10-a.toml", "20-b.toml", "30-c.toml", "50-e.toml", "README"] {
            fs::write(vendor.join(name), "vendor").unwrap();
        }
        assert_eq!(read(&layout).len(), 4, "a host without /etc/sidle");
        fs::create_dir_all(&own).unwrap();
        fs::write(root.path().join("etc/sidle/sidle.toml"), "main").unwrap();
        symlink("/dev/null", own.join("10-a.toml")).unwrap();
        fs::write(own.join("20-b.toml"), "own").unwrap();
        fs::write(own.join("30-c.toml"), "").unwrap();
        fs::write(own.join("40-d.toml"), "own").unwrap();
        symlink("../../../dev/null", own.join("60-f.toml")).unwrap();
        let of = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let expected = [
            of("etc/sidle/sidle.toml", "main"),
            of("etc/sidle/conf.d/20-b.toml", "own"),
            of("etc/sidle/conf.d/30-c.toml", ""),
            of("etc/sidle/conf.d/40-d.toml", "own"),
            of("usr/lib/sidle/conf.d/50-e.toml", "vendor"),
        ];
        assert_eq!(read(&layout), expected);
        let only = root.path().join("only.toml");
        let layout = layout.with_settings_file(Some(only.clone()));
        assert_eq!(texts(&layout).unwrap_err().class, Class::Usage, "a file that was named has to be there");
        fs::write(&only, "only").unwrap();
        assert_eq!(read(&layout), [of("only.toml", "only")]);
    }
}
