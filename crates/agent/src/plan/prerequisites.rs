//! B1: Namespaces and definitions are applied and ready before the objects that need them.

use std::collections::BTreeSet;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::ObjectNote;

use super::retry::report_overdue;
use super::stop::{stop, stop_on_failures};
use super::timing::{PREREQUISITE_TIMEOUT, due};
use super::write;
use crate::model::{Content, Plan, Situation, Stage, Step};
use crate::resource::{Kind, KindName, is_prerequisite, object_ref};

pub(super) fn apply(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let prerequisites: Vec<_> =
        content.objects.values().filter(|desired| is_prerequisite(&desired.key)).collect();
    if let Some(plan) =
        write::objects(situation, Stage::Prerequisites, content, prerequisites.iter().copied())
    {
        return Some(plan);
    }
    if let Some(plan) = stop_on_failures(situation, prerequisites.iter().copied()) {
        return Some(plan);
    }
    let unready = prerequisites.iter().find(|desired| {
        situation.observed.seen(&desired.key).is_none_or(|seen| !seen.is_ready(situation.now))
    });
    let Some(unready) = unready else { return resolve(situation, content) };
    let since = situation.progress.waiting_since(Stage::Prerequisites).unwrap_or(situation.now);
    let deadline = since + PREREQUISITE_TIMEOUT;
    if due(deadline, situation.now) {
        let reason = Reason::NotReady;
        let message = reason.message_with(format!("after {PREREQUISITE_TIMEOUT:#}"));
        let note = ObjectNote { object: object_ref(&unready.key), reason: reason.clone(), message };
        return Some(stop(situation, &reason, vec![note]));
    }
    let what = format!("waiting for {} to become ready", unready.key.display_name());
    Some(Plan::waiting(Stage::Prerequisites, what).wake(Some(deadline)))
}

/// Waits until discovery shows the kinds of established definitions; until then, the API server returns 404
/// for them.
fn resolve(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let mut plan = Plan::new(Stage::Prerequisites);
    for (name, definition) in &content.definitions {
        if situation.progress.lookups.served.contains(definition) {
            continue;
        }
        let kinds: BTreeSet<&Kind> = content
            .objects
            .values()
            .filter(|desired| KindName::of(&desired.key) == *name)
            .map(|desired| &desired.kind)
            .collect();
        match situation.progress.failures.objects.get(definition) {
            _ if kinds.is_empty() => {}
            Some(retry) if !due(retry.retry_at, situation.now) => {
                plan = plan.wake(Some(retry.retry_at));
                plan.waiting_for =
                    Some(Message::new(format!("waiting for {} to be served", definition.display_name())));
            }
            _ => plan
                .steps
                .push(Step::Resolve { key: definition.clone(), kinds: kinds.into_iter().cloned().collect() }),
        }
    }
    if plan.steps.is_empty()
        && plan.wake_at.is_some()
        && let Some(report) = report_overdue(situation, Stage::Prerequisites)
    {
        return Some(report.wake(plan.wake_at));
    }
    (!plan.steps.is_empty() || plan.wake_at.is_some()).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FailedStep, FailureClass, RetryState};
    use crate::plan::fixtures::{Stack, failed, key, second};

    #[test]
    fn b1_only_kinds_of_objects_in_the_content_are_looked_for_and_not_again_at_once() {
        let definition = key("apiextensions.k8s.io", "CustomResourceDefinition", None, "shops.example.com");
        let mut stack = Stack::of("example.com", "Shop");
        let defined = KindName::of(&stack.key);
        stack.content_mut().definitions.insert(defined, definition.clone());
        let resolved = |stack: &Stack| resolve(&stack.situation(1, 10), &stack.content());
        let plan = resolved(&stack).expect("a lookup");
        assert!(matches!(plan.steps.as_slice(), [Step::Resolve { .. }]), "{plan:?}");
        let retry = RetryState { of: FailedStep::Resolve, ..failed(FailureClass::Transient, 0, 2) };
        stack.progress.failures.objects.insert(definition.clone(), retry);
        let plan = resolved(&stack).expect("a wait");
        assert_eq!((plan.steps.len(), plan.wake_at), (0, Some(second(2))));
        stack.progress.lookups.served.insert(definition);
        assert!(resolved(&stack).is_none(), "it is served");
        stack.progress.lookups.served.clear();
        stack.content_mut().objects.clear();
        assert!(resolved(&stack).is_none(), "nothing needs it");
    }
}
