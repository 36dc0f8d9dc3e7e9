//! SELinux's file contexts: which path gets which label. Read as libselinux does (`selabel_file(5)`): the last expression that matches counts, and
//! one without special characters counts before all others.

use regex_lite::{Regex, RegexBuilder};

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    File,
    Directory,
    Link,
    /// A socket, pipe or device: no entry of a release.
    Other,
}

/// The characters that make an expression of a path.
const SPECIAL: &[char] = &['.', '^', '$', '?', '*', '+', '|', '[', '(', '{'];

/// The expressions for one tree, last one first, and the aliases of directories.
#[derive(Debug)]
pub(in crate::store) struct FileContexts {
    rules: Vec<Rule>,
    aliases: Aliases,
}

/// `file_contexts.subs` and `file_contexts.subs_dist`: a path below the first gets the labels of one below the second.
#[derive(Debug, Default)]
struct Aliases {
    own: Vec<(String, String)>,
    distribution: Vec<(String, String)>,
}

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    kind: Option<Kind>,
    /// None: `<<none>>`, no label.
    context: Option<String>,
}

#[derive(Debug)]
enum Matcher {
    /// Exactly this path.
    Path(String),
    /// An expression, and how each path that it matches begins.
    Expression(String, Box<Regex>),
    /// An expression that cannot be read, and how each path that it matches begins.
    Unreadable(String),
}

/// The texts of a policy's files; empty: no such file.
#[derive(Debug, Default)]
pub(in crate::store) struct Texts {
    /// `file_contexts`, `file_contexts.homedirs`, `file_contexts.local`, in this order.
    pub(in crate::store) contexts: [String; 3],
    /// `file_contexts.subs`.
    pub(in crate::store) subs: String,
    /// `file_contexts.subs_dist`.
    pub(in crate::store) subs_dist: String,
}

impl FileContexts {
    /// The rules that may match `tree` or a path below it.
    pub(in crate::store) fn for_tree(texts: &Texts, tree: &str) -> Self {
        let aliases = Aliases { own: aliases(&texts.subs), distribution: aliases(&texts.subs_dist) };
        let known = aliases.resolve(tree);
        let inside = format!("{tree}/");
        // An alias for a directory of the tree leads elsewhere: every rule may match then.
        let all = aliases.own.iter().chain(&aliases.distribution).any(|(from, _)| from.starts_with(&inside));
        let is_near = |beginning: &str| all || known.starts_with(beginning) || beginning.starts_with(&known);
        let lines = texts.contexts.iter().flat_map(|text| text.lines());
        let (paths, expressions): (Vec<Rule>, Vec<Rule>) =
            lines.filter_map(|line| rule(line, &is_near)).partition(|rule| matches!(rule.matcher, Matcher::Path(_)));
        Self { rules: paths.into_iter().rev().chain(expressions.into_iter().rev()).collect(), aliases }
    }

    /// The label of an absolute path. None: the policy gives it none, or an expression that cannot be read may match.
    pub(in crate::store) fn label(&self, path: &str, kind: Kind) -> Option<&str> {
        let path = self.aliases.resolve(path);
        let fits = |rule: &&Rule| {
            rule.kind.is_none_or(|wanted| wanted == kind)
                && match &rule.matcher {
                    Matcher::Path(text) => path == *text,
                    Matcher::Expression(beginning, regex) => path.starts_with(beginning) && regex.is_match(&path),
                    Matcher::Unreadable(beginning) => path.starts_with(beginning),
                }
        };
        let found = self.rules.iter().find(fits)?;
        found.context.as_deref().filter(|_| !matches!(found.matcher, Matcher::Unreadable(_)))
    }
}

impl Aliases {
    fn resolve(&self, path: &str) -> String {
        let own = replaced(&self.own, path);
        let known = own.as_deref().unwrap_or(path);
        replaced(&self.distribution, known).unwrap_or_else(|| known.to_owned())
    }
}

fn replaced(aliases: &[(String, String)], path: &str) -> Option<String> {
    aliases.iter().find_map(|(from, to)| {
        let rest = path.strip_prefix(from.as_str())?;
        (rest.is_empty() || rest.starts_with('/'))
            .then(|| if to == "/" { format!("/{}", rest.trim_start_matches('/')) } else { format!("{to}{rest}") })
    })
}

