//! `cargo xtask book`: builds the documentation as a book of web pages, with mdbook.
//!
//! Pages link to each other by their paths in the repository, also to pages outside `docs/`, but mdbook requires all of them in
//! one folder. So the book is built from a copy of every page that `docs/SUMMARY.md` names and every file that they link to, with
//! adapted links.
//!
//! ```text
//! book/links.rs    links and headings of a page
//! book/paths.rs    paths of files in the book, and links between them
//! ```

mod links;
mod paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::runner::root;

/// Build the documentation as web pages.
#[derive(clap::Args)]
pub struct Args {
    /// Write the pages to this folder.
    #[arg(long, default_value = "target/book", value_name = "DIR")]
    out: PathBuf,
}

const MISSING: &str =
    "is mdbook installed? cargo install --locked mdbook --no-default-features --features search";

pub fn run(args: &Args) -> Result<()> {
    let out = std::path::absolute(&args.out)?;
    let stage = root().join("target/book-pages");
    if stage.exists() {
        fs::remove_dir_all(&stage).context("cannot remove the pages of the previous build")?;
    }
    let pages = chapters(&root())?;
    let broken = broken_links(&root(), &pages)?;
    if !broken.is_empty() {
        bail!("broken links:\n{}", broken.join("\n"));
    }
    let copied = copy_pages(&root(), &stage, &pages)?;
    let status = Command::new("mdbook").arg("build").arg(&stage).arg("--dest-dir").arg(&out).status();
    if !status.context(MISSING)?.success() {
        bail!("mdbook failed");
    }
    println!("{copied} files, {}", out.join("index.html").display());
    Ok(())
}

const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the pages that the summary names, in order.
fn chapters(root: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read {SUMMARY}"))?;
    Ok(links::in_lists(&text).iter().filter_map(|link| link.file(Path::new(SUMMARY))).collect())
}

/// Copies the pages and the files that they link to; returns the number of files.
fn copy_pages(root: &Path, stage: &Path, pages: &[PathBuf]) -> Result<usize> {
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    for page in pages.iter().map(PathBuf::as_path).chain([Path::new(SUMMARY)]) {
        let text =
            fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {}", page.display()))?;
        let found = links::in_lists(&text);
        files.extend(found.iter().filter_map(|link| link.file(page)));
        let to = stage.join(paths::path_in_book(page));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(&to, paths::with_links_of_book(&text, page, &found))
            .with_context(|| format!("cannot write {}", to.display()))?;
    }
    let is_page = |file: &PathBuf| pages.contains(file);
    for file in files.iter().filter(|file| !is_page(file) && root.join(file).is_file()) {
        copy(&root.join(file), &stage.join(paths::path_in_book(file)))?;
    }
    copy(&root.join("docs/book.toml"), &stage.join("book.toml"))?;
    Ok(files.len())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Returns links to files or headings that do not exist.
fn broken_links(root: &Path, pages: &[PathBuf]) -> Result<Vec<String>> {
    let read = |page: &Path| {
        fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {}", page.display()))
    };
    let mut broken = Vec::new();
    for page in pages {
        for link in links::links(&read(page)?) {
            let Some(target) = link.file(page) else { continue };
            if !root.join(&target).is_file() {
                broken.push(format!("{}: {} does not exist", page.display(), link.target));
            } else if let Some(heading) = link.heading()
                && !links::headings(&read(&target)?).iter().any(|known| known == heading)
            {
                broken.push(format!("{}: {} has no such heading", page.display(), link.target));
            }
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every Markdown file below a folder, relative to the root of the repository.
    fn below(folder: &str) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root().join(&folder)).into_iter().flatten().flatten() {
                let path = folder.join(entry.file_name());
                if root().join(&path).is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_page_is_in_the_summary_once() {
        let mut named = chapters(&root()).unwrap();
        named.sort();
        let twice: Vec<_> = named.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "docs/SUMMARY.md names twice: {twice:?}");
        let is_page = |page: &PathBuf| !page.ends_with("SUMMARY.md");
        let missing: Vec<_> =
            below("docs").into_iter().filter(is_page).filter(|page| !named.contains(page)).collect();
        assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
        let gone: Vec<_> = named.iter().filter(|page| !root().join(page).is_file()).collect();
        assert!(gone.is_empty(), "docs/SUMMARY.md names missing files: {gone:?}");
    }

    #[test]
    fn every_link_leads_somewhere() {
        let mut pages: Vec<PathBuf> = ["docs", "deploy", "charts"].into_iter().flat_map(below).collect();
        let others = [
            "README.md",
            "ROADMAP.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "MAINTAINERS.md",
            "CODE_OF_CONDUCT.md",
            "SECURITY.md",
            "CHANGELOG.md",
        ];
        pages.extend(others.map(PathBuf::from));
        assert!(pages.len() > 60, "{pages:?}");
        let broken = broken_links(&root(), &pages).unwrap();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
