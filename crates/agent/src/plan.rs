//! The plan: a pure function of what is wanted, what the record says and what is observed.
//!
//! It answers the requests that may be made now; their answers are absorbed, and it is asked again.
//! Nothing here waits, sends or reads a clock, so that a crash after any step can be played in a
//! loop: `crates/sim` does that. What must survive is in the record; [`types::Progress`] only saves requests.
//!
//! | file      | what it decides                                                            |
//! |-----------|----------------------------------------------------------------------------|
//! | `deliver` | a stack to have: the stages, one after the other                            |
//! | `ownership` | whose each resource is; the record before the first write                 |
//! | `ground`  | Namespaces and definitions first; taken back if the delivery fails          |
//! | `write`   | dry runs, then server-side apply, in order                                  |
//! | `prune`   | what is no longer contained goes                                            |
//! | `attempt` | what failed before: when it is tried again, and told                        |
//! | `dispose` | what may be done with one resource that should go (B6, C5, C6)              |
//! | `remove`  | a stack to remove, until everything is seen to be gone                      |
//! | `steady`  | putting back what others changed, and health                               |
//! | `readiness` | what is not ready, and why; told when it changes                          |
//! | `conditions`, `view` | what is said of the stack as a whole                             |
//! | `outcome` | the record and the reports that go with a transition                        |
//! | `conditions` | what is said of the stack at a glance (F5)                          |
//! | `types`, `seen`, `steps` | what is looked at, and what is answered                      |
//! | `absorb`  | what an answer changes                                                      |

pub mod absorb;
pub mod attempt;
pub mod conditions;
mod deliver;
pub mod dispose;
mod ground;
mod outcome;
mod ownership;
mod prune;
mod readiness;
mod remove;
pub mod seen;
pub mod steady;
pub mod steps;
pub mod types;
mod view;
mod write;

use brokkr_api::report::ObjectNote;
use jiff::{SignedDuration, Timestamp};
use steps::{Plan, Stage};
use types::Situation;

use crate::grant;

/// How long a finalizer may hold an object before it is reported as what blocks.
pub const BLOCKED_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// The same for what only takes its time, as namespaces do.
pub const SLOW_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// How often to look at what blocks for long.
pub const SLOW_CHECKS: SignedDuration = SignedDuration::from_secs(10);
/// How often to see whether another stack has let go of something.
pub const RELEASE_CHECKS: SignedDuration = SignedDuration::from_secs(1);
/// How long a Namespace or definition may take to become ready.
pub const GROUND_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// When a stack that stopped is tried again from the start.
pub const NEXT_CYCLE: SignedDuration = SignedDuration::from_secs(300);
/// The same when it stopped for want of rights. An API server that has just started refuses everybody for some seconds.
pub const RIGHTS_CYCLE: SignedDuration = SignedDuration::from_secs(30);
/// The API server's reason for a want of rights.
pub const FORBIDDEN: &str = "Forbidden";
/// How long transient errors are retried before they are reported.
pub const TRANSIENT_PATIENCE: SignedDuration = SignedDuration::from_secs(300);
/// What is missing and comes with nobody is told after this.
pub const MISSING_PATIENCE: SignedDuration = SignedDuration::from_secs(3);
/// What is parked on a watch is tried again after this, should no event have come.
pub const PARKED: SignedDuration = SignedDuration::from_secs(600);
/// Repairs are reported together, at most this often.
pub const REPAIR_REPORTS: SignedDuration = SignedDuration::from_secs(30);
/// What was healthy may be unready for this long before it counts as degraded.
pub const DEGRADED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// What to do now.
#[must_use]
pub fn plan(situation: &Situation<'_>) -> Plan {
    view::with_conditions(situation, decide(situation))
}

fn decide(situation: &Situation<'_>) -> Plan {
    if let Some(frozen) = freeze(situation) {
        frozen
    } else if situation.goal.target.removal.is_some() {
        remove::plan(situation)
    } else {
        let plan = deliver::plan(situation);
        let idle = plan.steps.is_empty() && plan.waiting_for.is_some() && plan.stage != Stage::Steady;
        if idle || matches!(plan.stage, Stage::Fetch | Stage::Stopped) {
            steady::keep_up(situation, plan)
        } else {
            plan
        }
    }
}

/// What a grant does not cover (any more) is frozen: nothing is written, nothing is deleted, nothing is put back.
fn freeze(s: &Situation<'_>) -> Option<Plan> {
    let target = &s.goal.target;
    let (reason, notes) = match grant::acting(target) {
        Err(refusal) => {
            let object = format!("stack {}", target.stack_name);
            (
                refusal.reason,
                vec![ObjectNote { object, reason: refusal.reason.into(), message: refusal.message }],
            )
        }
        Ok(_) => {
            let wanted = s.goal.content.iter().flat_map(|content| content.objects.keys());
            let had = s.record.into_iter().flat_map(|record| record.inventory.keys());
            (grant::NOT_GRANTED, grant::refused(target.grant.as_ref(), wanted.chain(had)))
        }
    };
    (!notes.is_empty()).then(|| {
        let message = outcome::summary(&notes);
        outcome::blocked(s, Stage::Stopped, reason, &message, notes)
    })
}

/// 1 s first, doubled, 60 s at most; what the server asks for counts if it is longer.
#[must_use]
pub fn backoff(attempts: u32, retry_after: Option<std::time::Duration>) -> SignedDuration {
    let own =
        SignedDuration::from_secs(1 << attempts.saturating_sub(1).min(6)).min(SignedDuration::from_secs(60));
    retry_after.map_or(own, |asked| own.max(SignedDuration::try_from(asked).unwrap_or(own)))
}

fn due(at: Timestamp, now: Timestamp) -> bool {
    at <= now
}