/// The aliases of a file. The last line counts first.
fn aliases(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    lines.rev().filter_map(pair).collect()
}

/// A line: `EXPRESSION [-TYPE] CONTEXT`.
fn rule(line: &str, is_near: &dyn Fn(&str) -> bool) -> Option<Rule> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let (expression, second) = (words.next()?, words.next()?);
    let (kind, context) = match words.next() {
        Some(context) => (kind(second)?, context),
        None => (None, second),
    };
    let (beginning, is_path) = beginning(expression);
    if !is_near(&beginning) {
        return None;
    }
    let matcher = if is_path {
        Matcher::Path(beginning)
    } else {
        match RegexBuilder::new(&format!("^(?:{expression})$")).dot_matches_new_line(true).build() {
            Ok(regex) => Matcher::Expression(beginning, Box::new(regex)),
            Err(_) => Matcher::Unreadable(beginning),
        }
    };
    Some(Rule { matcher, kind, context: (context != "<<none>>").then(|| context.to_owned()) })
}

/// None: no such type.
#[expect(clippy::option_option, reason = "a rule for every type, or a line that says nothing")]
fn kind(word: &str) -> Option<Option<Kind>> {
    Some(match word {
        "--" => Some(Kind::File),
        "-d" => Some(Kind::Directory),
        "-l" => Some(Kind::Link),
        "-b" | "-c" | "-p" | "-s" => Some(Kind::Other),
        _ => return None,
    })
}

/// How each path that an expression matches begins, and whether that is the whole path.
fn beginning(expression: &str) -> (String, bool) {
    // An alternative outside of parentheses may begin otherwise.
    if expression.contains('|') && !expression.contains('(') {
        return (String::new(), false);
    }
    let (mut text, mut characters) = (String::new(), expression.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                // `\d` and the like stand for several characters.
                Some(escaped) if !escaped.is_alphanumeric() => text.push(escaped),
                _ => return (text, false),
            },
            '?' | '*' | '{' => {
                text.pop();
                return (text, false);
            }
            special if SPECIAL.contains(&special) => return (text, false),
            usual => text.push(usual),
        }
    }
    (text, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(text: &str, subs: &str, tree: &str) -> FileContexts {
        let texts = Texts {
            contexts: [text.to_owned(), String::new(), String::new()],
            subs: subs.to_owned(),
            ..Texts::default()
        };
        FileContexts::for_tree(&texts, tree)
    }

    #[test]
    fn the_last_expression_counts_and_a_whole_path_before_all() {
        let text = "/opt/a/bin/sh -- whole\n/.* default\n/opt(/.*)? usr\n/opt/(.*/)?bin(/.*)? bin\n/opt/.*\\.so(\\.[^/]*)* -- lib\n\
                    /opt/a/x <<none>>\n# no line\n";
        let known = contexts(text, "", "/opt/a");
        let label = |path, kind| known.label(path, kind);
        assert_eq!(label("/opt/a/b", Kind::File), Some("usr"));
        assert_eq!(label("/opt/a/bin", Kind::Directory), Some("bin"));
        assert_eq!(label("/opt/a/bin/x.so.1", Kind::File), Some("lib"));
        assert_eq!(label("/opt/a/bin/x.so.1", Kind::Link), Some("bin"));
        assert_eq!(label("/opt/a/bin/sh", Kind::File), Some("whole"));
        assert_eq!(label("/opt/a/x", Kind::File), None);
    }

    #[test]
    fn an_alias_leads_to_another_directory_and_only_there() {
        let known = contexts("/usr/.* usr\n/opt/.* opt\n", "/opt/a /usr/a\n", "/opt/a");
        assert_eq!(known.label("/opt/a/b", Kind::File), Some("usr"));
        let deeper = contexts("/usr/.* usr\n/opt/.* opt\n", "/opt/a/b /usr/a\n", "/opt/a");
        assert_eq!(deeper.label("/opt/a/b/c", Kind::File), Some("usr"));
        assert_eq!(deeper.label("/opt/a/bc", Kind::File), Some("opt"));
    }

    #[test]
    fn what_cannot_be_read_gives_no_label() {
        let known = contexts("/opt/.* opt\n/opt/a/(?=x)x strange\n", "", "/opt/a");
        assert_eq!(known.label("/opt/a/x", Kind::File), None);
        assert_eq!(known.label("/opt/b", Kind::File), Some("opt"));
    }
}
