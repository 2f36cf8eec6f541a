//! Explanations: the steps, the first one that is not complete, its cause, and the next action.

use anstyle::Style;
use brokkr_api::report::Hops;
use brokkr_api::status::State;
use brokkr_api::upgrades::UpgradeStep;
use brokkr_api::why::{AgentEventKind, AgentWhy, Broken, NextCommand, Reach, StackWhy};
use jiff::Timestamp;

use super::agent_upgrades::last_step;
use super::table::{BAD, FAINT, GOOD, Table, painted, style_of};
use super::text::{age, clean, count, or_dash};
use super::{Listed, RenderOptions, Show};

impl Show for StackWhy {
    fn text(&self, options: &RenderOptions) -> String {
        let (stack, agent) = (clean(&self.stack_name), clean(&self.agent_name));
        let mut lines = vec![format!("{stack} on {agent}: {}", verdict(self))];
        lines.extend(chain(&self.hops, self.broken.as_ref(), options.now));
        lines.extend(details(self.broken.as_ref(), &self.evidence));
        lines.join("\n")
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

/// Agents on which a stack is not in sync.
impl Listed for StackWhy {
    const NONE: &'static str = "everything is in sync";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        table
            .plain("STACK", |why| &why.stack_name)
            .plain("AGENT", |why| &why.agent_name)
            .plain("STATE", |why| painted(why.state, style_of(why.state)))
            .plain("HAS/WANTS", |why| {
                format!("{}/{}", or_dash(why.sequence_id), or_dash(why.wanted_sequence_id))
            })
            .plain("STOPPED AT", |why| or_dash(why.broken.as_ref().map(|broken| broken.hop)))
            .sentence("WHY", |why| or_dash(why.broken.as_ref().map(|broken| &broken.message)))
            .wide("CAUSE", |why| or_dash(why.broken.as_ref().map(|broken| broken.cause)))
            .wide("NEXT", |why| {
                or_dash(
                    why.broken
                        .as_ref()
                        .map(|broken| broken.command.as_ref().map_or(&broken.next, |command| &command.line)),
                )
            })
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent_name)
    }
}

fn verdict(why: &StackWhy) -> String {
    let (has, wants) = (or_dash(why.sequence_id), or_dash(why.wanted_sequence_id));
    let style = style_of(why.state);
    let state = format!("{style}{}{style:#}", why.state);
    match (why.state, why.wanted_sequence_id, why.sequence_id) {
        (State::Removed, ..) => format!("{state}, as intended"),
        (State::Removing, ..) => format!("{state} at version {wants}"),
        (_, None, _) => format!("{state}; not targeted"),
        (_, _, None) => format!("{state}; wants version {wants}, nothing reported yet"),
        (_, Some(wanted), Some(had)) if wanted == had => format!("{state} at version {wants}"),
        _ => format!("{state}; wants version {wants}, has version {has}"),
    }
}

fn chain(hops: &Hops, broken: Option<&Broken>, now: Timestamp) -> Vec<String> {
    let hop = |mark: &str, style: Style, name: &str, rest: &str| {
        format!("  {style}{mark}{style:#} {name:9}  {rest}").trim_end().to_owned()
    };
    hops.chain()
        .into_iter()
        .map(|(name, at)| match (broken, at) {
            (Some(broken), _) if broken.hop.to_string() == name => {
                hop("✖", BAD, name, &clean(&broken.message))
            }
            (_, Some(at)) => hop("✔", GOOD, name, &format!("{} ago", age(at, now))),
            (_, None) => hop("–", FAINT, name, ""),
        })
        .collect()
}

fn details(broken: Option<&Broken>, evidence: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = evidence.iter().map(|line| format!("  {}", clean(line))).collect();
    if let Some(broken) = broken.filter(|broken| !broken.next.is_empty()) {
        lines.push(format!("{FAINT}next:{FAINT:#} {}", clean(&broken.next)));
        lines.extend(broken.command.iter().flat_map(command_lines));
    }
    lines
}

/// Returns what the command changes, what to check first, and then the command on its own line, to be copied.
fn command_lines(command: &NextCommand) -> Vec<String> {
    let changes = match command.reach {
        Reach::Object => Some("this object".to_owned()),
        Reach::Cluster => Some("this cluster".to_owned()),
        Reach::Agent => Some("this agent".to_owned()),
        Reach::Stack { agents } => Some(format!("the stack on {}", all(agents))),
        Reach::Grant { agents } => Some(format!(
            "the project's permissions on {}",
            count(usize::try_from(agents).unwrap_or(usize::MAX), "agent")
        )),
        Reach::Installation => Some("all agents of the installation".to_owned()),
        Reach::Other => None,
    };
    let changes = changes.map(|changes| format!("  {FAINT}changes:{FAINT:#} {changes}"));
    let check = command.check_first.as_ref();
    let check = check.map(|check| format!("  {FAINT}check first:{FAINT:#} {}", clean(check)));
    changes.into_iter().chain(check).chain([format!("  {}", clean(&command.line))]).collect()
}

