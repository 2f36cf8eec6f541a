//! The end of every command that submits a version: prints it, waits if requested, and reports the outcome.

use std::time::Instant;

use brokkr_api::Name;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::status::StackStatus;
use brokkr_client::Client;
use serde::Serialize;

use crate::args::{WaitOptions, WaitUntil};
use crate::commands::rollout;
use crate::commands::status::reasons;
use crate::commands::wait::{Ending, Waited, wait};
use crate::delivery::{AgentOutcome, Goal, Verdict};
use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

/// A version that was submitted.
pub struct Delivery<'a> {
    pub stack: &'a Name,
    pub object: &'a DeploymentObject,
    pub client: &'a Client,
    pub printer: Printer,
}

/// The document of `-o json`: the object, and the status of the agents after a wait.
#[derive(Serialize)]
struct Delivered<'a> {
    #[serde(flatten)]
    object: &'a DeploymentObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a [StackStatus]>,
}

impl Delivery<'_> {
    /// Prints `text` before the wait, or the document after it.
    pub async fn finish(self, text: &str, waiting: &WaitOptions) -> Result {
        if self.printer.is_for_people() {
            self.printer.data(text)?;
        }
        self.printer.output("sequence_id", &self.object.sequence_id.to_string());
        let version = self.object.sequence_id;
        let goal = match waiting.wait {
            None => {
                self.announce().await;
                return self.document(None);
            }
            Some(WaitUntil::Canary) => Goal::Canary(version),
            Some(WaitUntil::Rollout) => Goal::Rollout(version),
        };
        let started = Instant::now();
        let title = format!("waiting for {} of {}", self.object.sequence_id, self.stack);
        let waited = wait(
            self.client,
            self.object.stack_id,
            goal,
            &title,
            waiting.timeout,
            &waiting.terms(),
            self.printer,
        )
        .await?;
        self.document(Some(&waited.rows))?;
        let outcome = judge(self.stack, goal, waited, waiting, started, self.client, self.printer).await;
        self.printer.summary(&view::job::summary(text, outcome.as_ref().err()));
        outcome
    }

    /// Says that not every agent gets the version at once, and how many it can harm. Without an answer, the version is submitted all
    /// the same.
    async fn announce(&self) {
        if !self.printer.is_for_people() {
            return;
        }
        if let Ok(rollout) = self.client.rollout(self.object.sequence_id).await {
            self.printer.note(&view::rollouts::announcement(&rollout));
        }
    }

    fn document(&self, status: Option<&[StackStatus]>) -> Result {
        if self.printer.is_for_people() {
            return Ok(());
        }
        let document = Delivered { object: self.object, status };
        self.printer.done(&document, format!("stack/{}", self.stack), String::new)
    }
}

/// Reports success, or fails with the reasons of the agents.
pub async fn judge(
    stack: &Name,
    goal: Goal,
    waited: Waited,
    waiting: &WaitOptions,
    started: Instant,
    client: &Client,
    printer: Printer,
) -> Result {
    let sequence = goal.sequence();
    let done = goal_state(goal);
    let outcome = match waited.ending {
        Ending::Settled(Verdict::Reached) => {
            let reached = waited.rows.iter().filter(|row| goal.outcome(row) == AgentOutcome::Reached).count();
            let seconds = started.elapsed().as_secs();
            printer.note(&format!("{stack} is {done} on {} ({seconds}s)", count(reached, "agent")));
            let is_everywhere = waited.rows.iter().all(|row| goal.outcome(row) != AgentOutcome::Waiting);
            if !is_everywhere && waited.rollout.is_some_and(|rollout| !rollout.state.has_ended()) {
                printer.note(&format!("the rollout goes on: brokkr rollout watch {stack}"));
            }
            return Ok(());
        }
        Ending::Settled(Verdict::Replaced(newer)) => {
            let newer = newer.map_or("a newer version".to_owned(), |newer| newer.to_string());
            return Err(Failure::new(
                Exit::Conflict,
                format!("{sequence} was replaced by {newer} before it was on every agent"),
            )
            .line(format!("a newer version of {stack} was submitted"))
            .next(format!("brokkr stack history {stack}")));
        }
        Ending::Settled(Verdict::Stopped | Verdict::SomeBad(_)) => {
            let ended = waited.rollout.as_ref().map_or(Ok(()), |rollout| rollout::ended(stack, rollout));
            let reasons = reasons(client, &waited.rows).await;
            return ended.map_err(|failure| reasons.lines().fold(failure, Failure::line));
        }
        Ending::Settled(_) => {
            let failed = failed(goal, &waited);
            Failure::new(Exit::Failed, format!("version {sequence} failed on {failed}"))
        }
        Ending::TimedOut => timed_out(stack, goal, &waited, waiting),
    };
    let reasons = reasons(client, &waited.rows).await;
    let outcome = reasons.lines().fold(outcome, Failure::line);
    Err(outcome.next(format!("brokkr why {stack}; the version stays submitted, and agents keep trying")))
}

fn goal_state(goal: Goal) -> &'static str {
    match goal {
        Goal::Applied(_) => "applied",
        Goal::Delivered(_) | Goal::Rollout(_) | Goal::Canary(_) => "healthy",
        Goal::Removed(_) => "removed",
    }
}

fn failed(goal: Goal, waited: &Waited) -> String {
    let rows = &waited.rows;
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| goal.outcome(row) == AgentOutcome::Failed || waited.stuck.contains(&row.agent_id))
        .map(|row| row.agent_name.as_str())
        .collect();
    let targeted = rows.iter().filter(|row| goal.outcome(row) != AgentOutcome::NotTargeted).count();
    match failed.as_slice() {
        [only] if targeted == 1 => (*only).to_owned(),
        several => format!("{} of {}", several.len(), count(targeted, "agent")),
    }
}

/// A failure on one agent is a failure, even if others were still pending at the timeout.
fn timed_out(stack: &Name, goal: Goal, waited: &Waited, waiting: &WaitOptions) -> Failure {
    let time = humantime::format_duration(waiting.timeout);
    let rows = &waited.rows;
    let has_failed =
        !waited.stuck.is_empty() || rows.iter().any(|row| goal.outcome(row) == AgentOutcome::Failed);
    let exit = if has_failed { Exit::Failed } else { Exit::Timeout };
    let failure =
        Failure::new(exit, format!("{stack} was not {} on every agent within {time}", goal_state(goal)));
    failure.line(view::progress::summary(goal, rows))
}
