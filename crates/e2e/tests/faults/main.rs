//! The agent's fault matrix: rows 19 to 44, on real processes, PostgreSQL and Kubernetes, with a proxy on
//! each of the agent's connections.
//!
//! A row states what must hold *during* the fault (from the cluster, the audit log and the proxy's trace) and *after* it: converged
//! as after a clean run, no foreign object touched, nothing leaked.
//! `BROKKR_FAULTS=all` runs each row in full; without it, rows that take minutes run a fixed sample.

mod broker;
mod deliberate_bugs;
mod every_step;
mod invariants;
mod keys;
mod kills;
mod lists;
mod lost_answers;
mod pairs;
mod proxy;
mod refusals;
mod two_api_servers;
mod watches;
mod webhooks;
mod world;
