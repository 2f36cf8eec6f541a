//! When an alert is sent: of one group, which is a stack and a cause, to one webhook.
//!
//! ```text
//!           an agent fails            for the gather time: opened
//!   Quiet ─────────────────► Gathering ──────────────────────────► Open ──┐ further agents: updated
//!     ▲                          │ none fails                       │ ▲───┘
//!     └──────────────────────────┴──────────────────────────────────┘
//!                                   none fails for the settle time: resolved
//! ```
//!
//! In one interval, a group sends at most one message about a problem (opened or updated), and at most one that it is
//! over. What would come too early waits, and is dropped if it is no longer true then. So a flapping agent causes at
//! most two messages in any interval.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the first agent to the first message, so that it covers the others.
    pub gather: Duration,
    /// Without a failing agent, before the alert is over.
    pub settle: Duration,
    /// Between two messages of the same sort.
    pub interval: Duration,
}

/// The state of a group, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub phase: Phase,
    /// The last message about the problem.
    pub problem_at: Option<Timestamp>,
    /// The last message that it is over.
    pub resolved_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Quiet,
    Gathering {
        since: Timestamp,
    },
    Open(OpenAlert),
}

/// An alert that was sent and is not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAlert {
    /// The same in all messages of the alert.
    pub id: Uuid,
    pub since: Timestamp,
    /// The largest number of agents in a message.
    pub agents: u32,
    /// Since when no agent has failed.
    pub calm_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Opened(OpenAlert),
    /// `before` is the largest number of agents so far.
    Updated {
        alert: OpenAlert,
        before: u32,
    },
    Resolved(OpenAlert),
}

/// Returns the next state and the message to send, if any. `failing` is the number of agents; `id` is for a new alert.
#[must_use]
pub fn step(group: Group, failing: u32, now: Timestamp, timing: Timing, id: Uuid) -> (Group, Option<Notice>) {
    let passed = |from: Timestamp, time: Duration| elapsed(from, now) >= time;
    let may_repeat = |last: Option<Timestamp>| last.is_none_or(|last| passed(last, timing.interval));
    let in_phase = |phase: Phase| Group { phase, ..group };
    match group.phase {
        Phase::Quiet if failing > 0 => (in_phase(Phase::Gathering { since: now }), None),
        Phase::Gathering { .. } if failing == 0 => (in_phase(Phase::Quiet), None),
        Phase::Gathering { since } if passed(since, timing.gather) && may_repeat(group.problem_at) => {
            let alert = OpenAlert { id, since, agents: failing, calm_since: None };
            let opened = Group { phase: Phase::Open(alert), problem_at: Some(now), ..group };
            (opened, Some(Notice::Opened(alert)))
        }
        Phase::Quiet | Phase::Gathering { .. } => (group, None),
        Phase::Open(alert) if failing == 0 => {
            let calm_since = alert.calm_since.unwrap_or(now);
            if passed(calm_since, timing.settle) && may_repeat(group.resolved_at) {
                let resolved = Group { phase: Phase::Quiet, resolved_at: Some(now), ..group };
                return (resolved, Some(Notice::Resolved(alert)));
            }
            (in_phase(Phase::Open(OpenAlert { calm_since: Some(calm_since), ..alert })), None)
        }
        Phase::Open(alert) => {
            let alert = OpenAlert { calm_since: None, ..alert };
            if failing > alert.agents && may_repeat(group.problem_at) {
                let updated = OpenAlert { agents: failing, ..alert };
                let group = Group { phase: Phase::Open(updated), problem_at: Some(now), ..group };
                return (group, Some(Notice::Updated { alert: updated, before: alert.agents }));
            }
            (in_phase(Phase::Open(alert)), None)
        }
    }
}

/// Returns whether the state says nothing any more: the same as no state.
#[must_use]
pub fn is_forgotten(group: &Group, now: Timestamp, timing: Timing) -> bool {
    let recent = |last: Option<Timestamp>| last.is_some_and(|last| elapsed(last, now) < timing.interval);
    group.phase == Phase::Quiet && !recent(group.problem_at) && !recent(group.resolved_at)
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "group/tests.rs"]
mod tests;
