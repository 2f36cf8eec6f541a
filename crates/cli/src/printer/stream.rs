//! Items that arrive one after another: rows of a table, or one JSON document per line.
//!
//! The first line of JSON is `{"type":"version","stream":1}`; each further line has a `type`. Fields may be added without
//! a new version.

use serde::Serialize;

use super::{Printer, yaml};
use crate::args::Output;
use crate::failure::{Exit, Failure, Result};
use crate::view::Listed;
use crate::view::table::Table;

const VERSION: u32 = 1;

#[derive(Debug)]
pub struct Stream {
    printer: Printer,
    output: Output,
    /// Widths of the columns so far; empty before the first row.
    widths: Vec<usize>,
    has_begun: bool,
}

#[derive(Serialize)]
struct Version {
    stream: u32,
}

#[derive(Serialize)]
struct Typed<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    item: &'a T,
}

impl Stream {
    pub(super) fn new(printer: Printer, output: Output) -> Self {
        Self { printer, output, widths: Vec::new(), has_begun: false }
    }

    /// Prints items. Returns whether stdout is still open.
    pub fn items<T: Listed>(&mut self, kind: &str, items: &[T]) -> Result<bool> {
        let mut texts = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) && self.output == Output::Json {
            texts.push(line(&Typed { kind: "version", item: &Version { stream: VERSION } })?);
        }
        for item in items {
            texts.push(match self.output {
                Output::Json => line(&Typed { kind, item })?,
                Output::Yaml => format!("---\n{}", yaml(&Typed { kind, item })?.trim_end()),
                Output::Name => item.name(),
                Output::Table | Output::Wide => break,
            });
        }
        if matches!(self.output, Output::Table | Output::Wide) && !items.is_empty() {
            let options = self.printer.render_options();
            let table = T::columns(Table::new(&options, items));
            texts.push(table.print_after(&mut self.widths));
        }
        if texts.is_empty() { Ok(true) } else { self.printer.offer(&texts.join("\n")) }
    }
}

fn line(item: &impl Serialize) -> Result<String> {
    serde_json::to_string(item)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))
}
