//! The files of the web console, compiled into the broker.
//!
//! `cargo xtask console` builds them from `console/` and compresses them; `build.rs` makes the table. Without them the table is
//! empty, and the broker serves [`NOT_BUILT`] instead.

/// The policy of every page of the console: only files of the broker itself, nothing inline, and no framing. The hash is that of
/// the one style that the components of React Aria insert.
pub const CONTENT_SECURITY_POLICY: &str = include_str!("../content-security-policy.txt").trim_ascii_end();

/// The page of a broker that was built without the console.
pub const NOT_BUILT: &str = include_str!("not_built.html");

/// The folder of files with a digest in their name: another content has another name.
pub const ASSETS: &str = "assets/";

/// A file of the console.
#[derive(Debug)]
pub struct File {
    /// The path below `/ui/`.
    pub path: &'static str,
    pub media_type: &'static str,
    pub plain: Encoded,
    /// None if it would not be smaller.
    pub brotli: Option<Encoded>,
}

/// One of the variants of a file.
#[derive(Debug)]
pub struct Encoded {
    pub bytes: &'static [u8],
    /// The SHA-256 of the bytes, in quotes.
    pub etag: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

impl File {
    /// Returns whether the content of this path never changes.
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        self.path.starts_with(ASSETS)
    }
}

/// Returns the file with this path.
#[must_use]
pub fn find(path: &str) -> Option<&'static File> {
    FILES.binary_search_by(|file| file.path.cmp(path)).ok().map(|at| &FILES[at])
}

/// Returns the page that every path of the console shows; none if the console was not built.
#[must_use]
pub fn index() -> Option<&'static File> {
    find("index.html")
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn every_tag_is_the_digest_of_its_bytes_and_every_path_is_found() {
        for file in FILES {
            for variant in [Some(&file.plain), file.brotli.as_ref()].into_iter().flatten() {
                let digest: String =
                    Sha256::digest(variant.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(variant.etag, format!("\"{digest}\""), "{}", file.path);
            }
            assert_eq!(find(file.path).map(|found| found.path), Some(file.path));
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn the_policy_allows_neither_foreign_nor_inline_code() {
        let directives: Vec<&str> = CONTENT_SECURITY_POLICY.split("; ").collect();
        for wanted in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(directives.contains(&wanted), "{wanted}");
        }
        for unsafe_word in ["unsafe", "http:", "https:", "data:", "blob:", "*", "\n"] {
            assert!(!CONTENT_SECURITY_POLICY.contains(unsafe_word), "{unsafe_word}");
        }
    }
}
