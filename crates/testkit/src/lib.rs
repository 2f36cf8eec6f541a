//! Real engines and real processes for tests.
//!
//! A test talks to [`Fleet`]: a broker, agents and the command line as the processes that users run, on a
//! real PostgreSQL and real clusters. It reads like the promise that it proves:
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use brokkr_testkit::{Cluster, Fleet};
//!
//! let cluster = Cluster::shared().await?;
//! let fleet = Fleet::start().await?;
//! let shop = fleet.join("shop-1", &[("env", "prod")], &cluster).await?;
//! fleet.apply("web", "env=prod", "apiVersion: v1\nkind: ConfigMap …").await?;
//! shop.kill9();
//! # Ok(()) }
//! ```
//!
//! The rooms, from the ground up:
//!
//! ```text
//! names scratch port eventually tls    small things that every test needs
//! process                              child processes that never outlive the test
//! postgres cluster audit prometheus    the engines, and what they witnessed
//! shared                               one set of engines for a whole run
//! programs broker agent cli fleet      Brokkr itself, as its users run it
//! pods                                 Brokkr itself, as its Pods run it
//! scripted proxy pgproxy               a broker that lies, and networks that fail
//! forward_proxy clock                  a proxy on the way out, and time of day that is wrong
//! history                              every call of every client, checked against what is there in the end
//! ```

pub mod agent;
pub mod audit;
pub mod broker;
pub mod cli;
mod clock;
pub mod cluster;
mod eventually;
mod fleet;
pub mod forward_proxy;
pub mod history;
mod names;
pub mod pgproxy;
pub mod pods;
mod port;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod proxy;
mod scratch;
pub mod scripted;
pub mod shared;
pub mod tls;

pub use agent::{Agent, AgentOptions};
pub use audit::AuditLog;
pub use broker::Broker;
pub use cli::Cli;
pub use clock::Clock;
pub use cluster::Cluster;
pub use eventually::{Look, eventually};
pub use fleet::Fleet;
pub use forward_proxy::ForwardProxy;
pub use names::{seed, unique};
pub use pgproxy::PgProxy;
pub use pods::PodRunner;
pub use port::Port;
pub use postgres::{Database, Postgres};
pub use process::{Launch, Output, Process, Tell};
pub use proxy::FaultProxy;
pub use scratch::Scratch;
