//! What comes bit by bit: rows below each other for people, one JSON document a line for programs.
//!
//! The first line of JSON is `{"type":"version","stream":1}`; each further one has the `type` of what it is. Fields may
//! be added under the same number.

use serde::Serialize;

use super::{Printer, yaml};
use crate::args::Output;
use crate::failure::{Exit, Failure};
use crate::view::Listed;

const VERSION: u32 = 1;

#[derive(Debug)]
pub struct Stream {
    printer: Printer,
    output: Output,
    /// Of the columns so far; empty before the first row.
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

    /// More of the same kind.
    pub fn items<T: Listed>(&mut self, kind: &str, items: &[T]) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.has_begun, true) && self.output == Output::Json {
            self.line(&Typed { kind: "version", item: &Version { stream: VERSION } })?;
        }
        if items.is_empty() {
            return Ok(());
        }
        match self.output {
            Output::Json => items.iter().try_for_each(|item| self.line(&Typed { kind, item })),
            Output::Yaml => items.iter().try_for_each(|item| {
                let text = yaml(&Typed { kind, item })?;
                self.printer.data(&format!("---\n{}", text.trim_end()))
            }),
            Output::Name => items.iter().try_for_each(|item| self.printer.data(&item.name())),
            Output::Table | Output::Wide => {
                let look = self.printer.look();
                let text = T::table(items, &look).print_after(&mut self.widths);
                self.printer.data(&text)
            }
        }
    }

    fn line(&self, item: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(item)
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
        self.printer.data(&text)
    }
}
