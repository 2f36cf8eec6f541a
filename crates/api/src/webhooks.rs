//! Webhooks: subscriptions to the events of a project, and their deliveries.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{DeliveryId, WebhookId};
use crate::names::Name;
use crate::selector::Selector;

/// The maximum number of stacks, and of agents, in a filter.
pub const FILTER_NAMES: usize = 100;

/// The type of a message. Outcomes are sent as agents report them. An alert covers all agents of a stack with the same lasting
/// problem.
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
    /// A user requested a test message.
    #[serde(rename = "ping")]
    #[strum(serialize = "ping")]
    Ping,
    /// A user submitted a version of a stack.
    #[serde(rename = "deployment_object.submitted")]
    #[strum(serialize = "deployment_object.submitted")]
    ObjectSubmitted,
    /// A user deleted a stack.
    #[serde(rename = "stack.deleted")]
    #[strum(serialize = "stack.deleted")]
    StackDeleted,
    /// The rollout of a version began.
    #[serde(rename = "rollout.started")]
    #[strum(serialize = "rollout.started")]
    RolloutStarted,
    /// The next wave of a rollout began.
    #[serde(rename = "rollout.advanced")]
    #[strum(serialize = "rollout.advanced")]
    RolloutAdvanced,
    /// The next wave of a rollout needs approvals.
    #[serde(rename = "rollout.gate_opened")]
    #[strum(serialize = "rollout.gate_opened")]
    RolloutGateOpened,
    /// A rollout was stopped by its rules or by a user: no further agent begins the version.
    #[serde(rename = "rollout.stopped")]
    #[strum(serialize = "rollout.stopped")]
    RolloutStopped,
    /// Every agent gets the version.
    #[serde(rename = "rollout.completed")]
    #[strum(serialize = "rollout.completed")]
    RolloutCompleted,
    /// An agent applied all objects of a version.
    #[serde(rename = "stack.applied")]
    #[strum(serialize = "stack.applied")]
    Applied,
    /// On an agent, all objects of a version are ready.
    #[serde(rename = "stack.healthy")]
    #[strum(serialize = "stack.healthy")]
    Healthy,
    /// On an agent, a healthy stack is no longer healthy.
    #[serde(rename = "stack.degraded")]
    #[strum(serialize = "stack.degraded")]
    Degraded,
    /// On an agent, a version stopped with an error.
    #[serde(rename = "stack.failed")]
    #[strum(serialize = "stack.failed")]
    Failed,
    /// An agent repaired drift.
    #[serde(rename = "stack.repaired")]
    #[strum(serialize = "stack.repaired")]
    Repaired,
    /// On an agent, others changed objects of a stack whose drift is not repaired, or none of these changes is left.
    #[serde(rename = "stack.drifted")]
    #[strum(serialize = "stack.drifted")]
    Drifted,
    /// An agent leaves the stack or an object of it alone.
    #[serde(rename = "stack.suspended")]
    #[strum(serialize = "stack.suspended")]
    Suspended,
    /// On an agent, a suspension is over.
    #[serde(rename = "stack.resumed")]
    #[strum(serialize = "stack.resumed")]
    Resumed,
    /// On an agent, a removal or prune is blocked.
    #[serde(rename = "stack.blocked")]
    #[strum(serialize = "stack.blocked")]
    Blocked,
    /// On an agent, all objects of a stack are gone.
    #[serde(rename = "stack.removed")]
    #[strum(serialize = "stack.removed")]
    Removed,
    /// A problem of a stack has lasted for longer than the grace period on one or more agents. All agents with the same
    /// cause are one alert.
    #[serde(rename = "alert.opened")]
    #[strum(serialize = "alert.opened")]
    AlertOpened,
    /// An open alert has reached more agents. Sent at most once in the alert interval.
    #[serde(rename = "alert.updated")]
    #[strum(serialize = "alert.updated")]
    AlertUpdated,
    /// No agent has had the problem of an alert for the grace period.
    #[serde(rename = "alert.resolved")]
    #[strum(serialize = "alert.resolved")]
    AlertResolved,
}

impl WebhookEvent {
    /// Returns whether this is a message about an alert, which covers many agents.
    #[must_use]
    pub fn is_alert(self) -> bool {
        matches!(self, Self::AlertOpened | Self::AlertUpdated | Self::AlertResolved)
    }
}

/// The format of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum WebhookFormat {
    /// Standard Webhooks: JSON with a type and data, for programs.
    #[default]
    Standard,
    /// An incoming webhook of Slack.
    Slack,
    /// A workflow of Microsoft Teams that posts an Adaptive Card.
    Teams,
    /// The Events API v2 of PagerDuty. The fragment of the URL is the integration key. Only alerts are sent.
    #[serde(rename = "pagerduty")]
    #[strum(serialize = "pagerduty")]
    PagerDuty,
}

/// Selects the messages of a webhook. An absent field other than `events` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookFilter {
    /// Types of events. By default all except `stack.failed`, `stack.degraded`, `stack.blocked` and `stack.repaired`, which
    /// alerts cover if they last. By default only alerts, if the format is not `standard`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<WebhookEvent>,
    /// Names or ids of stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<String>,
    /// Selects by the labels of the stack, such as `team=payments`. If set, events without a stack do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_selector: Option<Selector>,
    /// Names or ids of agents. If set, events without an agent do not match, and alerts count only these agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Selects by the labels of the agent. If set, events without an agent do not match, and alerts count only these agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_selector: Option<Selector>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    pub name: Name,
    /// The address of the receiver: HTTPS, port 443 or 8443, and a public address, unless the operator allows more.
    #[schema(example = "https://hooks.example.com/brokkr")]
    pub url: String,
    #[serde(default)]
    pub format: WebhookFormat,
    #[serde(default)]
    pub filter: WebhookFilter,
}

/// Changes a webhook. Absent fields stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookPatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<WebhookFormat>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WebhookFilter>,
    /// A disabled webhook gets no messages; its pending messages become dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    pub id: WebhookId,
    pub project: String,
    pub name: Name,
    /// Complete for owners. Others see only the host, because the path may be a secret.
    pub url: String,
    pub format: WebhookFormat,
    pub filter: WebhookFilter,
    pub enabled: bool,
    /// Why the broker disabled it; absent if a user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_because: Option<String>,
    pub created_at: Timestamp,
}

/// A webhook with its secret, which is shown only once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookWithSecret {
    #[serde(flatten)]
    pub webhook: Webhook,
    /// `whsec_…`: receivers verify signatures with it.
    pub secret: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecret {
    /// How long messages are also signed with the old secret: a day by default, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u32>,
}

/// The result of one attempt to send a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub delivered: bool,
    /// The HTTP status of the receiver's response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub millis: u32,
    /// The first bytes of the response.
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
    /// A dead letter: the broker no longer retries it, but it can be sent again.
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    pub event: WebhookEvent,
    pub state: DeliveryState,
    pub created_at: Timestamp,
    /// The number of attempts.
    pub attempts: u32,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Attempt>,
    /// The body of the message.
    #[schema(value_type = Object)]
    pub body: serde_json::Value,
}
