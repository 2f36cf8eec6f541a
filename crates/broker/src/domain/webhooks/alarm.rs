//! Troubles that last are told once, and once more when they are over; those that pass by themselves are not told.
//!
//! ```text
//!            bad                 lasts for the grace: tell
//!   Quiet ─────────► Suspect ───────────────────────────────► Told
//!     ▲                 │ over                                  │ over: tell
//!     └─────────────────┴───────────────────────────────────────┘
//! ```
//!
//! A failure lasts until something good is reported. Drift is over when nothing had to be repaired for as long as the
//! grace; a single repair is no drift that lasts. All times are the broker's own.

use std::time::Duration;

use brokkr_api::report::Transition;
use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Trouble {
    /// Failed, degraded or blocked.
    Failure,
    /// Put back, again and again.
    Drift,
}

/// One trouble of one stack on one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alarm {
    #[default]
    Quiet,
    Suspect(Spell),
    Told(Spell),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    pub since: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    /// What was reported last.
    pub cause: Transition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Reported(Transition),
    /// Nothing but time has passed.
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Lasts(Spell),
    Over(Spell),
}

/// What a sign means for a trouble.
enum Meaning {
    Bad(Transition),
    Good,
    Nothing,
}

/// The one step: from a state and a sign to a state, and to what has to be told.
#[must_use]
pub fn step(
    trouble: Trouble,
    alarm: Alarm,
    sign: Sign,
    now: Timestamp,
    grace: Duration,
) -> (Alarm, Option<Notice>) {
    let lasted = |spell: Spell| elapsed(spell.since, now) >= grace;
    match (alarm, meaning(trouble, alarm, sign, now, grace)) {
        (Alarm::Quiet, Meaning::Bad(cause)) => {
            (Alarm::Suspect(Spell { since: now, last: now, count: 1, cause }), None)
        }
        (Alarm::Quiet, _) => (Alarm::Quiet, None),
        (Alarm::Suspect(spell), Meaning::Bad(cause)) => {
            let spell = again(spell, cause, now);
            if lasted(spell) {
                (Alarm::Told(spell), Some(Notice::Lasts(spell)))
            } else {
                (Alarm::Suspect(spell), None)
            }
        }
        // Drift that nobody repeats does not last, however long ago it was.
        (Alarm::Suspect(spell), Meaning::Nothing) if trouble == Trouble::Failure && lasted(spell) => {
            (Alarm::Told(spell), Some(Notice::Lasts(spell)))
        }
        (Alarm::Told(spell), Meaning::Bad(cause)) => (Alarm::Told(again(spell, cause, now)), None),
        (Alarm::Suspect(_), Meaning::Good) => (Alarm::Quiet, None),
        (Alarm::Told(spell), Meaning::Good) => (Alarm::Quiet, Some(Notice::Over(spell))),
        (unchanged, Meaning::Nothing) => (unchanged, None),
    }
}

/// When time alone may change something.
#[must_use]
pub fn look_at(trouble: Trouble, alarm: Alarm, grace: Duration) -> Option<Timestamp> {
    let from = match (trouble, alarm) {
        (_, Alarm::Quiet) | (Trouble::Failure, Alarm::Told(_)) => return None,
        (Trouble::Failure, Alarm::Suspect(spell)) => spell.since,
        (Trouble::Drift, Alarm::Suspect(spell) | Alarm::Told(spell)) => spell.last,
    };
    from.checked_add(grace).ok()
}

fn meaning(trouble: Trouble, alarm: Alarm, sign: Sign, now: Timestamp, grace: Duration) -> Meaning {
    let spell = match alarm {
        Alarm::Quiet => None,
        Alarm::Suspect(spell) | Alarm::Told(spell) => Some(spell),
    };
    match (trouble, sign) {
        (Trouble::Drift, Sign::Time) if spell.is_some_and(|spell| elapsed(spell.last, now) >= grace) => {
            Meaning::Good
        }
        (_, Sign::Time) => Meaning::Nothing,
        (_, Sign::Reported(Transition::Removed)) => Meaning::Good,
        (Trouble::Drift, Sign::Reported(Transition::Repaired)) => Meaning::Bad(Transition::Repaired),
        (Trouble::Drift, Sign::Reported(_)) => Meaning::Nothing,
        (Trouble::Failure, Sign::Reported(transition)) => match transition {
            Transition::Failed | Transition::Degraded | Transition::Blocked => Meaning::Bad(transition),
            Transition::Healthy | Transition::Removed => Meaning::Good,
            // Written is not ready: it ends a failure to write, not one of health.
            Transition::Applied if spell.is_some_and(|spell| spell.cause == Transition::Degraded) => {
                Meaning::Nothing
            }
            Transition::Applied => Meaning::Good,
            Transition::Repaired => Meaning::Nothing,
        },
    }
}

fn again(spell: Spell, cause: Transition, now: Timestamp) -> Spell {
    Spell { last: now, count: spell.count.saturating_add(1), cause, ..spell }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "alarm/tests.rs"]
mod tests;
