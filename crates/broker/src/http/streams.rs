//! Watch streams (server-sent events): what happens, as it happens, resumable by `Last-Event-ID`.
//!
//! | module   | what lives there                                                                    |
//! |----------|-------------------------------------------------------------------------------------|
//! | `follow` | one reader: catch up from the database, then what the tail tells; right re-checked   |
//! | `events` | every event of a project, or of a stack or an agent                                 |
//! | `status` | the state of a stack on an agent, each time it is reported                          |

pub mod events;
pub mod follow;
pub mod status;
