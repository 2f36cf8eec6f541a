//! Text that is redrawn in place on a terminal, and stays there when the command ends.

use std::io::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::Printer;
use crate::failure::Result;

#[derive(Debug)]
pub struct Redrawn {
    printer: Printer,
    text: String,
    /// Lines of the terminal that the text occupies.
    height: usize,
}

impl Redrawn {
    pub(super) fn new(printer: Printer) -> Self {
        Self { printer, text: String::new(), height: 0 }
    }

    /// Draws the text if it has changed; lines that do not fit are counted. Returns whether stdout is still open.
    pub fn draw(&mut self, text: &str) -> Result<bool> {
        let size = terminal_size::terminal_size_of(std::io::stdout());
        let (columns, rows) = size.map_or((80, 24), |(columns, rows)| (columns.0.into(), rows.0.into()));
        let (text, height) = fitted(text, columns, rows);
        if text == self.text {
            return Ok(true);
        }
        if self.height > 0 {
            // Not through anstream, which would remove the escape sequence if colours are off.
            write!(std::io::stdout(), "\u{1b}[{}A\u{1b}[J", self.height).ok();
        }
        let is_open = self.printer.offer(&text)?;
        (self.text, self.height) = (text, height);
        Ok(is_open)
    }

    /// Leaves the drawn text; the next drawing is below it.
    pub fn leave(&mut self) {
        (self.text, self.height) = (String::new(), 0);
    }
}

/// Returns the lines that fit, and how many lines of the terminal they occupy.
fn fitted(text: &str, columns: usize, rows: usize) -> (String, usize) {
    // One line for the cursor, and one may be needed for the count.
    let available = rows.saturating_sub(1).max(2);
    let heights: Vec<usize> = text.lines().map(|line| height(line, columns)).collect();
    if heights.iter().sum::<usize>() <= available {
        return (text.trim_end().to_owned(), heights.iter().sum());
    }
    let (mut taken, mut lines) = (1, Vec::new());
    for (line, height) in text.lines().zip(&heights) {
        if taken + height > available {
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
    fn lines_that_do_not_fit_are_counted() {
        assert_eq!(fitted("a\nb\n", 80, 24), ("a\nb".to_owned(), 2));
        assert_eq!(fitted("a\nb\nc\nd\ne", 80, 5), ("a\nb\nc\n… 2 more".to_owned(), 4));
        assert_eq!(fitted("a\nb\nc\nd", 80, 5), ("a\nb\nc\nd".to_owned(), 4));
    }

    #[test]
    fn a_wrapped_line_takes_several_and_colours_take_none() {
        assert_eq!(fitted("12345678901\n\n", 10, 24).1, 3);
        assert_eq!(fitted("\u{1b}[31m1234567890\u{1b}[0m", 10, 24).1, 1);
    }
}
