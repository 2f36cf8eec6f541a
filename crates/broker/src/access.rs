//! Who is calling, and what they may do.
//!
//! | module       | contents                                                    |
//! |--------------|-------------------------------------------------------------|
//! | `permission` | what a route requires, and whether a caller has it          |
//! | `caller`     | the authenticated caller                                    |
//! | `limits`     | rate limits                                                 |
//! | `budgets`    | how many reports an agent and a project may store           |
//! | `origin`     | the address a request comes from                            |
//! | `audit`      | the audit entry of a request                                |
//! | `credentials` | a cache of what the database says about a credential       |
//! | `tokens`     | API tokens                                                  |
//! | `sessions`   | sessions of the console, and their cookie                   |
//! | `same_origin` | whether a request with a cookie comes from the console     |
//! | `secret`     | the format of secrets: prefix, randomness, checksum         |
//! | `assertion`  | the signed assertions of agents                             |
//! | `binding`    | whether an assertion is for the request that carries it     |
//! | `key_proof`  | whether an agent has the keys that it registers             |
//! | `keys`       | a cache of agent keys that are not, or not yet, in the index |
//! | `positions`  | the proof that this installation issued a position          |

pub mod assertion;
pub mod audit;
pub mod binding;
pub mod budgets;
pub mod caller;
pub mod credentials;
pub mod key_proof;
pub mod keys;
pub mod limits;
pub mod origin;
pub mod permission;
pub mod positions;
pub mod same_origin;
pub mod secret;
pub mod sessions;
pub mod tokens;

pub use caller::Caller;
pub use permission::Permission;

use assertion::Assertions;
use budgets::ReportBudgets;
use ipnet::IpNet;
use limits::RateLimits;
use positions::Positions;
use sessions::Sessions;
use tokens::Tokens;

/// The state that authentication and rate limits need.
#[derive(Debug)]
pub struct Access {
    pub assertions: Assertions,
    pub tokens: Tokens,
    pub sessions: Sessions,
    pub limits: RateLimits,
    pub budgets: ReportBudgets,
    pub positions: Positions,
    /// Proxies that may name the address of the caller.
    pub trusted_proxies: Vec<IpNet>,
}
