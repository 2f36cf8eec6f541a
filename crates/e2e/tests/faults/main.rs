//! The agent's fault matrix: rows 19 to 44 of the reliability report, on real processes, a real PostgreSQL and a
//! real Kubernetes, with a proxy on every way that the agent has.
//!
//! A row says what must hold *while* the fault lasts (read from the cluster, the audit log and the proxy's
//! trace) and *after* it: converged as a clean run would be, nothing foreign touched, nothing leaked.
//! `BROKKR_FAULTS=all` runs each row in full; without it, rows that take minutes take a fixed sample.

mod broker;
mod every_step;
mod invariants;
mod keys;
mod kills;
mod lists;
mod lost_answers;
mod pairs;
mod proxy;
mod refusals;
mod seeded;
mod watches;
mod world;
