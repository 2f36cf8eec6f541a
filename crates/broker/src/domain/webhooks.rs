//! Rules of webhooks, without I/O.
//!
//! | module          | the question it answers                                          |
//! |-----------------|------------------------------------------------------------------|
//! | `happening`     | what happened, and what the message says                         |
//! | `filter`        | does this webhook want the message                               |
//! | `format`        | how is a message written for Slack, Teams or PagerDuty           |
//! | `alarm`         | does a failure or drift of an agent last                         |
//! | `signature`     | how is a message signed, and with which secrets                  |
//! | `vault`         | how are those secrets stored                                     |
//! | `egress_policy` | may a message go to this address                                 |
//! | `backoff`       | when is it retried, and when given up                            |

pub mod alarm;
pub mod backoff;
pub mod egress_policy;
pub mod filter;
pub mod format;
pub mod happening;
pub mod signature;
pub mod vault;
