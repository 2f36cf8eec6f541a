//! `brokkr status --watch`: all stacks, then every change. On a terminal one table that is redrawn, otherwise a row or
//! document per change.
//!
//! After an event, the counts of its stack are read again. Changes that no agent reports (a stack is created, submitted
//! to, retargeted, deleted) are found by listing the stacks on a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brokkr_api::events::Event;
use brokkr_api::stacks::Stack;
use brokkr_api::{ErrorCode, StackId};
use brokkr_client::{Client, ClientError, EventQuery, Message};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::all::{MOST_WITH_COUNTS, counts, note_if_too_many};
use crate::failure::{Result, WhileTrying as _};
use crate::printer::{Printer, Redrawn, Stream};
use crate::view::stacks::StackLine;
use crate::view::{Show as _, whole};

const ACTION: &str = "watch the stacks";
const LIST_EVERY: Duration = Duration::from_secs(2);
/// Counts also change when agents join or get other labels, without an event.
const ALL_EVERY: Duration = Duration::from_secs(30);
/// Reports come in bursts: they are collected for this long before the counts are read.
const DEBOUNCE: Duration = Duration::from_millis(500);
const EVENT_BUFFER: usize = 64;

/// Opens the stream before it reads the list, so that no change in between is missed.
pub async fn run(client: &Client, printer: Printer) -> Result {
    let mut events = EventReader::begin(client).await.while_trying(ACTION)?;
    let mut known = KnownStacks::default();
    let mut shown = ChangeOutput::new(printer);
    let (mut batch, mut all_due) = (EventBatch::default(), Instant::now());
    let mut is_first = true;
    loop {
        let wants_all = batch.is_reset || Instant::now() >= all_due;
        if wants_all {
            all_due = Instant::now() + ALL_EVERY;
        }
        if batch.is_reset {
            shown.warn("the broker was restored; showing the current state");
        }
        let changed = refresh(&mut known, &batch.stacks, wants_all, client).await.while_trying(ACTION)?;
        if std::mem::take(&mut is_first) && printer.is_for_people() {
            note_if_too_many(known.lines.len(), printer);
            if known.lines.is_empty() && matches!(shown, ChangeOutput::Rows(..)) {
                printer.note("no stacks yet; waiting for one");
            }
        }
        if !shown.update(&known, &changed)? {
            return Ok(());
        }
        // Events received before the error are shown first.
        if let Some(error) = batch.end {
            return Err(error).while_trying(ACTION);
        }
        batch = events.collect(Instant::now() + LIST_EVERY).await;
    }
}

/// The last known line of each stack. A deleted stack stays, to show the progress of its removal.
#[derive(Debug, Default)]
struct KnownStacks {
    lines: BTreeMap<StackId, StackLine>,
}

impl KnownStacks {
    /// Returns the stacks whose counts have to be read: stacks with events, and changed stacks whose counts
    /// were read before. If there are at most `MOST_WITH_COUNTS` stacks, it also returns all other changed
    /// stacks and all new ones; with `wants_all`, it then returns every stack.
    fn to_read(&self, stacks: &[Stack], with_events: &BTreeSet<StackId>, wants_all: bool) -> Vec<StackId> {
        let is_few = stacks.len() <= MOST_WITH_COUNTS;
        let is_due = |stack: &&Stack| match self.lines.get(&stack.id) {
            _ if with_events.contains(&stack.id) => true,
            Some(line) if line.stack != **stack => is_few || line.summary.is_some(),
            known => is_few && (wants_all || known.is_none()),
        };
        stacks.iter().filter(is_due).map(|stack| stack.id).collect()
    }

    /// Returns known stacks that are no longer listed. Stacks that are known to be deleted are included only if
    /// they had events.
    fn missing(&self, listed: &[Stack], with_events: &BTreeSet<StackId>) -> Vec<StackId> {
        let listed: BTreeSet<StackId> = listed.iter().map(|stack| stack.id).collect();
        let is_missing = |line: &&StackLine| {
            let id = line.stack.id;
            !listed.contains(&id) && (line.stack.deleted_at.is_none() || with_events.contains(&id))
        };
        self.lines.values().filter(is_missing).map(|line| line.stack.id).collect()
    }

    /// Stores a line. Returns it if it has changed.
    fn put(&mut self, line: StackLine) -> Option<StackLine> {
        let is_new = self.lines.get(&line.stack.id) != Some(&line);
        self.lines.insert(line.stack.id, line.clone());
        is_new.then_some(line)
    }

    fn by_name(&self) -> Vec<StackLine> {
        let mut lines: Vec<StackLine> = self.lines.values().cloned().collect();
        lines.sort_by(|one, other| one.stack.name.cmp(&other.stack.name));
        lines
    }
}

