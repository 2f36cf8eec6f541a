//! The broker against a real PostgreSQL: each test opens a house of its own (a database and a replica) and
//! calls it over HTTP, as agents and people do.

mod access;
mod again;
mod agent_keys;
mod agents;
mod audit;
mod counts;
mod database;
mod deployment_objects;
mod fleet;
mod grants;
mod history;
mod hostile;
mod house;
mod index;
mod limits;
mod listener;
mod lists;
mod migrations;
mod openapi;
mod operating;
mod outbox;
mod process;
mod projects;
mod reports;
mod restore;
mod retention;
mod sizes;
mod streams;
mod table;
mod target_state;
mod tokens;
mod version1;
mod waiting;
mod webhooks;
mod why;
