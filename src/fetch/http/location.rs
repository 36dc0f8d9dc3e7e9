//! The place of a mirror, and the paths of files below it. A target's name is any text: each part is checked before it is joined.

use crate::fetch::error::FetchError;
use crate::fetch::reply::Coding;
use crate::trust::request::{MetadataRequest, encoded};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use url::Url;

/// The place of `metadata/` and `targets/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `https://…`, or `http://…`, to which credentials are never sent.
    Http(Url),
    /// `file:///…`: a directory, such as a stick or an NFS mount.
    Directory(PathBuf),
    /// `stdio:`: the program that started this one, which answers over standard input and standard output.
    Stdio,
    /// `stdio:by-hand`: the same, for a person who brings a repository. Its metadata may be as old as that of a bundle file.
    StdioByHand,
}

/// The location of a repository behind standard input and standard output.
const STDIO: &str = "stdio:";
/// The same by hand.
const STDIO_BY_HAND: &str = "stdio:by-hand";
/// Its name in messages.
pub(in crate::fetch) const STANDARD_INPUT: &str = "standard input";

impl FromStr for Location {
    type Err = FetchError;

    fn from_str(text: &str) -> Result<Self, FetchError> {
        let refuse = |reason: &str, hint: Option<&str>| FetchError::Settings {
            // The text may hold a password.
            subject: format!("the mirror {}", without_secrets(text)),
            reason: reason.to_owned(),
            hint: hint.map(str::to_owned),
        };
        match text {
            STDIO => return Ok(Self::Stdio),
            STDIO_BY_HAND => return Ok(Self::StdioByHand),
            _ => {}
        }
        if text.trim().is_empty() {
            return Err(FetchError::Settings {
                subject: "a mirror without a URL".to_owned(),
                reason: "the text is empty".to_owned(),
                hint: Some("write https://HOST/DIRECTORY, http://… or file:///DIRECTORY".to_owned()),
            });
        }
        let url = Url::parse(text).map_err(|error| refuse(&format!("its URL can't be read: {error}"), None))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse(
                "its URL has a user or password in it, which every listing of processes and settings would show",
                Some(
                    "put them into a file for netrc (`machine HOST login USER password …`, mode 0600), and name it with `netrc = \"FILE\"`",
                ),
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("its URL has a `?` or `#` in it", None));
        }
        match url.scheme() {
            "https" | "http" => Ok(Self::Http(url)),
            "file" => {
                let path = url.to_file_path().map_err(|()| refuse("it is no path of this host", None))?;
                Ok(Self::Directory(path))
            }
            scheme => Err(refuse(&format!("{scheme:?} is not supported"), Some("use https://, http:// or file:///"))),
        }
    }
}

impl Location {
    /// True for `stdio:` and `stdio:by-hand`.
    pub fn is_stdio(&self) -> bool {
        matches!(self, Self::Stdio | Self::StdioByHand)
    }

    /// The mirror's name in messages.
    pub(in crate::fetch) fn name(&self) -> String {
        match self {
            Self::Stdio | Self::StdioByHand => STANDARD_INPUT.to_owned(),
            Self::Http(_) | Self::Directory(_) => self.to_string(),
        }
    }
}

/// A URL without what stands before the host's `@`.
fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => formatter.write_str(url.as_str().trim_end_matches('/')),
            Self::Directory(path) => write!(formatter, "file://{}", path.display()),
            Self::Stdio => formatter.write_str(STDIO),
            Self::StdioByHand => formatter.write_str(STDIO_BY_HAND),
        }
    }
}

/// The directory of metadata below a mirror.
const METADATA: &str = "metadata";

/// A file below a mirror: its directories and its name, none of which leads elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fetch) struct FilePath {
    /// As they are on a disk.
    parts: Vec<String>,
    /// As they are in a URL.
    encoded: Vec<String>,
}

impl FilePath {
    /// A metadata file.
    pub(in crate::fetch) fn metadata(request: &MetadataRequest) -> Self {
        Self::metadata_file(&request.file)
    }