/// Reads the list, and the counts of stacks that may have changed. Returns the changed lines.
async fn refresh(
    known: &mut KnownStacks,
    with_events: &BTreeSet<StackId>,
    wants_all: bool,
    client: &Client,
) -> Result<Vec<StackLine>, ClientError> {
    let mut stacks = client.stacks_all().await?;
    for id in known.missing(&stacks, with_events) {
        match client.stack(&id.to_string()).await {
            Ok(stack) => stacks.push(stack),
            // The broker no longer knows the deleted stack.
            Err(error) if error.code() == Some(ErrorCode::BRK2001) => drop(known.lines.remove(&id)),
            Err(error) => return Err(error),
        }
    }
    let mut summaries = counts(client, &known.to_read(&stacks, with_events, wants_all)).await?;
    let mut changed = Vec::new();
    for stack in stacks {
        let last = known.lines.get(&stack.id).and_then(|line| line.summary.clone());
        let summary = summaries.remove(&stack.id).or(last);
        changed.extend(known.put(StackLine { stack, summary }));
    }
    Ok(changed)
}

/// Events received during a wait.
#[derive(Debug, Default)]
struct EventBatch {
    stacks: BTreeSet<StackId>,
    is_reset: bool,
    end: Option<ClientError>,
}

/// The event stream, read by its own task: a timeout must not cancel a connection attempt.
struct EventReader {
    received: mpsc::Receiver<Result<Message<Event>, ClientError>>,
    _reading: JoinSet<()>,
}

impl EventReader {
    async fn begin(client: &Client) -> Result<Self, ClientError> {
        let mut stream = client.follow_events(&EventQuery::default());
        stream.begin().await?;
        let (sender, received) = mpsc::channel(EVENT_BUFFER);
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            loop {
                let message = stream.next().await;
                let is_end = message.is_err();
                if sender.send(message).await.is_err() || is_end {
                    return;
                }
            }
        });
        Ok(Self { received, _reading: reading })
    }

    /// Waits until `until`; after the first event, only for the rest of its burst.
    async fn collect(&mut self, until: Instant) -> EventBatch {
        let (mut batch, mut until) = (EventBatch::default(), until);
        while batch.end.is_none() {
            match timeout_at(until, self.received.recv()).await {
                Ok(Some(Ok(Message::Item(event)))) => {
                    batch.stacks.insert(event.stack_id);
                }
                Ok(Some(Ok(Message::Reset))) => batch.is_reset = true,
                Ok(Some(Err(error))) => batch.end = Some(error),
                // The error was returned before.
                Ok(None) | Err(_) => break,
            }
            until = until.min(Instant::now() + DEBOUNCE);
        }
        batch
    }
}

/// The output of changes.
enum ChangeOutput {
    Redrawn(Redrawn, Printer),
    Rows(Stream, Printer),
}

impl ChangeOutput {
    fn new(printer: Printer) -> Self {
        match printer.redrawn() {
            Some(table) => Self::Redrawn(table, printer),
            None => Self::Rows(printer.stream(), printer),
        }
    }

    /// Returns whether the output is still open.
    fn update(&mut self, known: &KnownStacks, changed: &[StackLine]) -> Result<bool> {
        match self {
            Self::Redrawn(table, printer) => {
                table.draw(&whole(known.by_name()).text(&printer.render_options()))
            }
            Self::Rows(rows, _) => rows.items("stack", changed),
        }
    }

    fn warn(&mut self, text: &str) {
        match self {
            Self::Redrawn(table, printer) => {
                table.leave();
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
    fn only_counts_that_may_have_changed_are_read() {
        let (web, api) = (line("web", 1, 42), line("api", 2, 42));
        let mut known = KnownStacks::default();
        assert_eq!(known.put(web.clone()), Some(web.clone()));
        assert_eq!(known.put(api.clone()), Some(api.clone()));
        assert_eq!(known.put(web.clone()), None, "unchanged");
        let listed = [web.stack.clone(), api.stack.clone()];
        let none = BTreeSet::new();
        assert!(known.to_read(&listed, &none, false).is_empty());
        assert_eq!(known.to_read(&listed, &none, true), [web.stack.id, api.stack.id]);
        assert_eq!(known.to_read(&listed, &BTreeSet::from([api.stack.id]), false), [api.stack.id]);
        let submitted = [line("web", 1, 43).stack, line("shop", 3, 44).stack];
        assert_eq!(known.to_read(&submitted, &none, false).len(), 2, "a new version, and a new stack");
        assert_eq!(known.missing(&submitted, &none), [api.stack.id]);
        let names: Vec<String> =
            known.by_name().into_iter().map(|line| line.stack.name.to_string()).collect();
        assert_eq!(names, ["api", "web"]);
    }

    #[test]
    fn a_deleted_stack_is_read_once_and_then_on_events() {
        let mut known = KnownStacks::default();
        let mut gone = line("web", 1, 42);
        known.put(gone.clone());
        assert_eq!(known.missing(&[], &BTreeSet::new()), [gone.stack.id]);
        gone.stack.deleted_at = Some(crate::view::samples::now());
        known.put(gone.clone());
        assert!(known.missing(&[], &BTreeSet::new()).is_empty());
        assert_eq!(known.missing(&[], &BTreeSet::from([gone.stack.id])), [gone.stack.id]);
    }

    #[test]
    fn with_many_stacks_only_those_with_events_are_read() {
        let listed: Vec<Stack> = (0..=MOST_WITH_COUNTS).map(|number| line("web", number, 42).stack).collect();
        assert!(KnownStacks::default().to_read(&listed, &BTreeSet::new(), true).is_empty());
        assert_eq!(
            KnownStacks::default().to_read(&listed, &BTreeSet::from([listed[7].id]), true),
            [listed[7].id]
        );
    }
}
