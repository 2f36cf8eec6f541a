//! The watches against a scripted API server. `crates/e2e/tests/e2e/observe.rs` has tests with a real one.

mod rig;
mod server;
mod traps;
mod working;
