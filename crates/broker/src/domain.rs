//! Rules without I/O: no SQL, no HTTP, no clock. They can be tested with values alone.
//!
//! | module       | the question it answers                                             |
//! |--------------|---------------------------------------------------------------------|
//! | `audit`      | what an audit entry contains, and how entries are chained           |
//! | `facts`      | what is known about an agent and a stack                            |
//! | `fingerprint` | does the index match the database                                  |
//! | `labels`     | which labels does an agent have                                     |
//! | `network`    | how is a network written                                            |
//! | `grants`     | what may a project do on an agent                                   |
//! | `targeting`  | does this stack reach this agent, why, and since when               |
//! | `release`    | which version does this agent get while a new one is rolled out     |
//! | `envelope`   | what should this agent have, and what should it remove              |
//! | `claims`     | what do an agent's claims count for                                 |
//! | `health_rules` | which health rules are accepted                                   |
//! | `hold`       | after a restore: what is allowed, where do epoch and ids continue   |
//! | `retention`  | how long are events and content kept                                |
//! | `rollout`    | how does a rollout go on                                            |
//! | `rotation`   | how long are an old token and its replacement valid                 |
//! | `upgrades`   | which image is an agent offered, and what do its reports count as   |
//! | `windows`    | when may an agent begin a version                                   |
//! | `session`    | may this process of an agent still write                            |
//! | `status`     | in what state is a stack on an agent, given its reports             |
//! | `fleet`      | how many agents have what they should have, by stack and by label   |
//! | `filing`     | which reports of a batch are stored, and under which project        |
//! | `presence`   | is an agent online: fresh, late, silent                             |
//! | `why`        | which hop is the first that is not complete, and why                |
//! | `error_groups` | groups the errors of a fleet by their reason                      |
//! | `alerts`     | when are agents with the same problem one message, and what does it say |
//! | `webhooks`   | which messages are sent, where, how are they signed and retried     |

pub mod alerts;
pub mod audit;
pub mod claims;
pub mod envelope;
pub mod error_groups;
pub mod facts;
pub mod filing;
pub mod fingerprint;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod fleet;
pub mod grants;
pub mod health_rules;
pub mod hold;
pub mod labels;
pub mod network;
pub mod presence;
pub mod release;
pub mod retention;
pub mod rollout;
pub mod rotation;
pub mod session;
pub mod status;
pub mod targeting;
pub mod upgrades;
pub mod webhooks;
pub mod why;
pub mod windows;
