//! Measures the agent beside its peers, and the broker beside minimal servers, with the same load in one run.
//!
//! Machines differ and are noisy, so a single number has no meaning. Programs run alternately, rounds are repeated, and only
//! medians of the same run are compared.
//!
//! ```text
//! args.rs         command-line options
//! workload.rs     the objects: a realistic mix, and the same with every tenth changed
//! environment.rs  one API server, one broker, one agent
//! bare.rs         the lower bound: bare server-side-apply PATCHes; deleting namespaces
//! peers.rs        Flux's apply engine and kubectl
//! timeline.rs     how the agent spends its time, from its hops and the API server's audit log
//! results.rs      numbers, medians, a table, JSON
//! parts/          measurements of the agent: create, memory, stacks, drift, idle
//! broker/         measurements of the broker
//! ```

pub mod args;
mod bare;
pub mod broker;
mod environment;
mod parts;
mod peers;
mod results;
mod timeline;
mod workload;

pub use parts::run;
pub use results::Results;
