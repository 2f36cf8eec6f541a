//! The record as Kubernetes stores it.

use brokkr_api::envelope::{Grant, Removal};
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, Report};
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::{AgentId, SequenceId, StackId};
use jiff::Timestamp;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pack::PackError;
use super::shard::Header;
use crate::model::{JobStep, Made, Outcome, Record, RecordedSuspension, RecordedWait};
use crate::own_objects::{KEPT_BY, tail};
use crate::ownership::AGENT_LABEL;
use crate::resource::{Kind, RECORD_GROUP as GROUP, Served};

pub const VERSION: &str = "v1";
pub const KIND: &str = "Stack";
pub const PLURAL: &str = "stacks";
/// E5: if another client deletes a record, the finalizer keeps it until it is copied or the cleanup is done.
pub const FINALIZER: &str = "brokkr.io/cleanup";
/// A record that is being deleted is copied to the other name.
const OTHER: &str = "-2";

/// Returns the kind of records: watched, so that a deleted record is created again at once.
#[must_use]
pub fn kind() -> Kind {
    Kind::from(Served {
        group: GROUP.into(),
        version: VERSION.into(),
        kind: KIND.into(),
        plural: PLURAL.into(),
        namespaced: false,
    })
}

/// The spec: shown by `kubectl get stacks.brokkr.io`, and read by the agent at start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    agent_id: AgentId,
    project: String,
    stack: String,
    stack_id: StackId,
    sequence: SequenceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removal: Option<Removal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<Checksum>,
    stamp: SequenceId,
    session: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Grant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    suspensions: Vec<RecordedSuspension>,
    #[serde(default, skip_serializing_if = "DriftPolicy::is_default")]
    drift: DriftPolicy,
    #[serde(default)]
    made: Made,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<SequenceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wave_wait_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<RecordedWait>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobStep>,
    inventory: Header,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<SequenceId>,
    ready: u32,
    total: u32,
    /// `3/3`, for the column.
    readiness: String,
    state: String,
    message: Message,
    hops: Hops,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crashed: Option<SequenceId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<WireCondition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reports: Vec<Report>,
}

/// A condition in the form that Kubernetes tools read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    r#type: ConditionKind,
    status: ConditionStatus,
    #[serde(flatten)]
    reason: Reason,
    message: Message,
    observed_sequence: SequenceId,
    last_transition_time: Timestamp,
}

impl From<&Condition> for WireCondition {
    fn from(condition: &Condition) -> Self {
        Self {
            r#type: condition.kind.clone(),
            status: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            observed_sequence: condition.sequence_id,
            last_transition_time: condition.since,
        }
    }
}

