//! Webhooks: who is told of what happens in a project, and what came of telling them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{DeliveryId, WebhookId};
use crate::names::Name;
use crate::selector::Selector;

/// A filter names at most this many stacks, and as many agents.
pub const FILTER_NAMES: usize = 100;

/// What a message is about. Outcomes come as agents report them; alerts only for what lasts, once, and once
/// more when it is over.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::EnumString,
    strum::EnumIter,
)]
pub enum WebhookEvent {
    /// Somebody asked for a test.
    #[serde(rename = "ping")]
    #[strum(serialize = "ping")]
    Ping,
    /// Somebody submitted a version of a stack.
    #[serde(rename = "deployment_object.submitted")]
    #[strum(serialize = "deployment_object.submitted")]
    ObjectSubmitted,
    /// Somebody deleted a stack.
    #[serde(rename = "stack.deleted")]
    #[strum(serialize = "stack.deleted")]
    StackDeleted,
    /// An agent wrote everything of a version.
    #[serde(rename = "stack.applied")]
    #[strum(serialize = "stack.applied")]
    Applied,
    /// On an agent, everything of a version does its work.
    #[serde(rename = "stack.healthy")]
    #[strum(serialize = "stack.healthy")]
    Healthy,
    /// On an agent, something that was healthy no longer is.
    #[serde(rename = "stack.degraded")]
    #[strum(serialize = "stack.degraded")]
    Degraded,
    /// On an agent, a version stopped with an error.
    #[serde(rename = "stack.failed")]
    #[strum(serialize = "stack.failed")]
    Failed,
    /// An agent put back what others had changed.
    #[serde(rename = "stack.repaired")]
    #[strum(serialize = "stack.repaired")]
    Repaired,
    /// On an agent, a removal or prune waits for something.
    #[serde(rename = "stack.blocked")]
    #[strum(serialize = "stack.blocked")]
    Blocked,
    /// An agent has seen everything of a stack gone.
    #[serde(rename = "stack.removed")]
    #[strum(serialize = "stack.removed")]
    Removed,
    /// A stack has been failing, degraded or blocked on an agent for longer than the grace.
    #[serde(rename = "alert.failure")]
    #[strum(serialize = "alert.failure")]
    FailureLasts,
    /// That is over.
    #[serde(rename = "alert.failure_over")]
    #[strum(serialize = "alert.failure_over")]
    FailureOver,
    /// Somebody has been changing what a stack brought for longer than the grace.
    #[serde(rename = "alert.drift")]
    #[strum(serialize = "alert.drift")]
    DriftLasts,
    /// That is over.
    #[serde(rename = "alert.drift_over")]
    #[strum(serialize = "alert.drift_over")]
    DriftOver,
}

/// Which messages a webhook gets. What is left out does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookFilter {
    /// Kinds of events. None: all but the passing troubles `stack.failed`, `stack.degraded`, `stack.blocked` and
    /// `stack.repaired`, of which the alerts tell when they last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<WebhookEvent>,
    /// Names or ids of stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<String>,
    /// Names or ids of agents. Events that are about no agent are left out then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Over the labels of the agent. Events that are about no agent are left out then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_selector: Option<Selector>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    pub name: Name,
    /// Where messages are posted to: https, port 443 or 8443, a public address, unless the operator allows more.
    #[schema(example = "https://hooks.example.com/brokkr")]
    pub url: String,
    #[serde(default)]
    pub filter: WebhookFilter,
}

/// Changes a webhook. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookPatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WebhookFilter>,
    /// A webhook that is off gets nothing; what was waiting for it becomes dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    pub id: WebhookId,
    pub project: String,
    pub name: Name,
    /// Whole for owners; its path may be a secret, so others see where it goes and no more.
    pub url: String,
    pub filter: WebhookFilter,
    pub enabled: bool,
    /// Why it was switched off, if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_because: Option<String>,
    pub created_at: Timestamp,
}

/// A webhook with its secret, which is shown this once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookWithSecret {
    #[serde(flatten)]
    pub webhook: Webhook,
    /// `whsec_…`: what receivers verify signatures with.
    pub secret: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecret {
    /// For how long messages are signed with the old secret, too; a day if not given, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u32>,
}

/// What came of one attempt to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub delivered: bool,
    /// What the receiver answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub millis: u32,
    /// The first bytes of the answer.
    pub answer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    /// Waits for its next attempt.
    Pending,
    Delivered,
    /// A dead letter: given up, can be sent again.
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    pub event: WebhookEvent,
    pub state: DeliveryState,
    pub created_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Attempt>,
    /// What is sent.
    #[schema(value_type = Object)]
    pub body: serde_json::Value,
}
