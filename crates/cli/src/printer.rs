//! The one gate to stdout and stderr: data to stdout, talk to stderr.
//!
//! Colours go to terminals only, and not where `NO_COLOR` is set: [`anstream`] takes them out.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use brokkr_client::ALL;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Serialize;

use crate::args::{Most, Output};
use crate::ci::Ci;
use crate::failure::{Exit, Failure};
use crate::printer::echo::EchoOff;
pub use crate::printer::live::Live;
pub use crate::printer::sheet::Sheet;
pub use crate::printer::stream::Stream;
use crate::view::text::{clean, showing};
use crate::view::{Look, Show};

mod echo;
mod live;
mod sheet;
mod stream;

const BAD: Style = AnsiColor::Red.on_default().bold();
const CAREFUL: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();
/// So many rows of a list are shown to people who did not say how many.
const ROWS: usize = 100;
/// What takes longer than this is told to take a while.
const NOTICEABLE: Duration = Duration::from_secs(1);

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

    /// Whether text is wanted, and not a document or names.
    pub fn is_for_people(self) -> bool {
        matches!(self.output, Output::Table | Output::Wide)
    }

    pub fn look(self) -> Look {
        Look {
            now: Timestamp::now(),
            wide: self.output == Output::Wide,
            headers: self.headers,
            width: width(),
        }
    }

    /// How many rows of a list are wanted: what is piped is whole, as its lines are.
    pub fn rows(self, most: Most) -> usize {
        match most.limit {
            Some(0) => ALL,
            Some(limit) => limit,
            None if self.is_for_people() && width().is_some() => ROWS,
            None => ALL,
        }
    }

    /// Tells people that there is more than a list shows, and how much there is if that is known.
    pub fn cut(self, shown: usize, total: Option<u64>) {
        if self.is_for_people() {
            self.note(&format!("{}; --limit 0 shows all", showing(shown, total)));
        }
    }

    /// What was asked for, in the form that was asked for.
    pub fn show(self, shown: &impl Show) -> Result<(), Failure> {
        match self.output {
            Output::Json | Output::Yaml => self.document(shown),
            Output::Name => self.names(&shown.names()),
            Output::Table | Output::Wide => self.data(shown.text(&self.look()).trim_end()),
        }
    }

    /// What was done: to whom, and in words for people.
    pub fn done(
        self,
        document: &impl Serialize,
        name: impl Into<String>,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Json | Output::Yaml => self.document(document),
            Output::Name => self.names(&[name.into()]),
            Output::Table | Output::Wide => self.data(text().trim_end()),
        }
    }

    fn names(self, names: &[String]) -> Result<(), Failure> {
        if names.is_empty() { Ok(()) } else { self.data(&names.join("\n")) }
    }

    fn document(self, document: &impl Serialize) -> Result<(), Failure> {
        let text = if self.output == Output::Yaml { yaml(document)? } else { json(document)? };
        self.data(text.trim_end())
    }

    pub fn data(self, text: &str) -> Result<(), Failure> {
        self.offer(text).map(|_| ())
    }

    /// Whether somebody still reads.
    fn offer(self, text: &str) -> Result<bool, Failure> {
        match writeln!(anstream::stdout(), "{text}") {
            Ok(()) => Ok(true),
            // The reader has seen enough, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::new(Exit::Failed, format!("cannot write the result: {error}"))),
        }
    }

    /// An archive, or a manifest, as it is.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = std::io::stdout();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot write the result: {error}")))
    }

    pub fn prints_to_terminal(self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// For what comes bit by bit.
    pub fn stream(self) -> Stream {
        Stream::new(self, self.output)
    }

    /// For what changes in its place: on a terminal that can do it, and for people.
    pub fn sheet(self) -> Option<Sheet> {
        let is_dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
        (self.is_for_people() && std::io::stdout().is_terminal() && !is_dumb).then(|| Sheet::new(self))
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
        let what = format!("{}{code}", clean(&failure.what));
        if let Some(annotation) = self.ci.and_then(|ci| ci.annotation(&what, &failure.lines)) {
            self.signal(&annotation);
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
        // Nobody is left to be told that stderr is gone.
        writeln!(anstream::stderr(), "{text}").ok();
    }

    /// For a CI system, which wants its escapes also where there is no terminal.
    fn signal(self, text: &str) {
        writeln!(std::io::stderr(), "{text}").ok();
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

    /// For something that takes a while and has things to tell meanwhile; in CI its lines are one group.
    pub fn live(self, title: &str) -> Live {
        Live::new(self, (!self.quiet).then_some(self.ci).flatten(), title)
    }

    /// Waits for `work`, and on a terminal says so if it takes longer than a second.
    pub async fn patiently<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(NOTICEABLE) => {}
        }
        let _shown = Live::spinner(self, what);
        work.await
    }

    /// What the CI system shows beside the job.
    pub fn summary(self, markdown: &str) {
        if let Some(Err(error)) = self.ci.map(|ci| ci.summarise(markdown)) {
            self.warn(&format!("cannot write the summary of the job: {error}"));
        }
    }

    /// What later steps of the CI job can use.
    pub fn output(self, name: &str, value: &str) {
        if let Some(Err(error)) = self.ci.map(|ci| ci.output(name, value)) {
            self.warn(&format!("cannot write the outputs of the job: {error}"));
        }
    }
}

fn json(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))
}

fn yaml(document: &impl Serialize) -> Result<String, Failure> {
    serde_saphyr::to_string(document)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write YAML: {error}")))
}

/// How wide a line of stdout may be: what `COLUMNS` says, else the terminal's width, else anything.
fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.filter(|columns| *columns > 0).or_else(|| {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0))
    })
}
