//! Agents, as a list and one by one.

use brokkr_api::agents::Agent;
use jiff::Timestamp;

use super::table::Table;
use super::text::{age, age_or_dash, labels};

pub fn list(agents: &[Agent], now: Timestamp) -> String {
    if agents.is_empty() {
        return "no agents yet: `brokkr agent join-token NAME` lets one join".to_owned();
    }
    let mut table = Table::new(&["NAME", "STATUS", "SEEN", "AGE", "LABELS"]);
    for agent in agents {
        table.row([
            agent.name.to_string(),
            status(agent),
            age_or_dash(agent.last_seen_at, now),
            age(agent.created_at, now),
            labels(&agent.labels),
        ]);
    }
    table.print()
}

pub fn one(agent: &Agent, now: Timestamp) -> String {
    let seen = agent
        .last_seen_at
        .map_or_else(|| "never".to_owned(), |seen| format!("{} ago ({seen:.0})", age(seen, now)));
    let mut lines = vec![
        format!("name:      {}", agent.name),
        format!("id:        {}", agent.id),
        format!("status:    {}", status(agent)),
        format!("seen:      {seen}"),
        format!("joined:    {} ago ({:.0})", age(agent.created_at, now), agent.created_at),
        format!("starts:    {}", agent.session_count),
        format!("labels:    {}", labels(&agent.labels)),
    ];
    if !agent.annotations.is_empty() {
        lines.push("notes:".to_owned());
        lines.extend(
            agent.annotations.iter().map(|(key, value)| format!("  {key}: {}", super::text::clean(value))),
        );
    }
    if agent.session_tied {
        lines.push(String::new());
        lines.push(
            "Two processes claim to be this agent, so both hold. Find the second one (a cloned cluster?);"
                .to_owned(),
        );
        lines.push(format!("it needs a join token of its own. See `brokkr events --agent {}`.", agent.name));
    }
    lines.join("\n")
}

fn status(agent: &Agent) -> String {
    if agent.session_tied { format!("{},TIED", agent.status) } else { agent.status.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{agent, now};
    use super::*;

    #[test]
    fn agents() {
        let mut tied = agent("store-0412");
        tied.session_tied = true;
        tied.labels.clear();
        tied.last_seen_at = None;
        insta::assert_snapshot!(format!(
            "{}\n\n{}\n\n{}",
            list(&[agent("eu-1"), tied.clone()], now()),
            one(&tied, now()),
            list(&[], now())
        ));
    }
}
