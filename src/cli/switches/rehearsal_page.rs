//! What `sidle rehearse` found, as one HTML page that needs no other file: for those who decide, and have no terminal on the host.

use serde_json::Value;
use std::fmt::{self, Display};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1b1b1b;background:#fff}\
    h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}\
    th,td{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}th{background:#f3f3f3}\
    .bad{border-left:.4em solid #b00020;padding-left:.6em}.good{border-left:.4em solid #1b6e2e;padding-left:.6em}\
    code{font-size:.9em;overflow-wrap:anywhere}";

/// Text in which nothing is markup.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                other => write!(out, "{other}")?,
            }
        }
        Ok(())
    }
}

/// The page of a rehearsal, from what `--json` prints of it; `compared`: how the releases were compared, in words.
pub(super) fn page(told: &Value, compared: &str) -> String {
    let word = |key: &str| told[key].as_str().unwrap_or_default();
    let from = if word("from").is_empty() { String::new() } else { format!("{} to ", word("from")) };
    let title = format!("{} {from}{}", word("package"), word("to"));
    let (class, verdict) = if told["refuses"] == true {
        ("bad", "A switch would be refused.")
    } else {
        ("good", "Nothing here forbids a switch.")
    };
    let mut body = vec![
        format!("<h1>Rehearsal of {}</h1>", Text(&title)),
        format!("<p class=\"{class}\">{verdict} {}</p>", Text(&sentence(compared))),
    ];
    for (heading, key) in [
        ("What forbids it", "blocking"),
        ("What its masters forbid", "peers"),
        ("Not known", "unknown"),
        ("Notes", "notes"),
    ] {
        body.extend(list(heading, &told[key]));
    }
    body.extend(lost(&told["lost"]));
    if let Some(as_of) = told["successors_as_of"].as_str() {
        body.push(format!("<p>The list of packages that bring modules back is of {}.</p>", Text(as_of)));
    }
    let head = format!(
        "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>",
        Text(&title)
    );
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head>{head}<style>{STYLE}</style></head><body>\n{}\n</body></html>\n",
        body.join("\n")
    )
}

/// With a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), characters.as_str()))
}

fn list(heading: &str, texts: &Value) -> Option<String> {
    let texts = texts.as_array().filter(|texts| !texts.is_empty())?;
    let items = texts.iter().filter_map(Value::as_str).map(|text| format!("<li>{}</li>", Text(text)));
    Some(format!("<h2>{heading}</h2>\n<ul>\n{}\n</ul>", items.collect::<Vec<_>>().join("\n")))
}

/// A table of the modules that are lost.
fn lost(modules: &Value) -> Option<String> {
    let modules = modules.as_array().filter(|modules| !modules.is_empty())?;
    let row = |module: &Value| {
        let word = |key: &str| module[key].as_str().unwrap_or_default();
        let functions: Vec<&str> =
            module["functions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let what = if module["whole"] == true { "all of it" } else { "some functions" };
        let back = module["successor"].as_str().unwrap_or("no package is on the list: keep the module");
        format!(
            "<tr><td>{}</td><td>{}</td><td>{what}</td><td><details><summary>{}</summary><code>{}</code></details></td><td>{}</td></tr>",
            Text(word("kind")),
            Text(word("module")),
            functions.len(),
            Text(&functions.join(", ")),
            Text(back)
        )
    };
    let rows: Vec<String> = modules.iter().map(row).collect();
    let heads =
        ["kind", "module", "lost", "functions", "brought back by"].map(|head| format!("<th scope=\"col\">{head}</th>"));
    Some(format!(
        "<h2>Modules that are lost ({})</h2>\n<table><tr>{}</tr>\n{}\n</table>",
        rows.len(),
        heads.concat(),
        rows.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_has_all_that_was_found_and_nothing_of_it_is_markup() {
        let told = json!({
            "package": "salt-minion", "from": "3006.30-1", "to": "3008.5-1", "refuses": true, "blocking": ["<script>alert(1)</script>"],
            "unknown": [], "notes": ["a & b"], "successors_as_of": "2026-11-20",
            "lost": [{"kind": "module", "module": "vault", "functions": ["read_secret"], "whole": true, "successor": "saltext-vault==1.8.0"}],
        });
        let page = page(&told, "both releases loaded it");
        for part in [
            "salt-minion 3006.30-1 to 3008.5-1",
            "would be refused. Both releases loaded it.",
            "a &amp; b",
            "read_secret",
            "saltext-vault==1.8.0",
            "2026-11-20",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
        for outside in ["http", "src=", "url("] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        let empty = super::page(&json!({"package": "demo", "to": "1-1", "refuses": false}), "");
        assert!(empty.contains("Nothing here forbids a switch.") && !empty.contains("<h2>"), "{empty}");
    }
}
