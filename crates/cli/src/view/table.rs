//! Tables in the style of kubectl: upper-case headers, three spaces between columns, no borders.
//!
//! On a terminal a row is one line, and columns with sentences are cut to fit. Otherwise, and with `-o wide`, nothing is cut,
//! so that `grep` finds everything.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use brokkr_api::status::State;
use jiff::Timestamp;
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

#[derive(Debug)]
struct Column {
    title: &'static str,
    kind: Kind,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: Display> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: clean(text), style: Style::new() }
    }
}

pub fn painted(text: impl Display, style: Style) -> Cell {
    Cell { style, ..Cell::from(text) }
}

/// A table with one row per item.
#[derive(Debug)]
pub struct Table<'a, T> {
    options: &'a RenderOptions,
    items: Vec<&'a T>,
    columns: Vec<Column>,
}

impl<'a, T> Table<'a, T> {
    pub fn new(options: &'a RenderOptions, items: &'a [T]) -> Self {
        Self { options, items: items.iter().collect(), columns: Vec::new() }
    }

    pub fn now(&self) -> Timestamp {
        self.options.now
    }

    /// Orders the rows; to be called before columns are added.
    pub fn sorted_by_key<K: Ord>(mut self, key: impl Fn(&T) -> K) -> Self {
        self.items.sort_by_key(|item| key(item));
        self
    }

    /// Adds a column that is never cut.
    pub fn plain<C: Into<Cell>>(self, title: &'static str, cell: impl Fn(&'a T) -> C) -> Self {
        self.column(title, Kind::Plain, cell)
    }

    /// Adds a column that may be cut to fit.
    pub fn sentence<C: Into<Cell>>(self, title: &'static str, cell: impl Fn(&'a T) -> C) -> Self {
        self.column(title, Kind::Sentence, cell)
    }

    /// Adds a column for `-o wide`.
    pub fn wide<C: Into<Cell>>(self, title: &'static str, cell: impl Fn(&'a T) -> C) -> Self {
        self.column(title, Kind::Wide, cell)
    }

    fn column<C: Into<Cell>>(mut self, title: &'static str, kind: Kind, cell: impl Fn(&'a T) -> C) -> Self {
        let cells = self.items.iter().map(|item| cell(item).into()).collect();
        self.columns.push(Column { title, kind, cells });
        self
    }

    pub fn print(&self) -> String {
        self.print_after(&mut Vec::new())
    }

    /// Returns the table as text; without headers if `widths` already has the widths of earlier rows.
    pub fn print_after(&self, widths: &mut Vec<usize>) -> String {
        let options = self.options;
        let is_shown = |column: &&Column| options.wide || column.kind != Kind::Wide;
        let shown: Vec<&Column> = self.columns.iter().filter(is_shown).collect();
        let has_headers = options.headers && widths.is_empty();
        widths.resize(shown.len(), 0);
        for (width, column) in widths.iter_mut().zip(&shown) {
            let title = if options.headers { column.title.width() } else { 0 };
            let cells = column.cells.iter().map(|cell| cell.text.width());
            *width = cells.chain([title, *width]).max().unwrap_or(0);
        }
        let mut fitting = widths.clone();
        if let Some(limit) = options.width.filter(|_| !options.wide) {
            let may_be_cut: Vec<bool> = shown.iter().map(|column| column.kind == Kind::Sentence).collect();
            fit(&mut fitting, &may_be_cut, limit);
        }
        let mut lines = Vec::new();
        if has_headers {
            let titles: Vec<Cell> = shown.iter().map(|column| column.title.into()).collect();
            lines.push(line(titles.iter(), &fitting));
        }
        for row in 0..self.items.len() {
            lines.push(line(shown.iter().map(|column| &column.cells[row]), &fitting));
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

    const ROWS: [(&str, u8, &str); 2] = [("a", 7, "2s"), ("次の", 8, "")];

    fn table<'a>(options: &'a RenderOptions, message: &str) -> Table<'a, (&'static str, u8, &'static str)> {
        Table::new(options, &ROWS)
            .plain("NAME", |row| row.0)
            .sentence("MESSAGE", |row| if row.0 == "a" { painted(message, BAD) } else { "".into() })
            .wide("ID", |row| row.1)
            .plain("AGE", |row| row.2)
    }

    fn lines(text: &str) -> Vec<String> {
        anstream::adapter::strip_str(text).to_string().lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_row_is_one_line_on_a_terminal_and_complete_elsewhere() {
        let long = "word ".repeat(20);
        let cut = lines(&table(&narrow(40), &long).print());
        assert_eq!(cut[1].width(), 39, "{cut:?}");
        assert!(cut[1].contains("word…") || cut[1].contains("…   2s"), "{cut:?}");
        assert_eq!(cut[2], "次の", "no spaces at the end");
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
