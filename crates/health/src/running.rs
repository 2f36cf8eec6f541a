//! Job, CronJob and Pod.

use jiff::Timestamp;
use serde_json::Value;

use super::conditions::{find, find_true};
use super::verdict::{Health, HealthState, ObjectView, SCHEDULING_GRACE, count, in_grace, is_set, text};

pub(super) fn job(object: &ObjectView<'_>, _: Timestamp) -> Health {
    // `FailureTarget` is set earlier, while the last Pods are still being stopped.
    let failed = find_true(object, "Failed").or_else(|| find_true(object, "FailureTarget"));
    if let Some(failed) = failed {
        return failed.failed("Failed", "the job has failed");
    }
    if find_true(object, "Complete").is_some() {
        return Health::ready("Complete", "completed");
    }
    if is_set(object.spec, "suspend") {
        return Health::ready("Suspended", "suspended, as set in its manifest");
    }
    let status = object.status;
    // `completions` may be absent: then one success is enough.
    let desired = object.spec.get("completions").and_then(Value::as_i64).unwrap_or(1);
    let (succeeded, active, failed) =
        (count(status, "succeeded"), count(status, "active"), count(status, "failed"));
    if text(status, "startTime").is_empty() {
        return Health::progressing("NotStarted", "not started yet");
    }
    let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    Health::progressing("Running", format!("{succeeded}/{desired} completed, {active} active{failures}"))
}

/// A CronJob is ready in any case: its runs are separate Jobs, and its status does not show failed ones.
pub(super) fn cron_job(object: &ObjectView<'_>, _: Timestamp) -> Health {
    if is_set(object.spec, "suspend") {
        return Health::ready("Suspended", "suspended, as set in its manifest");
    }
    Health::ready("Scheduled", "scheduled")
}

pub(super) fn pod(object: &ObjectView<'_>, now: Timestamp) -> Health {
    let status = object.status;
    let reason =
        |otherwise| Some(text(status, "reason")).filter(|reason| !reason.is_empty()).unwrap_or(otherwise);
    let message =
        |otherwise| Some(text(status, "message")).filter(|text| !text.is_empty()).unwrap_or(otherwise);
    match text(status, "phase") {
        "Succeeded" => return Health::ready("Succeeded", "succeeded"),
        "Failed" => return Health::failed(reason("Failed"), message("the pod has failed")),
        "Unknown" => {
            return Health::new(
                HealthState::Unknown,
                reason("NodeUnreachable"),
                message("its node does not respond"),
            );
        }
        _ => {}
    }
    if let Some((container, "CrashLoopBackOff")) = waiting(status) {
        return Health::failed("CrashLoopBackOff", format!("container {container} keeps crashing"));
    }
    if is_unschedulable(object) {
        let words = find(object, "PodScheduled")
            .map_or("no suitable node", |scheduled| scheduled.message_or("no suitable node"));
        return if in_grace(object, SCHEDULING_GRACE, now) {
            Health::progressing("Unschedulable", words)
        } else {
            Health::failed("Unschedulable", words)
        };
    }
    if text(status, "phase") == "Running" && find_true(object, "Ready").is_some() {
        return Health::ready("Ready", "running and ready");
    }
    if let Some((container, waiting)) = waiting(status).filter(|(_, reason)| !reason.is_empty()) {
        return Health::progressing(waiting, format!("container {container} is waiting: {waiting}"));
    }
    match text(status, "phase") {
        "Running" => Health::progressing("NotReady", "running, not ready"),
        _ => Health::progressing("Pending", "not running yet"),
    }
}

/// Returns whether the scheduler found no node.
pub(super) fn is_unschedulable(object: &ObjectView<'_>) -> bool {
    find(object, "PodScheduled")
        .is_some_and(|scheduled| scheduled.is_false() && scheduled.reason() == "Unschedulable")
}

/// Returns a waiting container and its reason; a crash loop takes precedence, because it is the most specific.
fn waiting(status: &Value) -> Option<(&str, &str)> {
    let all = ["initContainerStatuses", "containerStatuses"];
    let mut waiting =
        all.iter().filter_map(|field| status.get(field)?.as_array()).flatten().filter_map(|container| {
            Some((text(container, "name"), text(container.pointer("/state/waiting")?, "reason")))
        });
    let first = waiting.clone().find(|(_, reason)| *reason != "PodInitializing");
    waiting.find(|(_, reason)| *reason == "CrashLoopBackOff").or(first)
}
