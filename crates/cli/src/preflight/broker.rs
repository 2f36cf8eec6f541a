//! Checks of the broker: reachable, caller, version, replicas, hold, restore, role of the database.

use jiff::Timestamp;

use super::{
    Check, FetchError, Finding, PreflightData, Replica, SOON, check, failed, listed, not_fetched, ok, warning,
};
use crate::view::text::{age, count};

pub fn reached(data: &PreflightData) -> Check {
    check("broker", &data.reached, |()| ok(format!("{} responds", data.server)))
}

pub fn caller(data: &PreflightData, now: Timestamp) -> Check {
    check("caller", &data.caller, |caller| {
        let who = format!("{}, {} in the project {}", caller.name, caller.role, caller.project);
        match caller.expires_at.filter(|at| at.duration_since(now) < SOON) {
            Some(at) => warning(
                format!("{who}; this token expires in {}", age(now, at)),
                "create a new one: brokkr token create",
            ),
            None => ok(who),
        }
    })
}

pub fn version(data: &PreflightData) -> Check {
    check("version", &data.system, |system| {
        let (own, broker) = (&data.version, &system.version);
        if own == broker {
            return ok(format!("broker and this program have version {own}"));
        }
        warning(
            format!("the broker has version {broker}, this program {own}"),
            "upgrade the broker, then the agents, then this program: docs/how-to/upgrade.md",
        )
    })
}

pub fn replicas(data: &PreflightData) -> Check {
    let troubles: Vec<String> = data.replicas.iter().filter_map(trouble).collect();
    let Finding(verdict, reason, next) = match (&data.reached, data.replicas.len()) {
        // The check `broker` reports this.
        (Err(_), _) | (_, 0) => not_fetched(&FetchError::Skipped),
        _ if !troubles.is_empty() => {
            let reason = listed(troubles.iter().map(String::as_str), troubles.len() as u64);
            failed(reason, "see docs/runbooks/BrokkrNoBroker.md")
        }
        (Ok(()), 1) => ok("the replica that responds is ready"),
        (Ok(()), number) => ok(format!("all {number} replicas behind this name are ready")),
    };
    Check { check: "replicas", verdict, reason, next }
}

fn trouble(replica: &Replica) -> Option<String> {
    let what = match &replica.health {
        Err(error) => error.why(),
        Ok(health) if health.whole => return None,
        Ok(health) => {
            let causes = health.causes.iter().map(|cause| format!("{}: {}", cause.part, cause.detail));
            causes.collect::<Vec<_>>().join("; ")
        }
    };
    Some(format!("{}: {what}", replica.address))
}

pub fn hold(data: &PreflightData) -> Check {
    check("hold", &data.system, |system| match &system.hold {
        None => ok("not on hold"),
        Some(hold) => failed(
            format!("on hold since {:.0}, because {}", hold.since, hold.because),
            "brokkr-broker epoch raise --dry-run",
        ),
    })
}

pub fn restore(data: &PreflightData) -> Check {
    check("restore", &data.system, |system| {
        let stacks = |number: u64| count(usize::try_from(number).unwrap_or(usize::MAX), "stack");
        if system.stacks_ahead > 0 {
            let reason = format!("{} newer on agents than in the database", stacks(system.stacks_ahead));
            return failed(reason, "brokkr admin ahead");
        }
        if system.stacks_unknown > 0 {
            let reason = format!("{} on agents but not in the database", stacks(system.stacks_unknown));
            return failed(reason, "brokkr admin unknown");
        }
        if system.stacks_unconfirmed > 0 {
            let number = stacks(system.stacks_unconfirmed);
            let reason = format!("{number} on agents that are no targets of them");
            return failed(reason, "brokkr admin unconfirmed");
        }
        if system.agents_to_report > 0 {
            let reason =
                format!("agents that have not reported their stacks yet: {}", system.agents_to_report);
            return warning(reason, "brokkr admin status");
        }
        ok("nothing to settle")
    })
}

/// A broker of which the role owns the tables works, so this is only a warning.
pub fn database_role(data: &PreflightData) -> Check {
    check("database-role", &data.system, |system| match &system.database_role {
        None => ok("not reported by this version of the broker"),
        Some(role) if !role.missing.is_empty() => {
            let missing: Vec<String> = role.missing.iter().map(ToString::to_string).collect();
            let missing = listed(missing.iter().map(String::as_str), role.missing.len() as u64);
            failed(
                format!("{} lacks {missing}", role.name),
                format!("brokkr-broker migrate --serving-role {}", role.name),
            )
        }
        Some(role) if role.owns_tables => warning(
            format!("{} owns the tables, so a broker could rewrite the audit log", role.name),
            "let the broker use another role: docs/how-to/separate-roles.md",
        ),
        Some(role) => ok(format!("{} does not own the tables", role.name)),
    })
}
