//! Drift, and objects that another manager changes again after every repair.

use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

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
    rival.zip(desired).is_some_and(|(rival, desired)| yields_to(&desired.body.to_value(), rival))
}

/// Returns whether the object's manifest leaves all fields of the rival to other managers.
fn yields_to(body: &Value, rival: &Rival) -> bool {
    let yields = brokkr_manifest::yields::paths(body).unwrap_or_default();
    let is_left = |field: &String| yields.iter().any(|path| path.covers(field));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brokkr_health::HealthState;
    use serde_json::json;

    use super::*;
    use crate::model::Fingerprint;
    use crate::plan::fixtures::{Stack, desired, second};

    #[test]
    fn an_object_is_contested_after_six_repairs_without_a_quiet_minute() {
        let mut fight = None;
        for round in 1..=6 {
            let fought = fought(fight, second(i64::from(round) * 59));
            assert_eq!(fought.rounds, round);
            assert_eq!(is_contested(&fought, fought.last), round == 6, "after {round} repairs");
            fight = Some(fought);
        }
        let last = fight.expect("a fight");
        assert!(is_contested(&last, last.last + SignedDuration::from_secs(59)));
        let quiet = last.last + TRUCE;
        assert!(!is_contested(&last, quiet));
        assert_eq!(fought(Some(last), quiet).rounds, 1, "it is forgotten after a quiet minute");
    }

    #[test]
    fn repairs_are_delayed_from_the_twentieth_on_and_longer_each_time() {
        let fight = |rounds| Fight { rounds, last: second(1000) };
        assert_eq!(slowed(None, second(1000)), None);
        assert_eq!(slowed(Some(&fight(FREE_ROUNDS - 1)), second(1000)), None);
        let until = |rounds| slowed(Some(&fight(rounds)), second(1000)).expect("it is delayed");
        assert!(second(1000) < until(FREE_ROUNDS));
        assert!(until(FREE_ROUNDS) < until(FREE_ROUNDS + 3));
        assert_eq!(slowed(Some(&fight(FREE_ROUNDS)), until(FREE_ROUNDS)), None, "the delay is over");
    }

    #[test]
    fn a_contest_ends_when_the_manifest_yields_all_contested_fields() {
        let body = json!({ "metadata": { "annotations": { "brokkr.io/yield": "spec.replicas" } } });
        let yields = |fields: &[&str]| {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            yields_to(&body, &Rival { manager: "hpa".into(), fields })
        };
        assert!(yields(&[".spec.replicas"]));
        assert!(!yields(&[".spec.replicas", ".spec.paused"]));
        assert!(!yields(&[".spec.replicasets"]));
        assert!(!yields(&[]), "nothing is known about the rival");
    }

    #[test]
    fn an_object_whose_manifest_yields_is_not_contested() {
        let mut stack = Stack::deployment();
        stack.was_repaired(CONTESTED_AFTER, 0);
        let rival = Rival { manager: "hpa".into(), fields: vec![".spec.replicas".into()] };
        stack.progress.repairs.rivals.insert(stack.key.clone(), vec![rival.clone()]);
        let contested: Vec<_> =
            contests(&stack.situation(1, 10)).iter().map(|contest| contest.rival.cloned()).collect();
        assert_eq!(contested, [Some(rival)]);
        let body = json!({ "metadata": { "annotations": { "brokkr.io/yield": "spec.replicas" } } });
        let key = stack.key.clone();
        let yielding = Arc::new(desired(&key, &body));
        stack.content_mut().objects.insert(key, yielding);
        assert!(contests(&stack.situation(1, 10)).is_empty());
    }

    #[test]
    fn d4_an_object_has_drifted_if_it_differs_from_what_was_applied() {
        let mut stack = Stack::deployment();
        stack.is(HealthState::Ready, 0);
        let is_drifted = |stack: &Stack| drifted(&stack.situation(1, 10)).next() == Some(&stack.key);
        assert!(!is_drifted(&stack));
        let key = stack.key.clone();
        stack.record.inventory_mut().get_mut(&key).unwrap().fields = Some(Fingerprint::of("other"));
        assert!(is_drifted(&stack));
        stack.objects.get_mut(&key).unwrap().deleting = true;
        assert!(!is_drifted(&stack), "it is being deleted");
        stack.objects.get_mut(&key).unwrap().deleting = false;
        stack.record.inventory_mut().get_mut(&key).unwrap().digest = None;
        assert!(!is_drifted(&stack), "it was not applied yet");
    }
}
