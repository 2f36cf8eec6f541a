//! Stacks as a list.

use std::collections::BTreeMap;

use brokkr_api::StackId;
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;

use super::table::Table;
use super::text::{age, short};

/// `states` holds the rows of each stack where they were asked for.
pub fn list(stacks: &[Stack], states: &BTreeMap<StackId, Vec<StackStatus>>, now: Timestamp) -> String {
    if stacks.is_empty() {
        return "no stacks yet: `brokkr apply -f PATH --stack NAME --to SELECTOR` makes one".to_owned();
    }
    let mut table = Table::new(&["STACK", "SEQUENCE", "HEALTHY", "STATE", "TARGETS", "AGE"]);
    for stack in stacks {
        let rows = states.get(&stack.id);
        table.row([
            stack.name.to_string(),
            stack.sequence_id.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string()),
            rows.map_or_else(|| "?".to_owned(), |rows| healthy(rows)),
            state(stack, rows),
            short(&targets(&stack.targets), 50),
            age(stack.created_at, now),
        ]);
    }
    table.print()
}

fn healthy(rows: &[StackStatus]) -> String {
    let concerned = rows.iter().filter(|row| row.state != State::Removed);
    let good = rows.iter().filter(|row| row.state == State::Healthy).count();
    format!("{good}/{}", concerned.count())
}

/// Counts of what is not healthy: one bad agent must not look like all of them.
fn state(stack: &Stack, rows: Option<&Vec<StackStatus>>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.into_iter().flatten().filter(|row| !matches!(row.state, State::Healthy | State::Removed))
    {
        *counts.entry(row.state.to_string()).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    match (stack.deleted_at.is_some(), counts.is_empty()) {
        (true, true) => "deleted".to_owned(),
        (true, false) => format!("deleted, {}", counts.join(", ")),
        (false, true) if rows.is_some_and(|rows| rows.iter().any(|row| row.state == State::Healthy)) => {
            "healthy".to_owned()
        }
        (false, true) => "-".to_owned(),
        (false, false) => counts.join(", "),
    }
}

pub fn targets(targets: &StackTargets) -> String {
    let selectors = targets.selectors.iter().map(ToString::to_string);
    let all: Vec<String> =
        selectors.chain(targets.agents.iter().map(|agent| format!("agent {agent}"))).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{now, row, stack};
    use super::*;

    #[test]
    fn stacks() {
        let (web, mut shop, empty) = (stack("web", Some(42)), stack("shop", Some(50)), stack("empty", None));
        shop.deleted_at = Some(now());
        let states = BTreeMap::from([
            (
                web.id,
                vec![
                    row("a", 42, 42, State::Healthy),
                    row("b", 42, 42, State::Failed),
                    row("c", 42, 41, State::Pending),
                ],
            ),
            (shop.id, vec![row("a", 50, 50, State::Removed), row("b", 50, 42, State::Blocked)]),
        ]);
        insta::assert_snapshot!(list(&[web, shop, empty], &states, now()));
    }
}
