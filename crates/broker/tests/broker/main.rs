//! The broker against a real PostgreSQL: each test opens a house of its own (a database and a replica) and
//! calls it over HTTP, as agents and people do.

mod access;
mod agents;
mod counts;
mod database;
mod deployment_objects;
mod history;
mod house;
mod listener;
mod openapi;
mod outbox;
mod process;
mod reports;
mod retention;
mod streams;
mod target_state;
mod why;
