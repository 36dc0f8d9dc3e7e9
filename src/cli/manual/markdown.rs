//! The part of Markdown that this project's pages use, as roff: headings, paragraphs, lists, tables, code, and words in backticks or asterisks.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// Appends a text to a man page. Headings of the second order become sections; tables become lists of tagged paragraphs.
pub(super) fn append(roff: &mut Roff, text: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            roff.control("SH", [title.to_uppercase().as_str()]);
        } else if let Some(title) = line.strip_prefix("### ") {
            roff.control("SS", [title]);
        } else if let Some(item) = line.strip_prefix("- ") {
            let mut item = item.to_owned();
            while let Some(more) = lines.next_if(|next| next.starts_with("  ")) {
                item = format!("{item} {}", more.trim());
            }
            roff.control("IP", ["\\(bu", "2"]);
            roff.text(inline(&item));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|next| next.starts_with('|')) {
                rows.push(cells(row));
            }
            table(roff, &rows);
        } else if let Some(code) = line.strip_prefix("    ") {
            roff.control("PP", []);
            roff.control("RS", ["4"]);
            roff.control("nf", []);
            roff.text([roman(code)]);
            while let Some(code) = lines.next_if(|next| next.starts_with("    ")) {
                roff.text([roman(code.trim_start_matches("    "))]);
            }
            roff.control("fi", []);
            roff.control("RE", []);
        } else if !line.trim().is_empty() {
            let mut paragraph = line.to_owned();
            while let Some(more) = lines.next_if(|next| is_text(next)) {
                paragraph = format!("{paragraph} {more}");
            }
            roff.control("PP", []);
            roff.text(inline(&paragraph));
        }
    }
}

fn is_text(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with(['#', '|']) && !line.starts_with("- ") && !line.starts_with("    ")
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim().trim_start_matches('|').trim_end_matches('|');
    inner.replace("\\|", "\u{0}").split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// The first column tags a paragraph, the columns between say their headings, the last one is the text.
fn table(roff: &mut Roff, rows: &[Vec<String>]) {
    let Some(([heads, _ruler], body)) =
        rows.split_at_checked(2).and_then(|(head, body)| Some((<&[_; 2]>::try_from(head).ok()?, body)))
    else {
        return;
    };
    for row in body {
        let Some(((tag, between), last)) = row.split_last().and_then(|(last, rest)| Some((rest.split_first()?, last)))
        else {
            continue;
        };
        roff.control("TP", []);
        roff.text(inline(tag));
        let between = between.iter().zip(heads.iter().skip(1)).filter(|(cell, _)| !cell.is_empty());
        let said: Vec<String> = between.map(|(cell, head)| format!("{head}: {cell}.")).collect();
        if !said.is_empty() {
            roff.text(inline(&said.join(" ")));
            roff.control("br", []);
        }
        roff.text(inline(if last.is_empty() { "-" } else { last }));
    }
}

/// Words in backticks are bold, words in asterisks italic, and of links only the words stay.
fn inline(text: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 1 {
            found.push(bold(part));
            continue;
        }
        let part = words_of_links(part);
        let stars = part.matches('*').count();
        let emphasised = stars > 0 && stars % 2 == 0;
        if !emphasised {
            found.push(roman(part));
            continue;
        }
        for (place, part) in part.replace("**", "*").split('*').enumerate() {
            found.push(if place % 2 == 1 { italic(part) } else { roman(part) });
        }
    }
    found
}

fn words_of_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, words, after)) = link(rest) {
        plain.push_str(before);
        plain.push_str(words);
        rest = after;
    }
    plain + rest
}

fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (head, tail) = text.split_once("](")?;
    let (before, words) = head.rsplit_once('[')?;
    let (_, after) = tail.split_once(')')?;
    Some((before, words, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_each_kind_of_line_becomes_roff() {
        let text = "## Head\n\nWords `code` of\n*two* lines, [a link](b.md).\n\n- one\n  item\n\n    $ run\n    it\n\n| key | type | meaning |\n|---|---|---|\n| `k` | a\\|b | what |\n";
        let mut roff = Roff::default();
        append(&mut roff, text);
        let made = roff.to_roff();
        for expected in [
            ".SH HEAD\n",
            "Words \\fBcode\\fR of \\fItwo\\fR lines, a link.",
            ".IP \\(bu 2\none item",
            ".nf\n$ run\nit\n.fi",
            ".TP\n\\fBk\\fR\ntype: a|b.\n.br\nwhat",
        ] {
            assert!(made.contains(expected), "{expected:?} in {made}");
        }
    }
}
