//! The types that broker, agent, command line and tests exchange.
//!
//! Types only: serde and schema, no I/O. Broker and agent both depend on this crate and never on each other.
//!
//! | module        | contents                                                                 |
//! |---------------|--------------------------------------------------------------------------|
//! | [`ids`]       | typed ids: an `AgentId` cannot be passed where a `StackId` is expected   |
//! | [`names`]     | names that people choose, and labels, checked once at the edge           |
//! | [`selector`]  | the label selector language                                              |
//! | [`assertion`] | the credential of an agent, and the request that it is for              |
//! | [`key_proof`] | the messages that an agent signs to prove that it has a key              |
//! | [`protocol`]  | headers, media types, versions, capabilities, position                   |
//! | [`envelope`]  | the target state as agents request it                                    |
//! | [`reason`]    | typed reasons, messages for people, object references                    |
//! | [`report`]    | what agents report; the hops from published to reported                  |
//! | [`why`]       | presence, hops and the first one that is not passed                      |
//! | [`problem`]   | error codes and the problem document                                     |
//! | [`page`]      | keyset paging                                                            |
//! | [`grants`]    | which agents a project may use, for what, and as which account           |
//! | [`windows`]   | when agents may begin a new version                                      |
//! | [`suspensions`] | which stacks and objects agents leave alone for some time              |
//! | [`health_rules`] | rules for the health of custom kinds, as data                         |
//! | [`upgrades`]   | images that agents are upgraded to, in waves                              |
//! | [`fleet`]     | views of a fleet: which agents have what they should have                |
//! | [`system`]    | the installation: epoch, hold, and conflicts after a restore             |
//! | others        | one file for each type of resource of the API                            |

pub mod agents;
pub mod approvals;
pub mod assertion;
pub mod audit;
pub mod envelope;
pub mod events;
pub mod fleet;
pub mod grants;
pub mod health;
pub mod health_rules;
pub mod ids;
pub mod key_proof;
pub mod names;
pub mod objects;
pub mod page;
pub mod position;
pub mod problem;
pub mod projects;
pub mod protocol;
pub mod reason;
pub mod report;
pub mod rollouts;
pub mod selector;
pub mod sessions;
pub mod stacks;
pub mod status;
pub mod suspensions;
pub mod system;
pub mod tokens;
pub mod upgrades;
pub mod webhooks;
pub mod why;
pub mod windows;

pub use ids::{
    AgentId, DeliveryId, EventId, GrantId, InstallationId, InstanceId, SequenceId, SessionId, StackId,
    SuspensionId, TokenId, UpgradeId, WebhookId, WindowId,
};
pub use names::{Labels, Name};
pub use position::{HistoryMark, Position, PositionToken};
pub use problem::{ErrorCode, Problem};
pub use selector::Selector;
