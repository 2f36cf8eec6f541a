//! The agent, one for each cluster. It pulls its target state, applies it, repairs drift and sends reports.
//!
//! ```text
//! broker_link → plan (pure) → execute (writes) ⇄ observe (watches) → broker_link/report
//! ```
//!
//! Start at [`run`] for the wiring, at [`reconcile`] for the loop, and at [`plan`] for the decisions.

pub mod admin;
pub mod args;
pub mod automatic;
pub mod backoff;
pub mod broker_link;
pub mod clock;
pub mod content_cache;
pub mod diagnose;
pub mod edits;
pub mod execute;
pub mod fence;
pub mod forget_position;
pub mod grant;
pub mod health_rules;
pub mod install;
pub mod intern;
pub mod inventory;
pub mod metrics;
pub mod model;
pub mod observe;
pub mod own_objects;
pub mod ownership;
pub mod plan;
pub mod proxy;
pub mod reconcile;
pub mod record_events;
pub mod resource;
pub mod run;
pub mod start;
pub mod upgrade;
pub mod version;
pub mod yields;
