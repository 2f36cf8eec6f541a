//! `brokkr status --watch`: all stacks, and then every change of one. On a terminal one table that is drawn anew, elsewhere a
//! row or document for each change.
//!
//! What agents report comes with the stream of events, which says whose figures to ask for again. What no agent reports
//! (a stack is made, submitted to, targeted, deleted) shows in the list of stacks, which is read on a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brokkr_api::events::Event;
use brokkr_api::stacks::Stack;
use brokkr_api::{ErrorCode, StackId};
use brokkr_client::{Client, ClientError, EventQuery, Message};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::all::{ASKED_EACH, figures, tell_if_too_many};
use crate::failure::{Failure, WhileTrying as _};
use crate::printer::{Printer, Sheet, Stream};
use crate::view::stacks::StackLine;
use crate::view::{Show as _, whole};

const ACTION: &str = "follow the state of the stacks";
const LIST_EVERY: Duration = Duration::from_secs(2);
/// Figures also move when agents join or get other labels, of which no event tells.
const ALL_EVERY: Duration = Duration::from_secs(30);
/// Reports come in swarms: so long they are gathered before anybody is asked.
const CALM: Duration = Duration::from_millis(500);
const HEARD_AHEAD: usize = 64;

/// The stream is begun first, so that nothing falls between the list and it.
pub async fn run(client: &Client, printer: Printer) -> Result<(), Failure> {
    let mut news = News::begin(client).await.while_trying(ACTION)?;
    let mut board = Board::default();
    let mut shown = Shown::new(printer);
    let (mut heard, mut all_due) = (Heard::default(), Instant::now());
    let mut is_first = true;
    loop {
        let wants_all = heard.is_reset || Instant::now() >= all_due;
        if wants_all {
            all_due = Instant::now() + ALL_EVERY;
        }
        if heard.is_reset {
            shown.warn("the broker's history was restored: what follows is as of now");
        }
        let changed = look(&mut board, &heard.stacks, wants_all, client).await.while_trying(ACTION)?;
        if std::mem::take(&mut is_first) && printer.is_for_people() {
            tell_if_too_many(board.lines.len(), printer);
            if board.lines.is_empty() && matches!(shown, Shown::Rows(..)) {
                printer.note("no stacks yet; waiting for the first");
            }
        }
        if !shown.tell(&board, &changed)? {
            return Ok(());
        }
        // What was heard before it is told before it.
        if let Some(error) = heard.end {
            return Err(error).while_trying(ACTION);
        }
        heard = news.gather(Instant::now() + LIST_EVERY).await;
    }
}

/// What is known of each stack. One that was deleted stays, to show how its removal goes on.
#[derive(Debug, Default)]
struct Board {
    lines: BTreeMap<StackId, StackLine>,
}

impl Board {
    /// Whose figures are wanted: of those that were heard of; and unless there are too many, of those that are new or look
    /// different, or of all.
    fn wanted(&self, stacks: &[Stack], heard: &BTreeSet<StackId>, wants_all: bool) -> Vec<StackId> {
        let is_few = stacks.len() <= ASKED_EACH;
        let is_wanted = |stack: &&Stack| match self.lines.get(&stack.id) {
            _ if heard.contains(&stack.id) => true,
            Some(line) if line.stack != **stack => is_few || line.summary.is_some(),
            known => is_few && (wants_all || known.is_none()),
        };
        stacks.iter().filter(is_wanted).map(|stack| stack.id).collect()
    }

    /// Those that were there and are no longer in the list of living stacks; deleted ones only if they were heard of.
    fn missing(&self, listed: &[Stack], heard: &BTreeSet<StackId>) -> Vec<StackId> {
        let listed: BTreeSet<StackId> = listed.iter().map(|stack| stack.id).collect();
        let is_missing = |line: &&StackLine| {
            let id = line.stack.id;
            !listed.contains(&id) && (line.stack.deleted_at.is_none() || heard.contains(&id))
        };
        self.lines.values().filter(is_missing).map(|line| line.stack.id).collect()
    }

    /// Takes a line in; answers with it if it is news.
    fn take(&mut self, line: StackLine) -> Option<StackLine> {
        let is_news = self.lines.get(&line.stack.id) != Some(&line);
        self.lines.insert(line.stack.id, line.clone());
        is_news.then_some(line)
    }

    fn by_name(&self) -> Vec<StackLine> {
        let mut lines: Vec<StackLine> = self.lines.values().cloned().collect();
        lines.sort_by(|one, other| one.stack.name.cmp(&other.stack.name));
        lines
    }
}

/// Asks for the list, and for the figures of those that may have changed. Answers with those that have.
async fn look(
    board: &mut Board,
    heard: &BTreeSet<StackId>,
    wants_all: bool,
    client: &Client,
) -> Result<Vec<StackLine>, ClientError> {
    let mut stacks = client.stacks_all().await?;
    for id in board.missing(&stacks, heard) {
        match client.stack(&id.to_string()).await {
            Ok(stack) => stacks.push(stack),
            // Not even its history is left.
            Err(error) if error.code() == Some(ErrorCode::BRK2001) => drop(board.lines.remove(&id)),
            Err(error) => return Err(error),
        }
    }
    let mut summaries = figures(client, &board.wanted(&stacks, heard, wants_all)).await?;
    let mut changed = Vec::new();
    for stack in stacks {
        let known = board.lines.get(&stack.id).and_then(|line| line.summary.clone());
        let summary = summaries.remove(&stack.id).or(known);
        changed.extend(board.take(StackLine { stack, summary }));
    }
    Ok(changed)
}

