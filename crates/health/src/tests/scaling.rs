//! HorizontalPodAutoscaler and PodDisruptionBudget.

use serde_json::json;

use super::super::HealthState::{Progressing, Ready};
use super::*;

#[test]
fn an_autoscaler_is_ready_when_it_has_metrics_to_scale_by() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "currentReplicas": 2, "conditions": conditions });
    let able = || condition("AbleToScale", "True", "ReadyForNewScale");
    expect(
        "autoscaling/HorizontalPodAutoscaler",
        &[
            (Progressing, "NotObserved", "its controller has not processed it yet", none(), none()),
            (
                Progressing,
                "NotObserved",
                "its controller has not processed it yet",
                none(),
                conditions(&[able()]),
            ),
            (
                Ready,
                "Active",
                "scales",
                none(),
                conditions(&[
                    able(),
                    condition("ScalingActive", "True", "ValidMetricFound"),
                    condition("ScalingLimited", "True", "TooManyReplicas"),
                ]),
            ),
            (
                Progressing,
                "FailedGetResourceMetric",
                "details",
                none(),
                conditions(&[able(), condition("ScalingActive", "False", "FailedGetResourceMetric")]),
            ),
            (
                Progressing,
                "FailedGetScale",
                "details",
                none(),
                conditions(&[condition("AbleToScale", "False", "FailedGetScale")]),
            ),
            (
                Ready,
                "ScalingDisabled",
                "details",
                none(),
                conditions(&[able(), condition("ScalingActive", "False", "ScalingDisabled")]),
            ),
            // autoscaling/v1 has no conditions.
            (Ready, "Active", "scales", none(), json!({ "currentReplicas": 2, "desiredReplicas": 2 })),
        ],
    );
}

#[test]
fn a_disruption_budget_is_ready_although_it_allows_none() {
    let none = || json!(null);
    let unseen = "its controller has not processed the newest change yet";
    let conditions = |status, reason| json!({ "observedGeneration": 2, "conditions": [condition("DisruptionAllowed", status, reason)] });
    expect(
        "policy/PodDisruptionBudget",
        &[
            (Ready, "Applied", "applied", none(), none()),
            (Ready, "Applied", "applied", none(), conditions("True", "SufficientPods")),
            (Ready, "Applied", "applied", none(), conditions("False", "InsufficientPods")),
            (Progressing, "SyncFailed", "details", none(), conditions("False", "SyncFailed")),
            (Progressing, "GenerationNotObserved", unseen, none(), json!({ "observedGeneration": 1 })),
        ],
    );
}
