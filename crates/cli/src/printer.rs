//! All output: results to stdout, messages to stderr.
//!
//! [`anstream`] removes colours unless the output is a terminal and `NO_COLOR` is not set.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use brokkr_client::ALL;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Serialize;

use crate::args::{Output, RowLimit};
use crate::ci::Ci;
use crate::failure::{Exit, Failure, Result};
use crate::printer::echo::EchoOff;
pub use crate::printer::live::Live;
pub use crate::printer::redrawn::Redrawn;
pub use crate::printer::stream::Stream;
use crate::view::text::{clean, showing};
use crate::view::{RenderOptions, Show};

mod echo;
mod live;
mod redrawn;
mod stream;

const BAD: Style = AnsiColor::Red.on_default().bold();
const CAREFUL: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();
/// Rows of a list on a terminal, unless --limit is given.
const ROWS: usize = 100;
/// A spinner is shown after this time.
const SPINNER_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct Printer {
    output: Output,
    headers: bool,
    quiet: bool,
    ci: Option<Ci>,
}

impl Printer {
    pub fn new(output: Output, headers: bool, quiet: bool) -> Self {
        Self { output, headers, quiet, ci: Ci::of_environment() }
    }

    /// Returns whether the output is text, not a document or names.
    pub fn is_for_people(self) -> bool {
        matches!(self.output, Output::Table | Output::Wide)
    }

    pub fn render_options(self) -> RenderOptions {
        RenderOptions {
            now: Timestamp::now(),
            wide: self.output == Output::Wide,
            headers: self.headers,
            width: width(),
        }
    }

    /// Returns how many rows of a list to read. Output that is not on a terminal is complete.
    pub fn rows(self, rows: RowLimit) -> usize {
        match rows.limit {
            Some(0) => ALL,
            Some(limit) => limit,
            None if self.is_for_people() && width().is_some() => ROWS,
            None => ALL,
        }
    }

    /// Notes that a list is truncated, with the total if it is known.
    pub fn note_truncated(self, shown: usize, total: Option<u64>) {
        if self.is_for_people() {
            self.note(&format!("{}; --limit 0 shows all", showing(shown, total)));
        }
    }

    /// Prints a result in the selected format.
    pub fn show(self, shown: &impl Show) -> Result {
        match self.output {
            Output::Json | Output::Yaml => self.document(shown),
            Output::Name => self.names(&shown.names()),
            Output::Table | Output::Wide => self.data(shown.text(&self.render_options()).trim_end()),
        }
    }

    /// Prints the result of an action: a document, a name, or a sentence.
    pub fn done(
        self,
        document: &impl Serialize,
        name: impl Into<String>,
        text: impl FnOnce() -> String,
    ) -> Result {
        match self.output {
            Output::Json | Output::Yaml => self.document(document),
            Output::Name => self.names(&[name.into()]),
            Output::Table | Output::Wide => self.data(text().trim_end()),
        }
    }

    fn names(self, names: &[String]) -> Result {
        if names.is_empty() { Ok(()) } else { self.data(&names.join("\n")) }
    }

    fn document(self, document: &impl Serialize) -> Result {
        let text = if self.output == Output::Yaml { yaml(document)? } else { json(document)? };
        self.data(text.trim_end())
    }

    pub fn data(self, text: &str) -> Result {
        self.offer(text).map(|_| ())
    }

    /// Prints, and returns whether stdout is still open.
    fn offer(self, text: &str) -> Result<bool> {
        match writeln!(anstream::stdout(), "{text}") {
            Ok(()) => Ok(true),
            // The reader closed the pipe, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::new(Exit::Failed, format!("cannot write the result: {error}"))),
        }
    }

    /// Prints bytes unchanged.
    pub fn bytes(self, bytes: &[u8]) -> Result {
        let mut stdout = std::io::stdout();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot write the result: {error}")))
    }

    pub fn prints_to_terminal(self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Returns an output for items that arrive one after another.
    pub fn stream(self) -> Stream {
        Stream::new(self, self.output)
    }

    /// Returns an output that is redrawn in place, if stdout is a terminal that supports it.
    pub fn redrawn(self) -> Option<Redrawn> {
        let is_dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
        (self.is_for_people() && std::io::stdout().is_terminal() && !is_dumb).then(|| Redrawn::new(self))
    }

    /// Prints a message, unless --quiet is given.
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
        let what = format!("{}{code}", clean(&failure.what));
        if let Some(annotation) = self.ci.and_then(|ci| ci.annotation(&what, &failure.lines)) {
            self.ci_command(&annotation);
        }
        self.say(&format!("{BAD}error:{BAD:#} {what}"));
        for line in &failure.lines {
            self.say(&format!("  {}", clean(line)));
        }
        if let Some(next) = &failure.next {
            self.say(&format!("  {FAINT}next:{FAINT:#} {}", clean(next)));
        }
    }

    fn say(self, text: &str) {
        // A closed stderr cannot be reported.
        writeln!(anstream::stderr(), "{text}").ok();
    }

    /// Prints a command for the CI system, with its escape sequences even without a terminal.
    fn ci_command(self, text: &str) {
        writeln!(std::io::stderr(), "{text}").ok();
    }

    /// Returns whether the user can be asked.
    pub fn is_interactive(self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks on stderr and reads a line; returns none at the end of the input.
    pub async fn prompt(self, question: &str) -> Option<String> {
        write!(anstream::stderr(), "{question}").ok();
        std::io::stderr().flush().ok();
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|read| (read > 0).then_some(line))
        });
        line.await.ok()?.ok()?.map(|line| line.trim().to_owned())
    }

    /// Asks on stderr and reads a line without echo; returns none if it is empty or cannot be read.
    pub async fn prompt_secret(self, question: &str) -> Option<SecretString> {
        let _echo_off = EchoOff::new()?;
        let answer = self.prompt(question).await;
        // The echo was off, so the newline that ended the input was not shown: print it.
        self.say("");
        answer.filter(|answer| !answer.is_empty()).map(Into::into)
    }

    /// Returns an output for the progress of a longer action. In CI its lines form one group.
    pub fn live(self, title: &str) -> Live {
        Live::new(self, (!self.quiet).then_some(self.ci).flatten(), title)
    }

    /// Waits for `work`, with a spinner on a terminal if it takes longer than a second.
    pub async fn with_spinner<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(SPINNER_AFTER) => {}
        }
        let _shown = Live::spinner(self, what);
        work.await
    }

    /// Adds to the summary of the CI job.
    pub fn summary(self, markdown: &str) {
        if let Some(Err(error)) = self.ci.map(|ci| ci.summarise(markdown)) {
            self.warn(&format!("failed to write the job summary: {error}"));
        }
    }

    /// Sets an output of the CI step.
    pub fn output(self, name: &str, value: &str) {
        if let Some(Err(error)) = self.ci.map(|ci| ci.output(name, value)) {
            self.warn(&format!("failed to write the step output: {error}"));
        }
    }
}

fn json(document: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))
}

fn yaml(document: &impl Serialize) -> Result<String> {
    serde_saphyr::to_string(document)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write YAML: {error}")))
}

/// Returns the width of a line: `COLUMNS`, else the terminal's width, else unlimited.
fn width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).or_else(|| {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0))
    })
}
