//! The client against a scripted server: which requests it sends, and how it handles the responses.

mod capabilities;
mod own_writes;
mod poll;
mod retries;
mod scripted;
mod upgrade_offers;
