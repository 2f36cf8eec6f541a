//! Reads the promises: table rows `| A1 | what is promised |`.

/// One promise to users.
pub struct Promise {
    pub id: String,
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
    markdown
        .lines()
        .filter_map(|line| {
            let mut cells = line.trim().strip_prefix('|')?.splitn(2, '|');
            let id = cells.next()?.trim();
            let text = cells.next()?.trim().trim_end_matches('|').trim();
            is_id(id).then(|| Promise { id: id.to_owned(), text: text.to_owned() })
        })
        .collect()
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
}
