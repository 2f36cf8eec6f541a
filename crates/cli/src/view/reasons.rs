//! Short explanations of agents that are not in sync, below a status or a failed wait. `brokkr why` has the details.

use std::collections::BTreeMap;

use brokkr_api::agents::{Agent, AgentStatus};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::status::{StackStatus, State};
use jiff::Timestamp;

use super::conditions::{line, wrong};
use super::status::reported;
use super::text::{age, clean, explained, or_dash};

/// At most this many agents are explained.
const MOST_EXPLAINED: usize = 5;

pub fn is_in_sync(row: &StackStatus) -> bool {
    matches!(row.state, State::Healthy | State::Removed)
}

/// Returns whether a row needs an explanation: it is not in sync, or a condition such as Contested is set.
pub fn is_shown(row: &StackStatus) -> bool {
    !is_in_sync(row) || !wrong(row).is_empty()
}

/// Returns the rows that [`reasons`] explains.
pub fn shown(rows: &[StackStatus]) -> impl Iterator<Item = &StackStatus> {
    rows.iter().filter(|row| is_shown(row)).take(MOST_EXPLAINED)
}

/// Explains the rows. `agents` has the agents that could be read, by name.
pub fn reasons(rows: &[StackStatus], agents: &BTreeMap<String, Agent>, now: Timestamp) -> String {
    let mut lines = Vec::new();
    for (names, block) in grouped(rows, agents, now) {
        lines.push(format!("why {}: {}", names.join(", "), block[0]));
        lines.extend(block[1..].iter().map(|line| format!("  {line}")));
    }
    let more = rows.iter().filter(|row| is_shown(row)).count().saturating_sub(MOST_EXPLAINED);
    if more > 0 {
        lines.push(format!("… and {more} more that are not in sync"));
    }
    lines.join("\n")
}

/// Groups agents with the same explanation.
fn grouped(
    rows: &[StackStatus],
    agents: &BTreeMap<String, Agent>,
    now: Timestamp,
) -> Vec<(Vec<String>, Vec<String>)> {
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in shown(rows) {
        let (name, block) = (clean(&row.agent_name), block(row, agents.get(&row.agent_name), now));
        match groups.iter_mut().find(|(_, known)| *known == block) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], block)),
        }
    }
    groups
}

/// Returns the reason, then objects and conditions that it does not contain.
fn block(row: &StackStatus, agent: Option<&Agent>, now: Timestamp) -> Vec<String> {
    let mut lines = vec![reason(row, agent, now)];
    // Compares only the text, to leave out a line that repeats another one.
    let is_contained = |lines: &[String], message: &Message| {
        let message = clean(message);
        !message.is_empty() && lines.iter().any(|line| line.contains(&message))
    };
    for note in &row.objects {
        if is_contained(&lines, &note.message) && lines.iter().any(|line| line.contains(&clean(&note.object)))
        {
            continue;
        }
        lines.push(format!("{}: {}", clean(&note.object), clean(explained(&note.reason, &note.message))));
    }
    for condition in wrong(row) {
        if !is_contained(&lines, &condition.message) {
            lines.push(line(condition, now));
        }
    }
    lines
}

fn reason(row: &StackStatus, agent: Option<&Agent>, now: Timestamp) -> String {
    let mut parts = vec![verdict(row)];
    parts.extend(hop(row, now));
    let message = clean(reported(row));
    // The part about the agent below says the same, with a command.
    let is_repeated = row.reason == Reason::AgentInactive && agent.is_some();
    if !message.is_empty() && !is_repeated {
        parts.push(message);
    }
    if let Some(agent) = agent.filter(|_| !matches!(row.state, State::Failed | State::Blocked)) {
        parts.extend(agents_part(agent, now));
    }
    parts.join("; ")
}

fn verdict(row: &StackStatus) -> String {
    let (has, wants) = (or_dash(row.sequence_id), or_dash(row.wanted_sequence_id));
    match row.state {
        State::Removing => format!("removing at version {wants}"),
        state if has == wants => format!("{state} at version {wants}"),
        _ if row.sequence_id.is_none() => format!("wants {wants}, has reported nothing yet"),
        state => format!("{state}, wants {wants}, has {has}"),
    }
}

/// Returns the last completed step, and the next one.
fn hop(row: &StackStatus, now: Timestamp) -> Option<String> {
    let chain = row.hops.chain();
    let passed = chain.iter().rposition(|(name, at)| at.is_some() && *name != "reported")?;
    let (name, at) = chain[passed];
    // Not every version prunes, so a later step may be complete.
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
        parts.push(format!("the agent is {}: `brokkr agent resume {}`", agent.status, agent.name));
    }
    if agent.session_duplicated {
        parts.push(format!("two processes use its identity: `brokkr agent show {}`", agent.name));
    }
    match agent.last_seen_at {
        None => parts.push("the agent has never connected".to_owned()),
        Some(seen) => parts.push(format!("the agent was last seen {} ago", age(seen, now))),
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::samples::{agent, contested_row, failed_row, now, row};
    use super::*;

    #[test]
    fn reasons() {
        let mut inactive = agent("us-1");
        inactive.status = AgentStatus::Inactive;
        let mut unreported = row("us-1", 42, 41, State::Pending);
        unreported.sequence_id = None;
        unreported.reason = Reason::AgentInactive;
        unreported.message = "the agent is INACTIVE and gets no deployment objects".into();
        let mut rows = vec![
            row("eu-1", 42, 42, State::Healthy),
            contested_row("eu-2"),
            failed_row("store-0412"),
            unreported,
        ];
        rows.extend((1..=5).map(|number| row(&format!("far-{number}"), 42, 41, State::Pending)));
        let agents = BTreeMap::from([("us-1".to_owned(), inactive)]);
        insta::assert_snapshot!(super::reasons(&rows, &agents, now()));
        assert_eq!(super::reasons(&rows[..1], &agents, now()), "");
    }
}
