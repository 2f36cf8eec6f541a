//! The installation, and stacks to settle after a restore.

use brokkr_api::page::Page;
use brokkr_api::system::{Holder, Settled, Settlement, System, UnsettledStack};
use serde::Serialize;

use super::hold::hold_lines;
use super::table::Table;
use super::text::{count, or_dash};
use super::{RenderOptions, Show};

/// Agents in a row of a table.
const NAMED: usize = 3;

impl Show for System {
    fn text(&self, _: &RenderOptions) -> String {
        status(self)
    }

    fn names(&self) -> Vec<String> {
        vec![format!("installation/{}", self.installation)]
    }
}

/// Stacks on which agents are ahead of the database.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Ahead(pub Page<UnsettledStack>);

/// Stacks that agents have and the database does not know.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Unknown(pub Page<UnsettledStack>);

/// Stacks that agents have although they are no targets of them.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Unconfirmed(pub Page<UnsettledStack>);

impl Show for Ahead {
    fn text(&self, options: &RenderOptions) -> String {
        if self.0.items.is_empty() {
            return "no agent is ahead of the database".to_owned();
        }
        let how = "brokkr admin settle STACK --publish-restored, or submit again with brokkr apply";
        format!("{}\n\nsettle each with: {how}", table(&self.0.items, options))
    }

    fn names(&self) -> Vec<String> {
        names(&self.0.items)
    }
}

impl Show for Unknown {
    fn text(&self, options: &RenderOptions) -> String {
        if self.0.items.is_empty() {
            return "every stack on the agents is in the database".to_owned();
        }
        let how = "brokkr admin settle STACK --recreate, or --delete";
        format!("{}\n\nsettle each with: {how}", table(&self.0.items, options))
    }

    fn names(&self) -> Vec<String> {
        names(&self.0.items)
    }
}

impl Show for Unconfirmed {
    fn text(&self, options: &RenderOptions) -> String {
        if self.0.items.is_empty() {
            return "every agent is a target of the stacks that it has, or is removing them".to_owned();
        }
        let how = "brokkr admin settle STACK --keep, or --remove";
        format!("{}\n\nsettle each with: {how}", table(&self.0.items, options))
    }

    fn names(&self) -> Vec<String> {
        names(&self.0.items)
    }
}

fn names(stacks: &[UnsettledStack]) -> Vec<String> {
    stacks.iter().map(|stack| format!("stack/{}", stack.stack_id)).collect()
}

fn status(system: &System) -> String {
    let mut lines = vec![
        format!("installation: {}", system.installation),
        format!(
            "version:      {}, protocol {} to {}",
            system.version, system.oldest_protocol, system.protocol
        ),
        format!("epoch:        {}", system.epoch),
        format!("position:     {}", system.position),
    ];
    match &system.hold {
        Some(hold) => {
            lines.extend(hold_lines(hold));
        }
        None => lines.push("on hold:      no".to_owned()),
    }
    let left = [
        (system.agents_to_report, "agent", "stacks not reported yet"),
        (system.stacks_ahead, "stack", "newer on agents than in the database: brokkr admin ahead"),
        (system.stacks_unknown, "stack", "on agents but not in the database: brokkr admin unknown"),
        (
            system.stacks_unconfirmed,
            "stack",
            "on agents that are no targets of them: brokkr admin unconfirmed",
        ),
        (system.targets_kept, "target", "added by brokkr admin settle, because the agent has the stack"),
    ];
    if left.iter().any(|(number, ..)| *number > 0) {
        lines.push(String::new());
    }
    for (number, what, next) in left {
        if number > 0 {
            lines.push(format!("{}: {next}", count(usize::try_from(number).unwrap_or(usize::MAX), what)));
        }
    }
    for raised in &system.raised {
        lines.push(String::new());
        lines.push(format!(
            "{:.0} {} raised the epoch from {} to {}; sequence ids continue after {}",
            raised.raised_at, raised.raised_by, raised.epoch_before, raised.epoch, raised.sequence_after
        ));
        if let Some(because) = &raised.held_because {
            lines.push(format!("  on hold before, because {because}"));
        }
        if let Some(reason) = &raised.reason {
            lines.push(format!("  reason: {reason}"));
        }
    }
    lines.join("\n")
}

fn table(stacks: &[UnsettledStack], options: &RenderOptions) -> String {
    Table::new(options, stacks)
        .plain("PROJECT", |stack| &stack.project)
        .plain("STACK", |stack| if stack.stack_name.is_empty() { "-" } else { &stack.stack_name })
        .plain("ID", |stack| stack.stack_id)
        .plain("RESTORED", |stack| or_dash(stack.restored.as_ref().map(|object| object.sequence_id)))
        .sentence("AGENTS", holders)
        .print()
}

