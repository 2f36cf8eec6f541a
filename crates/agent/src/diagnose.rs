//! Finds out why a workload is not ready, as the kubelet, a controller or the scheduler describes it.
//!
//! The status of a workload only counts Pods; the reason is on a Pod, on a ReplicaSet or in an event. These are not
//! watched, because there are many and most are healthy. When a workload has been unready for a while, [`diagnose`] reads
//! them with one to three requests, and [`cause`] evaluates them without I/O.

mod containers;
mod evidence;
mod selector;
#[cfg(test)]
mod tests;

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use evidence::{Specificity, condition, name, newest, text};
use serde_json::Value;

use crate::execute::Cluster;
use crate::model::{Cause, Failure};
use crate::resource::Kind;

/// The maximum number of Pods, and of ReplicaSets, that are read: the cause is usually the same for all.
const PODS: usize = 20;

/// The Pods, ReplicaSets and events of a workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    pub pods: &'a [Value],
    /// Only for a Deployment.
    pub replica_sets: &'a [Value],
    pub events: &'a [Value],
}

/// Returns the most specific cause that the evidence shows.
#[must_use]
pub fn cause(workload: &Key, evidence: &Evidence<'_>) -> Option<Cause> {
    most_specific(workload, evidence).map(|(_, cause)| cause)
}

fn most_specific(workload: &Key, evidence: &Evidence<'_>) -> Option<(Specificity, Cause)> {
    let unready = || evidence.pods.iter().filter(|pod| !is_ready(pod) && !is_deleting(pod));
    let mut found: Vec<(Specificity, Cause)> = unready().filter_map(containers::cause).collect();
    found.extend(unready().filter_map(unschedulable));
    found.extend(unready().filter_map(|pod| mount(pod, evidence.events)));
    found.extend(unready().filter_map(|pod| containers::probe(pod, evidence.events)));
    found.extend(unready().filter_map(containers::initializing));
    found.extend(refused(workload, evidence));
    // The most specific one is the smallest.
    found.into_iter().min_by_key(|(specificity, _)| *specificity)
}

/// Reads the Pods, ReplicaSets and events of a workload and returns the most specific cause. Kinds without Pods have none.
pub async fn diagnose(
    cluster: &Cluster,
    kind: &Kind,
    key: &Key,
    body: &Value,
) -> Result<Option<Cause>, Failure> {
    let Some(namespace) = key.namespace.as_deref() else { return Ok(None) };
    let Some(selected) = selector::pods_of(kind, key, body) else { return Ok(None) };
    let list = async |path: &str, limit: usize, selected: &str| {
        let path = format!("{path}?limit={limit}&{selected}");
        let list = cluster.read(&path).await?.unwrap_or_default();
        Ok::<_, Failure>(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
    };
    let pods: Vec<Value> = list(&format!("/api/v1/namespaces/{namespace}/pods"), PODS, &selected).await?;
    let mut evidence = Evidence { pods: &pods, ..Evidence::default() };
    match most_specific(key, &evidence) {
        // An event says why the probe failed: read the events.
        Some((Specificity::Probe, _)) | None => {}
        Some((_, cause)) => return Ok(Some(cause)),
    }
    let replica_sets: Vec<Value>;
    if kind.group == "apps" && kind.kind == "Deployment" {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
        replica_sets = list(&path, PODS, &selected).await?;
        evidence.replica_sets = &replica_sets;
        if let Some((Specificity::Refused, cause)) = most_specific(key, &evidence) {
            return Ok(Some(cause));
        }
    }
    // Read the events of one unready Pod. Without such a Pod, read those of the workload, which may be unable
    // to create Pods.
    let subject = pods.iter().find(|pod| !is_ready(pod) && !is_deleting(pod));
    let name = subject.and_then(|pod| pod.pointer("/metadata/name")?.as_str()).unwrap_or(&key.name);
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let events: Vec<Value> = list(&path, 100, &selector::events_of(name)).await?;
    evidence.events = &events;
    Ok(cause(key, &evidence))
}

/// Quotes the scheduler.
fn unschedulable(pod: &Value) -> Option<(Specificity, Cause)> {
    let scheduled = condition(&pod["status"], "PodScheduled")?;
    if scheduled["status"] != "False" || scheduled["reason"] != "Unschedulable" {
        return None;
    }
    let words = text(scheduled, "message");
    // The scheduler has no separate reason for an unbound claim.
    let claim = words.contains("PersistentVolumeClaim") || words.contains("persistentvolumeclaim");
    let reason = if claim { Reason::VolumeClaimPending } else { Reason::Unschedulable };
    let message = if words.is_empty() { "no suitable node" } else { words };
    Some((Specificity::Unschedulable, Cause::new(reason, &format!("pod {}: {message}", name(pod)))))
}

/// If a volume cannot be mounted, or the Pod's sandbox cannot be created, all containers stay in
/// `ContainerCreating`, and only an event says why.
fn mount(pod: &Value, events: &[Value]) -> Option<(Specificity, Cause)> {
    let event = newest(events, name(pod), &["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"])?;
    let message = format!("pod {}: {}", name(pod), text(event, "message"));
    Some((Specificity::Mount, Cause::new(Reason::from_kubernetes(text(event, "reason")), &message)))
}

/// Quota, admission or a missing service account: no Pod can be created.
fn refused(workload: &Key, evidence: &Evidence<'_>) -> Option<(Specificity, Cause)> {
    let failing = evidence.replica_sets.iter().find_map(|set| {
        let failure = condition(&set["status"], "ReplicaFailure")?;
        (failure["status"] == "True").then(|| (text(failure, "reason"), text(failure, "message")))
    });
    let reported = failing.or_else(|| {
        let event = newest(evidence.events, &workload.name, &["FailedCreate"])?;
        Some((text(event, "reason"), text(event, "message")))
    });
    let (word, message) = reported?;
    // The controller reports `FailedCreate` for every reason of the API server.
    let reason = if message.contains("exceeded quota") {
        Reason::QuotaExceeded { quota: None }
    } else {
        Reason::from_kubernetes(word).or(Reason::Other("FailedCreate".to_owned()))
    };
    Some((Specificity::Refused, Cause::new(reason, &format!("pods cannot be created: {message}"))))
}

fn is_ready(pod: &Value) -> bool {
    let status = &pod["status"];
    text(status, "phase") == "Succeeded"
        || condition(status, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn is_deleting(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}
