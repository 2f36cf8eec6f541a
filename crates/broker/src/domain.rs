//! Rules without IO: no SQL, no HTTP, no clock. What is decided here can be tested with values alone.
//!
//! | module       | the question it answers                                             |
//! |--------------|---------------------------------------------------------------------|
//! | `audit`      | what an audit entry contains, and how entries are chained             |
//! | `facts`      | what is known about an agent and a stack                            |
//! | `fingerprint` | is what the index knows the same as what the database holds        |
//! | `labels`     | which labels an agent carries                                       |
//! | `network`    | how is a network written                                            |
//! | `grants`     | what a project may do on an agent                                   |
//! | `targeting`  | does this stack reach this agent, why, and since when               |
//! | `envelope`   | what should this agent have, and what must go                       |
//! | `hold`       | after a restore: what stays possible, where epoch and ids go on     |
//! | `retention`  | how long events and contents are kept                               |
//! | `rotation`   | until when two tokens are good, one of which replaces the other     |
//! | `session`    | may this process of an agent still write                            |
//! | `status`     | in what state is a stack on an agent, given what was reported       |
//! | `filing`     | what of a batch of reports is stored, and under which project       |
//! | `presence`   | is an agent there: fresh, late, silent                              |
//! | `why`        | which hop is the first that is not passed, and what speaks for it   |
//! | `reason`     | which errors of a fleet are the same one                            |
//! | `webhooks`   | who is told of what, signed how, sent where, and when again         |

pub mod audit;
pub mod envelope;
pub mod facts;
pub mod filing;
pub mod fingerprint;
pub mod grants;
pub mod hold;
pub mod labels;
pub mod network;
pub mod presence;
pub mod reason;
pub mod retention;
pub mod rotation;
pub mod session;
pub mod status;
pub mod targeting;
pub mod webhooks;
pub mod why;
