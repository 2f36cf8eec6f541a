//! Alerts: one message for all agents of a stack that have the same lasting problem. Without I/O.
//!
//! `webhooks::alarm` decides for one agent whether its problem lasts. Each webhook then has its own view of the agents
//! with a lasting problem, because its filter may select some of them.
//!
//! | module    | the question it answers                                      |
//! |-----------|--------------------------------------------------------------|
//! | `group`   | is a message due: opened, updated or resolved                |
//! | `cause`   | which cause do agents have in common, and how is it described |
//! | `message` | what does a message say                                      |

pub mod cause;
pub mod group;
pub mod message;
