//! The steady state: nothing is asked of anybody. What others change is put back at once, and the
//! health of the whole is told when it changes.

use std::fmt;
use std::sync::Arc;

use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::steps::{Plan, Stage, Step, Why};
use super::types::{Content, Fight, Record, Rival, Seen, Situation, Wanted};
use super::{dispose, due, outcome, prune, readiness};
use crate::diagnose;
use crate::marks::Stamp;

/// So many repairs of one object, with no truce between them, and it is called contested.
const CONTESTED_AFTER: u32 = 6;
/// How long a workload may be unready before its Pods are looked at, and when again.
const DIAGNOSED_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// So many of a stack are looked at.
const DIAGNOSED: usize = 3;
const DIAGNOSED_AGAIN: SignedDuration = SignedDuration::from_secs(300);
/// So many repairs of one object go through at once; after that they slow down.
const FREE_ROUNDS: u32 = 20;
/// A sweep takes its time: it must not be felt.
const SWEPT_AT_ONCE: usize = 8;
/// A quiet time after which an object's fights are forgotten.
const TRUCE: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn plan(s: &Situation<'_>, content: &Content, record: &Record) -> Plan {
    if prune::lingers(record, content) {
        // Handed over by now, or wanted by nobody any more.
        if let Some(plan) = prune::plan(s, content) {
            return plan;
        }
        if record.inventory.keys().any(|key| !content.objects.contains_key(key) && !dispose::lingers(s, key))
        {
            let record = outcome::handed_over(s, content, record);
            return Plan::with(Stage::Steady, vec![Step::WriteRecord(Box::new(record))]);
        }
    }
    let mut plan = Plan { minds_others: prune::lingers(record, content), ..Plan::new(Stage::Steady) };
    for wanted in content.objects.values() {
        if !s.observed.synced(&wanted.kind.name()) {
            plan.watch.insert(wanted.kind.clone());
        }
    }
    for key in content.objects.keys() {
        let (step, wake) = repair(s, key);
        plan.steps.extend(step);
        plan = plan.wake(wake);
    }
    if plan.steps.is_empty() && s.busy.is_empty() {
        let next = s.progress.unswept.iter().take(SWEPT_AT_ONCE);
        plan.steps.extend(next.filter_map(|key| repair_or_sweep(s, key, true).0));
    }
    if s.goal.fallback.is_some() {
        plan.steps.push(Step::ForgetContents { keep: content.sequence });
    }
    // Health is told of the whole: not before the whole is seen.
    if let Some(kind) = plan.watch.first() {
        plan.waiting_for = Some(format!("the watch on {kind}"));
    } else if plan.steps.is_empty() && s.busy.is_empty() {
        let told = readiness::tell(s, content, record);
        plan.steps.extend(told.step.map(|record| Step::WriteRecord(Box::new(record))));
        plan.unready = told.unready;
        plan = plan.wake(told.wake_at);
        if told.unready && plan.steps.is_empty() {
            plan.steps.extend(unexplained(s, content));
            let since = s.progress.unready_since.unwrap_or(s.now);
            let next =
                [since + DIAGNOSED_AFTER, s.now + DIAGNOSED_AGAIN].into_iter().find(|at| !due(*at, s.now));
            plan = plan.wake(next);
        }
        let truces = s.progress.fights.values().filter(|fight| is_contested(fight, s.now));
        plan = plan.wake(truces.map(|fight| fight.last + TRUCE).min());
    }
    plan
}

/// Puts back what was applied, while the newer content cannot be had, is refused, or waits for something.
pub(super) fn keep_up(s: &Situation<'_>, mut plan: Plan) -> Plan {
    // After a restart only the cluster knows what was applied before.
    if let Some(record) = s.record.filter(|record| record.removal.is_none())
        && let Some(sequence) = record.applied.filter(|applied| *applied != s.goal.target.sequence_id)
        && s.goal.fallback.is_none()
        && !s.progress.earlier
    {
        plan.steps.push(Step::FetchEarlier { sequence });
        return plan;
    }
    let taken_back = |key: &Key| {
        plan.stage == Stage::Stopped
            && s.record
                .is_some_and(|record| record.made.ground.contains(key) && s.progress.deleted.contains(key))
    };
    let going = |key: &Key| {
        taken_back(key)
            || plan.stage == Stage::Prune
                && s.goal.content.as_ref().is_none_or(|content| !content.objects.contains_key(key))
    };
    let keys: Vec<&Key> =
        s.record.into_iter().flat_map(|record| record.inventory.keys()).filter(|key| !going(key)).collect();
    for key in keys {
        let (step, wake) = repair(s, key);
        plan.steps.extend(step);
        plan = plan.wake(wake);
    }
    plan
}

