//! Stacks as a list, with how far each is.

use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::status::StackSummary;
use serde::Serialize;

use super::status::sequence;
use super::table::{BAD, CAREFUL, FAINT, GOOD, Table, UNDER_WAY, painted, plain, sentence, wide};
use super::text::{age, labels, thousands};
use super::{Listed, RenderOptions};

/// A stack, with its figures where they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackLine {
    #[serde(flatten)]
    pub stack: Stack,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<StackSummary>,
}

impl Listed for StackLine {
    const NONE: &'static str = "no stacks yet: `brokkr apply -f PATH --stack NAME --to SELECTOR` makes one";

    fn table<'a>(lines: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [
            plain("STACK"),
            plain("SEQUENCE"),
            plain("HEALTHY"),
            sentence("STATE"),
            sentence("TARGETS"),
            plain("AGE"),
            wide("LABELS"),
            wide("ID"),
        ];
        let mut table = Table::new(options, &columns);
        for StackLine { stack, summary } in lines {
            let (state, style) = state(stack, summary.as_ref());
            table.row([
                stack.name.to_string().into(),
                sequence(stack.sequence_id).into(),
                summary.as_ref().map_or_else(|| "?".to_owned(), healthy).into(),
                painted(state, style),
                targets(&stack.targets).into(),
                age(stack.created_at, options.now).into(),
                labels(&stack.labels).into(),
                stack.id.to_string().into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        format!("stack/{}", self.stack.name)
    }
}

fn healthy(summary: &StackSummary) -> String {
    format!("{}/{}", summary.counts.healthy, summary.targeted)
}

/// Counts of what is not healthy: one bad agent must not options like all of them.
fn state(stack: &Stack, summary: Option<&StackSummary>) -> (String, anstyle::Style) {
    let Some(summary) = summary else { return ("-".to_owned(), anstyle::Style::new()) };
    match not_healthy(summary) {
        None if stack.deleted_at.is_some() => ("deleted".to_owned(), FAINT),
        Some((text, style)) if stack.deleted_at.is_some() => (format!("deleted, {text}"), style),
        Some((text, style)) => (text, style),
        None if summary.counts.healthy > 0 => ("healthy".to_owned(), GOOD),
        None => ("-".to_owned(), anstyle::Style::new()),
    }
}

/// `9 failed, 5 pending`, in the colour of the worst; nothing if nothing is wrong.
fn not_healthy(summary: &StackSummary) -> Option<(String, anstyle::Style)> {
    let counts = &summary.counts;
    let told: Vec<(u64, &str, anstyle::Style)> = [
        (counts.failed, "failed", BAD),
        (counts.degraded, "degraded", CAREFUL),
        (counts.blocked, "blocked", CAREFUL),
        (counts.applied, "applied", UNDER_WAY),
        (summary.pending, "pending", UNDER_WAY),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .collect();
    let (_, _, style) = told.first()?;
    let texts = told.iter().map(|(count, state, _)| format!("{count} {state}"));
    Some((texts.collect::<Vec<_>>().join(", "), *style))
}

/// How a stack stands as a whole, for whoever sees a part of it: agents that fail may be anywhere in a list by name.
pub fn as_a_whole(summary: &StackSummary) -> String {
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

    use super::super::samples::{rendered, now, stack, summary};
    use super::super::whole;
    use super::*;

    #[test]
    fn stacks() {
        let line = |name, sequence, summary| StackLine { stack: stack(name, sequence), summary };
        let mixed = StateCounts { healthy: 1190, failed: 9, ..StateCounts::default() };
        let well = StateCounts { healthy: 3, ..StateCounts::default() };
        let mut gone = line("shop", Some(50), Some(summary(0, 0, StateCounts::default())));
        gone.stack.deleted_at = Some(now());
        insta::assert_snapshot!(rendered(&whole(vec![
            line("web", Some(42), Some(summary(1204, 5, mixed))),
            line("api", Some(43), Some(summary(3, 0, well))),
            gone,
            line("empty", None, None),
        ])));
        assert_eq!(as_a_whole(&summary(1204, 5, mixed)), "web targets 1,204 agents: 9 failed, 5 pending");
        assert_eq!(as_a_whole(&summary(3, 0, well)), "web targets 3 agents: all healthy");
    }
}
