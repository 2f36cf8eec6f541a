//! Webhooks, as far as they need no IO.
//!
//! | module      | the question it answers                                              |
//! |-------------|----------------------------------------------------------------------|
//! | `happening` | what happened, and what is said of it                                |
//! | `filter`    | does this webhook want to hear of it                                 |
//! | `alarm`     | does a failure or drift last, has it been told, is it over           |
//! | `signature` | how is a message signed, and with which secrets                      |
//! | `vault`     | how are those secrets kept                                           |
//! | `network`   | is an address inside a network                                       |
//! | `guard`     | may a message go to this address                                     |
//! | `backoff`   | when is it tried again, and when given up                            |

pub mod alarm;
pub mod backoff;
pub mod egress_policy;
pub mod filter;
pub mod happening;
pub mod network;
pub mod signature;
pub mod vault;
