//! The broker's fault matrix: rows 1 to 18 and 45 to 50 of the reliability report, on two real replicas over a real
//! PostgreSQL of their own with fsync, with a proxy that knows its statements before each of them.
//!
//! A row starts a load (writers and agents over both replicas), brings its fault about in the middle of it, heals, wants
//! both replicas to get on within a deadline, and ends with `settled`: every client was told, every replica tells every
//! agent the same, and the history of every call fits what is in the database.
//! `BROKKR_FAULTS=all` runs each row in full; without it, rows take fewer rounds.

mod agents;
mod broker_pair;
mod clients;

mod clock;
mod database;
mod fleet;
mod leaders;
mod lies;
mod migrations;
mod pairs;
mod restore;
mod submissions;

use std::time::Duration;

/// How long anything may take that has to happen after all.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take until both replicas get on after a fault has ended.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);
