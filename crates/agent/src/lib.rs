//! The agent: one per cluster. Pulls its target state, applies it, repairs drift, reports.
//!
//! ```text
//! link (broker) → plan (pure) → execute (writes) ⇄ observe (watches) → link/report (broker)
//! ```
//!
//! Start at [`run`] for the wiring, at [`reconcile`] for the loop, and at [`plan`] for every decision.

pub mod admin;
pub mod args;
pub mod diagnose;
pub mod execute;
pub mod fence;
pub mod grant;
pub mod health;
pub mod install;
pub mod intern;
pub mod inventory;
pub mod keep;
pub mod link;
pub mod marks;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod proxy;
pub mod reconcile;
pub mod resource;
pub mod run;
pub mod start;
pub mod yields;