/// Puts one resource back if it is not as it was applied; or tells when to look again.
#[must_use]
pub fn repair(s: &Situation<'_>, key: &Key) -> (Option<Step>, Option<Timestamp>) {
    repair_or_sweep(s, key, false)
}

fn repair_or_sweep(s: &Situation<'_>, key: &Key, sweep: bool) -> (Option<Step>, Option<Timestamp>) {
    let Some(record) = s.record.filter(|record| record.removal.is_none()) else { return (None, None) };
    let Some(entry) = record.inventory.get(key) else { return (None, None) };
    let Some((content, wanted)) = s.goal.as_applied(key, entry.digest) else { return (None, None) };
    if s.busy.contains(key) || !s.observed.synced(&entry.kind.name()) {
        return (None, None);
    }
    let newest = content.sequence == s.goal.target.sequence_id;
    let failures = if newest { &s.progress.failures } else { &s.progress.not_put_back };
    let repair = if newest { Why::Repair } else { Why::PutBack };
    if let Some(standing) = failures.get(key)
        && !due(standing.retry_at, s.now)
    {
        return (None, Some(standing.retry_at));
    }
    let apply = |seen: Option<&Seen>, why: Why| {
        if let Some(until) = slowed(s.progress.fights.get(key), s.now) {
            return (None, Some(until));
        }
        let stamp =
            Stamp { agent: s.agent, stack: record.stack, checksum: content.checksum, sequence: record.stamp };
        // Asked before the repair that makes it a contest: afterwards our fields are ours again.
        let contested = s
            .progress
            .fights
            .get(key)
            .is_some_and(|fight| fight.rounds + 1 >= CONTESTED_AFTER && !due(fight.last + TRUCE, s.now));
        if contested && seen.is_some() && !s.progress.rivals.contains_key(key) {
            return (Some(Step::Contend { wanted: wanted.clone(), stamp }), None);
        }
        let uid = seen.map(|seen| seen.uid.clone());
        let ours = seen.is_some_and(|seen| seen.belongs_to(s.agent, record.stack, key));
        (Some(Step::Apply { wanted: wanted.clone(), uid, stamp, why, ours }), None)
    };
    match (s.observed.seen(key), s.progress.looked.get(key)) {
        // On its way out: made again once it is gone.
        (Some(seen), _) if seen.deleting => (None, None),
        (Some(seen), _) if seen.other_owner(s.agent, record.stack, key).is_some() => (None, None),
        (Some(seen), _) if entry.uid.as_ref() == Some(&seen.uid) && entry.fields == seen.fields => {
            // Somebody may have changed it in a way that no field manager tells of.
            if sweep { apply(Some(seen), Why::Sweep { version: seen.version }) } else { (None, None) }
        }
        (Some(seen), _) => apply(Some(seen), repair),
        // Losing the label looks like a deletion: ask.
        (None, None) => (Some(Step::Look { key: key.clone(), kind: wanted.kind.clone() }), None),
        (None, Some(None)) => apply(None, repair),
        (None, Some(Some(seen))) if seen.deleting => (None, Some(s.now + SignedDuration::from_secs(1))),
        (None, Some(Some(seen))) if seen.other_owner(s.agent, record.stack, key).is_some() => (None, None),
        // C5: another object under a name that only the earlier content has to itself. Who writes on it makes it ours, and
        // it would go with the prune that waits.
        (None, Some(Some(seen))) if !newest && entry.uid.as_ref() != Some(&seen.uid) => (None, None),
        (None, Some(Some(seen))) => apply(Some(seen), repair),
    }
}

