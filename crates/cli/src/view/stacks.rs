//! Stacks, as a list with counts, and one by one.

use brokkr_api::stacks::{DriftPolicy, Stack, StackTargets};
use brokkr_api::status::StackSummary;
use serde::Serialize;

use super::table::{BAD, CAREFUL, Cell, FAINT, GOOD, Table, UNDER_WAY, painted};
use super::text::{age, clean, fields, labels, or_dash, thousands, when};
use super::{Listed, RenderOptions, Show};

/// A stack, with its counts if they were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackLine {
    #[serde(flatten)]
    pub stack: Stack,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<StackSummary>,
}

impl Listed for StackLine {
    const NONE: &'static str = "no stacks yet; create one with `brokkr apply NAME -f PATH --to SELECTOR`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("STACK", |line| &line.stack.name)
            .plain("SEQUENCE", |line| or_dash(line.stack.sequence_id))
            .plain("HEALTHY", |line| line.summary.as_ref().map_or_else(|| "?".to_owned(), healthy))
            .sentence("STATE", |line| state(&line.stack, line.summary.as_ref()))
            .sentence("TARGETS", |line| targets(&line.stack.targets))
            .plain("AGE", |line| age(line.stack.created_at, now))
            .wide("LABELS", |line| labels(&line.stack.labels))
            .wide("ID", |line| line.stack.id)
    }

    fn name(&self) -> String {
        format!("stack/{}", self.stack.name)
    }
}

impl Listed for Stack {
    const NONE: &'static str = StackLine::NONE;

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("STACK", |stack| &stack.name)
            .plain("SEQUENCE", |stack| or_dash(stack.sequence_id))
            .sentence("TARGETS", |stack| targets(&stack.targets))
            .sentence("LABELS", |stack| labels(&stack.labels))
            .plain("AGE", |stack| age(stack.created_at, now))
            .wide("PROJECT", |stack| &stack.project)
            .wide("ID", |stack| stack.id)
    }

    fn name(&self) -> String {
        format!("stack/{}", self.name)
    }
}

impl Show for Stack {
    fn text(&self, options: &RenderOptions) -> String {
        let mut text = fields([
            ("name", self.name.to_string()),
            ("id", self.id.to_string()),
            ("project", self.project.clone()),
            ("sequence", or_dash(self.sequence_id)),
            ("targets", targets(&self.targets)),
            ("labels", labels(&self.labels)),
            ("created", when(self.created_at, options.now)),
        ]);
        if let Some(deleted) = self.deleted_at {
            text.push_str(&format!("\ndeleted:   {}", when(deleted, options.now)));
        }
        if self.drift == DriftPolicy::Report {
            text.push_str("\ndrift:     reported, not repaired");
        }
        if !self.annotations.is_empty() {
            text.push_str("\nannotations:");
            for (key, value) in &self.annotations {
                text.push_str(&format!("\n  {key}: {}", clean(value)));
            }
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

fn healthy(summary: &StackSummary) -> String {
    format!("{}/{}", summary.counts.healthy, summary.targeted)
}

/// Returns the counts of agents that are not healthy: one failed agent must not look like all of them.
fn state(stack: &Stack, summary: Option<&StackSummary>) -> Cell {
    let Some(summary) = summary else { return "-".into() };
    match not_healthy(summary) {
        None if stack.deleted_at.is_some() => painted("deleted", FAINT),
        Some((text, style)) if stack.deleted_at.is_some() => painted(format!("deleted, {text}"), style),
        Some((text, style)) => painted(text, style),
        None if summary.counts.healthy > 0 => painted("healthy", GOOD),
        None => "-".into(),
    }
}

/// Returns `9 failed, 5 pending` in the colour of the worst state; none if all agents are healthy.
fn not_healthy(summary: &StackSummary) -> Option<(String, anstyle::Style)> {
    let counts = &summary.counts;
    let states: Vec<(u64, &str, anstyle::Style)> = [
        (counts.failed, "failed", BAD),
        (counts.degraded, "degraded", CAREFUL),
        (counts.blocked, "blocked", CAREFUL),
        (counts.applied, "applied", UNDER_WAY),
        (summary.pending, "pending", UNDER_WAY),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .collect();
    let (_, _, style) = states.first()?;
    let texts = states.iter().map(|(count, state, _)| format!("{count} {state}"));
    Some((texts.collect::<Vec<_>>().join(", "), *style))
}

/// Describes the whole stack below a truncated list.
pub fn overview(summary: &StackSummary) -> String {
    let state = not_healthy(summary).map_or_else(|| "all healthy".to_owned(), |(text, _)| text);
    format!("{} targets {} agents: {state}", summary.stack_name, thousands(summary.targeted))
}

pub fn targets(targets: &StackTargets) -> String {
    let selectors = targets.selectors.iter().map(ToString::to_string);
    let all: Vec<String> =
        selectors.chain(targets.agents.iter().map(|agent| format!("agent {agent}"))).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(" | ") }
}

#[cfg(test)]
mod tests {
    use brokkr_api::status::StateCounts;

    use super::super::samples::{now, rendered, stack, summary};
    use super::super::whole;
    use super::*;

    #[test]
    fn one_stack() {
        let mut shown = stack("web", Some(42));
        shown.annotations.insert("team".to_owned(), "shop".to_owned());
        let list = rendered(&whole(vec![shown.clone(), stack("empty", None)]));
        insta::assert_snapshot!(format!("{}\n\n{list}", rendered(&shown)));
    }

    #[test]
    fn stacks() {
        let line = |name, sequence, summary| StackLine { stack: stack(name, sequence), summary };
        let mixed = StateCounts { healthy: 1190, failed: 9, ..StateCounts::default() };
        let healthy = StateCounts { healthy: 3, ..StateCounts::default() };
        let mut gone = line("shop", Some(50), Some(summary(0, 0, StateCounts::default())));
        gone.stack.deleted_at = Some(now());
        insta::assert_snapshot!(rendered(&whole(vec![
            line("web", Some(42), Some(summary(1204, 5, mixed))),
            line("api", Some(43), Some(summary(3, 0, healthy))),
            gone,
            line("empty", None, None),
        ])));
        assert_eq!(overview(&summary(1204, 5, mixed)), "web targets 1,204 agents: 9 failed, 5 pending");
        assert_eq!(overview(&summary(3, 0, healthy)), "web targets 3 agents: all healthy");
    }
}
