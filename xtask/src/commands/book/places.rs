//! Where a file of the repository lies in the book, and links that lead there: what is in `docs/` at its top, everything else
//! below `project/`. A README is the index of its folder, as mdbook names it.

use std::path::{Path, PathBuf};

use super::links::Link;

/// From the root of the repository to the root of the book.
pub fn place(file: &Path) -> PathBuf {
    let place = match file.strip_prefix("docs") {
        Ok(page) => page.to_owned(),
        Err(_) => Path::new("project").join(file),
    };
    if place.ends_with("README.md") { place.with_file_name("index.md") } else { place }
}

/// The page with links that lead where the files are in the book.
pub fn moved(text: &str, page: &Path, links: &[Link]) -> String {
    let mut text = text.to_owned();
    for link in links {
        let Some(file) = link.file(page).filter(|_| !link.target.starts_with('#')) else { continue };
        let heading = link.heading().map(|heading| format!("#{heading}")).unwrap_or_default();
        let way = format!("{}{heading}", way(&place(page), &place(&file)).display());
        text = text.replace(&format!("]({})", link.target), &format!("]({way})"));
    }
    text
}

/// From one page to a file, both from the root.
fn way(from: &Path, to: &Path) -> PathBuf {
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
    fn links_lead_to_the_places_in_the_book() {
        let moved = |page: &str, text: &str| moved(text, Path::new(page), &in_lists(text));
        assert_eq!(
            moved("docs/how-to/a.md", "[b](b.md#c) [d](../../deploy/README.md)"),
            "[b](b.md#c) [d](../project/deploy/index.md)"
        );
        assert_eq!(moved("SECURITY.md", "[d](docs/README.md), [e](#here)"), "[d](../index.md), [e](#here)");
        assert_eq!(
            moved("docs/SUMMARY.md", "    - [a](../ARCHITECTURE.md)"),
            "    - [a](project/ARCHITECTURE.md)"
        );
        assert_eq!(moved("docs/decisions/README.md", "[1](0001.md)"), "[1](0001.md)");
    }
}
