//! Whose is it? Decided, and put into the record, before anything is written.

use std::sync::Arc;

use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::attempt::{existing, has_failed_for_good, requests, stop, sync};
use super::steps::{Plan, Stage, Step};
use super::types::{Content, Intent, Situation, Wanted};
use super::{FORBIDDEN, RELEASE_CHECKS, outcome};
use crate::resource::{KindName, is_ground};

/// Namespaces and definitions are few, and adoption decides what may become of them: looked at first.
pub(super) fn look_at_ground(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    look_at(s, content.objects.values().filter(|wanted| is_ground(&wanted.key)))
}

/// What was there before is looked at before anything is written.
pub(super) fn look_at_rest(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    look_at(s, rest(content).filter(|wanted| !presumed_absent(s, content, wanted)))
}

/// Of what was presumed absent, a dry run has told what exists after all.
pub(super) fn look_at_surprises(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    look_at(s, rest(content))
}

fn rest(content: &Content) -> impl Iterator<Item = &Arc<Wanted>> + Clone {
    content.objects.values().filter(|wanted| !is_ground(&wanted.key))
}

/// Could not exist before this delivery, because what it stands on comes with it and was not there.
fn presumed_absent(s: &Situation<'_>, content: &Content, wanted: &Wanted) -> bool {
    let made = |key: &Key| {
        let made = s.record.map(|record| &record.made).filter(|made| made.sequence == content.sequence);
        existing(s, key).is_none() || made.is_some_and(|made| made.ground.contains(key))
    };
    if let Some(definition) = content.definitions.get(&KindName::of(&wanted.key)) {
        return made(definition);
    }
    let Some(namespace) = &wanted.key.namespace else { return false };
    let key =
        Key { group: String::new(), kind: "Namespace".into(), namespace: None, name: namespace.clone() };
    content.objects.contains_key(&key) && made(&key)
}

fn look_at<'a>(s: &Situation<'_>, wanted: impl Iterator<Item = &'a Arc<Wanted>> + Clone) -> Option<Plan> {
    if let Some(plan) = sync(s, Stage::Look, wanted.clone().map(|wanted| &wanted.kind)) {
        return Some(plan);
    }
    let unknown = wanted.filter(|wanted| {
        s.observed.seen(&wanted.key).is_none() && !s.progress.looked.contains_key(&wanted.key)
    });
    let look = |wanted: &Arc<Wanted>| Step::Look { key: wanted.key.clone(), kind: wanted.kind.clone() };
    // Refused by a dry run: whose it is may be the reason.
    let refused: Vec<Step> =
        unknown.clone().filter(|wanted| has_failed_for_good(s, &wanted.key)).map(look).collect();
    if !refused.is_empty() {
        return Some(Plan::with(Stage::Look, refused));
    }
    requests(s, Stage::Look, unknown, look)
}

enum Claim {
    Free,
    Undecided,
    Other(String),
}

/// What another stack of this agent no longer wants is handed over by our apply; everything else of others stays theirs.
fn claim(s: &Situation<'_>, key: &Key) -> Claim {
    // Its record is older than any mark on the object: it may be about to write it.
    if let Some(holder) = s.neighbours.holder(key) {
        return match holder.intent {
            Intent::LetsGo => Claim::Free,
            Intent::Undecided => Claim::Undecided,
            Intent::Keeps => Claim::Other(format!("stack {}", holder.name)),
        };
    }
    let seen = existing(s, key);
    let owner = seen.and_then(|seen| seen.other_owner(s.agent, s.goal.target.stack_id, key));
    owner.map_or(Claim::Free, |owner| Claim::Other(owner.to_string()))
}

/// C4: what belongs to another stack or agent is refused.
pub(super) fn refuse(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let mut notes = Vec::new();
    let mut undecided = None;
    for key in content.objects.keys() {
        match claim(s, key) {
            Claim::Free => {}
            Claim::Undecided => undecided = Some(key),
            Claim::Other(owner) => notes.push(ObjectNote {
                object: key.for_people().to_string(),
                reason: "OwnedByOther".into(),
                message: format!("belongs to {owner}; remove it there first, or rename it here"),
            }),
        }
    }
    let plan = if let Some(key) = undecided {
        let what = format!("{}: whether the stack that has it still wants it", key.for_people());
        Plan::waiting(Stage::Look, what).wake(Some(s.now + RELEASE_CHECKS))
    } else if notes.is_empty() {
        return None;
    } else {
        stop(s, "OwnedByOther", notes)
    };
    Some(Plan { minds_others: true, ..plan })
}

/// Missing rights are found before the first write, and named verb by verb.
pub(super) fn check_rights(s: &Situation<'_>, content: &Arc<Content>) -> Option<Plan> {
    match &s.progress.lacking {
        None => Some(Plan::with(Stage::Look, vec![Step::CheckRights { content: content.clone() }])),
        Some(lacking) if lacking.is_empty() => None,
        Some(lacking) => Some(stop(s, FORBIDDEN, lacking.clone())),
    }
}

/// The superset of what was and what will be is in the record before the first write.
pub(super) fn intend(s: &Situation<'_>, content: &Content) -> Option<Plan> {
    let complete = s.record.is_some_and(|record| {
        record.sequence == content.sequence
            && record.removal.is_none()
            && record.checksum == Some(content.checksum)
            && content.objects.keys().all(|key| {
                let entry = record.inventory.get(key);
                entry.is_some_and(|entry| {
                    !existing(s, key).is_some_and(|seen| outcome::is_news(s, key, entry, seen))
                })
            })
    });
    if complete {
        return None;
    }
    let record = outcome::intention(s, content, |key| existing(s, key));
    Some(Plan::with(Stage::Intend, vec![Step::WriteRecord(Box::new(record))]))
}
