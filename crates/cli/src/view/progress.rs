//! Changes and progress during a wait.

use std::collections::BTreeMap;

use brokkr_api::status::{StackStatus, State};

use super::status::{message, ready};
use super::text::{clean, count, short};
use crate::delivery::{AgentOutcome, Goal};

/// With more agents than this, only failing ones get their own line.
const FEW: usize = 20;

/// Returns each change once.
#[derive(Debug, Default)]
pub struct Changes {
    last_lines: BTreeMap<String, String>,
}

impl Changes {
    /// Returns a line for each agent that has changed.
    pub fn since_last(&mut self, goal: Goal, rows: &[StackStatus]) -> Vec<String> {
        let width = rows.iter().map(|row| row.agent_name.len()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for row in rows.iter().filter(|row| goal.outcome(row) != AgentOutcome::NotTargeted) {
            let is_bad = matches!(row.state, State::Failed | State::Blocked | State::Degraded);
            if rows.len() > FEW && !is_bad {
                continue;
            }
            let line = line(goal, row, width);
            if self.last_lines.insert(row.agent_name.clone(), line.clone()).as_ref() != Some(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

fn line(goal: Goal, row: &StackStatus, width: usize) -> String {
    let state = match (goal, goal.outcome(row)) {
        // A report about an earlier version would be misleading.
        (Goal::Removed(_), AgentOutcome::Waiting) if row.state == State::Removing => "removing".to_owned(),
        (Goal::Removed(_), AgentOutcome::Waiting) if row.state == State::Blocked => row.state.to_string(),
        (Goal::Removed(_), AgentOutcome::Waiting) => "waiting for the agent".to_owned(),
        (goal, AgentOutcome::Waiting) if row.wanted_sequence_id < Some(goal.sequence()) => {
            "not released yet".to_owned()
        }
        (goal, AgentOutcome::Waiting) if row.sequence_id < Some(goal.sequence()) => {
            "waiting for the agent".to_owned()
        }
        _ => row.state.to_string(),
    };
    let is_shown = state == row.state.to_string();
    let mut line = format!("  {:width$}  {state}", clean(&row.agent_name));
    if row.total > 0 && matches!(row.state, State::Applied | State::Degraded | State::Healthy) && is_shown {
        line.push_str(&format!(", {} ready", ready(row)));
    }
    if is_shown && matches!(row.state, State::Failed | State::Blocked | State::Degraded) {
        line.push_str(&format!(": {}", short(&message(row), 120)));
    }
    line
}

/// `1 of 2 agents healthy at version 42 · 1 applied`
pub fn summary(goal: Goal, rows: &[StackStatus]) -> String {
    let targeted: Vec<_> = rows.iter().filter(|row| goal.outcome(row) != AgentOutcome::NotTargeted).collect();
    let (done, version, none) = match goal {
        Goal::Applied(sequence) => {
            ("applied", format!("at version {sequence}"), "no agents are targeted yet")
        }
        Goal::Delivered(sequence) | Goal::Rollout(sequence) | Goal::Canary(sequence) => {
            ("healthy", format!("at version {sequence}"), "no agents are targeted yet")
        }
        Goal::Removed(_) => ("removed", String::new(), "no agent has it"),
    };
    if targeted.is_empty() {
        return none.to_owned();
    }
    let reached = targeted.iter().filter(|row| goal.outcome(row) == AgentOutcome::Reached).count();
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for row in targeted.iter().filter(|row| goal.outcome(row) != AgentOutcome::Reached) {
        let state = if goal.outcome(row) == AgentOutcome::Waiting && row.state == State::Healthy {
            State::Pending
        } else {
            row.state
        };
        *others.entry(state.to_string()).or_default() += 1;
    }
    let mut text =
        format!("{reached} of {} {done} {version}", count(targeted.len(), "agent")).trim_end().to_owned();
    for (state, number) in others {
        text.push_str(&format!(" · {number} {state}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples::{failed_row, row};
    use super::*;
    use brokkr_api::SequenceId;

    #[test]
    fn each_change_is_printed_once() {
        let goal = Goal::Delivered(SequenceId(42));
        let mut changes = Changes::default();
        let rounds = [
            vec![row("eu-1", 41, 41, State::Healthy), row("store-0412", 42, 41, State::Pending)],
            vec![row("eu-1", 42, 42, State::Applied), row("store-0412", 42, 41, State::Pending)],
            vec![row("eu-1", 42, 42, State::Applied), row("store-0412", 42, 41, State::Pending)],
            vec![row("eu-1", 42, 42, State::Healthy), failed_row("store-0412")],
        ];
        let mut text = String::new();
        for rows in rounds {
            let lines = changes.since_last(goal, &rows).join("\n");
            text.push_str(&format!("{lines}\n= {}\n", summary(goal, &rows)));
        }
        insta::assert_snapshot!(text);
    }
}
