//! The plan against a small pretend cluster: every decision, and a crash after every step.

mod crashes;
mod delivery;
mod pretend;
