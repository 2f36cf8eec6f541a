//! Tables as kubectl prints them: capitals above, three spaces between, no borders.

use anstyle::{AnsiColor, Style};
use brokkr_api::status::State;
use comfy_table::{ContentArrangement, TableStyle};

/// Columns and rows of text; one column may be painted.
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    painted: Option<(usize, Vec<Style>)>,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new(), painted: None }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| super::text::clean(&cell)).collect());
    }

    /// Paints a column, with one style for each row.
    pub fn paint(&mut self, column: usize, styles: Vec<Style>) {
        self.painted = Some((column, styles));
    }

    pub fn print(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.header.clone());
        table.add_rows(self.rows.clone());
        for column in table.column_iter_mut() {
            column.set_padding((0, 3));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let Some((column, styles)) = &self.painted else { return lines.join("\n") };
        // Painted after the layout: the width of a cell must not count its colour.
        let offset: usize =
            table.column_max_content_widths().iter().take(*column).map(|width| usize::from(*width) + 3).sum();
        let mut painted = lines.iter().take(1).cloned().collect::<Vec<_>>();
        for ((line, row), style) in lines.iter().skip(1).zip(&self.rows).zip(styles) {
            painted.push(paint(line, offset, &row[*column], *style));
        }
        painted.join("\n")
    }
}

fn paint(line: &str, offset: usize, cell: &str, style: Style) -> String {
    // Cells before this one may hold wide characters; then the line stays as it is.
    match (line.get(..offset), line.get(offset..)) {
        (Some(before), Some(rest)) if rest.starts_with(cell) => {
            format!("{before}{style}{cell}{style:#}{}", &rest[cell.len()..])
        }
        _ => line.to_owned(),
    }
}

pub fn style_of(state: State) -> Style {
    match state {
        State::Healthy => AnsiColor::Green.on_default(),
        State::Failed => AnsiColor::Red.on_default().bold(),
        State::Degraded | State::Blocked => AnsiColor::Yellow.on_default().bold(),
        State::Pending | State::Applied | State::Removing => AnsiColor::Yellow.on_default(),
        State::Removed => Style::new().dimmed(),
    }
}
