//! The broker against a real PostgreSQL: each test opens a house of its own (a database and a replica) and
//! calls it over HTTP, as agents and people do.

mod access;
mod agent_keys;
mod agents;
mod audit;
mod database;
mod deployment_objects;
mod history;
mod house;
mod limits;
mod listener;
mod openapi;
mod outbox;
mod process;
mod projects;
mod reports;
mod table;
mod target_state;
mod tokens;
