//! Drift, and objects that another manager changes again after every repair.

use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::timing::due;
use crate::backoff::Backoff;
use crate::model::{Fight, Rival, Situation};

/// An object counts as contested after this many repairs without a quiet minute in between.
pub(super) const CONTESTED_AFTER: u32 = 6;
/// The number of repairs of one object without delay; later ones are delayed.
const FREE_ROUNDS: u32 = 20;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(256));
/// The time without a repair after which earlier repairs of an object are forgotten.
pub(super) const TRUCE: SignedDuration = SignedDuration::from_secs(60);

/// Returns whether an object was repaired so often, and so recently, that another manager must be changing it.
#[must_use]
pub fn is_contested(fight: &Fight, now: Timestamp) -> bool {
    fight.rounds >= CONTESTED_AFTER && !due(fight.last + TRUCE, now)
}

/// An object that another manager changes again after every repair.
#[derive(Clone, Debug)]
pub struct Contested<'a> {
    pub key: &'a Key,
    pub rounds: u32,
    pub rival: Option<&'a Rival>,
}

impl Contested<'_> {
    pub fn reason(&self) -> Reason {
        Reason::Contested {
            manager: self.rival.map(|rival| rival.manager.clone()),
            fields: self.rival.map(|rival| rival.fields.clone()).unwrap_or_default(),
            repairs: self.rounds,
        }
    }

    pub fn message(&self) -> Message {
        Message::new(format!("{}: {}", self.key.display_name(), self.reason().sentence()))
    }
}

/// Returns the contested objects.
#[must_use]
pub fn contests<'a>(situation: &'a Situation<'_>) -> Vec<Contested<'a>> {
    let fights =
        situation.progress.repairs.fights.iter().filter(|(_, fight)| is_contested(fight, situation.now));
    let fights = fights.filter(|(key, _)| !is_yielded(situation, key));
    let mut contests: Vec<Contested<'a>> = fights
        .map(|(key, fight)| Contested {
            key,
            rounds: fight.rounds,
            rival: situation.progress.repairs.rivals.get(key).and_then(|rivals| rivals.first()),
        })
        .collect();
    contests.sort_by_key(|contest| contest.key);
    contests
}

/// Returns whether the manifest now yields the contested fields to the rival.
fn is_yielded(situation: &Situation<'_>, key: &Key) -> bool {
    let rival = situation.progress.repairs.rivals.get(key).and_then(|rivals| rivals.first());
    let desired = situation.goal.content.as_ref().and_then(|content| content.objects.get(key));
    let (Some(rival), Some(desired)) = (rival, desired) else { return false };
    let yields = brokkr_manifest::yields::paths(&desired.body.to_value()).unwrap_or_default();
    let is_left = |field: &String| {
        let covers = |path: &str| {
            field
                .strip_prefix('.')
                .and_then(|field| field.strip_prefix(path))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        yields.iter().any(|path| covers(&path.to_string()))
    };
    !rival.fields.is_empty() && rival.fields.iter().all(is_left)
}

/// Returns the objects that differ from their applied state.
pub fn drifted<'a>(situation: &'a Situation<'_>) -> impl Iterator<Item = &'a Key> {
    let applied = situation.record.into_iter().flat_map(|record| record.inventory.iter());
    applied.filter(|(_, entry)| entry.digest.is_some()).filter_map(|(key, entry)| {
        let seen = situation.observed.seen(key)?;
        (!seen.deleting && entry.fields != seen.fields).then_some(key)
    })
}

/// Returns the time until which the next repair of an object is delayed; none if it is not delayed.
pub(super) fn slowed(fight: Option<&Fight>, now: Timestamp) -> Option<Timestamp> {
    let fight = fight.filter(|fight| fight.rounds >= FREE_ROUNDS)?;
    let until = fight.last + BACKOFF.delay(fight.rounds - FREE_ROUNDS + 1);
    (!due(until, now)).then_some(until)
}

/// Counts one more repair of an object; after a truce, the count starts at one again.
#[must_use]
pub fn fought(fight: Option<Fight>, now: Timestamp) -> Fight {
    match fight {
        Some(fight) if !due(fight.last + TRUCE, now) => Fight { rounds: fight.rounds + 1, last: now },
        _ => Fight { rounds: 1, last: now },
    }
}
