//! What happens after a version was submitted: it is told, waited for if that was asked, and judged.

use std::time::Instant;

use brokkr_api::Name;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::status::StackStatus;
use brokkr_client::Client;
use serde::Serialize;

use crate::args::Waiting;
use crate::commands::status::reasons;
use crate::commands::wait::{Ending, Waited, wait};
use crate::delivery::{Goal, Standing, Verdict};
use crate::failure::{Exit, Failure};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

/// One version of a stack on its way.
pub struct Delivery<'a> {
    pub stack: &'a Name,
    pub object: &'a DeploymentObject,
    pub client: &'a Client,
    pub printer: Printer,
}

/// The document of `-o json`: the object, and what the agents said if they were waited for.
#[derive(Serialize)]
struct Delivered<'a> {
    #[serde(flatten)]
    object: &'a DeploymentObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a [StackStatus]>,
}

impl Delivery<'_> {
    /// `text` is what was done, for people; it is told before the wait, documents after it.
    pub async fn finish(self, text: &str, waiting: &Waiting) -> Result<(), Failure> {
        if self.printer.is_for_people() {
            self.printer.data(text)?;
        }
        self.printer.output("sequence_id", &self.object.sequence_id.to_string());
        if !waiting.wait {
            return self.document(None);
        }
        let started = Instant::now();
        let goal = Goal::Delivered(self.object.sequence_id);
        let title = format!("waiting for {} of {}", self.object.sequence_id, self.stack);
        let waited =
            wait(self.client, self.object.stack_id, goal, &title, waiting.timeout, self.printer).await?;
        self.document(Some(&waited.rows))?;
        let outcome = judge(self.stack, goal, waited, waiting, started, self.client, self.printer).await;
        self.printer.summary(&view::job::summary(text, outcome.as_ref().err()));
        outcome
    }

    fn document(&self, status: Option<&[StackStatus]>) -> Result<(), Failure> {
        if self.printer.is_for_people() {
            return Ok(());
        }
        let document = Delivered { object: self.object, status };
        self.printer.done(&document, format!("stack/{}", self.stack), String::new)
    }
}

/// Says that it arrived, or what is in its way.
pub async fn judge(
    stack: &Name,
    goal: Goal,
    waited: Waited,
    waiting: &Waiting,
    started: Instant,
    client: &Client,
    printer: Printer,
) -> Result<(), Failure> {
    let (sequence, done) = match goal {
        Goal::Applied(sequence) => (sequence, "applied"),
        Goal::Delivered(sequence) => (sequence, "healthy"),
        Goal::Removed(sequence) => (sequence, "removed"),
    };
    let outcome = match waited.ending {
        Ending::Settled(Verdict::Reached) => {
            let reached = waited.rows.iter().filter(|row| goal.standing(row) == Standing::Reached).count();
            let seconds = started.elapsed().as_secs();
            printer.note(&format!("{stack} is {done} on {} ({seconds}s)", count(reached, "agent")));
            return Ok(());
        }
        Ending::Settled(Verdict::Replaced(newer)) => {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{sequence} was replaced by {newer} before it arrived everywhere"),
            )
            .line(format!("somebody submitted a newer version of {stack}"))
            .next(format!("brokkr history {stack}")));
        }
        Ending::Settled(_) => {
            Failure::new(Exit::Failed, format!("{sequence} failed on {}", failed(goal, &waited.rows)))
        }
        Ending::TimedOut => timed_out(stack, goal, &waited.rows, waiting),
    };
    let reasons = reasons(client, &waited.rows).await;
    let outcome = reasons.lines().fold(outcome, Failure::line);
    Err(outcome.next(format!("brokkr why {stack}; what was submitted stays, and agents go on")))
}

fn failed(goal: Goal, rows: &[StackStatus]) -> String {
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| goal.standing(row) == Standing::Failed)
        .map(|row| row.agent_name.as_str())
        .collect();
    let concerned = rows.iter().filter(|row| goal.standing(row) != Standing::NotConcerned).count();
    match failed.as_slice() {
        [only] if concerned == 1 => (*only).to_owned(),
        several => format!("{} of {}", several.len(), count(concerned, "agent")),
    }
}

/// What failed is a failure, even if others were still on their way when the time was up.
fn timed_out(stack: &Name, goal: Goal, rows: &[StackStatus], waiting: &Waiting) -> Failure {
    let time = humantime::format_duration(waiting.timeout);
    let has_failed = rows.iter().any(|row| goal.standing(row) == Standing::Failed);
    let exit = if has_failed { Exit::Failed } else { Exit::Timeout };
    let failure = Failure::new(exit, format!("{stack} has not arrived everywhere within {time}"));
    failure.line(view::progress::summary(goal, rows))
}