/// Put back so often, and so lately, that somebody must be at work against us.
#[must_use]
pub fn is_contested(fight: &Fight, now: Timestamp) -> bool {
    fight.rounds >= CONTESTED_AFTER && !due(fight.last + TRUCE, now)
}

/// A resource that somebody else changes as often as it is put back.
pub struct Contested<'a> {
    pub key: &'a Key,
    pub rounds: u32,
    pub rival: Option<&'a Rival>,
}

impl fmt::Display for Contested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.rival.map_or("somebody", |rival| &rival.manager);
        let what = self.rival.map(|rival| rival.fields.join(", ")).unwrap_or_else(|| "it".to_owned());
        write!(
            f,
            "{}: {who} changes {what} as often as it is put back ({} times)",
            self.key.for_people(),
            self.rounds
        )
    }
}

/// The fights that are going on.
#[must_use]
pub fn contests<'a>(s: &'a Situation<'_>) -> Vec<Contested<'a>> {
    let fights = s.progress.fights.iter().filter(|(_, fight)| is_contested(fight, s.now));
    let fights = fights.filter(|(key, _)| !is_yielded(s, key));
    let mut contests: Vec<Contested<'a>> = fights
        .map(|(key, fight)| Contested {
            key,
            rounds: fight.rounds,
            rival: s.progress.rivals.get(key).and_then(|rivals| rivals.first()),
        })
        .collect();
    contests.sort_by_key(|contest| contest.key);
    contests
}

/// By now the manifest leaves the rival what it fought for.
fn is_yielded(s: &Situation<'_>, key: &Key) -> bool {
    let rival = s.progress.rivals.get(key).and_then(|rivals| rivals.first());
    let wanted = s.goal.content.as_ref().and_then(|content| content.objects.get(key));
    let (Some(rival), Some(wanted)) = (rival, wanted) else { return false };
    let yields = brokkr_manifest::yields::paths(&wanted.body.to_value()).unwrap_or_default();
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

/// Not as it was applied, as far as is seen.
pub fn drifted<'a>(s: &'a Situation<'_>) -> impl Iterator<Item = &'a Key> {
    let applied = s.record.into_iter().flat_map(|record| &record.inventory);
    applied.filter(|(_, entry)| entry.digest.is_some()).filter_map(|(key, entry)| {
        let seen = s.observed.seen(key)?;
        (!seen.deleting && entry.fields != seen.fields).then_some(key)
    })
}

/// The first workload that has been unready for so long that people will ask why.
fn unexplained(s: &Situation<'_>, content: &Content) -> Option<Step> {
    let since = s.progress.unready_since.filter(|since| due(*since + DIAGNOSED_AFTER, s.now))?;
    // What is wrong with a few is mostly wrong with all: a stack of a thousand is not asked about one by one.
    let asked =
        s.progress.causes.values().filter(|(at, _)| *at >= since && !due(*at + DIAGNOSED_AGAIN, s.now));
    if asked.count() >= DIAGNOSED {
        return None;
    }
    let unready = |wanted: &&Arc<Wanted>| {
        diagnose::has_pods(&wanted.kind)
            && s.observed.seen(&wanted.key).is_some_and(|seen| !seen.deleting && !seen.is_ready(s.now))
            && s.progress
                .causes
                .get(&wanted.key)
                .is_none_or(|(asked, _)| *asked < since || due(*asked + DIAGNOSED_AGAIN, s.now))
    };
    let wanted = content.objects.values().find(unready)?;
    Some(Step::Diagnose { wanted: wanted.clone() })
}

/// Until when an object that is fought over has to wait.
fn slowed(fight: Option<&Fight>, now: Timestamp) -> Option<Timestamp> {
    let fight = fight.filter(|fight| fight.rounds >= FREE_ROUNDS)?;
    let exponent = (fight.rounds - FREE_ROUNDS).min(8);
    let until = fight.last + SignedDuration::from_secs(1 << exponent);
    (!due(until, now)).then_some(until)
}

/// Counts one more repair of an object.
#[must_use]
pub fn fought(fight: Option<Fight>, now: Timestamp) -> Fight {
    match fight {
        Some(fight) if !due(fight.last + TRUCE, now) => Fight { rounds: fight.rounds + 1, last: now },
        _ => Fight { rounds: 1, last: now },
    }
}
