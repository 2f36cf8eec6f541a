//! Generates a table from the comments of a `values.yaml`.
//!
//! The file is read by lines, because YAML parsers drop comments: a value is a line `key: default` with a comment above it, and
//! lines indented below a line without a default belong to that key.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

/// Returns a table with one row for each value; fails on a value without a comment.
pub fn table(text: &str) -> Result<String> {
    let mut table = String::from("| value | default | meaning |\n|---|---|---|\n");
    for Row { key, default, meaning } in rows(text)? {
        writeln!(table, "| `{key}` | `{default}` | {meaning} |")?;
    }
    Ok(table)
}

struct Row {
    key: String,
    default: String,
    meaning: String,
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    // The parent keys of the current line, with their indentation.
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    // The indentation of the last row, if its default is on the lines below it.
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if inside.is_some_and(|begun| indent > begun) && !line.is_empty() {
            let Some(row) = rows.last_mut() else { continue };
            row.default = format!("{}{}{line}", row.default, if row.default.is_empty() { "" } else { ", " });
            continue;
        }
        inside = None;
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let Some((key, default)) = line.split_once(':') else {
            comment.clear();
            continue;
        };
        above.retain(|(other, _)| *other < indent);
        let path: Vec<&str> = above.iter().map(|(_, key)| key.as_str()).chain([key]).collect();
        let (path, default, meaning) = (path.join("."), default.trim(), comment.join(" "));
        comment.clear();
        if default.is_empty() && meaning.is_empty() {
            above.push((indent, key.to_owned()));
            continue;
        }
        ensure!(!meaning.is_empty(), "{path} has no comment");
        // With a comment and without a default on the line, the lines below are the default.
        inside = default.is_empty().then_some(indent);
        rows.push(Row { key: path, default: default.to_owned(), meaning: meaning.replace('|', "\\|") });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_row_below_the_keys_above_it() {
        let text = "\
# How many.
replicas: 2

image:
  # Where it is,
  # and so on.
  name: \"\"
# What it gets.
resources:
  requests: {cpu: 1}
  limits: {}
# The last.
last: {}
";
        assert_eq!(
            table(text).unwrap().lines().skip(2).collect::<Vec<_>>(),
            [
                "| `replicas` | `2` | How many. |",
                "| `image.name` | `\"\"` | Where it is, and so on. |",
                "| `resources` | `requests: {cpu: 1}, limits: {}` | What it gets. |",
                "| `last` | `{}` | The last. |",
            ]
        );
    }

    #[test]
    fn a_value_without_a_comment_is_refused() {
        assert!(table("replicas: 2\n").is_err());
    }
}
