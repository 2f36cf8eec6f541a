//! Links and headings of a page, as GitHub and mdbook read them.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A link, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    pub target: String,
}

impl Link {
    /// Returns the file that it points to, relative to the root of the repository; none if it is elsewhere.
    pub fn file(&self, page: &Path) -> Option<PathBuf> {
        if self.target.contains("://") || self.target.starts_with("mailto:") {
            return None;
        }
        let path = self.target.split('#').next().unwrap_or_default();
        if path.is_empty() {
            return Some(page.to_owned());
        }
        Some(normal(&page.parent().unwrap_or(Path::new("")).join(path)))
    }

    /// Returns the heading that it points to.
    pub fn heading(&self) -> Option<&str> {
        self.target.split_once('#').map(|(_, heading)| heading)
    }
}

/// Removes `.` and `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Returns every link of a page outside of code.
pub fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = without_code(line);
        while let Some(at) = rest.find("](") {
            let after = rest.split_off(at + 2);
            let end = after.find(')').unwrap_or(after.len());
            found.push(Link { target: after[..end].to_owned() });
            rest = after[end..].to_owned();
        }
    }
    found
}

/// Returns every link of a page in which indented lines are list items and not code.
pub fn in_lists(text: &str) -> Vec<Link> {
    links(&text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n"))
}

/// Returns the anchors of a page.
pub fn headings(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let titles =
        prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles
        .map(|title| {
            let kept = title
                .to_lowercase()
                .chars()
                .filter(|&c| c.is_alphanumeric() || " -_".contains(c))
                .collect::<String>();
            let slug = kept.replace(' ', "-");
            let count = seen.entry(slug.clone()).or_default();
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// Returns the lines outside of fenced and indented code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence && !line.starts_with("    ")
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_code_is_skipped() {
        let text = "See [a](b.md#c-d) and [e](https://f), not `[g](h)`.\n```sh\n[i](j)\n```\n    [k](l)\n";
        let found = links(text);
        assert_eq!(
            found.iter().map(|link| link.target.as_str()).collect::<Vec<_>>(),
            ["b.md#c-d", "https://f"]
        );
        assert_eq!(found[0].file(Path::new("docs/x/y.md")), Some("docs/x/b.md".into()));
        assert_eq!(found[0].heading(), Some("c-d"));
        assert_eq!(found[1].file(Path::new("docs/y.md")), None);
        let up = Link { target: "../README.md".into() };
        assert_eq!(up.file(Path::new("docs/y.md")), Some("README.md".into()));
        assert_eq!(Link { target: "#here".into() }.file(Path::new("docs/y.md")), Some("docs/y.md".into()));
    }

    #[test]
    fn headings_become_anchors() {
        let found =
            headings("# What `apply` does, and why\n## A\n```\n# no\n```\n## A\n### GET /api/v1/x_y\n");
        assert_eq!(found, ["what-apply-does-and-why", "a", "a-1", "get-apiv1x_y"]);
    }
}
