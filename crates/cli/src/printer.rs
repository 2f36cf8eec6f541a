//! The one gate to stdout and stderr: data to stdout, talk to stderr.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use secrecy::SecretString;
use serde::Serialize;

use crate::args::Output;
use crate::failure::{Exit, Failure};
use crate::printer::echo::EchoOff;
use crate::view::text::clean;

mod echo;

const BAD: Style = AnsiColor::Red.on_default().bold();
const CAREFUL: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();

#[derive(Clone, Copy, Debug)]
pub struct Printer {
    output: Output,
    quiet: bool,
}

impl Printer {
    pub fn new(output: Output, quiet: bool) -> Self {
        Self { output, quiet }
    }

    pub fn wants_json(self) -> bool {
        self.output == Output::Json
    }

    /// A result: as a document for programs, or as the text that `view` makes of it for people.
    pub fn result<T: Serialize>(self, document: &T, view: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.output {
            Output::Json => {
                let text = serde_json::to_string_pretty(document)
                    .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
                self.data(&text)
            }
            Output::Table => self.data(view().trim_end()),
        }
    }

    pub fn data(self, text: &str) -> Result<(), Failure> {
        match writeln!(anstream::stdout(), "{text}") {
            Ok(()) => Ok(()),
            // The reader has seen enough, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::new(Exit::Failed, format!("cannot write the result: {error}"))),
        }
    }

    /// Talk that one can do without.
    pub fn note(self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    pub fn warn(self, text: &str) {
        self.say(&format!("{CAREFUL}warning:{CAREFUL:#} {text}"));
    }

    pub fn failure(self, failure: &Failure) {
        let code = failure.code.map(|code| format!(" ({code})")).unwrap_or_default();
        self.say(&format!("{BAD}error:{BAD:#} {}{code}", clean(&failure.what)));
        for line in &failure.lines {
            self.say(&format!("  {}", clean(line)));
        }
        if let Some(next) = &failure.next {
            self.say(&format!("  {FAINT}next:{FAINT:#} {}", clean(next)));
        }
    }

    fn say(self, text: &str) {
        // Nobody is left to be told that stderr is gone.
        writeln!(anstream::stderr(), "{text}").ok();
    }

    /// Whether somebody sits there who can answer.
    pub fn can_ask(self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks on stderr and reads one line; none at the end of input.
    pub async fn ask(self, question: &str) -> Option<String> {
        write!(anstream::stderr(), "{question}").ok();
        std::io::stderr().flush().ok();
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|read| (read > 0).then_some(line))
        });
        line.await.ok()?.ok()?.map(|line| line.trim().to_owned())
    }

    /// Asks without showing what is typed.
    pub async fn ask_secret(self, question: &str) -> Option<SecretString> {
        let _echo_off = EchoOff::new()?;
        let answer = self.ask(question).await;
        // The newline that ended the input was not shown, either.
        self.say("");
        answer.map(Into::into)
    }

    /// For something that takes a while.
    pub fn live(self) -> Live {
        let bar = (!self.quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Live { printer: self, bar }
    }
}

/// Lines that stay, and on a terminal one headline below them that changes.
#[derive(Debug)]
pub struct Live {
    printer: Printer,
    bar: Option<ProgressBar>,
}

impl Live {
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
    }
}