fn all(agents: u64) -> String {
    match agents {
        1 => "its only agent".to_owned(),
        _ => format!("all {agents} agents"),
    }
}

/// Returns the next actions for several agents, each once.
pub fn steps(whys: &[StackWhy]) -> String {
    let mut steps: Vec<(&Broken, Vec<String>)> = Vec::new();
    for (why, broken) in whys.iter().filter_map(|why| Some((why, why.broken.as_ref()?))) {
        let agent = clean(&why.agent_name);
        match steps.iter_mut().find(|(known, _)| known.next == broken.next && known.command == broken.command)
        {
            Some((_, agents)) => agents.push(agent),
            None => steps.push((broken, vec![agent])),
        }
    }
    let texts = steps.iter().filter(|(broken, _)| !broken.next.is_empty()).map(|(broken, agents)| {
        let next = format!("{FAINT}next:{FAINT:#} {} ({})", clean(&broken.next), agents.join(", "));
        let lines = broken.command.iter().flat_map(command_lines);
        [next].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    });
    texts.collect::<Vec<_>>().join("\n")
}

impl Show for AgentWhy {
    fn text(&self, options: &RenderOptions) -> String {
        let seen = match self.last_seen_at {
            Some(seen) => format!("seen {} ago", age(seen, options.now)),
            None => "never seen".to_owned(),
        };
        let name = clean(&self.agent_name);
        let mut lines = vec![format!("agent {name}: {}, {}, {seen}", self.status, self.presence)];
        if let Some(broken) = &self.broken {
            lines.push(format!("  {BAD}✖{BAD:#} {}", clean(&broken.message)));
        }
        if let Some(upgrade) = self.upgrade.as_ref().filter(|upgrade| upgrade.step != UpgradeStep::Reconciled)
        {
            lines.push(format!("  upgrade {}", last_step(upgrade, options)));
        }
        for event in self.events.iter().take(3) {
            let what = match event.kind {
                AgentEventKind::Silent => "disconnected",
                AgentEventKind::Back => "reconnected",
            };
            lines.push(format!("  {what} {} ago", age(event.at, options.now)));
        }
        // The evidence is the table below.
        lines.extend(details(self.broken.as_ref(), &[]));
        let stacks = count(usize::try_from(self.affected_stacks).unwrap_or(usize::MAX), "stack");
        if self.stacks.is_empty() {
            lines.push(match self.affected_stacks {
                0 => "no stack targets it".to_owned(),
                1 => "its stack is in sync".to_owned(),
                _ => format!("all of its {stacks} are in sync"),
            });
        } else {
            lines.push(format!("{} of {stacks} not in sync:", self.stacks.len()));
            lines.push(String::new());
            lines.push(StackWhy::columns(Table::new(options, &self.stacks)).print());
        }
        lines.join("\n")
    }