    /// A metadata file by its name, which may be any text.
    pub(in crate::fetch) fn metadata_file(name: &str) -> Self {
        // On a disk, too, a role's name is one name, whatever its characters.
        let parts = vec![METADATA.to_owned(), encoded(name)];
        Self { encoded: parts.clone(), parts }
    }

    /// Whether a cache on the way may have an outdated answer: an earlier `timestamp.json`, or that there is no next root yet.
    pub(in crate::fetch) fn changes(&self) -> bool {
        let [directory, name] = &self.parts[..] else { return false };
        directory == METADATA && (name == "timestamp.json" || name.ends_with(".root.json"))
    }

    /// A target by the path at which it is stored (`trust::target::stored`).
    pub(in crate::fetch) fn target(stored: &str) -> Result<Self, FetchError> {
        let harmless = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !stored.split('/').all(harmless) {
            return Err(FetchError::UnsafeName { name: stored.to_owned() });
        }
        let parts: Vec<String> = std::iter::once("targets").chain(stored.split('/')).map(str::to_owned).collect();
        Ok(Self { encoded: parts.iter().map(|part| encoded(part)).collect(), parts })
    }

    /// The file `name` in the directory `directory` beside this one.
    pub(in crate::fetch) fn beside(&self, directory: &str, name: &str) -> Self {
        let joined = |parts: &[String]| {
            let around = &parts[..parts.len() - 1];
            around.iter().cloned().chain([directory.to_owned(), name.to_owned()]).collect()
        };
        Self { parts: joined(&self.parts), encoded: joined(&self.encoded) }
    }

    /// The accepted coding: metadata is small text. A target's digest is of the bytes as they are sent.
    pub(in crate::fetch) fn coding(&self) -> Coding {
        if self.parts[0] == METADATA { Coding::Gzip } else { Coding::Identity }
    }

    /// The path below a mirror's URL, beginning with `/`.
    pub(in crate::fetch) fn in_url(&self) -> String {
        self.encoded.iter().flat_map(|part| ["/", part.as_str()]).collect()
    }

    /// The directory below a mirror's, and the file's name in it.
    pub(in crate::fetch) fn on_disk(&self) -> (PathBuf, &str) {
        let (name, around) = self.parts.split_last().expect("a file has a name");
        (around.iter().collect(), name)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_targets_name_leads_nowhere_else() {
        for bad in ["", "/etc/passwd", "a//b", "a/../b", "..", "a/.", "a/", "a\0b"] {
            assert!(FilePath::target(bad).is_err(), "{bad:?}");
        }
        let path = FilePath::target("p/1.0-1/l%2e%2e/x y?#\\é").unwrap();
        assert_eq!(path.in_url(), "/targets/p/1.0-1/l%252e%252e/x%20y%3F%23%5C%C3%A9");
        assert_eq!(path.on_disk(), (PathBuf::from("targets/p/1.0-1/l%2e%2e"), "x y?#\\é"));
        assert_eq!(path.beside("frames", "a.zst").to_string(), "targets/p/1.0-1/l%2e%2e/frames/a.zst");
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        let error = "https://me:geheim@repo.example/x".parse::<Location>().unwrap_err();
        assert!(!error.to_string().contains("geheim") && error.to_string().contains("repo.example/x"), "{error}");
        assert!(error.hint().unwrap().contains("netrc"));
        for bad in ["repo", "ftp://x/", "https://x/?a", "https://x/#a", "file://host/x", "https://"] {
            assert!(bad.parse::<Location>().is_err(), "{bad}");
        }
        let empty = " ".parse::<Location>().unwrap_err().to_string();
        assert!(empty.contains("a mirror without a URL") && !empty.contains("base"), "{empty}");
        let printed = |text: &str| text.parse::<Location>().unwrap().to_string();
        assert_eq!(printed("https://repo.example/a/"), "https://repo.example/a");
        assert_eq!(printed("file:///mnt/a%20b"), "file:///mnt/a b");
        assert!(["stdio:", "stdio:by-hand"].iter().all(|text| printed(text) == *text));
        assert!(["stdio:/", "stdio://", "stdio:x"].iter().all(|bad| bad.parse::<Location>().is_err()));
    }
}
