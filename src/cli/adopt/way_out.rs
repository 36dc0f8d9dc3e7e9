//! The way out without sidle: commands for a shell that run an instance's agent when this program is gone.

use super::record::Adoption;
use crate::bundle::manifest::{Manifest, Service};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use std::path::Path;

/// The commands that run the current release by hand.
pub fn by_hand(
    layout: &Layout,
    (package, instance): (&PackageName, &InstanceName),
    manifest: &Manifest,
    configuration: &Path,
) -> Vec<String> {
    let link = layout.package(package).join(Layout::link_name(package, instance));
    let mut words = manifest.service.command.iter();
    let program = words.next().and_then(|name| manifest.commands.get(name));
    let Some(program) = program else { return Vec::new() };
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

/// All of them, with a word for each part.
pub fn lines(by_hand: &[String], adoption: Option<(&Adoption, &Layout, &InstanceName)>) -> Vec<String> {
    let mut lines = Vec::new();
    if !by_hand.is_empty() {
        lines.push(format!("this release by hand:  {}", by_hand.join("; ")));
    }
    if let Some((adoption, layout, instance)) = adoption {
        lines.push(format!("the package's agent:   {}", adoption.way_out(layout, instance).join("; ")));
    }
    lines
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
