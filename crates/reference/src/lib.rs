//! Pages of `docs/reference`, made from the code that they describe. Only tests use this: each makes its page and
//! compares it with the committed one; `cargo xtask docs` lets them write it.
//!
//! ```text
//! clap_page.rs    a program's commands and options, as a page
//! variants.rs     the variants of an enum with their doc comments, read from its source
//! markdown.rs     tables, and text that Markdown must not take for its own
//! ```

mod clap_page;
mod markdown;
mod variants;

use std::path::{Path, PathBuf};

pub use clap_page::program;
pub use markdown::{indented, plain, table, to_heading};
pub use variants::{Variant, variants};

/// The line that tells readers of the source not to edit it.
#[must_use]
pub fn made_from(place: &str) -> String {
    format!("<!-- Made by `cargo xtask docs` from {place}. Change it there. -->\n\n")
}

/// Requires that the page is the committed one; writes it instead if snapshots are being written.
///
/// # Panics
///
/// If it is not: that is what the test is for.
pub fn check(page: &str, text: &str) {
    let path = docs().join("reference").join(page);
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|wish| wish == "always") {
        std::fs::write(&path, text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = committed.lines().zip(text.lines());
    let differs = lines.find(|(before, now)| before != now);
    assert!(
        committed == text,
        "docs/reference/{page} is stale: run `cargo xtask docs`, and read the difference. The first: {differs:?}"
    );
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}
