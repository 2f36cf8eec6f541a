//! HorizontalPodAutoscaler and PodDisruptionBudget.

use jiff::Timestamp;

use super::conditions::{find, find_true};
use super::verdict::{Health, ObjectView};

/// An autoscaler is ready when it has metrics to scale by, even if it has reached its minimum or maximum:
/// then it works as configured.
pub(super) fn autoscaler(object: &ObjectView<'_>, _: Timestamp) -> Health {
    for kind in ["AbleToScale", "ScalingActive"] {
        let Some(condition) = find(object, kind).filter(|condition| condition.is_false()) else { continue };
        // Scaled to zero by a user: it pauses until a user scales up again.
        if condition.reason() == "ScalingDisabled" {
            return Health::ready("ScalingDisabled", condition.message_or("scaled to zero"));
        }
        // Metrics of new Pods take a minute to appear, so this never counts as a failure.
        return condition.progressing("CannotScale", "cannot scale");
    }
    if find_true(object, "ScalingActive").is_some() {
        return Health::ready("Active", "scales");
    }
    // Version 1 of the API stores the conditions in an annotation.
    let seen = ["currentReplicas", "desiredReplicas"].iter().any(|field| object.status.get(field).is_some());
    if seen && find(object, "AbleToScale").is_none() {
        return Health::ready("Active", "scales");
    }
    Health::progressing("NotObserved", "its controller has not processed it yet")
}

/// A budget is ready even if it currently allows no disruption.
pub(super) fn disruption_budget(object: &ObjectView<'_>, _: Timestamp) -> Health {
    let failed = find(object, "DisruptionAllowed")
        .filter(|condition| condition.is_false() && condition.reason() == "SyncFailed");
    match failed {
        Some(failed) => failed.progressing("SyncFailed", "its controller cannot count the pods"),
        None => Health::ready("Applied", "applied"),
    }
}
