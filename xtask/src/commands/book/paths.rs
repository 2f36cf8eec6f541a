//! Paths of files in the book, and links between them. Files of `docs/` are at the top of the book, all others below
//! `project/`. A README is the index of its folder, as mdbook names it.

use std::path::{Path, PathBuf};

use super::links::Link;

/// Returns the path in the book of a file of the repository.
pub fn path_in_book(file: &Path) -> PathBuf {
    let path = match file.strip_prefix("docs") {
        Ok(page) => page.to_owned(),
        Err(_) => Path::new("project").join(file),
    };
    if path.ends_with("README.md") { path.with_file_name("index.md") } else { path }
}

/// Returns the page with links to the files in the book.
pub fn with_links_of_book(text: &str, page: &Path, links: &[Link]) -> String {
    let mut text = text.to_owned();
    for link in links {
        let Some(file) = link.file(page).filter(|_| !link.target.starts_with('#')) else { continue };
        let heading = link.heading().map(|heading| format!("#{heading}")).unwrap_or_default();
        let relative = relative(&path_in_book(page), &path_in_book(&file));
        let target = format!("{}{heading}", relative.display());
        text = text.replace(&format!("]({})", link.target), &format!("]({target})"));
    }
    text
}

/// Returns the relative path from one page to a file.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let folder: Vec<_> = from.parent().unwrap_or(Path::new("")).components().collect();
    let parts: Vec<_> = to.components().collect();
    let shared = folder.iter().zip(&parts).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n(PathBuf::from(".."), folder.len() - shared);
    up.chain(parts[shared..].iter().map(|part| PathBuf::from(part.as_os_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::links::in_lists;
    use super::*;

    #[test]
    fn links_point_to_the_paths_in_the_book() {
        let rewritten = |page: &str, text: &str| with_links_of_book(text, Path::new(page), &in_lists(text));
        assert_eq!(
            rewritten("docs/how-to/a.md", "[b](b.md#c) [d](../../deploy/README.md)"),
            "[b](b.md#c) [d](../project/deploy/index.md)"
        );
        assert_eq!(
            rewritten("SECURITY.md", "[d](docs/README.md), [e](#here)"),
            "[d](../index.md), [e](#here)"
        );
        assert_eq!(
            rewritten("docs/SUMMARY.md", "    - [a](../ARCHITECTURE.md)"),
            "    - [a](project/ARCHITECTURE.md)"
        );
        assert_eq!(rewritten("docs/decisions/README.md", "[1](0001.md)"), "[1](0001.md)");
    }
}
