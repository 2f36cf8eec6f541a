//! Waiting until a version has arrived, or a deletion is complete, with progress on stderr.

use std::time::Duration;

use brokkr_api::StackId;
use brokkr_api::status::StackStatus;
use brokkr_client::Client;
use tokio::time::Instant;

use crate::delivery::{Goal, Verdict};
use crate::failure::Failure;
use crate::printer::{Live, Printer};
use crate::view::progress::{Changes, summary};

const SHORTEST_PAUSE: Duration = Duration::from_millis(400);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where no headline can move, the summary is a line, and not more often than this.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// How a wait ended, and what the agents said last.
#[derive(Debug)]
pub struct Waited {
    pub ending: Ending,
    pub rows: Vec<StackStatus>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Settled(Verdict),
    TimedOut,
}

/// Asks again and again until the goal is decided or the time is up. The stack is given by its id, which stays valid
/// after a deletion, when its name may already be somebody else's.
pub async fn wait(
    client: &Client,
    stack: StackId,
    goal: Goal,
    timeout: Duration,
    printer: Printer,
) -> Result<Waited, Failure> {
    let deadline = Instant::now() + timeout;
    let live = printer.live();
    let mut telling = Telling::new(&live, goal);
    let mut rows = Vec::new();
    loop {
        let asked = Instant::now();
        // However long an answer takes, the promise of --timeout holds.
        match tokio::time::timeout_at(deadline, client.stack_status_all(&stack.to_string())).await {
            Err(_) => return Ok(Waited { ending: Ending::TimedOut, rows }),
            Ok(Ok(answer)) => rows = answer,
            Ok(Err(error)) if error.is_transient() => live.line(&format!("  {error}; still waiting")),
            Ok(Err(error)) => return Err(Failure::of_client("read the status while waiting", error)),
        }
        telling.tell(&rows);
        match goal.verdict(&rows) {
            Verdict::Waiting => {}
            verdict => return Ok(Waited { ending: Ending::Settled(verdict), rows }),
        }
        // A fleet whose status takes long to read is asked less often.
        let pause = (asked.elapsed() * 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        if Instant::now() + pause >= deadline {
            tokio::time::sleep_until(deadline).await;
            return Ok(Waited { ending: Ending::TimedOut, rows });
        }
        tokio::time::sleep(pause).await;
    }
}

struct Telling<'a> {
    live: &'a Live,
    goal: Goal,
    changes: Changes,
    last_summary: String,
    told_summary: Instant,
}

impl<'a> Telling<'a> {
    fn new(live: &'a Live, goal: Goal) -> Self {
        Self {
            live,
            goal,
            changes: Changes::default(),
            last_summary: String::new(),
            told_summary: Instant::now(),
        }
    }

    fn tell(&mut self, rows: &[StackStatus]) {
        for line in self.changes.since_last(self.goal, rows) {
            self.live.line(&line);
        }
        let summary = summary(self.goal, rows);
        self.live.headline(&summary);
        let is_due = self.last_summary.is_empty() || self.told_summary.elapsed() >= SUMMARY_EVERY;
        if !self.live.has_headline() && summary != self.last_summary && is_due {
            self.live.line(&format!("  {summary}"));
            self.last_summary = summary;
            self.told_summary = Instant::now();
        }
    }
}
