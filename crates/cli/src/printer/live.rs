//! Something that takes a while: lines that stay, and on a terminal one headline below them that changes.

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
    /// The CI system in which a group is open.
    group: Option<Ci>,
}

impl Live {
    pub(super) fn new(printer: Printer, ci: Option<Ci>, title: &str) -> Self {
        if let Some(ci) = ci {
            printer.signal(&ci.group_start(title));
        }
        let mut live = Self::spinner(printer, "");
        live.group = ci;
        live
    }

    /// A headline and nothing else.
    pub(super) fn spinner(printer: Printer, headline: &str) -> Self {
        let bar = (!printer.quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style).with_message(headline.to_owned());
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

    pub fn headline(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    pub fn has_headline(&self) -> bool {
        self.bar.is_some()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(ci) = self.group {
            self.printer.signal(&ci.group_end());
        }
    }
}
