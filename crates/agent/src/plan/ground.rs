//! B1: Namespaces and definitions are there, and ready, before anything that needs them; and D1: the
//! Namespaces that a failed delivery made go again.

use std::collections::BTreeSet;

use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::attempt::{stop, stop_on_failures};
use super::steps::{Plan, Stage, Step};
use super::types::{Content, Origin, Record, Situation};
use super::{GROUND_PATIENCE, RELEASE_CHECKS, due, outcome, write};
use crate::resource::{Kind, KindName, is_ground};

pub(super) fn lay(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let ground: Vec<_> = content.objects.values().filter(|wanted| is_ground(&wanted.key)).collect();
    if let Some(plan) = write::objects(s, Stage::Ground, content, ground.iter().copied()) {
        return Some(plan);
    }
    if let Some(plan) = stop_on_failures(s, ground.iter().copied()) {
        return Some(plan);
    }
    let unready =
        ground.iter().find(|wanted| s.observed.seen(&wanted.key).is_none_or(|seen| !seen.is_ready(s.now)));
    let Some(unready) = unready else { return resolve(s, content) };
    let since = s.progress.waiting_since.unwrap_or(s.now);
    let deadline = since + GROUND_PATIENCE;
    if due(deadline, s.now) {
        let note = ObjectNote {
            object: unready.key.for_people().to_string(),
            reason: "NotReady".into(),
            message: format!("was not ready after {GROUND_PATIENCE:#}"),
        };
        return Some(stop(s, "NotReady", vec![note]));
    }
    let what = format!("{} to become ready", unready.key.for_people());
    Some(Plan::waiting(Stage::Ground, what).wake(Some(deadline)))
}

/// An established definition takes a moment to show in discovery; before that its resources are answered 404.
fn resolve(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let mut plan = Plan::new(Stage::Ground);
    for (name, definition) in &content.definitions {
        if s.progress.served.contains(definition) {
            continue;
        }
        let kinds: BTreeSet<&Kind> = content
            .objects
            .values()
            .filter(|wanted| KindName::of(&wanted.key) == *name)
            .map(|wanted| &wanted.kind)
            .collect();
        match s.progress.failures.get(definition) {
            _ if kinds.is_empty() => {}
            Some(standing) if !due(standing.retry_at, s.now) => {
                plan = plan.wake(Some(standing.retry_at));
                plan.waiting_for = Some(format!("{} to be served", definition.for_people()));
            }
            _ => plan
                .steps
                .push(Step::Resolve { key: definition.clone(), kinds: kinds.into_iter().cloned().collect() }),
        }
    }
    (!plan.steps.is_empty() || plan.wake_at.is_some()).then_some(plan)
}

/// From the first deletion on nothing is written again before the next cycle.
pub(super) fn is_taken_back(s: &Situation<'_>, content: &Content) -> bool {
    s.progress.deleted.iter().any(|key| KindName::of(key).is_namespace() && content.objects.contains_key(key))
}

/// D1: once per deployment object, and only what is still the object that was made and has nothing inside.
pub(super) fn undo(s: &Situation<'_>) -> Option<Plan> {
    let record = s.record.filter(|record| record.made.sequence == s.goal.target.sequence_id)?;
    if record.made.ground.is_empty() {
        return None;
    }
    let mut plan = Plan::new(Stage::Stopped);
    for key in record.made.ground.iter().filter(|key| KindName::of(key).is_namespace()) {
        match fate(s, record, key) {
            Fate::Settled => {}
            Fate::Leaving => plan = plan.wake(Some(s.now + RELEASE_CHECKS)),
            Fate::Act(step) => plan.steps.push(step),
        }
    }
    if plan.steps.is_empty() && plan.wake_at.is_none() {
        plan.steps.push(Step::WriteRecord(Box::new(outcome::undone(s, record))));
    } else if plan.steps.is_empty() {
        plan.waiting_for = Some("the namespaces that this delivery made to be gone".into());
    }
    Some(plan)
}

enum Fate {
    /// Gone, or to be left.
    Settled,
    Leaving,
    Act(Step),
}

fn fate(s: &Situation<'_>, record: &Record, key: &Key) -> Fate {
    let (Some(entry), Some(seen)) = (record.inventory.get(key), s.observed.seen(key)) else {
        return Fate::Settled;
    };
    let ours = entry.origin == Origin::Created
        && entry.uid.as_ref() == Some(&seen.uid)
        && seen.belongs_to(s.agent, record.stack, key);
    if !ours || s.neighbours.heir(key).is_some() || s.neighbours.dwells_on(key) {
        return Fate::Settled;
    }
    if let Some(standing) = s.progress.failures.get(key) {
        return if due(standing.retry_at, s.now) { Fate::Settled } else { Fate::Leaving };
    }
    if seen.deleting || s.progress.deleted.contains(key) {
        return Fate::Leaving;
    }
    let (key, kind) = (key.clone(), entry.kind.clone());
    match s.progress.inside.get(&key) {
        None => Fate::Act(Step::LookInside { key, kind }),
        Some(inside) if inside.is_empty() => Fate::Act(Step::Delete { key, kind, uid: seen.uid.clone() }),
        Some(_) => Fate::Settled,
    }
}
