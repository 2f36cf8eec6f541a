//! Progress of a longer action: lines, and on a terminal a changing status line below them.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Printer;
use crate::ci::Ci;

const TICK: Duration = Duration::from_millis(120);

#[derive(Debug)]
pub struct Live {
    printer: Printer,
    bar: Option<ProgressBar>,
    /// The CI system with the open group.
    group: Option<Ci>,
}

impl Live {
    pub(super) fn new(printer: Printer, ci: Option<Ci>, title: &str) -> Self {
        if let Some(ci) = ci {
            printer.ci_command(&ci.group_start(title));
        }
        let mut live = Self::spinner(printer, "");
        live.group = ci;
        live
    }

    /// Returns an output with only a status line.
    pub(super) fn spinner(printer: Printer, status: &str) -> Self {
        let bar = (!printer.quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style).with_message(status.to_owned());
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { printer, bar, group: None }
    }

    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.printer.note(text)),
            None => self.printer.note(text),
        }
    }

    pub fn status(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    pub fn has_status_line(&self) -> bool {
        self.bar.is_some()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(ci) = self.group {
            self.printer.ci_command(&ci.group_end());
        }
    }
}