fn holders(stack: &UnsettledStack) -> String {
    let mut agents: Vec<String> = stack.agents.iter().take(NAMED).map(holder).collect();
    let more = usize::try_from(stack.agent_count).unwrap_or(usize::MAX).saturating_sub(agents.len());
    if more > 0 {
        agents.push(format!("and {more} more"));
    }
    agents.join(", ")
}

fn holder(holder: &Holder) -> String {
    let version = holder.sequence_id.map_or_else(|| "?".to_owned(), |sequence| sequence.to_string());
    let digest =
        holder.checksum.map(|checksum| format!(" {}", &checksum.to_string()[..12])).unwrap_or_default();
    let removing = if holder.removing { " (removing)" } else { "" };
    format!("{}: {version}{digest}{removing}", holder.agent_name)
}

pub fn settled(stack: &str, settlement: Settlement, settled: &Settled) -> String {
    let agents = |number: u64| count(usize::try_from(number).unwrap_or(usize::MAX), "agent");
    let version = or_dash(settled.object.as_ref().map(|object| object.sequence_id));
    match settlement {
        Settlement::PublishRestored => format!("stack {stack}: published as {version}"),
        Settlement::Recreate => format!(
            "stack {stack}: recreated for {}; next: brokkr apply {stack} -f PATH",
            agents(settled.targets)
        ),
        Settlement::Delete => format!("stack {stack}: deletion published as {version}"),
        Settlement::Keep => format!("stack {stack}: {} added to its targets", agents(settled.targets)),
        Settlement::Remove => format!("stack {stack}: being removed from {}", agents(settled.removals)),
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::ids::Checksum;
    use brokkr_api::system::{Hold, HoldCause, RaisedEpoch, Witness};
    use brokkr_api::{AgentId, InstallationId, Position, SequenceId, StackId};

    use super::super::samples::{now, rendered};
    use super::super::whole;
    use super::*;

    fn stack(name: &str, agent: &str) -> UnsettledStack {
        let id = "01900000-0000-7000-8000-000000000001";
        UnsettledStack {
            project: "default".into(),
            stack_id: id.parse::<StackId>().expect("an id"),
            stack_name: name.into(),
            restored: None,
            agent_count: 5,
            agents: vec![Holder {
                agent_id: id.parse::<AgentId>().expect("an id"),
                agent_name: agent.parse().expect("a name"),
                sequence_id: Some(SequenceId(57)),
                checksum: Some(Checksum::of(b"content")),
                removing: false,
                confirmed: false,
            }],
        }
    }

    #[test]
    fn admin() {
        let id = "01900000-0000-7000-8000-000000000001";
        let mut system = System {
            installation: id.parse::<InstallationId>().expect("an id"),
            version: "0.1.0".into(),
            protocol: 1,
            oldest_protocol: 1,
            epoch: 1,
            position: "1.700".into(),
            hold: Some(Hold::new(
                now(),
                HoldCause::Ahead {
                    witness: Witness::Agent {
                        agent_id: id.parse().expect("an id"),
                        agent_name: "shop-1".into(),
                    },
                    seen: Position { epoch: 1, horizon: 900 },
                    database: Position { epoch: 1, horizon: 700 },
                },
            )),
            agents_to_report: 2,
            stacks_ahead: 0,
            stacks_unknown: 0,
            stacks_unconfirmed: 0,
            targets_kept: 0,
            raised: Vec::new(),
            agent_versions: Vec::new(),
            database_role: None,
        };
        let held = status(&system);
        system.hold = None;
        (system.agents_to_report, system.stacks_ahead, system.stacks_unknown, system.targets_kept) =
            (0, 1, 1, 3);
        system.stacks_unconfirmed = 1;
        system.raised.push(RaisedEpoch {
            epoch: 1_700_000_000,
            epoch_before: 1,
            raised_at: now(),
            raised_by: "ada".into(),
            reason: Some("restored on purpose".into()),
            held_because: Some("the agent shop-1 has seen 1.900".into()),
            sequence_before: SequenceId(57),
            sequence_after: SequenceId(1_000_057),
        });
        insta::assert_snapshot!(format!(
            "{held}\n\n{}\n\n{}\n\n{}\n\n{}\n\n{}",
            status(&system),
            rendered(&Ahead(whole(vec![stack("web", "eu-1"), stack("shop", "store-7")]))),
            rendered(&Unknown(whole(vec![stack("lost", "eu-1")]))),
            rendered(&Unconfirmed(whole(vec![stack("cart", "eu-1")]))),
            rendered(&Ahead(whole(Vec::new())))
        ));
    }
}
