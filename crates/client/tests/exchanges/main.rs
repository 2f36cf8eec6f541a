//! The client against a scripted server: what it sends, and what it makes of what comes back.

mod capabilities;
mod own_writes;
mod poll;
mod retries;
mod scripted;
