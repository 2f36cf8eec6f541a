//! Causes in the container statuses of one Pod: image, configuration, memory, crash, probe.

use brokkr_api::reason::Reason;
use serde_json::Value;

use super::evidence::{Specificity, name, newest, text};
use crate::model::Cause;

/// Returns the most specific cause among the containers of a Pod, including init containers.
pub(super) fn cause(pod: &Value) -> Option<(Specificity, Cause)> {
    let found = statuses(pod).filter_map(|status| one(pod, status));
    found.min_by_key(|(weight, _)| *weight)
}

fn one(pod: &Value, status: &Value) -> Option<(Specificity, Cause)> {
    let container = text(status, "name");
    let found = |weight, reason: &str, what: String| {
        let reason = Reason::from_kubernetes(reason);
        Some((weight, Cause::new(reason, &format!("pod {}, container {container}: {what}", name(pod)))))
    };
    let waiting = status.pointer("/state/waiting").unwrap_or(&Value::Null);
    let (reason, message) = (text(waiting, "reason"), text(waiting, "message"));
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => {
            let image = text(status, "image");
            found(Specificity::Image, reason, with_words(&format!("image {image} cannot be pulled"), message))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            found(Specificity::Config, reason, with_words("cannot be started", message))
        }
        // It runs again: how it ended earlier does not explain why it is not ready now.
        _ if status.pointer("/state/running").is_some() => None,
        _ => {
            let ended = ended(status)?;
            let times = status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
            let again = match times {
                ..=0 => String::new(),
                1 => ", restarted once".to_owned(),
                times => format!(", restarted {times} times"),
            };
            if text(ended, "reason") == "OOMKilled" {
                let limit = memory_limit(pod, container);
                let limit = limit.map_or_else(String::new, |limit| format!(" (its limit is {limit})"));
                return found(
                    Specificity::Memory,
                    "OOMKilled",
                    format!("killed, out of memory{limit}{again}"),
                );
            }
            let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or(-1);
            // A completed init container, or a container that exited without an error in a Pod that
            // continues.
            if code == 0 && reason != "CrashLoopBackOff" {
                return None;
            }
            // Between two restarts, the kubelet shows for a moment how the container ended.
            let reason = match (reason, times) {
                ("", 0) => "Error",
                ("", _) => "CrashLoopBackOff",
                (reason, _) => reason,
            };
            let what = format!("exits with code {code}{again}");
            found(Specificity::Crash, reason, with_words(&what, last_line(text(ended, "message"))))
        }
    }
}

/// Returns the failing probe of a container that runs but is not ready.
pub(super) fn probe(pod: &Value, events: &[Value]) -> Option<(Specificity, Cause)> {
    let status = statuses(pod)
        .find(|status| status.pointer("/state/running").is_some() && status["ready"] == Value::Bool(false))?;
    let container = text(status, "name");
    let spec = spec(pod, container)?;
    let starting = spec.get("startupProbe").is_some() && status["started"] != Value::Bool(true);
    let (reason, which) = match starting {
        true => (Reason::StartupProbeFailing, "startup"),
        false if spec.get("readinessProbe").is_some() => (Reason::ReadinessProbeFailing, "readiness"),
        false => return None,
    };
    let words = newest(events, name(pod), &["Unhealthy"]).map_or("", |event| text(event, "message"));
    let what = with_words(&format!("runs, but its {which} probe does not succeed"), words);
    let message = format!("pod {}, container {container}: {what}", name(pod));
    Some((Specificity::Probe, Cause::new(reason, &message)))
}

/// Returns the init container that a Pod waits for. Sidecars, which go on running, are not waited for.
pub(super) fn initializing(pod: &Value) -> Option<(Specificity, Cause)> {
    let statuses = pod.pointer("/status/initContainerStatuses")?.as_array()?;
    let is_sidecar = |name: &str| spec(pod, name).is_some_and(|spec| text(spec, "restartPolicy") == "Always");
    let running = statuses
        .iter()
        .find(|status| status.pointer("/state/running").is_some() && !is_sidecar(text(status, "name")))?;
    let message = format!("pod {}: its init container {} is still running", name(pod), text(running, "name"));
    Some((Specificity::Initializing, Cause::new(Reason::ContainersNotInitialized, &message)))
}

/// Returns how the container ended, now or before its last restart.
fn ended(status: &Value) -> Option<&Value> {
    status.pointer("/state/terminated").or_else(|| status.pointer("/lastState/terminated"))
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|field| pod["status"].get(field)?.as_array())
        .flatten()
}

fn spec<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["containers", "initContainers"]
        .into_iter()
        .filter_map(|field| pod["spec"].get(field)?.as_array())
        .flatten()
        .find(|spec| text(spec, "name") == container)
}

fn memory_limit<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    spec(pod, container)?.pointer("/resources/limits/memory")?.as_str()
}

fn with_words(what: &str, words: &str) -> String {
    if words.is_empty() { what.to_owned() } else { format!("{what}: {words}") }
}

/// Returns the last line of a termination message, which usually has the error.
fn last_line(message: &str) -> &str {
    message.trim_end().rsplit('\n').next().unwrap_or_default().trim()
}
