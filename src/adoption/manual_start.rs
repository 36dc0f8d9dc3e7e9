//! Commands for a shell that run an instance's agent when sidle itself is gone.

use crate::bundle::manifest::{Head, Service};
use crate::layout::Layout;
use crate::switch::journal::files::InstanceFiles;
use std::path::Path;

/// The commands that run the current release.
pub fn commands(files: &InstanceFiles, manifest: &Head, configuration: &Path) -> Vec<String> {
    let package = files.package();
    let link = files.layout().package(package).join(Layout::link_name(package, files.instance()));
    let mut words = manifest.service.command.iter();
    let Some(program) = words.next().and_then(|name| manifest.commands.get(name)) else { return Vec::new() };
    let expanded = |word: &String| quoted(&Service::expanded(word, configuration).to_string_lossy());
    let environment = manifest.service.environment.iter().map(|(name, value)| format!("{name}={} ", expanded(value)));
    let arguments = words.map(|word| format!(" {}", expanded(word)));
    vec![
        // Never through the link itself: the process must not change with it.
        format!("tree=$(readlink -f {})", quoted(&link.to_string_lossy())),
        format!(
            "{}\"$tree\"/{}{}",
            environment.collect::<String>(),
            quoted(&program.as_path().to_string_lossy()),
            arguments.collect::<String>()
        ),
    ]
}

/// A word as a shell takes it literally.
pub fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:=@%,".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_takes_every_word_literally() {
        assert_eq!(quoted("/etc/salt"), "/etc/salt");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
