//! Who is calling, and what may they do.
//!
//! | module       | what lives there                                                        |
//! |--------------|-------------------------------------------------------------------------|
//! | `permission` | what a route asks for                                                   |
//! | `guard`      | the one place where it is checked                                       |
//! | `caller`     | who it turned out to be                                                 |
//! | `limits`     | how often somebody may ask                                              |
//! | `origin`     | where a request comes from                                              |
//! | `audit`      | what goes into the audit log, and its chain                             |
//! | `tokens`     | who a token is, remembered for seconds                                  |
//! | `secret`     | tokens as people see them: prefix, randomness, checksum                 |
//! | `assertion`  | the signed assertions of agents                                         |
//! | `keys`       | the keys of agents that are not, or not yet, in the index               |

pub mod assertion;
pub mod audit;
pub mod caller;
pub mod guard;
pub mod keys;
pub mod limits;
pub mod origin;
pub mod permission;
pub mod secret;
pub mod tokens;

pub use caller::Caller;
pub use permission::Permission;
