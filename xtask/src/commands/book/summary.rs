//! What `docs/SUMMARY.md` names: the chapters of the book, in their order.

use std::path::{Path, PathBuf};

use super::links::{Link, links, normal};

/// The pages, from the root of the repository.
pub fn pages(summary: &str) -> Vec<PathBuf> {
    links(&unindented(summary)).iter().filter_map(|link| link.file(Path::new("docs/SUMMARY.md"))).collect()
}

/// The same summary for a book whose pages lie as in the repository.
pub fn from_root(summary: &str) -> String {
    let mut text = summary.to_owned();
    for Link { target } in links(&unindented(summary)) {
        let moved = normal(&Path::new("docs").join(&target));
        text = text.replace(&format!("]({target})"), &format!("]({})", moved.display()));
    }
    text
}

/// Chapters inside chapters are indented, and no code.
fn unindented(summary: &str) -> String {
    summary.lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_keep_their_order_and_get_their_place() {
        let summary = "# Summary\n\n[Start](README.md)\n\n- [A](a/b.md)\n    - [Tour](../ARCHITECTURE.md)\n";
        let pages: Vec<_> = pages(summary).iter().map(|page| page.display().to_string()).collect();
        assert_eq!(pages, ["docs/README.md", "docs/a/b.md", "ARCHITECTURE.md"]);
        assert!(from_root(summary).contains("[A](docs/a/b.md)\n    - [Tour](ARCHITECTURE.md)"));
    }
}
