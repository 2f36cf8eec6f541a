//! Whether the problem of one agent lasts. One that passes quickly counts in no alert.
//!
//! ```text
//!            bad                 lasts for the grace
//!   Quiet ─────────► Pending ───────────────────────► Lasting
//!     ▲                 │ good                           │ good
//!     └─────────────────┴────────────────────────────────┘
//! ```
//!
//! A failure lasts until a good transition is reported. Drift lasts once repairs have gone on for the grace period, and is
//! over when nothing had to be repaired for as long; a single repair never counts. All times are by the broker's clock.

use std::time::Duration;

use brokkr_api::report::Transition;
use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum AlarmKind {
    /// Failed, degraded or blocked.
    Failure,
    /// Repaired again and again.
    Drift,
}

/// The state of one alarm of one stack on one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alarm {
    #[default]
    Quiet,
    /// Bad, but not for long enough.
    Pending(Episode),
    /// Counts in alerts.
    Lasting(Episode),
}

impl Alarm {
    /// Returns how often the problem was reported.
    #[must_use]
    pub fn count(self) -> u32 {
        match self {
            Self::Quiet => 0,
            Self::Pending(episode) | Self::Lasting(episode) => episode.count,
        }
    }
}

/// A period of failure or drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    pub since: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    /// The last bad transition.
    pub cause: Trouble,
}

/// The transitions that start or prolong an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Trouble {
    Failed,
    Degraded,
    Blocked,
    Repaired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation<'a> {
    Reported(&'a Transition),
    /// Only time has passed.
    Time,
}

/// What an observation means for an alarm.
enum Meaning {
    Bad(Trouble),
    Good,
    Nothing,
}

/// Returns the next state.
#[must_use]
pub fn step(
    kind: AlarmKind,
    alarm: Alarm,
    observation: Observation<'_>,
    now: Timestamp,
    grace: Duration,
) -> Alarm {
    let pending_or_lasting = |episode: Episode| match elapsed(episode.since, now) >= grace {
        true => Alarm::Lasting(episode),
        false => Alarm::Pending(episode),
    };
    match (alarm, meaning(kind, alarm, observation, now, grace)) {
        (Alarm::Quiet, Meaning::Bad(cause)) => {
            pending_or_lasting(Episode { since: now, last: now, count: 1, cause })
        }
        (Alarm::Quiet, _) | (_, Meaning::Good) => Alarm::Quiet,
        (Alarm::Pending(episode), Meaning::Bad(cause)) => pending_or_lasting(prolonged(episode, cause, now)),
        // A failure lasts without further reports. Drift does not: it has to be repaired again.
        (Alarm::Pending(episode), Meaning::Nothing) if kind == AlarmKind::Failure => {
            pending_or_lasting(episode)
        }
        (Alarm::Lasting(episode), Meaning::Bad(cause)) => Alarm::Lasting(prolonged(episode, cause, now)),
        (unchanged, Meaning::Nothing) => unchanged,
    }
}

/// Returns when time alone may change the state.
#[must_use]
pub fn next_check(kind: AlarmKind, alarm: Alarm, grace: Duration) -> Option<Timestamp> {
    let from = match (kind, alarm) {
        (_, Alarm::Quiet) | (AlarmKind::Failure, Alarm::Lasting(_)) => return None,
        (AlarmKind::Failure, Alarm::Pending(episode)) => episode.since,
        (AlarmKind::Drift, Alarm::Pending(episode) | Alarm::Lasting(episode)) => episode.last,
    };
    from.checked_add(grace).ok()
}

fn meaning(
    kind: AlarmKind,
    alarm: Alarm,
    observation: Observation<'_>,
    now: Timestamp,
    grace: Duration,
) -> Meaning {
    let episode = match alarm {
        Alarm::Quiet => None,
        Alarm::Pending(episode) | Alarm::Lasting(episode) => Some(episode),
    };
    match (kind, observation) {
        (AlarmKind::Drift, Observation::Time)
            if episode.is_some_and(|episode| elapsed(episode.last, now) >= grace) =>
        {
            Meaning::Good
        }
        (_, Observation::Time) => Meaning::Nothing,
        (_, Observation::Reported(Transition::Removed)) => Meaning::Good,
        (AlarmKind::Drift, Observation::Reported(Transition::Repaired)) => Meaning::Bad(Trouble::Repaired),
        (AlarmKind::Drift, Observation::Reported(_)) => Meaning::Nothing,
        (AlarmKind::Failure, Observation::Reported(transition)) => match transition {
            Transition::Failed => Meaning::Bad(Trouble::Failed),
            Transition::Degraded => Meaning::Bad(Trouble::Degraded),
            Transition::Blocked => Meaning::Bad(Trouble::Blocked),
            Transition::Healthy | Transition::Removed => Meaning::Good,
            // Applied does not mean ready: it ends a failure to apply, not a failure of health.
            Transition::Applied if episode.is_some_and(|episode| episode.cause == Trouble::Degraded) => {
                Meaning::Nothing
            }
            Transition::Applied => Meaning::Good,
            Transition::Repaired
            | Transition::Drifted
            | Transition::Suspended
            | Transition::Resumed
            | Transition::Other(_) => Meaning::Nothing,
        },
    }
}

fn prolonged(episode: Episode, cause: Trouble, now: Timestamp) -> Episode {
    Episode { last: now, count: episode.count.saturating_add(1), cause, ..episode }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "alarm/tests.rs"]
mod tests;