/// What the stream of events said while somebody waited.
#[derive(Debug, Default)]
struct Heard {
    stacks: BTreeSet<StackId>,
    is_reset: bool,
    end: Option<ClientError>,
}

/// The stream, read by a task of its own: giving up waiting must not give up a connection that is being made.
struct News {
    received: mpsc::Receiver<Result<Message<Event>, ClientError>>,
    _reading: JoinSet<()>,
}

impl News {
    async fn begin(client: &Client) -> Result<Self, ClientError> {
        let mut stream = client.follow_events(&EventQuery::default());
        stream.begin().await?;
        let (told, received) = mpsc::channel(HEARD_AHEAD);
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            loop {
                let message = stream.next().await;
                let is_end = message.is_err();
                if told.send(message).await.is_err() || is_end {
                    return;
                }
            }
        });
        Ok(Self { received, _reading: reading })
    }

    /// Waits until then; or, once something is heard, only as long as it takes to hear what comes with it.
    async fn gather(&mut self, until: Instant) -> Heard {
        let (mut heard, mut until) = (Heard::default(), until);
        while heard.end.is_none() {
            match timeout_at(until, self.received.recv()).await {
                Ok(Some(Ok(Message::Item(event)))) => {
                    heard.stacks.insert(event.stack_id);
                }
                Ok(Some(Ok(Message::Reset))) => heard.is_reset = true,
                Ok(Some(Err(error))) => heard.end = Some(error),
                // The end was told before.
                Ok(None) | Err(_) => break,
            }
            until = until.min(Instant::now() + CALM);
        }
        heard
    }
}

/// Where changes are shown.
enum Shown {
    Sheet(Sheet, Printer),
    Rows(Stream, Printer),
}

impl Shown {
    fn new(printer: Printer) -> Self {
        match printer.sheet() {
            Some(sheet) => Self::Sheet(sheet, printer),
            None => Self::Rows(printer.stream(), printer),
        }
    }

    /// Answers whether somebody still reads.
    fn tell(&mut self, board: &Board, changed: &[StackLine]) -> Result<bool, Failure> {
        match self {
            Self::Sheet(sheet, printer) => sheet.draw(&whole(board.by_name()).text(&printer.look())),
            Self::Rows(rows, _) => rows.items("stack", changed),
        }
    }

    fn warn(&mut self, text: &str) {
        match self {
            Self::Sheet(sheet, printer) => {
                sheet.leave();
                printer.warn(text);
            }
            Self::Rows(_, printer) => printer.warn(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{stack, summary};
    use brokkr_api::status::StateCounts;

    fn line(name: &str, number: usize, sequence: i64) -> StackLine {
        let mut stack = stack(name, Some(sequence));
        stack.id = format!("0190b5a4-0000-7000-8000-{number:012x}").parse().unwrap();
        StackLine { stack, summary: Some(summary(3, 0, StateCounts::default())) }
    }

    #[test]
    fn only_what_may_have_changed_is_asked_for() {
        let (web, api) = (line("web", 1, 42), line("api", 2, 42));
        let mut board = Board::default();
        assert_eq!(board.take(web.clone()), Some(web.clone()));
        assert_eq!(board.take(api.clone()), Some(api.clone()));
        assert_eq!(board.take(web.clone()), None, "that is known");
        let listed = [web.stack.clone(), api.stack.clone()];
        let nobody = BTreeSet::new();
        assert!(board.wanted(&listed, &nobody, false).is_empty());
        assert_eq!(board.wanted(&listed, &nobody, true), [web.stack.id, api.stack.id]);
        assert_eq!(board.wanted(&listed, &BTreeSet::from([api.stack.id]), false), [api.stack.id]);
        let submitted = [line("web", 1, 43).stack, line("shop", 3, 44).stack];
        assert_eq!(board.wanted(&submitted, &nobody, false).len(), 2, "another version, and a new one");
        assert_eq!(board.missing(&submitted, &nobody), [api.stack.id]);
        let names: Vec<String> =
            board.by_name().into_iter().map(|line| line.stack.name.to_string()).collect();
        assert_eq!(names, ["api", "web"]);
    }

    #[test]
    fn a_deleted_stack_is_looked_for_once_and_then_when_it_is_heard_of() {
        let mut board = Board::default();
        let mut gone = line("web", 1, 42);
        board.take(gone.clone());
        assert_eq!(board.missing(&[], &BTreeSet::new()), [gone.stack.id]);
        gone.stack.deleted_at = Some(crate::view::samples::now());
        board.take(gone.clone());
        assert!(board.missing(&[], &BTreeSet::new()).is_empty());
        assert_eq!(board.missing(&[], &BTreeSet::from([gone.stack.id])), [gone.stack.id]);
    }

    #[test]
    fn with_many_stacks_only_those_are_asked_for_that_were_heard_of() {
        let listed: Vec<Stack> = (0..=ASKED_EACH).map(|number| line("web", number, 42).stack).collect();
        assert!(Board::default().wanted(&listed, &BTreeSet::new(), true).is_empty());
        assert_eq!(Board::default().wanted(&listed, &BTreeSet::from([listed[7].id]), true), [listed[7].id]);
    }
}
