//! Why agents are not in sync, a line for each, from what the status says: for the end of a status, or of a wait that
//! failed. The whole chain is told by `brokkr why`.

use std::collections::BTreeMap;

use brokkr_api::agents::{Agent, AgentStatus};
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;

use super::conditions::{line, wrong};
use super::status::{reported, sequence};
use super::text::{age, clean};

/// More than these are counted, not told.
const TOLD: usize = 5;

pub fn is_in_sync(row: &StackStatus) -> bool {
    matches!(row.state, State::Healthy | State::Removed)
}

/// Not in sync, or in sync with something wrong about it: a fight, a prune that waits.
pub fn is_worth_telling(row: &StackStatus) -> bool {
    !is_in_sync(row) || !wrong(row).is_empty()
}

/// The rows that [`reasons`] will tell about.
pub fn told(rows: &[StackStatus]) -> impl Iterator<Item = &StackStatus> {
    rows.iter().filter(|row| is_worth_telling(row)).take(TOLD)
}

/// `agents` by name, as far as they were asked for: an agent that is silent or held explains a lot.
pub fn reasons(rows: &[StackStatus], agents: &BTreeMap<String, Agent>, now: Timestamp) -> String {
    let mut lines = Vec::new();
    for (names, block) in grouped(rows, agents, now) {
        lines.push(format!("why {}: {}", names.join(", "), block[0]));
        lines.extend(block[1..].iter().map(|line| format!("  {line}")));
    }
    let more = rows.iter().filter(|row| is_worth_telling(row)).count().saturating_sub(TOLD);
    if more > 0 {
        lines.push(format!("… and {more} more that are not as they should be"));
    }
    lines.join("\n")
}

/// What is told of each row, once for all the agents that it is the same for.
fn grouped(
    rows: &[StackStatus],
    agents: &BTreeMap<String, Agent>,
    now: Timestamp,
) -> Vec<(Vec<String>, Vec<String>)> {
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in told(rows) {
        let (name, block) = (clean(&row.agent_name), block(row, agents.get(&row.agent_name), now));
        match groups.iter_mut().find(|(_, known)| *known == block) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], block)),
        }
    }
    groups
}

/// The reason, and below it what it does not say yet.
fn block(row: &StackStatus, agent: Option<&Agent>, now: Timestamp) -> Vec<String> {
    let mut lines = vec![reason(row, agent, now)];
    let is_said = |lines: &[String], message: &str| {
        let message = clean(message);
        !message.is_empty() && lines.iter().any(|line| line.contains(&message))
    };
    for note in &row.objects {
        if is_said(&lines, &note.message) && lines.iter().any(|line| line.contains(&clean(&note.object))) {
            continue;
        }
        let what: Vec<&str> = [&note.reason, &note.message]
            .into_iter()
            .map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        lines.push(format!("{}: {}", clean(&note.object), clean(&what.join(": "))));
    }
    for condition in wrong(row) {
        if !is_said(&lines, &condition.message) {
            lines.push(line(condition, now));
        }
    }
    lines
}

fn reason(row: &StackStatus, agent: Option<&Agent>, now: Timestamp) -> String {
    let mut parts = vec![verdict(row)];
    parts.extend(hop(row, now));
    let told = clean(&reported(row));
    // With the agent at hand, its part below says the same and what to do about it.
    let is_told_below = row.reason == "AgentInactive" && agent.is_some();
    if !told.is_empty() && !is_told_below {
        parts.push(told);
    }
    if let Some(agent) = agent.filter(|_| !matches!(row.state, State::Failed | State::Blocked)) {
        parts.extend(agents_part(agent, now));
    }
    parts.join("; ")
}

fn verdict(row: &StackStatus) -> String {
    let (has, wants) = (sequence(row.sequence_id), sequence(row.wanted_sequence_id));
    match row.state {
        State::Removing => format!("removing, with {wants}"),
        state if has == wants => format!("{state} at {wants}"),
        _ if row.sequence_id.is_none() => format!("wants {wants}, has reported nothing yet"),
        state => format!("{state}, wants {wants}, has {has}"),
    }
}

/// Where the chain of hops ends.
fn hop(row: &StackStatus, now: Timestamp) -> Option<String> {
    let chain = row.hops.chain();
    let passed = chain.iter().rposition(|(name, at)| at.is_some() && *name != "reported")?;
    let (name, at) = chain[passed];
    // Not every version prunes, so a chain may go on behind a gap.
    let next = chain.get(passed + 1).map(|(name, _)| *name).filter(|name| *name != "reported");
    let since = age(at?, now);
    Some(
        next.map_or_else(
            || format!("{name} {since} ago"),
            |next| format!("{name} {since} ago, not yet {next}"),
        ),
    )
}

fn agents_part(agent: &Agent, now: Timestamp) -> Vec<String> {
    let mut parts = Vec::new();
    if agent.status != AgentStatus::Active {
        parts.push(format!("the agent is {}: `brokkr agent activate {}`", agent.status, agent.name));
    }
    if agent.session_tied {
        parts.push(format!("two processes claim to be it: `brokkr agent show {}`", agent.name));
    }
    match agent.last_seen_at {
        None => parts.push("the agent has never asked".to_owned()),
        Some(seen) => parts.push(format!("the agent was seen {} ago", age(seen, now))),
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::samples::{agent, contested_row, failed_row, now, row};
    use super::*;

    #[test]
    fn reasons() {
        let mut held = agent("us-1");
        held.status = AgentStatus::Inactive;
        let mut fresh = row("us-1", 42, 41, State::Pending);
        fresh.sequence_id = None;
        fresh.reason = "AgentInactive".to_owned();
        fresh.message = "the agent is INACTIVE and gets no deployment objects".to_owned();
        let mut rows =
            vec![row("eu-1", 42, 42, State::Healthy), contested_row("eu-2"), failed_row("store-0412"), fresh];
        rows.extend((1..=5).map(|number| row(&format!("far-{number}"), 42, 41, State::Pending)));
        let agents = BTreeMap::from([("us-1".to_owned(), held)]);
        insta::assert_snapshot!(super::reasons(&rows, &agents, now()));
        assert_eq!(super::reasons(&rows[..1], &agents, now()), "");
    }
}
