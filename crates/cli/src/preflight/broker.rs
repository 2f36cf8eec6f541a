//! Checks of the broker itself: reached, as whom, its version, replicas, hold, restore.

use jiff::Timestamp;

use super::{Answers, Check, Finding, Replica, SOON, Unanswered, bad, judged, listed, look, not_told, ok};
use crate::view::text::{age, count};

pub fn reached(answers: &Answers) -> Check {
    judged("broker", &answers.reached, |()| ok(format!("{} answers", answers.server)))
}

pub fn caller(answers: &Answers, now: Timestamp) -> Check {
    judged("caller", &answers.caller, |caller| {
        let who = format!("{}, {} in the project {}", caller.name, caller.role, caller.project);
        match caller.expires_at.filter(|at| at.duration_since(now) < SOON) {
            Some(at) => look(
                format!("{who}; this token expires in {}", age(now, at)),
                "get a new one in time: brokkr token create",
            ),
            None => ok(who),
        }
    })
}

pub fn version(answers: &Answers) -> Check {
    judged("version", &answers.system, |system| {
        let (own, broker) = (&answers.version, &system.version);
        if own == broker {
            return ok(format!("broker and this program are {own}"));
        }
        look(
            format!("the broker is {broker}, this program is {own}"),
            "first the broker, then agents, then this program: docs/how-to/upgrade.md",
        )
    })
}

pub fn replicas(answers: &Answers) -> Check {
    let troubles: Vec<String> = answers.replicas.iter().filter_map(trouble).collect();
    let Finding(verdict, reason, next) = match (&answers.reached, answers.replicas.len()) {
        // That has been told already.
        (Err(_), _) | (_, 0) => not_told(&Unanswered::NotAsked),
        _ if !troubles.is_empty() => {
            let told = listed(troubles.iter().map(String::as_str), troubles.len() as u64);
            bad(told, "see docs/runbooks/BrokkrNoBroker.md")
        }
        (Ok(()), 1) => ok("the one that answers is ready"),
        (Ok(()), number) => ok(format!("all {number} behind this name are ready")),
    };
    Check { check: "replicas", verdict, reason, next }
}

fn trouble(replica: &Replica) -> Option<String> {
    let what = match &replica.health {
        Err(unanswered) => unanswered.why(),
        Ok(health) if health.whole => return None,
        Ok(health) => {
            let causes = health.causes.iter().map(|cause| format!("{}: {}", cause.part, cause.detail));
            causes.collect::<Vec<_>>().join("; ")
        }
    };
    Some(format!("{}: {what}", replica.address))
}

pub fn hold(answers: &Answers) -> Check {
    judged("hold", &answers.system, |system| match &system.hold {
        None => ok("not on hold"),
        Some(hold) => bad(
            format!("on hold since {:.0}, because {}", hold.since, hold.because),
            "brokkr-broker epoch raise --dry-run",
        ),
    })
}

pub fn restore(answers: &Answers) -> Check {
    judged("restore", &answers.system, |system| {
        let stacks = |number: u64| count(usize::try_from(number).unwrap_or(usize::MAX), "stack");
        if system.stacks_ahead > 0 {
            let reason = format!("{} newer on agents than in the database", stacks(system.stacks_ahead));
            return bad(reason, "brokkr admin ahead");
        }
        if system.stacks_unknown > 0 {
            let reason = format!("{} on agents and not in the database", stacks(system.stacks_unknown));
            return bad(reason, "brokkr admin unknown");
        }
        if system.agents_to_tell > 0 {
            let reason = format!("{} of the agents have not told yet what they hold", system.agents_to_tell);
            return look(reason, "brokkr admin status");
        }
        ok("nothing left to settle")
    })
}
