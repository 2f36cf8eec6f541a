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
//! The modules, from the bottom up:
//!
//! ```text
//! names scratch port eventually tls    small helpers that every test needs
//! tcp_proxy                            connections that move between servers, and late answers
//! bystander                            a control for measurements beside other tests
//! process                              child processes that never outlive the test
//! nodes                                real nodes, on which Pods really run
//! postgres cluster audit prometheus    the engines, and the API server's audit log
//! shared                               one set of engines for a whole run
//! programs broker agent cli fleet      Brokkr's programs, as users run them
//! world                                one fleet, one cluster, one agent: where most tests start
//! pods                                 Brokkr's programs, as its Pods run them
//! browser                              pages in a real browser
//! scripted                             a broker that gives wrong answers on demand
//! rules proxy pgproxy                  fault proxies for HTTP and PostgreSQL, and their common rule engine
//! forward_proxy clock webhook          a forward proxy, a wrong time of day, and webhooks of the API server
//! history                              every call of every client, checked against the final state
//! ```

pub mod agent;
pub mod audit;
pub mod broker;
pub mod browser;
mod bystander;
pub mod cli;
mod clock;
pub mod cluster;
mod eventually;
mod fleet;
pub mod forward_proxy;
pub mod history;
mod names;
pub mod nodes;
pub mod pgproxy;
pub mod pods;
mod port;
pub mod postgres;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod proxy;
mod rules;
mod scratch;
pub mod scripted;
pub mod shared;
mod tcp_proxy;
pub mod tls;
pub mod webhook;
pub mod world;

pub use agent::{Agent, AgentOptions};
pub use audit::AuditLog;
pub use broker::Broker;
pub use bystander::Bystander;
pub use cli::Cli;
pub use clock::Clock;
pub use cluster::Cluster;
pub use eventually::{Attempt, eventually};
pub use fleet::Fleet;
pub use forward_proxy::ForwardProxy;
pub use names::{seed, unique};
pub use pgproxy::PgProxy;
pub use pods::PodRunner;
pub use port::Port;
pub use postgres::{Database, Postgres};
pub use process::{Launch, Output, Process, ShowLog, run};
pub use proxy::FaultProxy;
pub use scratch::Scratch;
pub use tcp_proxy::TcpProxy;
pub use world::World;
