//! Typed client of the broker, used by the agent, the command line, the simulator and tests.
//!
//! A call passes through these modules:
//!
//! 1. the module of a resource ([`agents`], [`stacks`], [`deployment_objects`], [`events`], [`tokens`], …) defines
//!    the request and the type of the response; [`streams`] are server-sent events;
//! 2. [`retry`] sends it, and retries with the same idempotency key;
//! 3. [`exchange`] is one request and its complete response: credential, headers, deadline, size limit;
//! 4. [`response`] rejects responses that are not from a broker: captive portals, redirects, truncated bodies.
//!
//! A [`Credential`] identifies the caller. An agent signs each request with its own key ([`key`], [`assertion`]), using the
//! broker's clock ([`clock`]), so that a cluster with a wrong clock works.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use brokkr_client::{Client, Credential, RetryPolicy};
//!
//! let client = Client::builder("https://broker.example".parse()?)
//!     .credential(Credential::Token("brk_…".to_owned().into()))
//!     .retry(RetryPolicy::up_to(std::time::Duration::from_secs(30)))
//!     .build()?;
//! for agent in client.agents_all().await? {
//!     println!("{}", agent.name);
//! }
//! # Ok(()) }
//! ```

pub mod agent_upgrades;
pub mod agents;
pub mod assertion;
pub mod audit;
pub mod barred_contents;
pub mod builder;
pub mod clock;
pub mod credential;
pub mod deployment_objects;
pub mod error;
pub mod events;
pub mod exchange;
pub mod grants;
pub mod health;
pub mod health_rules;
pub mod key;
pub mod page;
pub mod plausible;
pub mod projects;
pub mod prune_approvals;
pub mod reports;
pub mod response;
pub mod retry;
pub mod rollouts;
pub mod selectors;
pub mod sessions;
pub mod stacks;
pub mod streams;
pub mod summaries;
pub mod suspensions;
pub mod system;
pub mod target_state;
pub mod tokens;
pub mod upgrade_offers;
pub mod webhooks;
pub mod why;
pub mod windows;

pub use agents::AgentQuery;
pub use audit::AuditQuery;
pub use builder::{BuildError, Client, ClientBuilder};
pub use credential::{AgentIdentity, Credential};
pub use error::{ClientError, Result, Stage, TransportError};
pub use events::EventQuery;
pub use key::{AgentKey, KeyError};
pub use page::{ALL, PageQuery};
pub use plausible::Implausible;
pub use response::InvalidResponse;
pub use retry::{IdempotencyKey, Retry, RetryPolicy};
pub use secrecy::SecretString;
pub use stacks::StatusQuery;
pub use streams::{Message, Stream};
pub use target_state::{Poll, PollRequest};
pub use url::Url;
