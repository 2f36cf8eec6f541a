//! Why the Pod of the new version does not run. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// Returns why no Pod of the new version runs; none if one does.
#[must_use]
pub fn not_started(pods: &[Pod]) -> Option<String> {
    if pods.iter().any(is_running) {
        return None;
    }
    let reason = pods.iter().find_map(|pod| waiting(pod).or_else(|| unscheduled(pod)));
    Some(reason.unwrap_or_else(|| match pods {
        [] => "there is no Pod with the new image".to_owned(),
        _ => "its container has not started".to_owned(),
    }))
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

fn is_running(pod: &Pod) -> bool {
    statuses(pod).any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}

fn waiting(pod: &Pod) -> Option<String> {
    statuses(pod).find_map(|status| {
        let ended = |state: &k8s_openapi::api::core::v1::ContainerState| {
            state
                .terminated
                .as_ref()
                .map(|ended| format!("its container exits with code {}", ended.exit_code))
        };
        let state = status.state.as_ref()?;
        if let Some(ended) = ended(state).or_else(|| ended(status.last_state.as_ref()?)) {
            return Some(ended);
        }
        let waiting = state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| *reason != "ContainerCreating")?;
        Some(with_words(reason, waiting.message.as_deref()))
    })
}

fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut refused = conditions.filter(|found| found.type_ == "PodScheduled" && found.status == "False");
    let refused = refused.next()?;
    Some(with_words(refused.reason.as_deref()?, refused.message.as_deref()))
}

fn with_words(reason: &str, message: Option<&str>) -> String {
    message.map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "agent"}, "status": status})).unwrap()
    }

    fn container(state: Value, last: Value) -> Pod {
        let status = json!({
            "name": "agent", "image": "new", "imageID": "", "ready": false, "restartCount": 1, "state": state, "lastState": last,
        });
        pod(json!({"containerStatuses": [status]}))
    }

    #[test]
    fn the_reason_is_that_of_the_kubelet_or_of_the_scheduler() {
        let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too little memory",
        });
        let crash =
            (json!({"waiting": {"reason": "CrashLoopBackOff"}}), json!({"terminated": {"exitCode": 2}}));
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        for (pods, expected) in [
            (vec![container(pull, json!({}))], "ImagePullBackOff: no such image"),
            (vec![container(crash.0, crash.1)], "its container exits with code 2"),
            (vec![pod(json!({"conditions": [condition]}))], "Unschedulable: too little memory"),
            (vec![container(creating, json!({}))], "its container has not started"),
            (vec![], "there is no Pod with the new image"),
        ] {
            assert_eq!(not_started(&pods).as_deref(), Some(expected));
        }
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        assert_eq!(not_started(&[container(running, json!({}))]), None);
    }
}
