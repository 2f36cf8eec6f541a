//! Tests on real nodes: kubelet, containerd and runc, so that Pods really run, crash and fail to start.
//!
//! They need root: elsewhere they are skipped with a reason, except where `BROKKR_REAL_NODES` is set, as in CI.

mod agent_upgrade;
mod beside;
mod demo;
mod engine;
mod installation;
mod lost_node;
mod migrations;
mod operators;
mod ourselves;
mod rollouts;
mod screens;
mod site;
mod situations;
