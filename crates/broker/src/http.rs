//! Handlers, one file per resource type: read the request, call the store, map the result. A resource type
//! has a directory only if its file would be longer than about 300 lines. The other modules are shared by all
//! handlers.
//!
//! | module          | contents                                                                       |
//! |-----------------|--------------------------------------------------------------------------------|
//! | `middleware`    | the outermost middleware: request id, log line, problem documents              |
//! | `guard`         | authenticates the caller and checks its permission                             |
//! | `headers`       | reads the headers of the protocol                                              |
//! | `signed_body`   | compares the body of an agent's write with its assertion                       |
//! | `change`        | the extractor of a request that changes something                              |
//! | `body`          | reads the body of a request, within limits                                     |
//! | `write`         | the transaction of such a request: idempotency, audit record, outbox, position |
//! | `precondition`  | `If-Match`                                                                     |
//! | `expect`        | the number that a change has to state if it removes stacks from agents         |
//! | `manifest_pool` | parses manifests, two at a time                                                |
//! | `paging`        | `after` and `limit`                                                            |

pub mod agent_upgrades;
pub mod agents;
pub mod api_tokens;
pub mod audit;
pub mod barred_contents;
pub mod body;
pub mod change;
pub mod deployment_objects;
pub mod errors;
pub mod events;
pub mod expect;
pub mod fleet;
pub mod grants;
pub mod guard;
pub mod headers;
pub mod health;
pub mod health_rules;
pub mod join_tokens;
pub mod labels;
pub mod manifest_pool;
pub mod middleware;
pub mod paging;
pub mod precondition;
pub mod projects;
pub mod prune_approvals;
pub mod rollouts;
pub mod search;
pub mod selectors;
pub mod sessions;
pub mod signed_body;
pub mod stacks;
pub mod streams;
pub mod suspensions;
pub mod system;
pub mod ui;
pub mod webhooks;
pub mod windows;
pub mod write;

/// The state that every handler shares.
pub type BrokerState = axum::extract::State<std::sync::Arc<crate::state::Broker>>;
