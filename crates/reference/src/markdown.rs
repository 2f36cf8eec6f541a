//! Tables, and text with Markdown's special characters escaped.

/// Escapes Markdown's special characters outside of backticks.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut is_code = false;
    for character in text.chars() {
        if character == '`' {
            is_code = !is_code;
        } else if !is_code && "*_<>[]|".contains(character) {
            plain.push('\\');
        }
        plain.push(character);
    }
    plain
}

/// Returns a table with cells in Markdown.
#[must_use]
pub fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(N));
    for row in rows {
        // A cell must be one line.
        let cells = row.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" "));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// Returns a link to the heading with this title on the same page.
#[must_use]
pub fn to_heading(title: &str) -> String {
    let kept = title
        .to_lowercase()
        .chars()
        .filter(|&c| c.is_alphanumeric() || " -_".contains(c))
        .collect::<String>();
    format!("[{}](#{})", plain(title), kept.replace(' ', "-"))
}

/// Returns an indented code block; fenced blocks are for commands that a test runs.
#[must_use]
pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_was_written() {
        assert_eq!(plain("*.yaml of <DIR>, as `*.md` is"), "\\*.yaml of \\<DIR\\>, as `*.md` is");
        assert_eq!(table(["a", "b"], [["1\n2".into(), "3".into()]]), "| a | b |\n|---|---|\n| 1 2 | 3 |\n");
        assert_eq!(to_heading("GET /a/{b}_c"), "[GET /a/{b}\\_c](#get-ab_c)");
        assert_eq!(indented("a\n\nb"), "    a\n\n    b\n");
    }
}
