//! Checks of the fleet: agents that are not connected, and pending deletions and prunes.

use brokkr_api::reason::Reason;
use brokkr_api::stacks::Stack;
use brokkr_api::status::ErrorGroup;
use jiff::Timestamp;

use super::{Check, Group, PreflightData, check, failed, listed, ok, warning};
use crate::view::text::{age, count};

/// Older agents work with a newer broker, so this is only a warning.
pub fn versions(data: &PreflightData) -> Check {
    check("agents-version", &data.system, |system| {
        let described: Vec<String> = system
            .agent_versions
            .iter()
            .map(|version| format!("{} {}", version.agents, version.version.as_deref().unwrap_or("unknown")))
            .collect();
        match system.agent_versions.as_slice() {
            [] => ok("no agents yet"),
            [one] if one.version.as_ref() == Some(&system.version) => {
                ok(format!("all agents have version {}", system.version))
            }
            _ => warning(
                format!(
                    "the broker has version {}; agents by version: {}",
                    system.version,
                    described.join(", ")
                ),
                "brokkr agent list -o wide; to upgrade them: docs/how-to/upgrade.md",
            ),
        }
    })
}

pub fn silent(data: &PreflightData) -> Check {
    check("agents-silent", &data.fleet, |fleet| {
        let described = |group: &Group, what: &str| {
            let names = listed(group.names.iter().map(String::as_str), group.number);
            format!("{} {what} ({names})", group.number)
        };
        let of = format!("of {}", agents(fleet.agents));
        match (fleet.silent.number, fleet.never.number) {
            (0, 0) => ok(format!("none {of}")),
            (0, _) => warning(
                format!("{} {of}", described(&fleet.never, "never connected")),
                "brokkr agent list --presence never",
            ),
            (_, 0) => warning(
                format!("{} {of}", described(&fleet.silent, "silent")),
                "brokkr agent list --presence silent",
            ),
            _ => warning(
                format!(
                    "{}, {} {of}",
                    described(&fleet.silent, "silent"),
                    described(&fleet.never, "never connected")
                ),
                "brokkr agent list --presence silent",
            ),
        }
    })
}

pub fn refused(data: &PreflightData) -> Check {
    check("agents-refused", &data.fleet, |fleet| match (fleet.refused.first(), fleet.not_examined) {
        (Some(first), _) => failed(
            format!(
                "requests of {} are refused",
                listed(fleet.refused.iter().map(String::as_str), fleet.refused.len() as u64)
            ),
            format!("brokkr why agent/{first}"),
        ),
        (None, 0) => ok("none"),
        (None, left) => warning(
            format!("none of the examined agents; not examined: {}", agents(left as u64)),
            "brokkr agent list --presence silent",
        ),
    })
}

pub fn revoked(data: &PreflightData) -> Check {
    check("agents-revoked", &data.fleet, |fleet| match fleet.revoked.len() as u64 {
        0 => ok("none"),
        number => warning(
            format!("{number} ({})", listed(fleet.revoked.iter().map(String::as_str), number)),
            "brokkr agent list | grep REVOKED",
        ),
    })
}

pub fn deletions(data: &PreflightData, now: Timestamp) -> Check {
    check("deletions", &data.pending_deletions, |pending| {
        let Some(first) = pending.first() else { return ok("none pending") };
        let described = |stack: &Stack| match stack.deleted_at {
            Some(at) => format!("{} (deleted {} ago)", stack.name, age(at, now)),
            None => stack.name.to_string(),
        };
        let described: Vec<String> = pending.iter().map(described).collect();
        let described = listed(described.iter().map(String::as_str), pending.len() as u64);
        warning(format!("agents still have {described}"), format!("brokkr status {}", first.id))
    })
}

pub fn prunes(data: &PreflightData) -> Check {
    check("prunes", &data.errors, |groups| {
        // Groups omit details that differ between agents, so only the code is compared.
        let needs_approval = Reason::PruneNeedsApproval { delete: 0, total: 0 };
        let is_pending = |group: &&ErrorGroup| group.reason.code() == needs_approval.code();
        let waiting: Vec<&ErrorGroup> = groups.iter().filter(is_pending).collect();
        let number: u64 = waiting.iter().map(|group| group.count).sum();
        if number == 0 {
            return ok("none waits for approval");
        }
        let examples = waiting.iter().flat_map(|group| &group.examples);
        let stack = examples.map(|example| example.stack_name.as_str()).next().unwrap_or("STACK");
        let number = count(usize::try_from(number).unwrap_or(usize::MAX), "prune");
        warning(
            format!("waiting for approval: {number}, for example of {stack}"),
            format!("brokkr stack approve {stack}"),
        )
    })
}

fn agents(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "agent")
}
