//! The broker's fault matrix: rows 1 to 18 and 45 to 50, on two replicas that share a PostgreSQL with fsync. A proxy
//! between each replica and the database recognizes statements.
//!
//! A row starts a load (writers and agents at both replicas), injects its fault, heals, requires progress of both replicas
//! within a deadline, and ends with `finish`: every client knows its outcome, every replica serves every agent the same state, and
//! the history of every call is consistent with the database.
//! Failure messages begin with the number of an invariant. Most are checked and explained by
//! `brokkr_testkit::history`. The rows check three more: S8, a wrong response changes nothing; S15, only the
//! leader runs a task for all replicas; S16, a revoked key is refused.
//! `BROKKR_FAULTS=all` runs each row in full; without it, rows run fewer rounds.

mod agents;
mod broker_pair;
mod clients;

mod clock;
mod database;
mod failover;
mod fleet;
mod leaders;
mod lies;
mod migrations;
mod pairs;
mod restore;
mod submissions;

use std::time::Duration;

/// The longest time that a row waits for an expected change.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time until both replicas make progress after a fault has ended.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);