    fn names(&self) -> Vec<String> {
        vec![format!("agent/{}", self.agent_name)]
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::agents::AgentStatus;
    use brokkr_api::upgrades::{ReportedUpgrade, UpgradeReason};
    use brokkr_api::why::{AgentEvent, Cause, Hop, Presence};
    use brokkr_api::{SequenceId, UpgradeId};

    use super::super::samples::{AGENT, STACK, ago, failed_row, narrow, rendered};
    use super::super::whole;
    use super::*;

    fn why() -> StackWhy {
        StackWhy {
            project: "default".into(),
            stack_id: STACK.parse().unwrap(),
            stack_name: "web".into(),
            agent_id: AGENT.parse().unwrap(),
            agent_name: "store-0412".into(),
            state: State::Failed,
            wanted_sequence_id: Some(SequenceId(42)),
            sequence_id: Some(SequenceId(42)),
            hops: failed_row("x").hops,
            broken: Some(Broken {
                hop: Hop::Applied,
                cause: Cause::Failed,
                message: "Immutable: 1 of 14 resources was refused by the API server".into(),
                next: "correct the manifest or its prerequisites, or roll back to the previous version"
                    .into(),
                command: Some(NextCommand {
                    line: "brokkr rollback web".into(),
                    reach: Reach::Stack { agents: 2 },
                    check_first: Some("what the newest version changed: brokkr diff web".into()),
                }),
            }),
            evidence: vec![
                "Deployment shop/web: spec.selector: field is immutable".into(),
                "the agent is ACTIVE, last seen 4 s ago".into(),
            ],
        }
    }

    #[test]
    fn a_stack_on_an_agent() {
        let hops =
            Hops { applied: Some(ago(60)), healthy: Some(ago(5)), reported: Some(ago(4)), ..why().hops };
        let healthy = StackWhy { state: State::Healthy, hops, broken: None, evidence: Vec::new(), ..why() };
        let not_targeted = StackWhy {
            wanted_sequence_id: None,
            sequence_id: None,
            state: State::Removed,
            hops: Hops::default(),
            broken: Some(Broken {
                hop: Hop::Targeted,
                cause: Cause::NotTargeted,
                message: "the stack web does not target the agent store-0412".into(),
                next: "correct the agent's labels, or change the targets of the stack: brokkr stack retarget web".into(),
                command: Some(NextCommand {
                    line: "brokkr agent label store-0412 env=prod".into(),
                    reach: Reach::Agent,
                    check_first: None,
                }),
            }),
            evidence: vec![
                "selector env=prod does not match: it requires env=prod, but the agent has env=dev".into(),
            ],
            ..why()
        };
        insta::assert_snapshot!(format!(
            "{}\n\n{}\n\n{}\n\n{}",
            rendered(&why()),
            rendered(&healthy),
            rendered(&not_targeted),
            rendered(&whole(vec![why(), StackWhy { agent_name: "eu-1".into(), ..why() }]))
        ));
    }

    /// Renders the situations of docs/why.md as a list, and each one on its own.
    #[test]
    fn the_situations_of_the_page() {
        let read = |line: &str| -> Option<StackWhy> {
            let cells: Vec<&str> = line.strip_prefix("| ")?.trim_end_matches(" |").split(" | ").collect();
            let [number, _, hop, cause, message, next] = cells.as_slice() else { return None };
            // Skips errors that the command line explains itself, without the broker.
            let known = |word: &str| serde_json::Value::from(word.trim_matches('`'));
            let (hop, cause) = (serde_json::from_value(known(hop)), serde_json::from_value(known(cause)));
            let (hop, cause) = (hop.ok()?, cause.ok().filter(|cause| *cause != Cause::Other)?);
            let command = next.strip_prefix('`').map(|line| NextCommand {
                line: line.trim_end_matches('`').to_owned(),
                reach: Reach::Agent,
                check_first: None,
            });
            let next = if command.is_some() { "as on the page" } else { *next }.to_owned();
            let broken = Some(Broken { hop, cause, message: (*message).into(), next, command });
            Some(StackWhy { agent_name: format!("shop-{number}"), broken, evidence: Vec::new(), ..why() })
        };
        let page = include_str!("../../../../docs/why.md");
        let situations: Vec<StackWhy> = page.lines().filter_map(read).collect();
        assert_eq!(situations.len(), 19, "all except those that the command line explains itself");
        let each: Vec<String> = situations.iter().map(|one| one.text(&narrow(80))).collect();
        let each = anstream::adapter::strip_str(&each.join("\n\n")).to_string();
        insta::assert_snapshot!(format!("{}\n\n{each}", rendered(&whole(situations))));
    }

    #[test]
    fn an_agent() {
        let agent = AgentWhy {
            agent_id: AGENT.parse().unwrap(),
            agent_name: "store-0412".into(),
            status: AgentStatus::Active,
            presence: Presence::Silent,
            last_seen_at: Some(ago(4000)),
            events: vec![AgentEvent { kind: AgentEventKind::Silent, at: ago(3900) }],
            broken: Some(Broken {
                hop: Hop::Fetched,
                cause: Cause::AgentSilent,
                message: "the agent store-0412 is silent; it was last seen 66 min ago".into(),
                next: "check the agent in its cluster".into(),
                command: None,
            }),
            evidence: Vec::new(),
            stacks: vec![why()],
            affected_stacks: 14,
            upgrade: Some(ReportedUpgrade {
                id: UpgradeId(42),
                version: "1.2.3".into(),
                step: UpgradeStep::Refused,
                at: ago(4000),
                reason: Some(UpgradeReason::NotAllowed { allowed: None }),
            }),
        };
        let healthy = AgentWhy {
            presence: Presence::Fresh,
            last_seen_at: Some(ago(2)),
            broken: None,
            stacks: Vec::new(),
            events: Vec::new(),
            upgrade: None,
            ..agent.clone()
        };
        insta::assert_snapshot!(format!("{}\n\n{}", rendered(&agent), rendered(&healthy)));
    }
}
