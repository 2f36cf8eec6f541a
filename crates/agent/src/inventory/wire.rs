//! The record as Kubernetes stores it.

use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, Report};
use brokkr_api::{AgentId, SequenceId, StackId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pack::{PackError, pack, unpack};
use crate::plan::types::{Made, Outcome, Record};

pub const GROUP: &str = "brokkr.io";
pub const VERSION: &str = "v1";
pub const KIND: &str = "Stack";
pub const PLURAL: &str = "stacks";

/// What people see with `kubectl get stacks.brokkr.io`, and what the agent reads back at start.
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
    #[serde(default)]
    made: Made,
    /// See `pack`. Shards come here when one text is no longer enough.
    inventory: String,
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
    message: String,
    hops: Hops,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<WireCondition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reports: Vec<Report>,
}

/// A condition in the shape that Kubernetes' own tools read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    r#type: ConditionKind,
    status: ConditionStatus,
    reason: String,
    message: String,
    observed_sequence: SequenceId,
    last_transition_time: Timestamp,
}

impl From<&Condition> for WireCondition {
    fn from(condition: &Condition) -> Self {
        Self {
            r#type: condition.kind,
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
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

/// The stack's name, and enough of its id to be unique.
#[must_use]
pub fn record_name(stack_name: &str, stack: StackId) -> String {
    // The tail: the head of a time-ordered id is shared by everything of the same moment.
    let id = stack.0.simple().to_string();
    format!("{stack_name}-{}", &id[id.len() - 12..])
}

pub fn to_object(record: &Record, agent: AgentId) -> Result<Value, PackError> {
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
        made: record.made.clone(),
        inventory: pack(&record.inventory)?,
    };
    let state = match (&record.outcome, record.removal) {
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
        conditions: record.conditions.iter().map(WireCondition::from).collect(),
        reports: record.reports.clone(),
    };
    let mut metadata = json!({"name": record_name(&record.stack_name, record.stack)});
    if let Some(version) = &record.version {
        metadata["resourceVersion"] = json!(version);
    }
    Ok(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": metadata,
        "spec": serde_json::to_value(spec)?,
        "status": serde_json::to_value(status)?,
    }))
}

/// Reads a record back; `None` if it is another agent's.
pub fn from_object(object: Value, agent: AgentId) -> Result<Option<Record>, PackError> {
    if object["spec"]["agentId"] != agent.to_string() {
        return Ok(None);
    }
    let object: Object = serde_json::from_value(object)?;
    let (spec, status) = (object.spec, object.status);
    Ok(Some(Record {
        project: spec.project,
        stack: spec.stack_id,
        stack_name: spec.stack,
        sequence: spec.sequence,
        removal: spec.removal,
        checksum: spec.checksum,
        stamp: spec.stamp,
        applied: status.applied,
        inventory: unpack(&spec.inventory)?,
        made: spec.made,
        hops: status.hops,
        outcome: status.outcome,
        conditions: status.conditions.into_iter().map(Condition::from).collect(),
        ready: status.ready,
        total: status.total,
        reports: status.reports,
        session: spec.session,
        version: Some(object.metadata.resource_version),
    }))
}
