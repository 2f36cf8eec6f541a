//! A stack to have: from the announcement to the steady state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::steps::{Plan, Stage, Step};
use super::types::{Content, FailureClass, Owner, Record, Seen, Situation, Standing, Wanted};
use super::{
    GROUND_PATIENCE, NEXT_CYCLE, RELEASE_CHECKS, SLOW_AFTER, TRANSIENT_PATIENCE, dispose, due, outcome,
    steady,
};
use crate::marks::Stamp;
use crate::resource::{Kind, KindName, is_ground};

pub(super) fn plan(s: &Situation<'_>) -> Plan {
    if !s.held {
        return Plan::with(Stage::Announce, vec![Step::Hold]);
    }
    let Some(content) = &s.goal.content else {
        return fetch(s);
    };
    if let Some(record) = s.record
        && record.applied == Some(content.sequence)
        && record.sequence == content.sequence
        && record.removal.is_none()
    {
        return steady::plan(s, content, record);
    }
    look(s, content)
        .or_else(|| refuse(s, content))
        .or_else(|| intend(s, content))
        .or_else(|| ground(s, content))
        .or_else(|| validate(s, content))
        .or_else(|| apply(s, content))
        .or_else(|| prune(s, content))
        .unwrap_or_else(|| settle(s, content))
}

/// A content that cannot be had or read is told at once if that is final, else when it lasts.
fn fetch(s: &Situation<'_>) -> Plan {
    match &s.progress.fetch {
        Some(standing) if !due(standing.retry_at, s.now) => {
            let failure = &standing.failure;
            let lasting = failure.class == FailureClass::Permanent || standing.attempts >= 3;
            let plan = if lasting {
                let note = ObjectNote {
                    object: format!("deployment object {}", s.goal.target.sequence_id),
                    reason: failure.reason.clone(),
                    message: failure.message.clone(),
                };
                outcome::failed(s, &failure.reason, vec![note])
            } else {
                Plan::waiting(Stage::Fetch, failure.message.clone())
            };
            plan.wake(Some(standing.retry_at))
        }
        _ => Plan::with(Stage::Fetch, vec![Step::Fetch]),
    }
}

/// The live object, if there is one: labelled ones are observed, others were asked for.
fn existing<'a>(s: &'a Situation<'_>, key: &Key) -> Option<&'a Seen> {
    s.observed.seen(key).or_else(|| s.progress.looked.get(key).and_then(Option::as_ref))
}

/// Cannot exist yet, because what it stands on comes with this stack and is not there.
fn presumed_absent(s: &Situation<'_>, content: &Content, wanted: &Wanted) -> bool {
    if let Some(definition) = content.definitions.get(&KindName::of(&wanted.key)) {
        return existing(s, definition).is_none_or(|seen| !seen.is_ready(s.now));
    }
    let Some(namespace) = &wanted.key.namespace else { return false };
    let key =
        Key { group: String::new(), kind: "Namespace".into(), namespace: None, name: namespace.clone() };
    content.objects.contains_key(&key) && existing(s, &key).is_none()
}

/// Looks at everything that is not observed, so that adoption and refusal are decided before any write.
fn look(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    // The ground first: what is absent there saves looking at everything that would stand on it.
    let (ground, rest): (Vec<_>, Vec<_>) =
        content.objects.values().partition(|wanted| is_ground(&wanted.key));
    look_at(s, ground.into_iter())
        .or_else(|| look_at(s, rest.into_iter().filter(|wanted| !presumed_absent(s, content, wanted))))
}

fn look_at<'a>(s: &Situation<'_>, wanted: impl Iterator<Item = &'a Arc<Wanted>> + Clone) -> Option<Plan> {
    if let Some(plan) = sync(s, Stage::Look, wanted.clone().map(|wanted| &wanted.kind)) {
        return Some(plan);
    }
    let unknown = wanted.filter(|wanted| {
        s.observed.seen(&wanted.key).is_none()
            && !s.progress.looked.contains_key(&wanted.key)
            && !has_permanent_failure(s, &wanted.key)
    });
    requests(s, Stage::Look, unknown, |wanted| Step::Look {
        key: wanted.key.clone(),
        kind: wanted.kind.clone(),
    })
}

/// Waits until everything of these kinds that carries our label is known.
fn sync<'a>(s: &Situation<'_>, stage: Stage, kinds: impl Iterator<Item = &'a Kind>) -> Option<Plan> {
    let missing: BTreeSet<Kind> = kinds.filter(|kind| !s.observed.synced(&kind.name())).cloned().collect();
    (!missing.is_empty()).then(|| outcome::unwatched(s, stage, missing))
}

