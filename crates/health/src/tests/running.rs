//! Job, CronJob and Pod.

use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready, Unknown};
use super::*;

#[test]
fn a_job_is_ready_when_it_is_complete_and_not_when_it_has_started() {
    let conditions =
        |kind, reason| json!({ "startTime": "x", "conditions": [condition(kind, "True", reason)] });
    expect(
        "batch/Job",
        &[
            (Progressing, "NotStarted", "not started yet", json!({}), json!({})),
            (
                Progressing,
                "Running",
                "0/1 completed, 1 active",
                json!({}),
                json!({ "startTime": "x", "active": 1 }),
            ),
            (
                Progressing,
                "Running",
                "1/3 completed, 1 active, 2 failed",
                json!({ "completions": 3 }),
                json!({ "startTime": "x", "active": 1, "succeeded": 1, "failed": 2 }),
            ),
            (Ready, "Complete", "completed", json!({}), conditions("Complete", "")),
            (
                Failed,
                "BackoffLimitExceeded",
                "details",
                json!({}),
                conditions("Failed", "BackoffLimitExceeded"),
            ),
            // Its last Pods are still being stopped.
            (
                Failed,
                "BackoffLimitExceeded",
                "details",
                json!({}),
                conditions("FailureTarget", "BackoffLimitExceeded"),
            ),
            (
                Ready,
                "Suspended",
                "suspended, as set in its manifest",
                json!({ "suspend": true }),
                conditions("Suspended", ""),
            ),
            (
                Failed,
                "DeadlineExceeded",
                "details",
                json!({ "suspend": true }),
                conditions("Failed", "DeadlineExceeded"),
            ),
        ],
    );
    expect(
        "batch/CronJob",
        &[
            (Ready, "Scheduled", "scheduled", json!({}), json!({})),
            (
                Ready,
                "Suspended",
                "suspended, as set in its manifest",
                json!({ "suspend": true }),
                json!({ "active": [{}] }),
            ),
        ],
    );
}

#[test]
fn a_failed_pod_has_failed() {
    let none = || json!(null);
    let container = |reason: &str| json!([{ "name": "app", "state": { "waiting": { "reason": reason } } }]);
    let ready = |status| json!({ "phase": "Running", "conditions": [condition("Ready", status, "")] });
    expect(
        "Pod",
        &[
            (Progressing, "Pending", "not running yet", none(), none()),
            (Ready, "Ready", "running and ready", none(), ready("True")),
            (Progressing, "NotReady", "running, not ready", none(), ready("False")),
            (Ready, "Succeeded", "succeeded", none(), json!({ "phase": "Succeeded" })),
            (Failed, "Failed", "the pod has failed", none(), json!({ "phase": "Failed" })),
            (
                Failed,
                "Evicted",
                "low on memory",
                none(),
                json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
            ),
            (Unknown, "NodeUnreachable", "its node does not respond", none(), json!({ "phase": "Unknown" })),
            (
                Failed,
                "CrashLoopBackOff",
                "container app keeps crashing",
                none(),
                json!({ "phase": "Running", "containerStatuses": container("CrashLoopBackOff") }),
            ),
            (
                Failed,
                "CrashLoopBackOff",
                "container app keeps crashing",
                none(),
                json!({ "phase": "Pending", "initContainerStatuses": container("CrashLoopBackOff"), "containerStatuses": container("PodInitializing") }),
            ),
            (
                Progressing,
                "ImagePullBackOff",
                "container app is waiting: ImagePullBackOff",
                none(),
                json!({ "phase": "Pending", "containerStatuses": container("ImagePullBackOff") }),
            ),
        ],
    );
}

#[test]
fn a_pod_without_a_node_fails_after_a_grace_period() {
    let status =
        json!({ "phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable")] });
    assert_eq!(judge_aged(14, "Pod", json!({}), status.clone()).state, Progressing);
    assert_eq!(judge_aged(15, "Pod", json!({}), status).state, Failed);
}
