//! What crosses the wire between broker, agent, command line and tests.
//!
//! Types only: serde and schema, no IO. Broker and agent both depend on this crate and never on
//! each other, so whatever they agree on has to be written down here.
//!
//! | module        | what lives there                                                         |
//! |---------------|--------------------------------------------------------------------------|
//! | [`ids`]       | typed ids: an `AgentId` cannot be passed where a `StackId` is wanted     |
//! | [`names`]     | names people choose, and labels, checked once at the edge                |
//! | [`selector`]  | the label selector language                                              |
//! | [`protocol`]  | headers, media types, versions, position: the frame of every exchange    |
//! | [`envelope`]  | the target state as agents ask for it                                    |
//! | [`report`]    | what agents report, and the hops of design: published … reported         |
//! | [`agents`], [`stacks`], [`objects`], [`events`], [`status`], [`tokens`], [`projects`] | one file a noun |
//! | [`grants`]    | which agents a project may use, for what, and as whom                    |
//! | [`agents`], [`stacks`], [`objects`], [`events`], [`status`], [`tokens`] | one file a noun |
//! | [`health`]    | how a replica is                                                         |
//! | [`system`]    | the installation: epoch, hold, what a restore left to settle             |
//! | [`webhooks`]  | who is told of what happens, and what came of it                         |
//! | [`agents`], [`stacks`], [`objects`], [`events`], [`status`], [`tokens`], [`projects`], [`audit`] | one file a noun |
//! | [`why`]       | presence, hops and the first broken one                                  |
//! | [`problem`]   | the one enum of error codes and the problem document                     |
//! | [`page`]      | keyset paging                                                            |

pub mod agents;
pub mod approvals;
pub mod audit;
pub mod envelope;
pub mod events;
pub mod grants;
pub mod health;
pub mod ids;
pub mod names;
pub mod objects;
pub mod page;
pub mod problem;
pub mod projects;
pub mod protocol;
pub mod report;
pub mod selector;
pub mod stacks;
pub mod status;
pub mod system;
pub mod tokens;
pub mod webhooks;
pub mod why;

pub use ids::{
    AgentId, DeliveryId, EventId, GrantId, InstallationId, InstanceId, SequenceId, StackId, TokenId,
    WebhookId,
};
pub use names::{Labels, Name};
pub use problem::{ErrorCode, Problem};
pub use protocol::Position;
pub use selector::Selector;
