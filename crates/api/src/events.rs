//! Events: the reports of agents, as the API lists them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, EventId, SequenceId, StackId};
use crate::reason::{Message, Reason};
use crate::report::{Hops, ObjectNote, Transition};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub id: EventId,
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub sequence_id: SequenceId,
    pub transition: Transition,
    pub at: Timestamp,
    #[serde(flatten)]
    pub reason: Reason,
    pub message: Message,
    pub objects: Vec<ObjectNote>,
    pub hops: Hops,
}