impl From<WireCondition> for Condition {
    fn from(wire: WireCondition) -> Self {
        Self {
            kind: wire.r#type,
            status: wire.status,
            reason: wire.reason,
            message: wire.message,
            sequence_id: wire.observed_sequence,
            since: wire.last_transition_time,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Object {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// Returns the kind for kube's client.
#[must_use]
pub fn api_resource() -> ApiResource {
    ApiResource {
        group: GROUP.into(),
        version: VERSION.into(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.into(),
        plural: PLURAL.into(),
    }
}

/// Returns the name of a record: the stack's name and a part of its id.
#[must_use]
pub fn record_name(stack_name: &str, stack: StackId) -> String {
    format!("{stack_name}-{}", tail(stack))
}

/// Returns the other name of a record: it is used while the first one is being deleted.
#[must_use]
pub fn other_name(name: &str) -> String {
    name.strip_suffix(OTHER).map_or_else(|| format!("{name}{OTHER}"), ToOwned::to_owned)
}

/// Returns the record as an object with this name and inventory.
pub fn to_object(
    record: &Record,
    agent: AgentId,
    name: &str,
    inventory: Header,
) -> Result<DynamicObject, PackError> {
    let spec = Spec {
        agent_id: agent,
        project: record.project.clone(),
        stack: record.stack_name.clone(),
        stack_id: record.stack,
        sequence: record.sequence,
        removal: record.removal,
        checksum: record.checksum,
        stamp: record.stamp,
        session: record.session,
        grant: record.grant.clone(),
        suspensions: record.suspensions.clone(),
        drift: record.drift,
        made: record.made.clone(),
        first: record.first,
        wave_wait_seconds: record.wave_wait_seconds,
        wait: record.wait,
        jobs: record.jobs.clone(),
        inventory,
    };
    let state = match (&record.outcome, record.removal) {
        _ if !record.suspensions.is_empty() => "suspended".to_owned(),
        (Some(outcome), _) => outcome.transition.to_string(),
        (None, Some(_)) => "removing".to_owned(),
        (None, None) => "applying".to_owned(),
    };
    let status = Status {
        applied: record.applied,
        ready: record.ready,
        total: record.total,
        readiness: format!("{}/{}", record.ready, record.total),
        state,
        message: record.outcome.as_ref().map(|outcome| outcome.message.clone()).unwrap_or_default(),
        hops: record.hops,
        outcome: record.outcome.clone(),
        crashed: record.crashed,
        conditions: record.conditions.iter().map(WireCondition::from).collect(),
        reports: record.reports.clone(),
    };
    Ok(object(name, agent, record.version.clone(), serde_json::to_value(Object { spec, status })?))
}

/// Adds the labels and the finalizer of every record.
#[must_use]
pub fn object(name: &str, agent: AgentId, version: Option<String>, data: Value) -> DynamicObject {
    DynamicObject {
        types: Some(TypeMeta { api_version: format!("{GROUP}/{VERSION}"), kind: KIND.into() }),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([KEPT_BY, AGENT_LABEL].map(|label| (label.to_owned(), agent.to_string())).into()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            resource_version: version,
            ..ObjectMeta::default()
        },
        data,
    }
}

/// Returns the stack of a record; `None` if it belongs to another agent.
#[must_use]
pub fn stack_of(object: &DynamicObject, agent: AgentId) -> Option<StackId> {
    let spec = &object.data["spec"];
    if spec["agentId"] != json!(agent) {
        return None;
    }
    serde_json::from_value(spec["stackId"].clone()).ok()
}

/// Returns session and sequence id: of two records of a stack, the one with the higher pair counts.
#[must_use]
pub fn age(object: &DynamicObject) -> (i64, i64) {
    let spec = &object.data["spec"];
    (spec["session"].as_i64().unwrap_or_default(), spec["sequence"].as_i64().unwrap_or_default())
}

/// Returns the inventory header of a record, even if the rest is unreadable.
pub fn inventory_of(object: &DynamicObject) -> Result<Header, PackError> {
    Ok(Header::deserialize(&object.data["spec"]["inventory"])?)
}

/// Reads a record without its inventory.
pub fn from_object(object: DynamicObject) -> Result<Record, PackError> {
    let Object { spec, status } = serde_json::from_value(object.data)?;
    Ok(Record {
        project: spec.project,
        stack: spec.stack_id,
        stack_name: spec.stack,
        sequence: spec.sequence,
        removal: spec.removal,
        checksum: spec.checksum,
        stamp: spec.stamp,
        applied: status.applied,
        inventory: Default::default(),
        grant: spec.grant,
        suspensions: spec.suspensions,
        drift: spec.drift,
        made: spec.made,
        first: spec.first,
        wave_wait_seconds: spec.wave_wait_seconds,
        wait: spec.wait,
        jobs: spec.jobs,
        hops: status.hops,
        outcome: status.outcome,
        crashed: status.crashed,
        conditions: status.conditions.into_iter().map(Condition::from).collect(),
        ready: status.ready,
        total: status.total,
        reports: status.reports,
        session: spec.session,
        version: object.metadata.resource_version,
    })
}
