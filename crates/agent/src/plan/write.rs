//! B2 and B3: a dry run of what changed, then server-side apply of everything, in order.

use std::sync::Arc;

use super::attempt::{existing, has_failed_for_good, requests, stop_on_failures, sync};
use super::steps::{Plan, Stage, Step, Why};
use super::types::{Content, Situation, Wanted};
use super::{RELEASE_CHECKS, SLOW_AFTER, outcome};
use crate::marks::Stamp;
use crate::resource::is_ground;

/// A dry run of everything that changed; all errors are collected.
pub(super) fn validate(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    if let Some(plan) = sync(s, Stage::Validate, rest(content).map(|wanted| &wanted.kind)) {
        return Some(plan);
    }
    let unchecked = rest(content).filter(|wanted| {
        !s.progress.validated.contains(&wanted.key)
            && is_changed(s, wanted)
            && !has_failed_for_good(s, &wanted.key)
            && existing(s, &wanted.key).is_none_or(|seen| !seen.deleting)
    });
    requests(s, Stage::Validate, unchecked, |wanted| Step::DryRun {
        wanted: wanted.clone(),
        uid: existing(s, &wanted.key).map(|seen| seen.uid.clone()),
        stamp: stamp(s, content),
    })
}

/// A permanent error stops this deployment object before the first real write of the rest.
pub(super) fn stop_if_invalid(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let unapplied = rest(content).all(|wanted| !s.progress.written.contains(&wanted.key));
    if unapplied { stop_on_failures(s, rest(content)) } else { None }
}

fn rest(content: &Content) -> impl Iterator<Item = &Arc<Wanted>> + Clone {
    content.objects.values().filter(|wanted| !is_ground(&wanted.key))
}

fn is_changed(s: &Situation<'_>, wanted: &Wanted) -> bool {
    let entry = s.record.and_then(|record| record.inventory.get(&wanted.key));
    entry.and_then(|entry| entry.digest) != Some(wanted.digest)
}

/// Server-side apply of everything: what changed first, in order; then the new stamp on the rest.
pub(super) fn apply(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let open: Vec<_> = content.objects.values().filter(|wanted| is_open(s, wanted)).collect();
    let place = |wanted: &Wanted| (!is_changed(s, wanted), wanted.wave, wanted.rank);
    // D5: what failed once does not hold up what comes after it, only what has not been tried.
    let untried = open.iter().filter(|wanted| !s.progress.failures.contains_key(&wanted.key));
    let next = untried.map(|wanted| place(wanted)).min();
    let now = open.into_iter().filter(|wanted| {
        next.is_none_or(|next| place(wanted) == next) || s.progress.failures.contains_key(&wanted.key)
    });
    objects(s, Stage::Apply, content, now).or_else(|| stop_on_failures(s, content.objects.values()))
}

fn is_open(s: &Situation<'_>, wanted: &Wanted) -> bool {
    !s.progress.written.contains(&wanted.key) && !has_failed_for_good(s, &wanted.key)
}

/// Applies what is not written yet. Something that is on its way out is waited for.
pub(super) fn objects<'a>(
    s: &Situation<'_>,
    stage: Stage,
    content: &Content,
    objects: impl Iterator<Item = &'a Arc<Wanted>>,
) -> Option<Plan> {
    let mut leaving = None;
    let mut open = Vec::new();
    for wanted in objects.filter(|wanted| is_open(s, wanted)) {
        match existing(s, &wanted.key) {
            Some(seen) if seen.deleting || s.progress.deleted.contains(&wanted.key) => {
                leaving = Some(wanted.key.for_people().to_string());
            }
            _ => open.push(wanted),
        }
    }
    let plan = requests(s, stage, open.into_iter(), |wanted| match existing(s, &wanted.key) {
        // Opted in by its manifest: what cannot be changed is made anew.
        Some(seen) if s.progress.replace.contains(&wanted.key) => {
            Step::Delete { key: wanted.key.clone(), kind: wanted.kind.clone(), uid: seen.uid.clone() }
        }
        seen => Step::Apply {
            wanted: wanted.clone(),
            uid: seen.map(|seen| seen.uid.clone()),
            stamp: stamp(s, content),
            why: Why::Deliver,
            ours: seen.is_some_and(|seen| seen.belongs_to(s.agent, s.goal.target.stack_id, &wanted.key)),
        },
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
