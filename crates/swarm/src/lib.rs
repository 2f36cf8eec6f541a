//! Protocol-true agents by the ten thousand in one process: the load for measurements and fault tests.
//!
//! Each does what an agent of a cluster does, as far as the broker can tell: it signs assertions and renews them,
//! opens a session, waits in a long poll, says what it holds, fetches contents and checks them, reports with ids that
//! follow from what they say. Only the cluster is missing. What goes wrong in earnest goes wrong here by dice, at a
//! rate that can be chosen, and the same seed throws the same dice.
//!
//! | file          | what lives there                                                               |
//! |---------------|--------------------------------------------------------------------------------|
//! | `config`      | what can be chosen                                                             |
//! | `identity`    | keys and ids derived from a seed; assertions                                   |
//! | `enrol`       | many agents at once, written into the database                                 |
//! | `join`        | a few agents, by the front door                                                |
//! | `wire`        | one TLS connection, its own or shared; one request and its whole answer        |
//! | `ask`         | the requests of the protocol                                                   |
//! | `agent`       | one agent: its little state, and one turn after the other                      |
//! | `work`        | what it does about an answer: hold, fetch, apply, report                       |
//! | `dice`        | small seeded randomness                                                        |
//! | `counts`      | what all of them did, and when each last heard something new                   |
//! | `swarm`       | all of them: start, wait for something, stop                                   |
//! | `files`       | the limit of open files                                                        |

mod agent;
mod ask;
pub mod config;
mod counts;
mod dice;
pub mod enrol;
pub mod files;
pub mod identity;
pub mod join;
mod swarm;
pub mod wire;
mod work;

pub use ask::{Ask, Poll, Write};
pub use config::{Broker, Config, Duty, Failures, Transport};
pub use counts::Counts;
pub use identity::Identity;
pub use swarm::{Late, Moments, Swarm};
