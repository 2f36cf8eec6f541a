//! Reads the variants of an enum and their doc comments from its source, because doc comments are not available at run time.

/// One variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name in the code.
    pub name: String,
    /// Its doc comment, in one line.
    pub text: String,
}

/// Returns the variants of `pub enum NAME`, in order.
///
/// # Panics
///
/// If there is no such enum in the source, or a variant has no doc comment.
#[must_use]
pub fn variants(source: &str, name: &str) -> Vec<Variant> {
    let head = format!("pub enum {name} {{");
    let inside = source.lines().skip_while(|line| line.trim() != head).skip(1);
    let mut found = Vec::new();
    let mut text: Vec<&str> = Vec::new();
    for line in inside.map(str::trim).take_while(|line| *line != "}") {
        if let Some(comment) = line.strip_prefix("///") {
            text.push(comment.trim());
        } else if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let name = line.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect::<String>();
            assert!(!text.is_empty(), "the variant {name} has no doc comment");
            found.push(Variant { name, text: std::mem::take(&mut text).join(" ") });
        }
    }
    assert!(!found.is_empty(), "there is no {head} in the source");
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_comments_are_found_among_attributes_and_other_enums() {
        let source = "pub enum Other {\n    /// No.\n    A,\n}\n#[derive(Debug)]\npub enum Wanted {\n    /// One,\n    \
                      /// in two lines.\n    #[serde(rename = \"x\")]\n    First,\n    /// Two.\n    Second(u8),\n}\n";
        let found = variants(source, "Wanted");
        let found: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.text.as_str())).collect();
        assert_eq!(found, [("First", "One, in two lines."), ("Second", "Two.")]);
    }

    #[test]
    #[should_panic(expected = "the variant A has no doc comment")]
    fn a_variant_without_a_doc_comment_is_rejected() {
        let _ = variants("pub enum Mute {\n    A,\n}\n", "Mute");
    }
}
