//! Tables in the style of kubectl: upper-case headers, three spaces between columns, no borders.
//!
//! On a terminal a row is one line, and columns with sentences are cut to fit. Otherwise, and with `-o wide`, nothing is cut,
//! so that `grep` finds everything.

use anstyle::{AnsiColor, Style};
use brokkr_api::status::State;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::RenderOptions;
use super::text::clean;

const GAP: usize = 3;
/// Columns are not cut below this width.
const LEAST: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// May be cut.
    Sentence,
    /// Only with `-o wide`.
    Wide,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    kind: Kind,
}

pub const fn plain(title: &'static str) -> Column {
    Column { title, kind: Kind::Plain }
}

pub const fn sentence(title: &'static str) -> Column {
    Column { title, kind: Kind::Sentence }
}

pub const fn wide(title: &'static str) -> Column {
    Column { title, kind: Kind::Wide }
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: clean(text.into()), style: Style::new() }
    }
}

pub fn painted(text: impl Into<String>, style: Style) -> Cell {
    Cell { style, ..Cell::from(text) }
}

/// Columns and rows of text.
#[derive(Debug)]
pub struct Table<'a> {
    options: &'a RenderOptions,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl<'a> Table<'a> {
    pub fn new(options: &'a RenderOptions, columns: &[Column]) -> Self {
        Self { options, columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn print(&self) -> String {
        self.print_after(&mut Vec::new())
    }

    /// Prints below rows that were printed with the same `widths`, then without headers.
    pub fn print_after(&self, widths: &mut Vec<usize>) -> String {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|at| self.options.wide || self.columns[*at].kind != Kind::Wide)
            .collect();
        let is_first = widths.is_empty();
        let has_headers = self.options.headers && is_first;
        widths.resize(shown.len(), 0);
        for (width, &at) in widths.iter_mut().zip(&shown) {
            let title = if self.options.headers { self.columns[at].title.width() } else { 0 };
            let cells = self.rows.iter().map(|row| row[at].text.width());
            *width = cells.chain([title, *width]).max().unwrap_or(0);
        }
        let mut fitting = widths.clone();
        if let Some(limit) = self.options.width.filter(|_| !self.options.wide) {
            let may_be_cut: Vec<bool> =
                shown.iter().map(|at| self.columns[*at].kind == Kind::Sentence).collect();
            fit(&mut fitting, &may_be_cut, limit);
        }
        let mut lines = Vec::new();
        if has_headers {
            let titles = shown.iter().map(|at| Cell::from(self.columns[*at].title));
            lines.push(line(titles.collect::<Vec<_>>().iter(), &fitting));
        }
        for row in &self.rows {
            lines.push(line(shown.iter().map(|at| &row[*at]), &fitting));
        }
        lines.join("\n")
    }
}

/// Narrows the widest columns that may be cut, until the row fits.
fn fit(widths: &mut [usize], may_be_cut: &[bool], limit: usize) {
    loop {
        let taken = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let widest = (0..widths.len())
            .filter(|at| may_be_cut[*at] && widths[*at] > LEAST)
            .max_by_key(|at| widths[*at]);
        match widest {
            Some(at) if taken > limit => widths[at] -= 1,
            _ => return,
        }
    }
}

fn line<'c>(cells: impl Iterator<Item = &'c Cell>, widths: &[usize]) -> String {
    let mut line = String::new();
    let mut due = 0;
    for (cell, width) in cells.zip(widths) {
        let text = cut(&cell.text, *width);
        // The gap is written before the next text, so that no line ends with spaces.
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', due));
            due = 0;
            line.push_str(&format!("{}{text}{:#}", cell.style, cell.style));
        }
        due += width - text.width() + GAP;
    }
    line
}

fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut short = String::new();
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        short.push(character);
    }
    format!("{}…", short.trim_end())
}

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const CAREFUL: Style = AnsiColor::Yellow.on_default().bold();
pub const UNDER_WAY: Style = AnsiColor::Yellow.on_default();
pub const FAINT: Style = Style::new().dimmed();

pub fn style_of(state: State) -> Style {
    match state {
        State::Healthy => GOOD,
        State::Failed => BAD,
        State::Degraded | State::Blocked => CAREFUL,
        State::Pending | State::Applied | State::Removing => UNDER_WAY,
        State::Removed => FAINT,
        State::Unknown => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{narrow, options};
    use super::*;

    fn table<'a>(options: &'a RenderOptions, message: &str) -> Table<'a> {
        let mut table = Table::new(options, &[plain("NAME"), sentence("MESSAGE"), wide("ID"), plain("AGE")]);
        table.row(["a".into(), painted(message, BAD), "7".into(), "2s".into()]);
        table.row(["次の".into(), "".into(), "8".into(), "".into()]);
        table
    }

    fn lines(text: &str) -> Vec<String> {
        anstream::adapter::strip_str(text).to_string().lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_row_is_one_line_of_the_terminal_and_whole_elsewhere() {
        let long = "word ".repeat(20);
        let cut = lines(&table(&narrow(40), &long).print());
        assert_eq!(cut[1].width(), 39, "{cut:?}");
        assert!(cut[1].contains("word…") || cut[1].contains("…   2s"), "{cut:?}");
        assert_eq!(cut[2], "次の", "no blanks at the end");
        let whole = lines(&table(&options(), &long).print());
        assert!(whole[1].contains(long.trim_end()) && !whole[0].contains("ID"), "{whole:?}");
        let wide = lines(&table(&RenderOptions { wide: true, ..narrow(40) }, &long).print());
        assert!(wide[0].contains("ID") && wide[1].contains(long.trim_end()), "{wide:?}");
    }

    #[test]
    fn headers_can_be_left_out_and_rows_added_later_line_up() {
        let bare = RenderOptions { headers: false, ..options() };
        assert_eq!(lines(&table(&bare, "x").print())[0], "a      x   2s");
        let options = options();
        let mut widths = Vec::new();
        assert_eq!(lines(&table(&options, "x").print_after(&mut widths))[0], "NAME   MESSAGE   AGE");
        assert_eq!(lines(&table(&options, "x").print_after(&mut widths))[0], "a      x         2s");
    }

    #[test]
    fn a_painted_cell_is_as_wide_as_its_text() {
        let text = table(&options(), "x").print();
        assert!(text.contains("\u{1b}[1m\u{1b}[31mx\u{1b}[0m"), "{text:?}");
    }
}
