//! What is still to be written.

use super::jobs;
use super::retry::has_failed_for_good;
use crate::model::{Content, DesiredObject, Situation};
use crate::resource::is_job;

/// Returns whether the object differs from what was applied.
pub(super) fn is_changed(situation: &Situation<'_>, desired: &DesiredObject) -> bool {
    let entry = situation.record.and_then(|record| record.inventory.get(&desired.key));
    entry.and_then(|entry| entry.digest) != Some(desired.digest)
}

/// Returns whether the object is to be written now or later in this delivery.
pub(super) fn is_open(situation: &Situation<'_>, content: &Content, desired: &DesiredObject) -> bool {
    !is_done(situation, content, desired)
        && !situation.suspensions.cover(&desired.key)
        && !situation.progress.delivery.written.contains(&desired.key)
        && !has_failed_for_good(situation, &desired.key)
}

/// A8: equal content does not run a Job again that was complete before it was deleted. A Job that is a step does not run again
/// with any manifest with which it has run, and what hooks need temporarily is not applied without them.
pub(super) fn is_done(situation: &Situation<'_>, content: &Content, desired: &DesiredObject) -> bool {
    let key = &desired.key;
    if jobs::has_ended(situation, desired) {
        let seen = situation.observed.seen(key);
        return seen.is_none_or(|seen| seen.deleting && !jobs::is_replaced(situation, key, seen));
    }
    if desired.is_temporary() && !is_job(key) {
        let mut hooks = content.objects.values().filter(|one| one.hook.is_some() && is_job(&one.key));
        return hooks.all(|hook| jobs::has_ended(situation, hook));
    }
    !is_changed(situation, desired) && situation.is_completed_and_gone(key)
}
