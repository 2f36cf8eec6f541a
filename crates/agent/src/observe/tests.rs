//! The watches against an API server that does everything that API servers do. The same with a real one:
//! `crates/e2e/tests/e2e/observe.rs`.

mod rig;
mod server;
mod traps;
mod working;
