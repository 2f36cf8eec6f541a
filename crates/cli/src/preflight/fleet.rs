//! Checks of the fleet: agents that do not come, and what is owed there.

use brokkr_api::stacks::Stack;
use brokkr_api::status::ErrorGroup;
use jiff::Timestamp;

use super::{Answers, Check, Group, bad, judged, listed, look, ok};
use crate::view::text::{age, count};

/// What the agent says of a prune that waits.
const NEEDS_APPROVAL: &str = "PruneNeedsApproval";

/// Agents of an earlier version work with a later broker: it is said, so that somebody knows.
pub fn versions(answers: &Answers) -> Check {
    judged("agents-version", &answers.system, |system| {
        let told: Vec<String> = system
            .agent_versions
            .iter()
            .map(|version| format!("{} {}", version.agents, version.version.as_deref().unwrap_or("unknown")))
            .collect();
        match system.agent_versions.as_slice() {
            [] => ok("no agents yet"),
            [one] if one.version.as_ref() == Some(&system.version) => {
                ok(format!("all are {}", system.version))
            }
            _ => look(
                format!("the broker is {}, agents are: {}", system.version, told.join(", ")),
                "brokkr agent list -o wide; to upgrade them: docs/how-to/upgrade.md",
            ),
        }
    })
}

pub fn silent(answers: &Answers) -> Check {
    judged("agents-silent", &answers.fleet, |fleet| {
        let told = |group: &Group, what: &str| {
            let names = listed(group.names.iter().map(String::as_str), group.number);
            format!("{} {what} ({names})", group.number)
        };
        let of = format!("of {}", agents(fleet.agents));
        match (fleet.silent.number, fleet.never.number) {
            (0, 0) => ok(format!("none {of}")),
            (0, _) => look(
                format!("{} {of}", told(&fleet.never, "never came")),
                "brokkr agent list --presence never",
            ),
            (_, 0) => {
                look(format!("{} {of}", told(&fleet.silent, "silent")), "brokkr agent list --presence silent")
            }
            _ => look(
                format!("{}, {} {of}", told(&fleet.silent, "silent"), told(&fleet.never, "never came")),
                "brokkr agent list --presence silent",
            ),
        }
    })
}

pub fn refused(answers: &Answers) -> Check {
    judged("agents-refused", &answers.fleet, |fleet| match (fleet.refused.first(), fleet.not_asked) {
        (Some(first), _) => bad(
            format!(
                "who comes as {} is refused",
                listed(fleet.refused.iter().map(String::as_str), fleet.refused.len() as u64)
            ),
            format!("brokkr why agent/{first}"),
        ),
        (None, 0) => ok("none"),
        (None, left) => look(
            format!("none of those that were looked at; {} more are silent or late", agents(left as u64)),
            "brokkr agent list --presence silent",
        ),
    })
}

pub fn revoked(answers: &Answers) -> Check {
    judged("agents-revoked", &answers.fleet, |fleet| match fleet.revoked.len() as u64 {
        0 => ok("none"),
        number => look(
            format!("{number} ({})", listed(fleet.revoked.iter().map(String::as_str), number)),
            "brokkr agent list | grep REVOKED",
        ),
    })
}

pub fn deletions(answers: &Answers, now: Timestamp) -> Check {
    judged("deletions", &answers.owed, |owed| {
        let Some(first) = owed.first() else { return ok("none is owed") };
        let told = |stack: &Stack| match stack.deleted_at {
            Some(at) => format!("{} since {}", stack.name, age(at, now)),
            None => stack.name.to_string(),
        };
        let told: Vec<String> = owed.iter().map(told).collect();
        let told = listed(told.iter().map(String::as_str), owed.len() as u64);
        look(format!("agents still hold {told}"), format!("brokkr status {}", first.id))
    })
}

pub fn prunes(answers: &Answers) -> Check {
    judged("prunes", &answers.errors, |groups| {
        let waiting: Vec<&ErrorGroup> =
            groups.iter().filter(|group| group.reason == NEEDS_APPROVAL).collect();
        let number: u64 = waiting.iter().map(|group| group.count).sum();
        if number == 0 {
            return ok("none waits for an approval");
        }
        let examples = waiting.iter().flat_map(|group| &group.examples);
        let stack = examples.map(|example| example.stack_name.as_str()).next().unwrap_or("STACK");
        let number = count(usize::try_from(number).unwrap_or(usize::MAX), "prune");
        look(
            format!("waiting for an approval: {number}, such as of {stack}"),
            format!("brokkr approve {stack}"),
        )
    })
}

fn agents(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "agent")
}
