//! Reads the promises: table rows `| A1 | what is promised |`. Those below the heading `## Planned` are planned.

/// One promise to users.
pub struct Promise {
    pub id: String,
    /// Whether it does not hold yet.
    pub planned: bool,
    text: String,
}

impl Promise {
    /// Returns the text, shortened to one line.
    pub fn summary(&self) -> String {
        const WIDTH: usize = 96;
        if self.text.chars().count() <= WIDTH {
            return self.text.clone();
        }
        let cut: String = self.text.chars().take(WIDTH - 1).collect();
        format!("{}…", cut.trim_end())
    }
}

/// Returns the promises of the document, in order.
pub fn read(markdown: &str) -> Vec<Promise> {
    let mut planned = false;
    let mut promises = Vec::new();
    for line in markdown.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix("## ") {
            planned = heading == "Planned";
        } else if let Some((id, text)) = row(line) {
            promises.push(Promise { id: id.to_owned(), planned, text: text.to_owned() });
        }
    }
    promises
}

/// Returns the id and the text of a row of a table of promises.
fn row(line: &str) -> Option<(&str, &str)> {
    let (id, text) = line.strip_prefix('|')?.split_once('|')?;
    is_id(id.trim()).then(|| (id.trim(), text.trim().trim_end_matches('|').trim()))
}

/// Returns whether the text is a capital letter followed by a number.
pub fn is_id(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_uppercase())
        && text.len() > 1
        && characters.all(|rest| rest.is_ascii_digit())
}

#[cfg(test)]
mod reading {
    use super::read;

    #[test]
    fn only_table_rows_are_promises() {
        let promises =
            read("# A. Title\n| id | promise |\n|---|---|\n| A1 | Pull only: `a | b`. |\n| B12 | Two. |\n");
        let found: Vec<_> = promises.iter().map(|promise| (promise.id.as_str(), promise.summary())).collect();
        assert_eq!(found, [("A1", "Pull only: `a | b`.".to_owned()), ("B12", "Two.".to_owned())]);
    }

    #[test]
    fn the_section_of_planned_promises_ends_at_the_next_heading() {
        let promises = read(
            "## A. One\n| A1 | One. |\n## Planned\n### B. Two\n| B1 | Two. |\n## C. Three\n| C1 | Three. |\n",
        );
        let planned: Vec<_> = promises.iter().map(|promise| (promise.id.as_str(), promise.planned)).collect();
        assert_eq!(planned, [("A1", false), ("B1", true), ("C1", false)]);
    }
}
