//! A text on a terminal that is drawn anew in its place, and stays when the command ends.

use std::io::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::Printer;
use crate::failure::Failure;

#[derive(Debug)]
pub struct Sheet {
    printer: Printer,
    text: String,
    /// Lines of the terminal that it takes.
    height: usize,
}

impl Sheet {
    pub(super) fn new(printer: Printer) -> Self {
        Self { printer, text: String::new(), height: 0 }
    }

    /// The text as it is now: what does not fit on the terminal is counted. Nothing moves if nothing has changed. Answers
    /// whether somebody still reads.
    pub fn draw(&mut self, text: &str) -> Result<bool, Failure> {
        let size = terminal_size::terminal_size_of(std::io::stdout());
        let (columns, rows) = size.map_or((80, 24), |(columns, rows)| (columns.0.into(), rows.0.into()));
        let (text, height) = fitted(text, columns, rows);
        if text == self.text {
            return Ok(true);
        }
        if self.height > 0 {
            // Not by way of anstream, which would take it for a colour where there shall be none. It stays in the buffer
            // until the first line comes.
            write!(std::io::stdout(), "\u{1b}[{}A\u{1b}[J", self.height).ok();
        }
        let is_read = self.printer.offer(&text)?;
        (self.text, self.height) = (text, height);
        Ok(is_read)
    }

    /// What is drawn stays as it is; the next drawing is below it.
    pub fn leave(&mut self) {
        (self.text, self.height) = (String::new(), 0);
    }
}

/// As many lines as fit, and how many of the terminal's they take: a long one takes several.
fn fitted(text: &str, columns: usize, rows: usize) -> (String, usize) {
    // The cursor is below; and one line may have to tell of the rest.
    let room = rows.saturating_sub(1).max(2);
    let heights: Vec<usize> = text.lines().map(|line| height(line, columns)).collect();
    if heights.iter().sum::<usize>() <= room {
        return (text.trim_end().to_owned(), heights.iter().sum());
    }
    let (mut taken, mut lines) = (1, Vec::new());
    for (line, height) in text.lines().zip(&heights) {
        if taken + height > room {
            break;
        }
        taken += height;
        lines.push(line.to_owned());
    }
    lines.push(format!("… {} more", heights.len() - lines.len()));
    (lines.join("\n"), taken)
}

fn height(line: &str, columns: usize) -> usize {
    let width = anstream::adapter::strip_str(line).to_string().width();
    width.div_ceil(columns.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        assert_eq!(fitted("a\nb\n", 80, 24), ("a\nb".to_owned(), 2));
        assert_eq!(fitted("a\nb\nc\nd\ne", 80, 5), ("a\nb\nc\n… 2 more".to_owned(), 4));
        assert_eq!(fitted("a\nb\nc\nd", 80, 5), ("a\nb\nc\nd".to_owned(), 4));
    }

    #[test]
    fn a_line_that_is_folded_takes_several_and_colours_take_no_room() {
        assert_eq!(fitted("12345678901\n\n", 10, 24).1, 3);
        assert_eq!(fitted("\u{1b}[31m1234567890\u{1b}[0m", 10, 24).1, 1);
    }
}