/// One request for each object, except those whose last failure is too fresh.
fn requests<'a>(
    s: &Situation<'_>,
    stage: Stage,
    objects: impl Iterator<Item = &'a Arc<Wanted>>,
    step: impl Fn(&Arc<Wanted>) -> Step,
) -> Option<Plan> {
    let mut plan = Plan::new(stage);
    for wanted in objects {
        match s.progress.failures.get(&wanted.key) {
            Some(standing) if !due(standing.retry_at, s.now) => {
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
            return Some(Plan { stage, ..outcome::failed(s, &reason, lasting).wake(plan.wake_at) });
        }
    }
    (!plan.steps.is_empty() || plan.wake_at.is_some()).then_some(plan)
}

/// C4: what belongs to another stack or agent is refused, before anything is written.
fn refuse(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let stack = s.goal.target.stack_id;
    let owners = content.objects.keys().filter_map(|key| {
        // Another stack may be about to write it: its claim is older than any mark on the object.
        let claimed =
            s.claims.get(key).filter(|owner| **owner != stack).map(|id| Owner::Stack(id.to_string()));
        let marked = || existing(s, key)?.other_owner(s.agent, stack, key);
        Some((key, claimed.or_else(marked)?))
    });
    let soon_free = |owner: &Owner| match owner {
        Owner::Stack(id) => s.leaving.iter().any(|leaving| leaving.to_string() == *id),
        Owner::Agent(_) => false,
    };
    // A stack of the same name, deleted and applied again: its predecessor is still on its way out.
    if let Some((key, _)) = owners.clone().find(|(_, owner)| soon_free(owner)) {
        let what = format!("{} to be released by the stack that is being removed", key.for_people());
        return Some(Plan::waiting(Stage::Look, what).wake(Some(s.now + RELEASE_CHECKS)));
    }
    let notes: Vec<ObjectNote> = owners
        .map(|(key, owner)| ObjectNote {
            object: key.for_people().to_string(),
            reason: "OwnedByOther".into(),
            message: format!("belongs to {owner}; remove it there first, or rename it here"),
        })
        .collect();
    (!notes.is_empty()).then(|| stop(s, "OwnedByOther", notes))
}

/// The superset of what was and what will be is in the record before the first write.
fn intend(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let complete = s.record.is_some_and(|record| {
        record.sequence == content.sequence
            && record.removal.is_none()
            && record.checksum == Some(content.checksum)
            && content.objects.keys().all(|key| record.inventory.contains_key(key))
    });
    if complete {
        return None;
    }
    let record = outcome::intention(s, content, |key| existing(s, key));
    Some(Plan::with(Stage::Intend, vec![Step::WriteRecord(Box::new(record))]))
}

/// B1: Namespaces and definitions are applied, and ready, before anything that needs them.
fn ground(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let ground: Vec<_> = content.objects.values().filter(|wanted| is_ground(&wanted.key)).collect();
    if let Some(plan) = write(s, Stage::Ground, content, ground.iter().copied()) {
        return Some(plan);
    }
    if let Some(plan) = stop_on_permanent(s, ground.iter().copied()) {
        return Some(plan);
    }
    let unready =
        ground.iter().find(|wanted| s.observed.seen(&wanted.key).is_none_or(|seen| !seen.is_ready(s.now)))?;
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

/// B2: a dry run of everything that changed; all errors are collected.
fn validate(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let rest = || content.objects.values().filter(|wanted| !is_ground(&wanted.key));
    if let Some(plan) = sync(s, Stage::Validate, rest().map(|wanted| &wanted.kind)) {
        return Some(plan);
    }
    let unchecked = rest().filter(|wanted| {
        !s.progress.validated.contains(&wanted.key)
            && is_changed(s, wanted)
            && !has_permanent_failure(s, &wanted.key)
            && existing(s, &wanted.key).is_none_or(|seen| !seen.deleting)
    });
    requests(s, Stage::Validate, unchecked, |wanted| Step::DryRun {
        wanted: wanted.clone(),
        uid: existing(s, &wanted.key).map(|seen| seen.uid.clone()),
        stamp: stamp(s, content),
    })
    .or_else(|| {
        let unapplied = rest().all(|wanted| !s.progress.written.contains(&wanted.key));
        if unapplied { stop_on_permanent(s, rest()) } else { None }
    })
}

fn is_changed(s: &Situation<'_>, wanted: &Wanted) -> bool {
    let entry = s.record.and_then(|record| record.inventory.get(&wanted.key));
    entry.and_then(|entry| entry.digest) != Some(wanted.digest)
}

fn has_permanent_failure(s: &Situation<'_>, key: &Key) -> bool {
    s.progress.failures.get(key).is_some_and(|standing| standing.failure.class == FailureClass::Permanent)
}

/// Server-side apply of everything: what changed first, in order; then the new stamp on the rest.
fn apply(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let open: Vec<_> = content
        .objects
        .values()
        .filter(|wanted| !s.progress.written.contains(&wanted.key) && !has_permanent_failure(s, &wanted.key))
        .collect();
    let place = |wanted: &Wanted| (!is_changed(s, wanted), wanted.wave, wanted.rank);
    // D5: what failed once does not hold up what comes after it, only what has not been tried.
    let untried = open.iter().filter(|wanted| !s.progress.failures.contains_key(&wanted.key));
    let next = untried.map(|wanted| place(wanted)).min();
    let now = open.into_iter().filter(|wanted| {
        next.is_none_or(|next| place(wanted) == next) || s.progress.failures.contains_key(&wanted.key)
    });
    write(s, Stage::Apply, content, now).or_else(|| stop_on_permanent(s, content.objects.values()))
}

/// Applies what is not written yet. Something that is on its way out is waited for.
fn write<'a>(
    s: &Situation<'_>,
    stage: Stage,
    content: &Content,
    objects: impl Iterator<Item = &'a Arc<Wanted>>,
) -> Option<Plan> {
    let mut leaving = None;
    let mut open = Vec::new();
    for wanted in objects
        .filter(|wanted| !s.progress.written.contains(&wanted.key) && !has_permanent_failure(s, &wanted.key))
    {
        match existing(s, &wanted.key) {
            Some(seen) if seen.deleting => leaving = Some(wanted.key.for_people().to_string()),
            _ => open.push(wanted),
        }
    }
    let plan = requests(s, stage, open.into_iter(), |wanted| Step::Apply {
        wanted: wanted.clone(),
        uid: existing(s, &wanted.key).map(|seen| seen.uid.clone()),
        stamp: stamp(s, content),
        repair: false,
    });
    plan.or_else(|| {
        // Without our label no event tells that it went: look again.
        let what = format!("{} to be gone", leaving?);
        let plan = outcome::wait(s, stage, SLOW_AFTER, "WaitingForDeletion", &what, Vec::new());
        Some(plan.wake(Some(s.now + RELEASE_CHECKS)))
    })
}

fn stamp(s: &Situation<'_>, content: &Content) -> Stamp {
    Stamp {
        agent: s.agent,
        stack: s.goal.target.stack_id,
        checksum: content.checksum,
        sequence: outcome::stamp_sequence(s.record, content),
    }
}

/// B5: after a complete apply, what the current object no longer contains goes.
fn prune(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let record = s.record?;
    let leftovers: BTreeMap<_, _> =
        record.inventory.iter().filter(|(key, _)| !content.objects.contains_key(*key)).collect();
    if leftovers.is_empty() {
        return None;
    }
    if let Some(plan) = sync(s, Stage::Prune, leftovers.values().map(|entry| &entry.kind)) {
        return Some(plan);
    }
    if let Some(plan) = hold_mass_prune(s, record, leftovers.len()) {
        return Some(plan);
    }
    dispose::all(s, Stage::Prune, record, leftovers.keys().map(|key| (*key).clone()), |key| {
        content.objects.keys().find(|other| dispose::stands_on(other, key)).cloned()
    })
}

/// A prune of more than 50 objects that is also more than 30 % of the stack waits for approval.
fn hold_mass_prune(s: &Situation<'_>, record: &Record, leftovers: usize) -> Option<Plan> {
    let large = leftovers > 50 && leftovers * 10 > record.inventory.len() * 3;
    let target = &s.goal.target;
    let approved = target
        .approvals
        .iter()
        .any(|approval| approval.sequence_id == target.sequence_id && approval.objects as usize >= leftovers);
    if !large || approved {
        return None;
    }
    let message = format!(
        "would delete {leftovers} of {} objects: more than 50 and more than 30 %, so it waits for approval",
        record.inventory.len()
    );
    Some(outcome::blocked(s, Stage::Prune, "PruneNeedsApproval", &message, Vec::new()))
}

fn settle(s: &Situation<'_>, content: &Content) -> Plan {
    let Some(record) = s.record else { return Plan::new(Stage::Intend) };
    let record = outcome::settled(s, content, record);
    Plan::with(Stage::Settle, vec![Step::WriteRecord(Box::new(record))])
}

fn stop_on_permanent<'a>(s: &Situation<'_>, objects: impl Iterator<Item = &'a Arc<Wanted>>) -> Option<Plan> {
    let notes: Vec<ObjectNote> = objects
        .filter_map(|wanted| {
            let standing = s.progress.failures.get(&wanted.key)?;
            Some(outcome::note(&wanted.key, &standing.failure))
        })
        .collect();
    let reason = notes.first()?.reason.clone();
    Some(stop(s, &reason, notes))
}

/// It does not go on by itself: reported once, tried again in the next cycle.
fn stop(s: &Situation<'_>, reason: &str, notes: Vec<ObjectNote>) -> Plan {
    outcome::failed(s, reason, notes).wake(Some(s.now + NEXT_CYCLE))
}

/// Transient failures that have lasted too long are told, while they are still retried. What is missing
/// (a namespace that comes with nobody) is told sooner: it seldom passes by itself.
#[must_use]
pub(super) fn overdue(s: &Situation<'_>) -> Vec<ObjectNote> {
    let lasts = |standing: &Standing| {
        let missing = standing.failure.reason == "NotFound" && standing.attempts >= 3;
        missing || due(standing.since + TRANSIENT_PATIENCE, s.now)
    };
    if !s.progress.failures.values().any(lasts) {
        return Vec::new();
    }
    // B2: all of them, not only the one that lasts.
    s.progress.failures.iter().map(|(key, standing)| outcome::note(key, &standing.failure)).collect()
}
