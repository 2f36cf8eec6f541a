//! Requests that may have failed before: when each is tried again, and when failing is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::steps::{Ground, Plan, Stage, Step};
use super::types::{Failure, FailureClass, Seen, Situation, Standing, Wanted};
use super::{
    FORBIDDEN, MISSING_PATIENCE, NEXT_CYCLE, RIGHTS_CYCLE, TRANSIENT_PATIENCE, due, ground, outcome,
};
use crate::resource::Kind;

/// The live object, if there is one: labelled ones are observed, others were asked for.
pub(super) fn existing<'a>(s: &'a Situation<'_>, key: &Key) -> Option<&'a Seen> {
    s.observed.seen(key).or_else(|| s.progress.looked.get(key).and_then(Option::as_ref))
}

/// Waits until everything of these kinds that carries our label is known.
pub(super) fn sync<'a>(
    s: &Situation<'_>,
    stage: Stage,
    kinds: impl Iterator<Item = &'a Kind>,
) -> Option<Plan> {
    let missing: BTreeSet<Kind> = kinds.filter(|kind| !s.observed.synced(&kind.name())).cloned().collect();
    (!missing.is_empty()).then(|| outcome::unwatched(s, stage, missing))
}

/// One request for each object, except those whose last failure is too fresh.
pub(super) fn requests<'a>(
    s: &Situation<'_>,
    stage: Stage,
    objects: impl Iterator<Item = &'a Arc<Wanted>>,
    step: impl Fn(&Arc<Wanted>) -> Step,
) -> Option<Plan> {
    let mut plan = Plan::new(stage);
    for wanted in objects {
        match s.progress.failures.get(&wanted.key) {
            Some(standing) if !due(standing.retry_at, s.now) => {
                plan = park(plan, &standing.failure).wake(Some(tell_at(standing)));
                plan = plan.wake(Some(standing.retry_at));
                plan.waiting_for = Some(format!("{}: {}", wanted.key.for_people(), standing.failure.message));
            }
            _ => plan.steps.push(step(wanted)),
        }
    }
    if plan.steps.is_empty() && plan.wake_at.is_some() {
        let lasting = overdue(s);
        if let Some(reason) = lasting.first().map(|note| note.reason.clone()) {
            // Told while it is still tried: the stage stays what it is.
            let told = outcome::failed(s, &reason, lasting).wake(plan.wake_at);
            return Some(Plan { stage, parked: plan.parked, ..told });
        }
    }
    (!plan.steps.is_empty() || plan.wake_at.is_some()).then_some(plan)
}

/// What is missing comes with an event, not with time.
pub(super) fn park(mut plan: Plan, failure: &Failure) -> Plan {
    plan.parked.extend(waits_for(failure));
    plan
}

/// What has to come before this can succeed.
#[must_use]
pub fn waits_for(failure: &Failure) -> Option<Ground> {
    let namespace = failure.reason.starts_with("Namespace");
    let ground = if namespace { Ground::Namespaces } else { Ground::Definitions };
    (failure.class == FailureClass::Missing).then_some(ground)
}

pub(super) fn is_final(failure: &Failure) -> bool {
    matches!(failure.class, FailureClass::Permanent | FailureClass::Immutable)
}

/// Will fail again until somebody changes something.
pub(super) fn has_failed_for_good(s: &Situation<'_>, key: &Key) -> bool {
    s.progress.failures.get(key).is_some_and(|standing| is_final(&standing.failure))
}

/// Stops if one of these has failed for good; all that failed are named. What may still pass is no reason to stop.
pub(super) fn stop_on_failures<'a>(
    s: &Situation<'_>,
    objects: impl Iterator<Item = &'a Arc<Wanted>> + Clone,
) -> Option<Plan> {
    if !objects.clone().any(|wanted| has_failed_for_good(s, &wanted.key)) {
        return None;
    }
    let notes: Vec<ObjectNote> = objects
        .filter_map(|wanted| {
            let standing = s.progress.failures.get(&wanted.key)?;
            Some(outcome::note(&wanted.key, &standing.failure))
        })
        .collect();
    let reason = notes.first()?.reason.clone();
    Some(stop(s, &reason, notes))
}

/// It does not go on by itself: reported once, its new namespaces taken back, tried again in the next cycle.
pub(super) fn stop(s: &Situation<'_>, reason: &str, notes: Vec<ObjectNote>) -> Plan {
    let told = outcome::failed(s, reason, notes);
    if told.steps.is_empty()
        && let Some(undoing) = ground::undo(s)
    {
        return undoing;
    }
    told.wake(Some(next_cycle(s)))
}

/// Told already; nothing more until the next cycle.
pub(super) fn rest(s: &Situation<'_>) -> Plan {
    let told = s.record.and_then(|record| record.outcome.as_ref()).map(|outcome| outcome.message.clone());
    Plan::waiting(Stage::Stopped, told.unwrap_or_default()).wake(Some(next_cycle(s)))
}

/// When to start over. Rights come back sooner than other things change.
fn next_cycle(s: &Situation<'_>) -> jiff::Timestamp {
    let failures = s.progress.failures.values();
    let rights =
        failures.filter(|standing| standing.failure.reason == FORBIDDEN).map(|standing| standing.retry_at);
    // Found missing before anything was tried.
    let lacking = s.progress.lacking.as_ref().filter(|lacking| !lacking.is_empty());
    let rights = rights.chain(lacking.map(|_| s.now + RIGHTS_CYCLE));
    let cycle = s.now + NEXT_CYCLE;
    rights.max().map_or(cycle, |again| again.min(cycle))
}

/// Transient failures that have lasted too long are told, while they are still retried. What is missing
/// (a namespace that comes with nobody) is told sooner: it seldom passes by itself.
#[must_use]
pub(super) fn overdue(s: &Situation<'_>) -> Vec<ObjectNote> {
    if !s.progress.failures.values().any(|standing| due(tell_at(standing), s.now)) {
        return Vec::new();
    }
    // B2: all of them, not only the one that lasts.
    s.progress.failures.iter().map(|(key, standing)| outcome::note(key, &standing.failure)).collect()
}

fn tell_at(standing: &Standing) -> jiff::Timestamp {
    let patience = match standing.failure.class {
        FailureClass::Missing => MISSING_PATIENCE,
        _ => TRANSIENT_PATIENCE,
    };
    standing.since + patience
}
